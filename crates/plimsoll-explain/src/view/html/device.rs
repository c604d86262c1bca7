//! One device of a recording, as columns for a page's script.

use super::View;
use super::blob::Blob;
use super::groups::{self, Weight};
use super::lifetimes::{Lifetimes, NEVER, ReservedRange};
use crate::analyse::call_site::{is_own, is_source};
use crate::explanation::Explanation;
use crate::moment::{Moment, MomentKind};
use crate::recording::Device;
use crate::text::cut;
use plimsoll_memory::quoted;
use plimsoll_memory::{Frame, Layout, Model, OwnerId, Owners, PieceState, SegmentClass, Trace};
use serde_json::{Value, json};
use std::collections::HashMap;

/// The longest name of a frame or mark on a page, in characters.
const NAME: usize = 240;

/// Ranges of addresses nearer to each other than this are drawn as one where segments were not recorded.
const NEAR: u64 = 2 << 20;

/// Describes a device: names and numbers as JSON, columns in the blob.
pub(super) fn describe(view: &View<'_>, blob: &mut Blob) -> Value {
    let nothing = Device::default();
    let device = view.device.unwrap_or(&nothing);
    let lifetimes = device.trace.as_ref().map(Lifetimes::of);
    let end = lifetimes.as_ref().map_or(0, |lifetimes| lifetimes.end);
    let layouts = known_layouts(view, device, end);
    let base = base_address(device, &layouts);
    let peak = view.explanation.and_then(|explanation| explanation.peak.as_ref());
    let peak = peak.map_or(end, |peak| moment_of(peak.moment, end));
    let weights = weights(device, lifetimes.as_ref());
    json!({
        "name": quoted(view.name),
        "limit": device.limit,
        "capacity": device.capacity,
        "base": format!("{base:x}"),
        "granule": granule(device),
        "groups": groups::describe(&device.owners, &weights, blob),
        "owners": owners(&device.owners, blob),
        "trace": device.trace.as_ref().zip(lifetimes).map(|(t, l)| trace(t, &l, peak, device, base, blob)),
        "layouts": layouts.into_iter().map(|(moment, l)| layout(l, moment, base, blob)).collect::<Vec<_>>(),
        "explained": view.explanation.map(|explanation| explained(explanation, end)),
        "byOwner": (!device.live_by_owner.is_empty()).then(|| by_owner(device, blob)),
        "advice": advice(view, blob),
    })
}

/// The lowest address recorded: pages count from it, so that doubles hold addresses exactly.
fn base_address(device: &Device, layouts: &[(u32, &Layout)]) -> u64 {
    let layout = layouts.iter().flat_map(|(_, layout)| &layout.segments).map(|segment| segment.address);
    let requests = device.trace.iter().flat_map(|trace| &trace.requests).map(|request| request.address);
    let reserved = device.trace.iter().flat_map(|trace| &trace.initial_reserved).map(|&(address, _)| address);
    layout.chain(requests).chain(reserved).filter(|&address| address != 0).min().unwrap_or(0)
}

/// The unit to which the recorded allocator rounds: what lies between two requests within it is no hole.
fn granule(device: &Device) -> u64 {
    match device.model {
        Some(Model::Caching(_)) => 512,
        Some(Model::Bfc(_)) => 256,
        _ => 1,
    }
}

/// What each owner held, for the ranking of call sites.
fn weights(device: &Device, lifetimes: Option<&Lifetimes>) -> Vec<Weight> {
    let mut weights = vec![Weight::default(); device.owners.count()];
    let mut hold = |owner: OwnerId, bytes: u64| {
        if let Some(weight) = weights.get_mut(owner.0 as usize) {
            *weight = Weight { asked: true, most: weight.most.saturating_add(bytes), mean: 0.0 };
        }
    };
    let pieces = device.layout.iter().flat_map(Layout::pieces).filter(|p| p.state != PieceState::Free);
    // A trace knows of what a layout holds, and of what came before it.
    let counts = device.trace.is_none();
    pieces.for_each(|piece| hold(piece.owner, if counts { piece.bytes } else { 0 }));
    device.live_by_owner.iter().for_each(|&(owner, bytes, _)| hold(owner, bytes));
    if let (Some(trace), Some(lifetimes)) = (&device.trace, lifetimes) {
        let comes = lifetimes.lives.iter().map(|life| (life.born, true, life.request));
        let ends = lifetimes.lives.iter().filter(|life| life.died != NEVER);
        let mut changes: Vec<_> = comes.chain(ends.map(|life| (life.died, false, life.request))).collect();
        changes.sort_unstable_by_key(|&(moment, ..)| moment);
        let mut live = vec![0u64; weights.len()];
        for (moment, came, request) in changes {
            let request = trace.request(request);
            let owner = request.owner.0 as usize;
            let (Some(live), Some(weight)) = (live.get_mut(owner), weights.get_mut(owner)) else { continue };
            // From here to the end it holds so much more, or less.
            let share = f64::from(lifetimes.end - moment) / f64::from(lifetimes.end.max(1));
            let (now, sign) = match came {
                true => (live.saturating_add(request.bytes), share),
                false => (live.saturating_sub(request.bytes), -share),
            };
            *live = now;
            let mean = weight.mean + sign * request.bytes as f64;
            *weight = Weight { asked: true, most: weight.most.max(now), mean };
        }
    }
    weights
}

