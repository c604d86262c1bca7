//! Writes the page of a made-up training run that leaks until it fails: `page OUT [EVENTS]`.
//!
//! It shows the page without a recording at hand, and is what the browser's check opens. The run has several
//! devices: one with a trace, one with a layout only, one whose owners alone are known, one with totals only, one
//! with a trace that knows no addresses. Some names in it are hostile: they try to leave the place they are
//! written to.

use plimsoll_explain::{
    Advice, BookLine, Books, Device, Explanation, Failure, Format, Framework, Origin, Recording, Verdict,
    VerdictKind, explain, write_html,
};
use plimsoll_memory::{
    Action, CachingSettings, Event, Frame, Layout, Model, OwnerId, Owners, Piece, PieceState, Request,
    RequestId, Segment, SegmentClass, Trace, format_bytes,
};
use std::fs::File;
use std::io::{BufWriter, Write};

const MIB: u64 = 1 << 20;
const LIMIT: u64 = 24 << 30;
const HOSTILE: &str = "</script><img src=x onerror=\"window.broken=1\"><script>window.broken=1</script>";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let out = arguments.next().ok_or("usage: page OUT [EVENTS]")?;
    let events = arguments.next().map_or(Ok(20_000), |events| events.parse())?;
    let (recording, explanation) = run(events);
    let mut file = BufWriter::new(File::create(out)?);
    write_html(&recording, &explanation, &mut file)?;
    Ok(file.flush()?)
}

/// A generator of numbers that are the same every time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound.max(1)
    }
}

/// A piece of a segment, and the request that it holds.
struct Slot {
    address: u64,
    bytes: u64,
    request: Option<RequestId>,
}

/// What the pool took for a stream.
struct Taken {
    address: u64,
    bytes: u64,
    stream: u32,
    slots: Vec<Slot>,
}

/// A pool that places requests best-fit in segments of its own, one set for each stream.
struct Pool {
    segments: Vec<Taken>,
    next: u64,
    trace: Trace,
    time: u64,
    reserved: u64,
    timeline: Vec<(u32, u64, u64)>,
    live: u64,
}

impl Pool {
    fn push(&mut self, action: Action) {
        self.time += 7 + self.trace.events.len() as u64 % 13;
        self.trace.push(self.time, action);
        let moment = self.trace.events.len() as u32;
        if moment.is_multiple_of(64) {
            self.timeline.push((moment, self.live, self.live.next_multiple_of(64 * MIB) + 96 * MIB));
        }
    }

    /// The smallest free piece that is large enough: its segment, and which it is there.
    fn best_fit(&self, bytes: u64, stream: u32) -> Option<(usize, usize)> {
        let segments = self.segments.iter().enumerate().filter(|(_, segment)| segment.stream == stream);
        let slots =
            segments.flat_map(|(at, s)| s.slots.iter().enumerate().map(move |(n, slot)| (at, n, slot)));
        let free = slots.filter(|(.., slot)| slot.request.is_none() && slot.bytes >= bytes);
        free.min_by_key(|(.., slot)| slot.bytes).map(|(at, n, _)| (at, n))
    }

    /// Takes a segment for `bytes`; `None` where the limit forbids it.
    fn grow(&mut self, bytes: u64, stream: u32) -> Option<(usize, usize)> {
        let bytes = bytes.next_multiple_of(20 * MIB);
        if self.reserved + bytes > LIMIT {
            return None;
        }
        let address = self.next;
        self.reserved += bytes;
        self.next += bytes + 32 * MIB;
        let slots = vec![Slot { address, bytes, request: None }];
        self.segments.push(Taken { address, bytes, stream, slots });
        self.push(Action::Reserve { address, bytes });
        Some((self.segments.len() - 1, 0))
    }

