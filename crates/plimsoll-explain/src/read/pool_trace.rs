//! The trace of one pool, from the allocations and frees that a profiler of TensorFlow or JAX recorded: events
//! of several threads that have to be put in order, and addresses that say which free ends what.

use super::budget::{Budget, EVENT};
use crate::recording::{Device, Framework};
use plimsoll_memory::{Action, BfcSettings, Model, OwnerId, Request, RequestId, Trace, format_bytes};
use std::collections::{BTreeMap, HashMap};

/// An allocation or a free, with the pool's figures after it.
#[derive(Debug, Clone, Copy)]
pub(super) struct AllocatorEvent {
    pub(super) time_ps: u64,
    pub(super) frees: bool,
    pub(super) address: u64,
    /// Bytes asked for.
    pub(super) requested: u64,
    /// Bytes taken, rounding included.
    pub(super) taken: u64,
    /// Bytes in use afterwards.
    pub(super) live: u64,
    /// Bytes that could still be had afterwards.
    pub(super) room: u64,
    /// The most in use at once since the program began.
    pub(super) peak: u64,
    /// The share of free bytes that is not in the largest free piece.
    pub(super) fragmentation: f64,
    pub(super) owner: OwnerId,
}

/// What was recorded of one pool.
#[derive(Debug, Default)]
pub(super) struct PoolRecord {
    pub(super) events: Vec<AllocatorEvent>,
    /// Whether every allocation and free of a stretch of time was recorded, and not only some.
    pub(super) whole: bool,
}

/// What a mark's name takes in a pool's trace beside its bytes.
const MARK: u64 = 128;

/// The device of a pool, without its owners. `marks` are times and names of steps.
pub(super) fn device(
    name: &str,
    mut record: PoolRecord,
    marks: &[(u64, String)],
    framework: Framework,
    gaps: &mut Vec<String>,
    budget: &Budget,
) -> Device {
    record.events.sort_by_key(|event| event.time_ps);
    let events = &record.events;
    let last = events.last();
    let limit =
        events.iter().map(|event| event.live.saturating_add(event.room)).max().filter(|&limit| limit > 0);
    let mut device = Device {
        name: name.to_string(),
        index: name.strip_prefix("GPU_").and_then(|rest| rest.split('_').next()?.parse().ok()),
        limit,
        live: last.map(|event| event.live),
        peak_live: events.iter().map(|event| event.peak.max(event.live)).max(),
        ..Device::default()
    };
    let before = events.first().map_or(0, |first| {
        if first.frees {
            first.live.saturating_add(first.taken)
        } else {
            first.live.saturating_sub(first.taken)
        }
    });
    if record.whole {
        device.trace = Some(trace(events, marks, before, name, gaps, budget));
    }
    // Pools of pinned host memory take pages as they need them, whatever their limit.
    if name.ends_with("bfc")
        && !name.contains("host")
        && record.whole
        && before == 0
        && let Some(filled) = fills_its_limit(events, limit.unwrap_or(0))
    {
        device.reserved = limit.filter(|_| filled);
        let garbage_collection = framework == Framework::TensorFlow;
        let partitioned = !garbage_collection && filled;
        device.model = Some(Model::Bfc(BfcSettings { growth: !filled, garbage_collection, partitioned }));
    }
    device
}

