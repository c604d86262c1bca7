//! Planned packing: what a recorded sequence of requests needs when all of it is known ahead.
//!
//! An allocator decides without knowing what comes; a plan knows. The offline packing of the same requests is
//! the yardstick for every allocator, and with the bytes live at once as lower bound it says how much of the
//! reserved memory was needed and how much was fragmentation.

use plimsoll_memory::{Action, Trace};
use plimsoll_plan::pack::{Effort, pack};
use plimsoll_plan::packing::{Item, Packing, Problem};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// What a trace needs when it is planned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planned {
    /// The bytes that the plan needs.
    pub peak_bytes: u64,
    /// The most bytes live at once, as they were asked for, refused requests among them: nothing can do with
    /// less.
    pub lower_bound: u64,
    /// What was done, in words.
    pub method: String,
    /// The offset of each request, in their order; empty where nothing could be planned.
    pub offsets: Vec<u64>,
}

/// Offsets are multiples of this, as devices want it.
const ALIGNMENT: u64 = 256;

/// Up to so many requests are packed together.
const TOGETHER: usize = 32_768;

/// Of more, so many of the largest are.
const LARGEST: usize = 8192;

/// The effort of the search among those, after greedy packers: a fraction of a second.
const EFFORT: Effort = Effort { steps: 1_000_000 };

/// Plans a trace. A request that was refused is planned for as well, for the moment at which it was.
///
/// Up to 32,768 requests are packed by several greedy packers and a search. Of longer traces, the largest 8192 are
/// packed so, and the others are placed above them in order of time, each in the smallest hole that holds it;
/// where placing all requests in order of time needs fewer bytes, that is the plan. Each is a packing that would
/// work; a better one may exist, down to the lower bound.
///
/// ```
/// use plimsoll_explain::planned;
/// use plimsoll_memory::{Action, OwnerId, Request, Trace};
/// let mut trace = Trace::default();
/// for bytes in [1024, 4096] {
///     let id = trace.push_request(Request { bytes, address: 0, stream: 0, owner: OwnerId::UNKNOWN });
///     trace.push(0, Action::Allocate(id));
///     trace.push(0, Action::Free(id));
/// }
/// // The second lies where the first one was.
/// assert_eq!(planned(&trace).peak_bytes, 4096);
/// ```
pub fn planned(trace: &Trace) -> Planned {
    let (items, lower_bound) = items(trace);
    let count = items.len();
    let Ok(problem) = Problem::new(items, ALIGNMENT) else {
        let method = "nothing is planned: the requests add up to more bytes than addresses can hold";
        return Planned { peak_bytes: u64::MAX, lower_bound, method: method.into(), offsets: Vec::new() };
    };
    let (packing, method) = if count <= TOGETHER {
        (pack(&problem, None, EFFORT), format!("{count} requests packed by search"))
    } else {
        let layered = layered(&problem);
        let ordered = Packing::from_offsets(&problem, place_in_order(&problem, 0..count));
        if layered.height <= ordered.height {
            (layered, format!("the largest {LARGEST} of {count} requests packed by search, the others above"))
        } else {
            (ordered, format!("{count} requests placed in order of time, each in the smallest hole"))
        }
    };
    Planned { peak_bytes: packing.height, lower_bound, method, offsets: packing.offsets }
}

/// A trace's requests with their lifetimes, and the most bytes live at once. Time is counted from 1 at the first
/// event; what was live before lives from 0, and what is never freed lives past the last event.
fn items(trace: &Trace) -> (Vec<Item>, u64) {
    let end = trace.events.len() as u64 + 1;
    let mut items: Vec<Item> = trace.requests.iter().map(|request| Item::new(0, 0, request.bytes)).collect();
    // What lives already or has lived does not start again.
    let start = |item: &mut Item, lower: u64, upper: u64| {
        let starts = item.lifetime.upper == 0;
        if starts {
            (item.lifetime.lower, item.lifetime.upper) = (lower, upper);
        }
        starts
    };
    let (mut live, mut peak) = (0_u64, 0_u64);
    for id in &trace.initial {
        if let Some(item) = items.get_mut(id.0 as usize)
            && start(item, 0, end)
        {
            live = live.saturating_add(item.size);
        }
    }
    peak = peak.max(live);
    for (event, now) in trace.events.iter().zip(1..) {
        match event.action {
            Action::Allocate(id) => {
                if let Some(item) = items.get_mut(id.0 as usize)
                    && start(item, now, end)
                {
                    live = live.saturating_add(item.size);
                }
            }
            Action::Refuse(id) => {
                if let Some(item) = items.get_mut(id.0 as usize)
                    && start(item, now, now + 1)
                {
                    peak = peak.max(live.saturating_add(item.size));
                }
            }
            Action::Free(id) => {
                if let Some(item) = items.get_mut(id.0 as usize)
                    && item.lifetime.upper == end
                {
                    item.lifetime.upper = now;
                    live = live.saturating_sub(item.size);
                }
            }
            Action::Reserve { .. } | Action::Release { .. } | Action::Mark(_) => {}
        }
        peak = peak.max(live);
    }
    (items, peak)
}