    fn allocate(&mut self, bytes: u64, stream: u32, owner: OwnerId) -> Option<RequestId> {
        let size = bytes.next_multiple_of(512);
        let Some((at, n)) = self.best_fit(size, stream).or_else(|| self.grow(size, stream)) else {
            let request = self.trace.push_request(Request { bytes, address: 0, stream, owner });
            self.push(Action::Refuse(request));
            return None;
        };
        let slots = &mut self.segments[at].slots;
        let Slot { address, bytes: room, .. } = slots[n];
        let request = self.trace.push_request(Request { bytes, address, stream, owner });
        slots[n] = Slot { address, bytes: size, request: Some(request) };
        if room > size {
            slots.insert(n + 1, Slot { address: address + size, bytes: room - size, request: None });
        }
        self.live += bytes;
        self.push(Action::Allocate(request));
        Some(request)
    }

    fn free(&mut self, request: RequestId) {
        let Request { address, bytes, .. } = *self.trace.request(request);
        self.live -= bytes;
        self.push(Action::Free(request));
        let holds = |s: &&mut Taken| s.address <= address && address < s.address + s.bytes;
        let Some(Taken { slots, .. }) = self.segments.iter_mut().find(holds) else { return };
        let Some(mut n) = slots.iter().position(|slot| slot.address == address) else { return };
        slots[n].request = None;
        if slots.get(n + 1).is_some_and(|next| next.request.is_none()) {
            slots[n].bytes += slots.remove(n + 1).bytes;
        }
        if n > 0 && slots[n - 1].request.is_none() {
            n -= 1;
            slots[n].bytes += slots.remove(n + 1).bytes;
        }
    }

    fn layout(&self) -> Layout {
        let piece = |&Slot { address, bytes, request }: &Slot| match request {
            Some(id) => {
                let Request { bytes: requested, owner, .. } = *self.trace.request(id);
                Piece { address, bytes, requested, state: PieceState::Live, owner }
            }
            None => Piece { address, bytes, requested: 0, state: PieceState::Free, owner: OwnerId::UNKNOWN },
        };
        let segments = self.segments.iter().map(|&Taken { address, bytes, stream, ref slots }| {
            let pieces = slots.iter().map(piece).collect();
            Segment { address, bytes, stream, class: SegmentClass::Large, pieces }
        });
        Layout { segments: segments.collect() }
    }
}

/// The call stacks of the run.
struct Places {
    owners: Owners,
    weights: Vec<OwnerId>,
    forward: Vec<OwnerId>,
    backward: OwnerId,
    adam: OwnerId,
    history: OwnerId,
    prefetch: OwnerId,
}

fn places() -> Places {
    let mut owners = Owners::default();
    let frame = |name: &str, file: &str, line| Frame { name: name.into(), file: file.into(), line };
    let library = |file: &str| format!("/usr/lib/python3.12/site-packages/torch/{file}");
    let module = owners.child(OwnerId::UNKNOWN, frame("<module>", "/home/ada/gpt/train.py", 88));
    let build = owners.child(module, frame("build", "/home/ada/gpt/model.py", 12));
    let weights = ["embedding", "blocks", "head"].map(|name| {
        let own = owners.child(build, frame(name, "/home/ada/gpt/model.py", 20 + name.len() as u32));
        owners.child(own, frame("to", &library("nn/modules/module.py"), 1384))
    });
    let step = owners.child(module, frame("step", "/home/ada/gpt/train.py", 41));
    let call = owners.child(step, frame("forward", "/home/ada/gpt/model.py", 52));
    let forward = (0..14).map(|layer| {
        let name = if layer == 5 { HOSTILE.to_string() } else { format!("block{layer}") };
        let block = owners.child(call, frame(&name, "/home/ada/gpt/model.py", 60 + layer));
        let kind = ["linear", "activation", "normalization"][layer as usize % 3];
        owners.child(block, frame("forward", &library(&format!("nn/modules/{kind}.py")), 125))
    });
    let forward = forward.collect();
    let backward = owners.child(step, frame("backward", &library("_tensor.py"), 631));
    let adam = owners.child(step, frame("adam", &library("optim/adam.py"), 971));
    let history = owners.child(step, frame("remember", "/home/ada/gpt/train.py", 47));
    let loader = owners.child(module, frame("__next__", &library("utils/data/dataloader.py"), 733));
    let prefetch = owners.child(loader, frame("prefetch", "/home/ada/gpt/data.py", 19));
    Places { owners, weights: weights.to_vec(), forward, backward, adam, history, prefetch }
}

