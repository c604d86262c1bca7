//! PyTorch's profiler traces: `[memory]` events among millions of others, in Chrome's format.
//!
//! The profiler says of each allocation and free its address, bytes and device, but not who asked. Spans of
//! operators and Python functions on the same thread do: the spans around an allocation are its owner. The file
//! is read entry by entry; of each only what is needed is kept, and names once.

mod entries;

use self::entries::{Entries, MemoryEvent, Span};
use super::budget::Budget;
use super::match_frees::{FreeMatcher, freed};
use super::places::Places;
use crate::error::{Error, ErrorKind, Result};
use crate::read::input::Input;
use crate::recording::{Device, Format, Framework, Origin, Recording};
use plimsoll_memory::{Action, Frame, OwnerId, Owners, Request, Trace};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Events of more devices are left out.
const MAX_DEVICES: usize = 128;
/// Spans nested deeper are not told apart.
const MAX_DEPTH: usize = 1024;

/// What the name of a mark takes on a device beside its bytes.
const MARK: u64 = 128;

/// Whether a stream that begins so is JSON with a list of trace events.
pub(super) fn looks(start: &[u8]) -> bool {
    let blank = start.iter().take_while(|b| b.is_ascii_whitespace()).count();
    let start = &start[blank..];
    let has = |word: &str| start.windows(word.len()).any(|window| window == word.as_bytes());
    match start.first() {
        Some(b'{') => has("\"traceEvents\"") || (has("\"schemaVersion\"") && has("\"deviceProperties\"")),
        Some(b'[') => has("\"ph\"") && has("\"ts\""),
        _ => false,
    }
}

/// Reads a trace to its end, or to where it is broken.
pub(super) fn read(input: &mut Input<'_>) -> Result<Recording> {
    let (mut entries, broken) = entries::read(input)?;
    let budget = input.budget();
    let partial = broken.is_some();
    if entries.changes.is_empty() {
        if let Some(broken) = broken {
            let message = format!("a Chrome trace {broken}, before any [memory] event");
            return Err(Error::new(ErrorKind::Malformed, message));
        }
        let message = "a Chrome trace without [memory] events: record it with profile(profile_memory=True)";
        return Err(Error::new(ErrorKind::Empty, message));
    }
    let mut gaps: Vec<String> = broken
        .map(|broken| format!("the trace is {broken}: what came after is missing"))
        .into_iter()
        .collect();
    for (count, what) in [
        (entries.unusable, "[memory] events without address, bytes or time, or of sizes that no device has"),
        (entries.left_out, "spans and marks beyond those that are kept"),
    ] {
        if count > 0 {
            gaps.push(format!("{count} {what}: left out"));
        }
    }
    let (owners, owner_of) = owners(&mut entries, budget);
    entries.finish_reading();
    let marks = std::mem::take(&mut entries.marks);
    let mut builders: BTreeMap<(i64, i64), Builder> = BTreeMap::new();
    let mut elsewhere = 0_u64;
    for (change, owner) in entries.changes.iter().zip(owner_of) {
        let device = (change.device_type, change.device);
        if builders.len() >= MAX_DEVICES && !builders.contains_key(&device) {
            elsewhere += 1;
            continue;
        }
        builders.entry(device).or_insert_with(|| Builder::new(budget)).change(change, owner);
    }
    if elsewhere > 0 {
        gaps.push(format!("{elsewhere} [memory] events of more than {MAX_DEVICES} devices: left out"));
    }
    let mut devices = Vec::new();
    for ((device_type, index), builder) in builders {
        let (name, index) = device_name(device_type, index);
        let contradict = builder.requests.unfreed + builder.requests.left_out;
        if contradict > 0 {
            gaps.push(format!("{name}: {contradict} events contradict those before"));
        }
        let peak_live = builder.peak_total;
        let (reserved, live) = (builder.reserved, builder.total);
        let trace = builder.finish(&marks, budget, |name| entries.name(name));
        let owners = owners.clone();
        devices.push(Device {
            name,
            index,
            reserved,
            live,
            peak_live,
            trace: Some(trace),
            owners,
            ..Device::default()
        });
    }
    let origin = Origin {
        files: Vec::new(),
        formats: vec![Format::TorchChromeTrace],
        framework: Framework::PyTorch,
        gaps,
        partial,
    };
    Ok(Recording { origin, devices })
}

