//! From a device's list of events to a trace: what the recorder's ring no longer had is told from what was freed without having been allocated and from what lay there at
//! the end.

use super::super::budget::Budget;
use super::super::match_frees::{FreeMatcher, freed};
use super::super::pickle::{Heap, Str};
use super::records::{Annotation, Kind, RawEvent, Words};
use crate::recording::Failure;
use plimsoll_memory::{Action, Event, Layout, Piece, PieceState, Request, Trace};
use std::collections::{BTreeMap, HashMap};

/// Builds the trace of one device, event by event.
pub(super) struct TraceBuilder {
    pub(super) requests: FreeMatcher,
    marks: Vec<Str>,
    mark_ids: HashMap<Str, u32>,
    time: u64,
    pub(super) failure: Option<Failure>,
    pub(super) device_free: Option<u64>,
}

impl TraceBuilder {
    pub(super) fn new(budget: &Budget) -> TraceBuilder {
        TraceBuilder {
            requests: FreeMatcher::new(budget),
            marks: Vec::new(),
            mark_ids: HashMap::new(),
            time: 0,
            failure: None,
            device_free: None,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.requests.trace.events.is_empty()
    }

    pub(super) fn event(&mut self, event: RawEvent) {
        self.time = self.time.max(event.time);
        let time = self.time;
        let RawEvent { address, bytes, owner, .. } = event;
        let stream = event.stream();
        match event.kind() {
            Kind::Alloc => self.requests.allocate(time, Request { bytes, address, stream, owner }),
            Kind::Free => self.requests.free(time, freed(bytes, address, stream)),
            Kind::Reserve => drop(self.requests.push(time, Action::Reserve { address, bytes })),
            Kind::Release => drop(self.requests.push(time, Action::Release { address, bytes })),
            Kind::Refuse => {
                let at = self.requests.trace.events.len();
                let request = Request { bytes, address: 0, stream, owner };
                let Some(id) = self.requests.request(request) else { return };
                if !self.requests.push(time, Action::Refuse(id)) {
                    return;
                }
                self.failure = Some(Failure { requested: bytes, exact: true, event: Some(at), op: None });
                self.device_free = Some(address).filter(|&free| free > 0);
            }
            Kind::Snapshot => self.mark(time, Words::SNAPSHOT),
            Kind::UserDefined => self.mark(time, Words::USER_DEFINED),
        }
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
        self.requests.push(time, Action::Mark(id));
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
        let events = &mut self.requests.trace.events;
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
        for (segment, piece) in layout.into_iter().flat_map(|layout| &layout.segments).flat_map(|segment| {
            let live = segment.pieces.iter().filter(|piece| piece.state != PieceState::Free);
            live.map(move |piece| (segment, piece))
        }) {
            let &Piece { address, requested, owner, .. } = piece;
            if !self.requests.knows(address) {
                self.requests.live_before(Request {
                    bytes: requested,
                    address,
                    stream: segment.stream,
                    owner,
                });
            }
        }
        let mut trace = self.requests.finish();
        trace.marks = self.marks.iter().map(|&name| heap.text(name).to_string()).collect();
        trace.initial_reserved = reserved_before(&trace.events, layout);
        trace.complete = layout.is_some() && trace.initial.is_empty() && trace.initial_reserved.is_empty();
        trace
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