/// The largest items packed by search, and all others above them in order of time.
fn layered(problem: &Problem) -> Packing {
    let items = problem.items();
    let mut ranked: Vec<usize> = (0..items.len()).collect();
    ranked.sort_by_key(|&index| Reverse(items[index].size));
    let (large, small) = ranked.split_at_mut(LARGEST.min(items.len()));
    large.sort_unstable();
    small.sort_unstable();
    let mut offsets = place_in_order(problem, small.iter().copied());
    let largest: Vec<Item> = large.iter().map(|&index| items[index]).collect();
    let Ok(largest) = Problem::new(largest, problem.alignment()) else {
        // A part of a problem is one.
        return Packing::from_offsets(problem, place_in_order(problem, 0..items.len()));
    };
    let packed = pack(&largest, None, EFFORT);
    for &index in small.iter() {
        offsets[index] += packed.height;
    }
    for (&index, offset) in large.iter().zip(packed.offsets) {
        offsets[index] = offset;
    }
    Packing::from_offsets(problem, offsets)
}

/// Offsets for some items, placed as their lifetimes begin, each in the smallest hole that holds it. The others
/// are at 0.
fn place_in_order(problem: &Problem, chosen: impl Iterator<Item = usize>) -> Vec<u64> {
    let items = problem.items();
    let mut offsets = vec![0; items.len()];
    let mut moments = Vec::new();
    for index in chosen.filter(|&index| !items[index].is_empty()) {
        moments.push((items[index].lifetime.lower, true, index));
        moments.push((items[index].lifetime.upper, false, index));
    }
    // At equal times false sorts before true: what ends makes room for what starts.
    moments.sort_unstable();
    let mut holes = Holes::default();
    for (_, starts, index) in moments {
        let bytes = problem.reserved(&items[index]);
        if starts {
            offsets[index] = holes.take(bytes);
        } else {
            holes.give(offsets[index], bytes);
        }
    }
    offsets
}

/// Free ranges below a top that rises as it must.
#[derive(Default)]
struct Holes {
    top: u64,
    /// Bytes of each hole by its offset.
    by_offset: BTreeMap<u64, u64>,
    /// The same holes by size.
    by_size: BTreeSet<(u64, u64)>,
}

impl Holes {
    fn take(&mut self, bytes: u64) -> u64 {
        let fitting = self.by_size.range((bytes, 0)..).next().copied();
        if let Some((size, offset)) = fitting {
            self.remove(offset, size);
            if size > bytes {
                self.insert(offset + bytes, size - bytes);
            }
            return offset;
        }
        // A hole that reaches the top is grown.
        let last = self.by_offset.last_key_value().map(|(&offset, &size)| (offset, size));
        let offset = match last.filter(|(offset, size)| offset + size == self.top) {
            Some((offset, size)) => {
                self.remove(offset, size);
                offset
            }
            None => self.top,
        };
        self.top = offset + bytes;
        offset
    }

    fn give(&mut self, offset: u64, bytes: u64) {
        let (mut start, mut end) = (offset, offset + bytes);
        if let Some((&before, &size)) = self.by_offset.range(..offset).next_back()
            && before + size == start
        {
            self.remove(before, size);
            start = before;
        }
        if let Some(&size) = self.by_offset.get(&end) {
            self.remove(end, size);
            end += size;
        }
        self.insert(start, end - start);
    }

