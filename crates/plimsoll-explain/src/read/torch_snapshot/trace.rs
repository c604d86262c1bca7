//! From a device's list of events to a trace: frees find their allocations by address, and what the recorder's
//! ring no longer had is told from what was freed without having been allocated and from what lay there at
//! the end.

use super::super::pickle::{Heap, Str};
use super::records::{Annotation, Kind, RawEvent, Words};
use crate::recording::Failure;
use plimsoll_memory::{Action, Event, Layout, OwnerId, PieceState, Request, RequestId, Trace};
use std::collections::{BTreeMap, HashMap};

/// The most bytes that are believed to be live at once.
const MAX_LIVE: u64 = 1 << 60;

/// Builds the trace of one device, event by event.
#[derive(Default)]
pub(super) struct TraceBuilder {
    trace: Trace,
    /// What lies at each address that was spoken of; `None` once it was freed.
    at: HashMap<u64, Option<RequestId>>,
    marks: Vec<Str>,
    mark_ids: HashMap<Str, u32>,
    live: u64,
    initial_bytes: u64,
    time: u64,
    pub(super) failure: Option<Failure>,
    pub(super) device_free: Option<u64>,
    /// Allocations at an address whose last tenant was never freed.
    pub(super) unfreed: u64,
    /// Events that could not be kept: more than can be counted, or more bytes than any device has.
    pub(super) left_out: u64,
}

impl TraceBuilder {
    pub(super) fn is_empty(&self) -> bool {
        self.trace.events.is_empty()
    }

    pub(super) fn event(&mut self, event: RawEvent) {
        self.time = self.time.max(event.time);
        let time = self.time;
        let RawEvent { address, bytes, .. } = event;
        match event.kind() {
            Kind::Alloc => {
                if self.live.saturating_add(bytes) > MAX_LIVE {
                    self.left_out += 1;
                    return;
                }
                if let Some(Some(before)) = self.at.get(&address).copied() {
                    self.unfreed += 1;
                    self.free(time, before, address);
                }
                let Some(id) = self.request(&event, address) else { return };
                self.live += bytes;
                self.at.insert(address, Some(id));
                self.trace.push(time, Action::Allocate(id));
            }
            Kind::Free => match self.at.get(&address).copied() {
                Some(Some(id)) => self.free(time, id, address),
                // Freed, and freed again without an allocation between: one of the two is not of this story.
                Some(None) => self.left_out += 1,
                None => {
                    if let Some(id) = self.initial(&event) {
                        self.free(time, id, address);
                    }
                }
            },
            Kind::Reserve => self.trace.push(time, Action::Reserve { address, bytes }),
            Kind::Release => self.trace.push(time, Action::Release { address, bytes }),
            Kind::Refuse => {
                let Some(id) = self.request(&event, 0) else { return };
                let at = self.trace.events.len();
                self.trace.push(time, Action::Refuse(id));
                self.failure = Some(Failure { requested: bytes, exact: true, event: Some(at), op: None });
                self.device_free = Some(address).filter(|&free| free > 0);
            }
            Kind::Snapshot => self.mark(time, Words::SNAPSHOT),
            Kind::UserDefined => self.mark(time, Words::USER_DEFINED),
        }
    }

    fn free(&mut self, time: u64, id: RequestId, address: u64) {
        self.live = self.live.saturating_sub(self.trace.request(id).bytes);
        self.at.insert(address, None);
        self.trace.push(time, Action::Free(id));
    }

    fn request(&mut self, event: &RawEvent, address: u64) -> Option<RequestId> {
        if self.trace.requests.len() >= u32::MAX as usize {
            self.left_out += 1;
            return None;
        }
        let request = Request { bytes: event.bytes, address, stream: event.stream(), owner: event.owner };
        Some(self.trace.push_request(request))
    }

    /// A request that was live before the first event.
    fn initial(&mut self, event: &RawEvent) -> Option<RequestId> {
        if self.initial_bytes.saturating_add(event.bytes) > MAX_LIVE {
            self.left_out += 1;
            return None;
        }
        // The frames of a free tell who freed.
        let mut event = *event;
        event.owner = OwnerId::UNKNOWN;
        let id = self.request(&event, event.address)?;
        self.initial_bytes += event.bytes;
        self.live = self.live.saturating_add(event.bytes);
        self.trace.initial.push(id);
        Some(id)
    }

