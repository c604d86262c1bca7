//! The layout of a moment, rebuilt from a trace: snapshots are written after a program has unwound, and none of them
//! has the layout at the refused request.

use crate::analyse::history::live_after;
use plimsoll_memory::{Action, Layout, Piece, PieceState, Request, Segment, SegmentClass, Trace};
use std::collections::BTreeMap;

/// The layout after so many events, where the trace has addresses and says what the pool reserved. A gap between two
/// requests that is no more than rounding counts as part of the first. `expandable`: neighbouring ranges are one
/// segment, as pages mapped into one range are. The class and stream of a segment are taken from `recorded`, the
/// layout of another moment, where that has it.
pub(crate) fn rebuild_layout(
    trace: &Trace,
    events: usize,
    expandable: bool,
    recorded: Option<&Layout>,
) -> Option<Layout> {
    let mut segments: BTreeMap<u64, u64> = trace.initial_reserved.iter().copied().collect();
    for event in trace.events.iter().take(events) {
        match event.action {
            Action::Reserve { address, bytes } => {
                segments.insert(address, bytes);
            }
            Action::Release { address, bytes } => release(&mut segments, address, bytes),
            _ => {}
        }
    }
    let live: Vec<&Request> =
        live_after(trace, events).into_iter().map(|id| trace.request(id)).filter(|r| r.bytes > 0).collect();
    if segments.is_empty() || live.iter().any(|request| request.address == 0) {
        return None;
    }
    let mut live = live.into_iter().peekable();
    let mut layout = Layout::default();
    let segments = if expandable { join_neighbours(segments) } else { segments.into_iter().collect() };
    for (address, bytes) in segments {
        let end = address.saturating_add(bytes);
        let mut pieces = Vec::new();
        let mut at = address;
        // What lies outside every segment cannot be shown.
        while live.next_if(|request| request.address < address).is_some() {}
        while let Some(request) = live.next_if(|request| request.address < end) {
            push_free(&mut pieces, at, request.address);
            let start = request.address.max(at);
            let until = request.address.saturating_add(request.bytes).min(end).max(start);
            let piece = Piece {
                address: start,
                bytes: until - start,
                requested: request.bytes.min(until - start),
                state: PieceState::Live,
                owner: request.owner,
            };
            pieces.push(piece);
            at = until;
        }
        push_free(&mut pieces, at, end);
        let known = recorded.and_then(|layout| segment_at(layout, address));
        let (stream, class) = known.map_or((0, SegmentClass::Any), |segment| (segment.stream, segment.class));
        layout.segments.push(Segment { address, bytes, stream, class, pieces });
    }
    Some(layout)
}

/// The segment of a layout that an address lies in.
fn segment_at(layout: &Layout, address: u64) -> Option<&Segment> {
    let after = layout.segments.partition_point(|segment| segment.address <= address);
    let segment = layout.segments.get(after.checked_sub(1)?)?;
    (address - segment.address < segment.bytes).then_some(segment)
}

/// The finest rounding of the allocators that traces come from.
const ROUNDING: u64 = 512;

/// Adds the free block from `at` to `until`, or extends the block before if it is only that one's rounding.
fn push_free(pieces: &mut Vec<Piece>, at: u64, until: u64) {
    let Some(bytes) = until.checked_sub(at).filter(|&bytes| bytes > 0) else { return };
    match pieces.last_mut() {
        Some(last) if bytes < ROUNDING && last.state == PieceState::Live => last.bytes += bytes,
        _ => {
            let owner = plimsoll_memory::OwnerId::UNKNOWN;
            pieces.push(Piece { address: at, bytes, requested: 0, state: PieceState::Free, owner });
        }
    }
}

/// Removes a range from the segments, which may split some: expandable segments are unmapped page by page.
fn release(segments: &mut BTreeMap<u64, u64>, address: u64, bytes: u64) {
    let end = address.saturating_add(bytes);
    let touched: Vec<(u64, u64)> = segments
        .range(..end)
        .rev()
        .take_while(|&(&start, &size)| start.saturating_add(size) > address)
        .map(|(&start, &size)| (start, size))
        .collect();
    for (start, size) in touched {
        segments.remove(&start);
        if start < address {
            segments.insert(start, address - start);
        }
        let until = start.saturating_add(size);
        if until > end {
            segments.insert(end, until - end);
        }
    }
}

/// Pages mapped contiguously are one segment.
fn join_neighbours(segments: BTreeMap<u64, u64>) -> Vec<(u64, u64)> {
    let mut joined: Vec<(u64, u64)> = Vec::with_capacity(segments.len());
    for (address, bytes) in segments {
        match joined.last_mut() {
            Some((start, size)) if start.saturating_add(*size) == address => {
                *size = size.saturating_add(bytes)
            }
            _ => joined.push((address, bytes)),
        }
    }
    joined
}
