//! Replay: what a program asked of its pool, asked again under another allocator or limit.
//!
//! What would have happened under other settings is found out, not recited. A replay under the allocator that
//! made a recording reproduces what that one took of the device, which is how the models here are checked.

use crate::allocator::{Allocator, Model};
use crate::layout::{Layout, Piece, PieceState, Segment, SegmentClass};
use crate::source::CountedDevice;
use crate::trace::{Action, RequestId, Trace};
use std::collections::BTreeMap;

/// How a replay begins where a recording does not begin with the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// With the segments and blocks as they were recorded: for the allocator that made the recording. If they
    /// do not fit the limit, or the model cannot take them over, afresh.
    Recorded,
    /// With an empty pool, in which what was live is placed first, in order of address: for any other.
    Afresh,
}

/// What a replay found.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// The allocator's name.
    pub allocator: &'static str,
    /// The limit it ran under; `None`: none.
    pub limit: Option<u64>,
    /// The request that found no room; the replay ends there. `None` if all did.
    pub failed_at: Option<FailedAt>,
    /// The most bytes live at once up to there, as they were asked for.
    pub peak_live: u64,
    /// The most bytes live at once in the whole trace, refused requests among them: no allocator can do with
    /// less.
    pub lower_bound: u64,
    /// The most bytes taken from the device at once.
    pub peak_reserved: u64,
    /// Bytes taken from the device at the end.
    pub end_reserved: u64,
    /// The share of the bytes taken, when most were taken, that held nothing that was asked for; 0 to 1.
    pub fragmentation: f64,
    /// How live and reserved bytes went; at most 500 points, in order.
    pub timeline: Vec<Moment>,
}

/// A request that found no room in a replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FailedAt {
    /// The event; `None` if it was among what was live before the first.
    pub event: Option<usize>,
    /// The bytes asked for.
    pub bytes: u64,
}

/// A point of a timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// The event after which it was so.
    pub event: usize,
    /// Bytes live, as they were asked for.
    pub live: u64,
    /// Bytes taken from the device.
    pub reserved: u64,
}

impl Outcome {
    /// Whether every request found room, those that were refused in the recording among them.
    pub fn survived(&self) -> bool {
        self.failed_at.is_none()
    }
}

/// Replays a trace under an allocator, on a device of `limit` bytes (`None`: without end).
///
/// A request that was refused in the recording is tried and, as nothing is known of what would have come of it,
/// freed at once. Frees of what is not live are passed over.
///
/// ```
/// use plimsoll_memory::{Action, Model, OwnerId, Request, Start, Trace, replay};
/// let mut trace = Trace { complete: true, ..Trace::default() };
/// let request = Request { bytes: 3 << 20, address: 0, stream: 0, owner: OwnerId::UNKNOWN };
/// for _ in 0..4 {
///     let id = trace.push_request(request);
///     trace.push(0, Action::Allocate(id));
/// }
/// let outcome = replay(&trace, &"caching".parse::<Model>()?, None, Start::Afresh);
/// assert_eq!((outcome.peak_live, outcome.peak_reserved), (12 << 20, 20 << 20));
/// let outcome = replay(&trace, &"caching".parse::<Model>()?, Some(16 << 20), Start::Afresh);
/// assert_eq!(outcome.failed_at.unwrap().event, Some(0));
/// # Ok::<(), plimsoll_memory::Error>(())
/// ```
pub fn replay(trace: &Trace, model: &Model, limit: Option<u64>, start: Start) -> Outcome {
    let mut run = Run {
        trace,
        device: CountedDevice::new(limit.unwrap_or(u64::MAX), model.page_bytes()),
        allocator: model.build(limit),
        addresses: vec![None; trace.requests.len()],
        live: 0,
        peak_live: 0,
        peak: (0, 0),
    };
    let mut timeline = Timeline::new(trace.events.len());
    let mut failed_at = run.begin(model, limit, start);
    for (index, event) in trace.events.iter().enumerate() {
        if failed_at.is_some() {
            break;
        }
        let done = match event.action {
            Action::Allocate(id) => run.allocate(id),
            Action::Refuse(id) => run.allocate(id).map(|()| {
                run.note();
                run.free(id);
            }),
            Action::Free(id) => {
                run.free(id);
                Ok(())
            }
            Action::Reserve { .. } | Action::Release { .. } | Action::Mark(_) => continue,
        };
        failed_at = done.err().map(|bytes| FailedAt { event: Some(index), bytes });
        run.note();
        timeline.push(Moment { event: index, live: run.live, reserved: run.allocator.reserved_bytes() });
    }
    let (peak_reserved, live) = run.peak;
    Outcome {
        allocator: model.name(),
        limit,
        failed_at,
        peak_live: run.peak_live,
        lower_bound: lower_bound(trace),
        peak_reserved,
        end_reserved: run.allocator.reserved_bytes(),
        fragmentation: if peak_reserved == 0 {
            0.0
        } else {
            peak_reserved.saturating_sub(live) as f64 / peak_reserved as f64
        },
        timeline: timeline.moments,
    }
}