/// The tree of owners: the parent and the frame of each, and every frame once.
fn owners(owners: &Owners, blob: &mut Blob) -> Value {
    let mut frames: Vec<Value> = Vec::new();
    let mut index: HashMap<&Frame, u32> = HashMap::new();
    let frame_of: Vec<u32> = (1..owners.count() as u32)
        .map(|owner| {
            let Some(frame) = owners.frame(OwnerId(owner)) else { return 0 };
            let next = frames.len() as u32;
            let at = *index.entry(frame).or_insert(next);
            if at == next {
                let text = |text: &str| cut(&quoted(text), NAME);
                frames.push(json!([text(&frame.name), text(&frame.file), frame.line, whose(frame)]));
            }
            at
        })
        .collect();
    json!({
        "parent": blob.u32s((1..owners.count() as u32).map(|owner| owners.parent(OwnerId(owner)).0)),
        "frame": blob.u32s(frame_of.into_iter()),
        "frames": frames,
    })
}

/// Whose code a frame is of: 0 of the user's, which scopes and ops are too, 1 of a library in the same
/// language, 2 native.
fn whose(frame: &Frame) -> u8 {
    let built_in = frame.name.starts_with("<built-in");
    let named = frame.file.is_empty() && !frame.name.contains("::") && !built_in;
    if named || is_own(frame) {
        0
    } else if built_in || is_source(&frame.file) || frame.file.starts_with("<frozen") {
        1
    } else {
        2
    }
}

fn trace(
    trace: &Trace,
    lifetimes: &Lifetimes,
    peak: u32,
    device: &Device,
    base: u64,
    blob: &mut Blob,
) -> Value {
    let requests = || lifetimes.lives.iter().map(|life| trace.request(life.request));
    let first = trace.events.first().map_or(0, |event| event.time);
    let timed = trace.events.last().is_some_and(|event| event.time > first);
    let located = requests().any(|request| request.address != 0);
    let recorded = !lifetimes.ranges.is_empty();
    let ranges = if recorded { lifetimes.ranges.clone() } else { used_ranges(trace, lifetimes) };
    let expandable = matches!(&device.model, Some(Model::Caching(settings)) if settings.expandable)
        || device.layout.iter().flat_map(|l| &l.segments).any(|s| s.class == SegmentClass::Expandable);
    // What a range of addresses that grows is made of is no boundary to what lies in it.
    let joins = expandable || matches!(device.model, Some(Model::TwoEnded | Model::Paged));
    let failure = device.failure.as_ref().map(|failure| {
        let moment = failure.event.and_then(|event| u32::try_from(event).ok()?.checked_add(1));
        json!({
            "moment": moment.or(lifetimes.refusals.last().map(|&(moment, _)| moment)),
            "requested": failure.requested,
            "exact": failure.exact,
            "op": failure.op.as_ref().map(|op| cut(&quoted(op), NAME)),
        })
    });
    json!({
        "moments": lifetimes.end,
        "peak": peak,
        "complete": trace.complete,
        "located": located,
        "rangesRecorded": recorded,
        "rangesJoin": joins,
        "times": timed.then(|| blob.f64s(trace.events.iter().map(|event| event.time.saturating_sub(first)))),
        "bytes": blob.f64s(requests().map(|request| request.bytes)),
        // Unknown addresses are 0; known ones are counted from 1.
        "address": blob.f64s(requests().map(|request| match request.address {
            0 => 0,
            address => (address - base).saturating_add(1),
        })),
        "owner": blob.u32s(requests().map(|request| request.owner.0)),
        "stream": blob.u32s(requests().map(|request| request.stream)),
        "born": blob.u32s(lifetimes.lives.iter().map(|life| life.born)),
        "died": blob.u32s(lifetimes.lives.iter().map(|life| life.died)),
        "ranges": {
            "address": blob.f64s(ranges.iter().map(|range| range.address.saturating_sub(base))),
            "bytes": blob.f64s(ranges.iter().map(|range| range.bytes)),
            "born": blob.u32s(ranges.iter().map(|range| range.born)),
            "died": blob.u32s(ranges.iter().map(|range| range.died)),
        },
        "refused": blob.u32s(lifetimes.refusals.iter().map(|&(moment, _)| moment)),
        "refusedBytes": blob.f64s(lifetimes.refusals.iter().map(|&(_, bytes)| bytes)),
        "marks": blob.u32s(lifetimes.marks.iter().map(|&(moment, _)| moment)),
        "mark": blob.u32s(lifetimes.marks.iter().map(|&(_, name)| name)),
        "markNames": trace.marks.iter().map(|name| cut(&quoted(name), NAME)).collect::<Vec<_>>(),
        "failure": failure,
    })
}