/// The run until it fails, at about the last of `events`.
fn trace(places: &Places, events: usize) -> Pool {
    let mut dice = Dice(7);
    let mut pool = Pool {
        segments: Vec::new(),
        next: 0x7f3a_4000_0000,
        trace: Trace { marks: vec!["step".into()], complete: true, ..Trace::default() },
        time: 0,
        reserved: 0,
        timeline: Vec::new(),
        live: 0,
    };
    for &owner in &places.weights {
        for _ in 0..24 {
            pool.allocate((8 + dice.below(60)) * MIB, 0, owner);
        }
    }
    // What is kept of each step, so that the limit is met towards the end.
    let steps = (events as u64 / 61).max(1);
    let kept = (11 << 30) / steps;
    let mut batches = Vec::new();
    while pool.trace.events.len() < events {
        batches.extend(pool.allocate(96 * MIB, 1, places.prefetch));
        let growing = 1 + dice.below(3);
        let mut activations = Vec::new();
        for &owner in &places.forward {
            activations.extend(pool.allocate((12 + growing * 20 + dice.below(40)) * MIB + 77, 0, owner));
        }
        pool.allocate(kept, 0, places.history);
        let mut gradients = Vec::new();
        while let Some(activation) = activations.pop() {
            gradients.extend(pool.allocate((20 + dice.below(30)) * MIB, 0, places.backward));
            pool.free(activation);
        }
        let scratch = pool.allocate(256 * MIB, 0, places.adam);
        gradients.into_iter().chain(scratch).for_each(|request| pool.free(request));
        if batches.len() > 2 {
            pool.free(batches.remove(0));
        }
        pool.push(Action::Mark(0));
    }
    pool.allocate(LIMIT, 0, places.forward[3]);
    pool
}

fn run(events: usize) -> (Recording, Explanation) {
    let places = places();
    let pool = trace(&places, events);
    let layout = pool.layout();
    let failure = Failure {
        requested: LIMIT,
        exact: true,
        event: pool.trace.events.len().checked_sub(1),
        op: Some(HOSTILE.into()),
    };
    let settings = CachingSettings {
        expandable: false,
        max_split_bytes: None,
        garbage_collection_threshold: 0.0,
        roundup_power2_divisions: vec![0; 16],
    };
    let by_owner: Vec<_> = layout.pieces().map(|piece| (piece.owner, piece.bytes, 1)).take(60).collect();
    let first = Device {
        name: "GPU 0".into(),
        index: Some(0),
        capacity: Some(LIMIT + (1 << 30)),
        limit: Some(LIMIT),
        peak_live: Some(pool.trace.peak_live().0),
        model: Some(Model::Caching(settings)),
        layout: Some(layout.clone()),
        failure: Some(failure),
        owners: places.owners.clone().into(),
        trace: Some(pool.trace),
        ..Device::default()
    };
    let second = Device {
        name: "GPU 1 (layout only)".into(),
        layout: Some(layout.clone()),
        owners: places.owners.clone().into(),
        ..Device::default()
    };
    let third = Device {
        name: "GPU 2 (owners only)".into(),
        live_by_owner: by_owner,
        owners: places.owners.clone().into(),
        ..Device::default()
    };
    let fifth = Device {
        name: "GPU 3 (no addresses)".into(),
        trace: first.trace.as_ref().map(without_addresses),
        owners: places.owners.clone().into(),
        ..Device::default()
    };
    let fourth =
        Device { name: HOSTILE.into(), reserved: Some(LIMIT), live: Some(LIMIT / 2), ..Device::default() };
    let origin = Origin {
        files: vec![format!("snapshot {HOSTILE}.pickle")],
        formats: vec![Format::TorchSnapshot],
        framework: Framework::PyTorch,
        gaps: vec![],
        partial: false,
    };
    let recording = Recording { origin, devices: vec![first, second, third, fourth, fifth] };
    let mut explanation = explain(&recording);
    let mut others = std::mem::take(&mut explanation.others);
    // The browser's check chooses devices by number, in the order of the recording.
    others.sort_by_key(|other| recording.devices.iter().position(|device| device.name == other.device));
    let mut explanation = retold(explanation, &layout, pool.timeline);
    explanation.others = others.into_iter().map(|other| retold(other, &layout, Vec::new())).collect();
    (recording, explanation)
}