fn trace(
    events: &[AllocatorEvent],
    marks: &[(u64, String)],
    before: u64,
    name: &str,
    gaps: &mut Vec<String>,
    budget: &Budget,
) -> Trace {
    let mut trace = Trace { complete: before == 0, ..Trace::default() };
    let mut mark_ids: HashMap<&str, u32> = HashMap::new();
    let mut marks = marks.iter().peekable();
    let mut live: HashMap<u64, (RequestId, u64)> = HashMap::new();
    // Frees that come too late: the address was given out again before, by the clock of another thread.
    let mut late: HashMap<(u64, u64), u32> = HashMap::new();
    let (mut known_before, mut time) = (0_u64, 0);
    for event in events {
        if !budget.take(EVENT) {
            break;
        }
        while let Some((at, mark)) = marks.next_if(|(at, _)| *at <= event.time_ps) {
            push_mark(&mut trace, &mut mark_ids, *at, mark, budget);
        }
        time = event.time_ps / 1_000_000;
        let mut request = |owner| {
            let AllocatorEvent { requested: bytes, address, .. } = *event;
            trace.push_request(Request { bytes, address, stream: 0, owner })
        };
        if !event.frees {
            let id = request(event.owner);
            if let Some((earlier, taken)) = live.insert(event.address, (id, event.taken)) {
                *late.entry((event.address, taken)).or_default() += 1;
                trace.push(time, Action::Free(earlier));
            }
            trace.push(time, Action::Allocate(id));
        } else if let Some(count) = late.get_mut(&(event.address, event.taken)).filter(|count| **count > 0) {
            *count -= 1;
        } else if let Some((id, _)) = live.remove(&event.address) {
            trace.push(time, Action::Free(id));
        } else {
            let id = request(event.owner);
            known_before = known_before.saturating_add(event.taken);
            trace.initial.push(id);
            trace.push(time, Action::Free(id));
        }
    }
    for (at, mark) in marks {
        push_mark(&mut trace, &mut mark_ids, (*at).max(time * 1_000_000), mark, budget);
    }
    let rest = before.saturating_sub(known_before);
    if rest > 0 {
        gaps.push(format!(
            "{name}: {rest} bytes ({}) were in use before the profile began and until it ended; by whom and in how \
             many pieces is not recorded.",
            format_bytes(rest)
        ));
        let unknown = Request { bytes: rest, address: 0, stream: 0, owner: OwnerId::UNKNOWN };
        let id = trace.push_request(unknown);
        trace.initial.push(id);
    }
    let requests = &trace.requests;
    trace.initial.sort_by_key(|id| requests.get(id.0 as usize).map_or(0, |request| request.address));
    trace
}

fn push_mark<'m>(
    trace: &mut Trace,
    ids: &mut HashMap<&'m str, u32>,
    at: u64,
    mark: &'m str,
    budget: &Budget,
) {
    let name = if ids.contains_key(mark) { 0 } else { mark.len() as u64 + MARK };
    if !budget.take(EVENT + name) {
        return;
    }
    let next = trace.marks.len() as u32;
    let id = *ids.entry(mark).or_insert(next);
    if id == next {
        trace.marks.push(mark.to_string());
    }
    trace.push(at / 1_000_000, Action::Mark(id));
}

/// Whether the pool took all of its limit at the start. Nothing records that, but the fragmentation that was
/// recorded only comes out right when the holes are counted up to the limit. `None` where there were no holes.
fn fills_its_limit(events: &[AllocatorEvent], limit: u64) -> Option<bool> {
    const SAMPLES: usize = 64;
    let base = events.iter().map(|event| event.address).min()?;
    let every = (events.len() / SAMPLES).max(1);
    let mut live: BTreeMap<u64, u64> = BTreeMap::new();
    let (mut right, mut wrong) = (0_u32, 0_u32);
    for (index, event) in events.iter().enumerate() {
        if event.frees {
            live.remove(&event.address);
        } else {
            live.insert(event.address, event.taken);
        }
        if index % every != 0 {
            continue;
        }
        let (mut at, mut largest) = (base, 0);
        for (&address, &taken) in &live {
            largest = largest.max(address.saturating_sub(at));
            at = at.max(address.saturating_add(taken));
        }
        largest = largest.max(base.saturating_add(limit).saturating_sub(at));
        let free = limit.saturating_sub(event.live) as f64;
        let expected = if free > 0.0 { 1.0 - largest as f64 / free } else { 0.0 };
        // Recorded with six digits. A pool without holes looks the same at any size.
        if expected.max(event.fragmentation) > 1e-4 {
            let same = (expected - event.fragmentation).abs() < 1e-4;
            if same { right += 1 } else { wrong += 1 }
        }
    }
    (right + wrong > 0).then_some(right > wrong)
}