/// The ranges of addresses that requests were ever placed in, for recordings that do not say what the pool held.
fn used_ranges(trace: &Trace, lifetimes: &Lifetimes) -> Vec<ReservedRange> {
    let requests = lifetimes.lives.iter().map(|life| trace.request(life.request)).filter(|r| r.address != 0);
    let mut spans: Vec<(u64, u64)> =
        requests.map(|r| (r.address, r.address.saturating_add(r.bytes))).collect();
    spans.sort_unstable();
    let mut ranges: Vec<ReservedRange> = Vec::new();
    for (start, end) in spans {
        match ranges.last_mut() {
            Some(last) if start <= last.address.saturating_add(last.bytes).saturating_add(NEAR) => {
                last.bytes = last.bytes.max(end - last.address);
            }
            _ => ranges.push(ReservedRange { address: start, bytes: end - start, born: 0, died: NEVER }),
        }
    }
    ranges
}

/// The number of a moment of the explanation among those of the page, which are counted in events passed.
fn moment_of(moment: Moment, end: u32) -> u32 {
    match (moment.kind, moment.event) {
        (MomentKind::Peak, None) => 0,
        (MomentKind::Refusal | MomentKind::End, None) => end,
        (_, Some(event)) => u32::try_from(event).map_or(end, |event| event.saturating_add(1).min(end)),
    }
}

/// The moment that was explained, with its label and its figures.
fn explained(explanation: &Explanation, end: u32) -> Value {
    let snapshot = &explanation.snapshot;
    json!({
        "label": snapshot.moment.to_string(),
        "moment": moment_of(snapshot.moment, end),
        "live": snapshot.live_bytes,
        "reserved": snapshot.reserved_bytes,
    })
}

/// The layouts that need no rebuilding by the page: that of the moment explained, and that of the end.
fn known_layouts<'a>(view: &View<'a>, device: &'a Device, end: u32) -> Vec<(u32, &'a Layout)> {
    let snapshot = view.explanation.map(|explanation| &explanation.snapshot);
    let explained = snapshot.and_then(|s| Some((moment_of(s.moment, end), s.layout.as_ref()?)));
    let at_end = device.layout.as_ref().map(|layout| (end, layout));
    let other = at_end.filter(|(end, _)| explained.is_none_or(|(moment, _)| moment != *end));
    explained.into_iter().chain(other).collect()
}

fn layout(layout: &Layout, moment: u32, base: u64, blob: &mut Blob) -> Value {
    let segments = || layout.segments.iter();
    json!({
        "moment": moment,
        "segments": {
            "address": blob.f64s(segments().map(|segment| segment.address.saturating_sub(base))),
            "bytes": blob.f64s(segments().map(|segment| segment.bytes)),
            "stream": blob.u32s(segments().map(|segment| segment.stream)),
            "class": blob.u8s(segments().map(|segment| segment.class as u8)),
            "pieces": blob.u32s(segments().map(|segment| segment.pieces.len() as u32)),
        },
        "pieces": {
            "address": blob.f64s(layout.pieces().map(|piece| piece.address.saturating_sub(base))),
            "bytes": blob.f64s(layout.pieces().map(|piece| piece.bytes)),
            "requested": blob.f64s(layout.pieces().map(|piece| piece.requested)),
            "owner": blob.u32s(layout.pieces().map(|piece| piece.owner.0)),
            "state": blob.u8s(layout.pieces().map(|piece| piece.state as u8)),
        },
    })
}

fn by_owner(device: &Device, blob: &mut Blob) -> Value {
    let entries = || device.live_by_owner.iter();
    json!({
        "owner": blob.u32s(entries().map(|&(owner, _, _)| owner.0)),
        "bytes": blob.f64s(entries().map(|&(_, bytes, _)| bytes)),
        "count": blob.f64s(entries().map(|&(_, _, count)| count)),
    })
}

/// The timelines of advice that was replayed, by the number of the advice.
fn advice(view: &View<'_>, blob: &mut Blob) -> Value {
    let advice = view.explanation.iter().flat_map(|explanation| explanation.advice.iter().enumerate());
    let replayed = advice.filter_map(|(number, advice)| Some((number, advice, advice.timeline.as_ref()?)));
    let described = replayed.map(|(number, advice, timeline)| {
        json!({
            "number": number,
            "change": quoted(&advice.change),
            "moment": blob.u32s(timeline.iter().map(|&(event, _, _)| event)),
            "live": blob.f64s(timeline.iter().map(|&(_, live, _)| live)),
            "reserved": blob.f64s(timeline.iter().map(|&(_, _, reserved)| reserved)),
        })
    });
    described.collect()
}