/// The beginning of a trace as a profiler tells it that does not know where things lay.
fn without_addresses(trace: &Trace) -> Trace {
    let asked = |event: &&Event| !matches!(event.action, Action::Reserve { .. } | Action::Release { .. });
    Trace {
        requests: trace.requests.iter().map(|&request| Request { address: 0, ..request }).collect(),
        events: trace.events.iter().filter(asked).take(2000).copied().collect(),
        marks: trace.marks.clone(),
        ..Trace::default()
    }
}

/// What might be said of the run. Sums are of the layout, sentences are made up.
fn retold(found: Explanation, layout: &Layout, timeline: Vec<(u32, u64, u64)>) -> Explanation {
    let (reserved, live, asked) = (layout.reserved_bytes(), layout.live_bytes(), layout.requested_bytes());
    let line = |name: &str, bytes| BookLine { name: name.into(), bytes };
    let lines = vec![
        line("in use, as asked for", asked),
        line("rounding", live - asked),
        line("free in the pool", reserved - live),
        line("not taken", LIMIT - reserved),
    ];
    let leak = Verdict {
        kind: VerdictKind::Leaking,
        sentence: format!(
            "Memory asked for at train.py:47 remember is never given back: {} are held by it.",
            format_bytes(live / 2)
        ),
        proof: vec![
            "Every step adds one piece and frees none of the earlier ones.".into(),
            format!(
                "At the failure {} were in use, of a limit of {}.",
                format_bytes(live),
                format_bytes(LIMIT)
            ),
            format!("A name that tries to get out: {HOSTILE}"),
        ],
    };
    let idle = Verdict {
        kind: VerdictKind::ReservedIdle,
        sentence: format!("{} of the pool were held by nothing.", format_bytes(reserved - live)),
        proof: vec![format!("Reserved {}, in use {}.", format_bytes(reserved), format_bytes(live))],
    };
    let advice = |change: &str, would_survive, peak, because: &str, timeline| Advice {
        change: change.into(),
        would_survive,
        peak_reserved_bytes: peak,
        because: because.into(),
        timeline,
    };
    let replayed = Some(timeline).filter(|timeline| !timeline.is_empty());
    let all = vec![
        advice(
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
            Some(true),
            Some(reserved - reserved / 6),
            "Replayed with one growing range for each stream: holes are joined.",
            replayed,
        ),
        advice(
            "Keep losses as numbers: loss.item() at train.py:47",
            Some(true),
            Some(reserved / 3),
            "Replayed without what that line kept.",
            None,
        ),
        advice("Halve the batch", None, None, "How sizes follow from the batch cannot be told.", None),
        advice(HOSTILE, Some(false), Some(reserved), HOSTILE, None),
    ];
    Explanation {
        verdicts: vec![leak, idle],
        books: Books { of: "the limit".into(), total_bytes: LIMIT, lines },
        advice: all,
        ..found
    }
}