/// A device by PyTorch's number for its type, and its index where it is a GPU.
fn device_name(device_type: i64, index: i64) -> (String, Option<u32>) {
    let index = u32::try_from(index).ok();
    let numbered = |name: &str| index.map_or(name.to_string(), |index| format!("{name} {index}"));
    match device_type {
        0 => (numbered("CPU"), None),
        // CUDA, and HIP, which calls itself CUDA in most places.
        1 | 6 => (numbered("GPU"), index),
        12 => (numbered("XPU"), index),
        13 => (numbered("MPS"), index),
        other => (numbered(&format!("device type {other}")), index),
    }
}

/// Who asked for each change: the spans around it on its thread, found in one sweep over both in order of time.
fn owners(entries: &mut Entries, budget: &Budget) -> (Arc<Owners>, Vec<OwnerId>) {
    entries.changes.sort_by_key(|change| change.time);
    // Of spans that begin together the longer is the outer one.
    entries.spans.sort_by_key(|span| (span.start, std::cmp::Reverse(span.end)));
    let mut owners = Places::new(budget);
    let mut children: HashMap<(OwnerId, u32), OwnerId> = HashMap::new();
    let mut open: HashMap<u32, Vec<(u64, OwnerId)>> = HashMap::new();
    let mut spans = entries.spans.iter().peekable();
    let owner_of = entries
        .changes
        .iter()
        .map(|change| {
            while let Some(&Span { start, end, thread, name }) = spans.next_if(|s| s.start <= change.time) {
                let stack = open.entry(thread).or_default();
                while stack.last().is_some_and(|&(over, _)| over < start) {
                    stack.pop();
                }
                if stack.len() < MAX_DEPTH {
                    let parent = stack.last().map_or(OwnerId::UNKNOWN, |&(_, owner)| owner);
                    let owner = *children
                        .entry((parent, name))
                        .or_insert_with(|| owners.child(parent, frame(entries.name(name))));
                    stack.push((end, owner));
                }
            }
            let Some(stack) = open.get_mut(&change.thread) else { return OwnerId::UNKNOWN };
            while stack.last().is_some_and(|&(over, _)| over < change.time) {
                stack.pop();
            }
            stack.last().map_or(OwnerId::UNKNOWN, |&(_, owner)| owner)
        })
        .collect();
    (owners.finish(), owner_of)
}

/// A span's name as a place: Python functions are called `file.py(12): function`.
fn frame(name: &str) -> Frame {
    let python = name.split_once("): ").and_then(|(place, function)| {
        let (file, line) = place.rsplit_once('(')?;
        Some(Frame { name: function.into(), file: file.into(), line: line.parse().ok()? })
    });
    python.unwrap_or_else(|| Frame { name: name.into(), ..Frame::default() })
}

/// Builds the trace of one device.
struct Builder {
    requests: FreeMatcher,
    /// Totals that the profiler gives along with each change, where it knows them.
    total: Option<u64>,
    peak_total: Option<u64>,
    reserved: Option<u64>,
}

impl Builder {
    fn new(budget: &Budget) -> Builder {
        Builder { requests: FreeMatcher::new(budget), total: None, peak_total: None, reserved: None }
    }

    fn change(&mut self, change: &MemoryEvent, owner: OwnerId) {
        if let Some(total) = change.total {
            self.total = Some(total);
            self.peak_total = self.peak_total.max(Some(total));
        }
        // Nothing reserved beside something allocated is a pool that does not tell.
        self.reserved = change.reserved.filter(|&reserved| reserved > 0).or(self.reserved);
        let (time, address, bytes) = (change.time / 1000, change.address, change.bytes.unsigned_abs());
        if change.bytes > 0 {
            self.requests.allocate(time, Request { bytes, address, stream: 0, owner });
        } else {
            self.requests.free(time, freed(bytes, address, 0));
        }
    }

    /// The trace with its marks, which every device shares. A profile is of a part of a run, and what was there
    /// before and stayed is never told: it is not complete.
    fn finish<'n>(mut self, marks: &[(u64, u32)], budget: &Budget, name: impl Fn(u32) -> &'n str) -> Trace {
        let mut ids: HashMap<u32, u32> = HashMap::new();
        for &(time, mark) in marks {
            let name = name(mark);
            let next = self.requests.trace.marks.len() as u32;
            if !ids.contains_key(&mark) && !budget.take(name.len() as u64 + MARK) {
                break;
            }
            let id = *ids.entry(mark).or_insert(next);
            if id == next {
                self.requests.trace.marks.push(name.to_string());
            }
            if !self.requests.push(time / 1000, Action::Mark(id)) {
                break;
            }
        }
        let mut trace = self.requests.finish();
        // Stable, so that what happened at one moment stays in its order.
        trace.events.sort_by_key(|event| event.time);
        trace
    }
}