    fn insert(&mut self, offset: u64, size: u64) {
        self.by_offset.insert(offset, size);
        self.by_size.insert((size, offset));
    }

    fn remove(&mut self, offset: u64, size: u64) {
        self.by_offset.remove(&offset);
        self.by_size.remove(&(size, offset));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_memory::{OwnerId, Request, RequestId};
    use plimsoll_plan::validate;
    use proptest::prelude::*;

    fn request(trace: &mut Trace, bytes: u64) -> RequestId {
        trace.push_request(Request { bytes, address: 0, stream: 0, owner: OwnerId::UNKNOWN })
    }

    /// A trace of so many requests, some live before, some refused, of which about `kept` are live at a time.
    fn trace(raw: impl Iterator<Item = (u64, u8)>, kept: usize) -> Trace {
        let mut trace = Trace::default();
        let mut live = Vec::new();
        for (bytes, what) in raw {
            if live.len() > kept {
                trace.push(0, Action::Free(live.swap_remove(bytes as usize % live.len())));
            }
            let id = request(&mut trace, bytes);
            match what {
                0 if trace.events.is_empty() => trace.initial.push(id),
                1 => trace.push(0, Action::Refuse(id)),
                _ => trace.push(0, Action::Allocate(id)),
            }
            if what != 1 {
                live.push(id);
            }
        }
        trace
    }

    fn check(trace: &Trace) -> Planned {
        let planned = planned(trace);
        let problem = Problem::new(items(trace).0, ALIGNMENT).expect("a problem");
        let packing = Packing { offsets: planned.offsets.clone(), height: planned.peak_bytes };
        assert_eq!(validate(&problem, &packing), Ok(()));
        assert!(planned.lower_bound <= planned.peak_bytes);
        planned
    }

    proptest! {
        #[test]
        fn every_plan_is_a_packing_of_the_requests(
            raw in prop::collection::vec((0_u64..100_000, 0_u8..8), 0..120),
            kept in 0_usize..20,
        ) {
            check(&trace(raw.into_iter(), kept));
        }

        #[test]
        fn what_is_placed_in_order_lies_apart(
            raw in prop::collection::vec((0_u64..100_000, 0_u8..8), 0..200),
            kept in 0_usize..20,
        ) {
            let problem = Problem::new(items(&trace(raw.into_iter(), kept)).0, ALIGNMENT).expect("a problem");
            let offsets = place_in_order(&problem, 0..problem.items().len());
            prop_assert_eq!(validate(&problem, &Packing::from_offsets(&problem, offsets)), Ok(()));
        }
    }

    #[test]
    fn a_long_trace_is_planned_near_its_lower_bound() {
        let mut state = 7_u64;
        let raw = (0..40_000).map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let bytes = state >> 33;
            (if bytes.is_multiple_of(4) { bytes % (8 << 20) } else { bytes % 65_536 }, (bytes % 64) as u8 + 1)
        });
        let planned = check(&trace(raw, 300));
        assert!(planned.method.contains("40000 requests"), "{}", planned.method);
        assert!(planned.peak_bytes as f64 <= 1.15 * planned.lower_bound as f64, "{planned:?}");
    }

    #[test]
    fn what_lives_to_the_end_is_never_given_away() {
        let mut trace = Trace::default();
        let first = request(&mut trace, 1024);
        trace.initial.push(first);
        let second = request(&mut trace, 2048);
        let third = request(&mut trace, 512);
        trace.push(0, Action::Allocate(second));
        trace.push(0, Action::Free(second));
        trace.push(0, Action::Refuse(third));
        let planned = check(&trace);
        assert_eq!((planned.peak_bytes, planned.lower_bound), (3072, 3072));
    }

    #[test]
    fn sizes_beyond_all_addresses_are_said_to_be_so() {
        let mut trace = Trace::default();
        for _ in 0..2 {
            let id = request(&mut trace, u64::MAX);
            trace.push(0, Action::Allocate(id));
        }
        let planned = planned(&trace);
        assert_eq!((planned.peak_bytes, planned.lower_bound), (u64::MAX, u64::MAX));
        assert!(planned.method.contains("nothing is planned"), "{}", planned.method);
    }
}