/// A replay under way.
struct Run<'a> {
    trace: &'a Trace,
    device: CountedDevice,
    allocator: Box<dyn Allocator>,
    /// Where each request lies, while it is live.
    addresses: Vec<Option<u64>>,
    live: u64,
    peak_live: u64,
    /// The most bytes reserved, and the most that were live while they were.
    peak: (u64, u64),
}

impl Run<'_> {
    /// Places what was live when recording began.
    fn begin(&mut self, model: &Model, limit: Option<u64>, start: Start) -> Option<FailedAt> {
        if start == Start::Recorded {
            let layout = initial_layout(self.trace, model);
            let mut device = self.device.clone();
            if let Some((allocator, mut moved)) = model.resume(limit, &layout, &mut device) {
                (self.allocator, self.device) = (allocator, device);
                for &id in &self.trace.initial {
                    let request = self.trace.request(id);
                    // Where several claim one address the first is believed; the others are placed below.
                    if let Some(address) = moved.remove(&request.address) {
                        self.addresses[id.0 as usize] = Some(address);
                        self.live += request.bytes;
                    }
                }
            }
        }
        for &id in &self.trace.initial {
            if self.addresses[id.0 as usize].is_none()
                && let Err(bytes) = self.allocate(id)
            {
                self.note();
                return Some(FailedAt { event: None, bytes });
            }
        }
        self.note();
        None
    }

    /// Places a request; the bytes asked for if there is no room.
    fn allocate(&mut self, id: RequestId) -> Result<(), u64> {
        let request = self.trace.request(id);
        if self.addresses[id.0 as usize].is_some() {
            return Ok(());
        }
        let placed = self.allocator.allocate(request.bytes, request.stream, &mut self.device);
        self.addresses[id.0 as usize] = Some(placed.map_err(|_| request.bytes)?);
        self.live += request.bytes;
        Ok(())
    }

    fn free(&mut self, id: RequestId) {
        if let Some(address) = self.addresses[id.0 as usize].take() {
            self.allocator.free(address, &mut self.device);
            self.live -= self.trace.request(id).bytes;
        }
    }

    fn note(&mut self) {
        self.peak_live = self.peak_live.max(self.live);
        let reserved = self.allocator.reserved_bytes();
        self.peak = self.peak.max((reserved, self.live));
    }
}

/// The most bytes live at once, refused requests among them.
fn lower_bound(trace: &Trace) -> u64 {
    let sum = |live: u64, id: RequestId| live.saturating_add(trace.request(id).bytes);
    let mut live = trace.initial.iter().fold(0, |live, &id| sum(live, id));
    let mut peak = live;
    for event in &trace.events {
        match event.action {
            Action::Allocate(id) => live = sum(live, id),
            Action::Refuse(id) => peak = peak.max(sum(live, id)),
            Action::Free(id) => live = live.saturating_sub(trace.request(id).bytes),
            Action::Reserve { .. } | Action::Release { .. } | Action::Mark(_) => {}
        }
        peak = peak.max(live);
    }
    peak
}