    fn mark_id(&mut self, name: Str) -> u32 {
        let next = self.marks.len() as u32;
        let id = *self.mark_ids.entry(name).or_insert(next);
        if id == next {
            self.marks.push(name);
        }
        id
    }

    fn mark(&mut self, time: u64, name: Str) {
        let id = self.mark_id(name);
        self.trace.push(time, Action::Mark(id));
    }

    /// Adds the marks that were recorded apart, by their times.
    pub(super) fn annotations(&mut self, mut annotations: Vec<Annotation>) {
        annotations.sort_by_key(|annotation| annotation.time);
        let marks: Vec<Event> = annotations
            .into_iter()
            .map(|annotation| {
                let id = self.mark_id(annotation.name);
                Event { time: annotation.time, action: Action::Mark(id) }
            })
            .collect();
        // Merged from the back, in place: both are in order already.
        let events = &mut self.trace.events;
        let (mut from, mut marks) = (events.len(), marks.as_slice());
        events.extend_from_slice(marks);
        let mut to = events.len();
        while let Some((&mark, before)) = marks.split_last() {
            to -= 1;
            if from > 0 && events[from - 1].time >= mark.time {
                from -= 1;
                events[to] = events[from];
                if let (Action::Refuse(_), Some(failure)) = (events[to].action, &mut self.failure)
                    && failure.event == Some(from)
                {
                    failure.event = Some(to);
                }
            } else {
                events[to] = mark;
                marks = before;
            }
        }
    }

    /// The trace, with what was there before its first event. `layout` is what lay where after its last, if
    /// all events are here; `heap` has the names of marks.
    pub(super) fn finish(mut self, layout: Option<&Layout>, heap: &Heap) -> Trace {
        self.trace.marks = self.marks.iter().map(|&name| heap.text(name).to_string()).collect();
        for (segment, piece) in layout.into_iter().flat_map(|layout| &layout.segments).flat_map(|segment| {
            let live = segment.pieces.iter().filter(|piece| piece.state != PieceState::Free);
            live.map(move |piece| (segment, piece))
        }) {
            let fits = self.initial_bytes.saturating_add(piece.requested) <= MAX_LIVE;
            if self.at.contains_key(&piece.address) || !fits || self.trace.requests.len() >= u32::MAX as usize
            {
                continue;
            }
            self.initial_bytes += piece.requested;
            let (bytes, owner) = (piece.requested, piece.owner);
            let request = Request { bytes, address: piece.address, stream: segment.stream, owner };
            let id = self.trace.push_request(request);
            self.trace.initial.push(id);
        }
        let requests = &self.trace.requests;
        self.trace.initial.sort_by_key(|id| requests.get(id.0 as usize).map(|request| request.address));
        self.trace.initial_reserved = reserved_before(&self.trace.events, layout);
        self.trace.complete =
            layout.is_some() && self.trace.initial.is_empty() && self.trace.initial_reserved.is_empty();
        self.trace
    }
}

/// What the pool had taken before the first event: what it had after the last, walked back.
fn reserved_before(events: &[Event], layout: Option<&Layout>) -> Vec<(u64, u64)> {
    let segments = layout.into_iter().flat_map(|layout| &layout.segments);
    // Pieces by their first byte, with the byte after their last; pieces that touch stay apart.
    let mut pieces: BTreeMap<u64, u64> =
        segments.map(|segment| (segment.address, segment.address.saturating_add(segment.bytes))).collect();
    for event in events.iter().rev() {
        match event.action {
            Action::Reserve { address, bytes } => remove(&mut pieces, address, address.saturating_add(bytes)),
            Action::Release { address, bytes } => {
                let end = address.saturating_add(bytes);
                let below = pieces.range(..end).next_back();
                if bytes > 0 && below.is_none_or(|(_, &below)| below <= address) {
                    pieces.insert(address, end);
                }
            }
            _ => {}
        }
    }
    pieces.into_iter().map(|(from, to)| (from, to - from)).collect()
}

/// Takes a range of addresses out of the pieces.
fn remove(pieces: &mut BTreeMap<u64, u64>, from: u64, to: u64) {
    while let Some((&start, &end)) = pieces.range(..to).next_back() {
        if end <= from {
            return;
        }
        pieces.remove(&start);
        if end > to {
            pieces.insert(to, end);
        }
        if start < from {
            pieces.insert(start, from);
        }
    }
}