/// What lay where when recording began: the recorded segments, with the requests that lie in them.
fn initial_layout(trace: &Trace, model: &Model) -> Layout {
    let mut segments: BTreeMap<u64, Segment> = BTreeMap::new();
    let mut reserved = trace.initial_reserved.clone();
    reserved.sort_unstable();
    let mut end = 0;
    for (address, bytes) in reserved {
        // What overlaps or passes the end of all addresses was never there.
        let Some(next) = address.checked_add(bytes).filter(|_| address >= end && bytes > 0) else { continue };
        end = next;
        let class = SegmentClass::Any;
        segments.insert(address, Segment { address, bytes, stream: 0, class, pieces: Vec::new() });
    }
    // Any request that was ever placed in a segment tells whose it is.
    for request in trace.requests.iter().filter(|r| r.address != 0) {
        if let Some(segment) = segment_at(&mut segments, request.address)
            && segment.class == SegmentClass::Any
        {
            segment.stream = request.stream;
            segment.class = model.segment_class(Some(request.bytes), segment.bytes);
        }
    }
    let mut initial: Vec<_> = trace.initial.iter().map(|&id| trace.request(id)).collect();
    initial.sort_by_key(|request| request.address);
    for request in initial {
        let Some(segment) = segment_at(&mut segments, request.address) else { continue };
        let free_from = segment.pieces.last().map_or(segment.address, |p| p.address + p.bytes);
        let bytes = request.bytes.max(1);
        let room = segment.address + segment.bytes - request.address;
        if request.address >= free_from && bytes <= room {
            segment.pieces.push(Piece {
                address: request.address,
                bytes,
                requested: request.bytes,
                state: PieceState::Live,
                owner: request.owner,
            });
        }
    }
    for segment in segments.values_mut().filter(|s| s.class == SegmentClass::Any) {
        segment.class = model.segment_class(None, segment.bytes);
    }
    Layout { segments: segments.into_values().collect() }
}

fn segment_at(segments: &mut BTreeMap<u64, Segment>, address: u64) -> Option<&mut Segment> {
    let (_, segment) = segments.range_mut(..=address).next_back()?;
    (address - segment.address < segment.bytes).then_some(segment)
}

/// A timeline of bounded length: of each stretch of events the moment with the most live and the one with the
/// most reserved bytes.
struct Timeline {
    moments: Vec<Moment>,
    /// Events of a stretch.
    stretch: usize,
    /// The stretch under way, and where in `moments` it begins.
    current: (usize, usize),
}

impl Timeline {
    const MOST: usize = 500;

    fn new(events: usize) -> Timeline {
        let stretch = events.div_ceil(Timeline::MOST / 2).max(1);
        Timeline { moments: Vec::new(), stretch, current: (usize::MAX, 0) }
    }

    fn push(&mut self, moment: Moment) {
        let stretch = moment.event / self.stretch;
        if stretch != self.current.0 {
            self.current = (stretch, self.moments.len());
            self.moments.push(moment);
            return;
        }
        let from = self.current.1;
        let best = self.moments[from..].iter().chain([&moment]);
        let most_live = *best.clone().max_by_key(|m| m.live).unwrap_or(&moment);
        let most_reserved = *best.max_by_key(|m| m.reserved).unwrap_or(&moment);
        self.moments.truncate(from);
        self.moments.push(most_live.min_event(most_reserved));
        if most_live != most_reserved {
            self.moments.push(most_live.max_event(most_reserved));
        }
    }
}

impl Moment {
    fn min_event(self, other: Moment) -> Moment {
        if self.event <= other.event { self } else { other }
    }

    fn max_event(self, other: Moment) -> Moment {
        if self.event <= other.event { other } else { self }
    }
}
