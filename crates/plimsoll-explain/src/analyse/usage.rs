//! Usage: who held how much at one moment, and how much was held over time. What tables and charts show.

use crate::analyse::call_site::call_site;
use crate::moment::{CallSite, Curve, SiteUsage, Timeline};
use plimsoll_memory::{Action, Layout, OwnerId, Owners, PieceState, Trace};
use std::collections::HashMap;

/// What one owner held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Who.
    pub(crate) owner: OwnerId,
    /// Bytes, as requested.
    pub(crate) bytes: u64,
    /// In how many allocations.
    pub(crate) count: u64,
}

/// Counts of bytes and allocations by owner.
#[derive(Default)]
struct Tally(HashMap<OwnerId, (u64, u64)>);

impl Tally {
    fn add(&mut self, owner: OwnerId, bytes: u64) {
        let (sum, count) = self.0.entry(owner).or_default();
        (*sum, *count) = (sum.saturating_add(bytes), count.saturating_add(1));
    }

    fn remove(&mut self, owner: OwnerId, bytes: u64) {
        if let Some((sum, count)) = self.0.get_mut(&owner) {
            (*sum, *count) = (sum.saturating_sub(bytes), count.saturating_sub(1));
        }
    }

    /// The largest first, those without allocations left out.
    fn ranked(self) -> Vec<Usage> {
        let held = self.0.into_iter().filter(|(_, (_, count))| *count > 0);
        let mut ranked: Vec<Usage> =
            held.map(|(owner, (bytes, count))| Usage { owner, bytes, count }).collect();
        ranked.sort_unstable_by_key(|usage| (std::cmp::Reverse(usage.bytes), usage.owner));
        ranked
    }
}

/// A sum of sizes that files claim; it stops at the largest number.
pub(crate) fn total(bytes: impl Iterator<Item = u64>) -> u64 {
    bytes.fold(0, u64::saturating_add)
}

/// What each owner held after an event of a trace (`None`: before the first), the largest first.
pub(crate) fn live_at(trace: &Trace, event: Option<usize>) -> Vec<Usage> {
    let mut tally = Tally::default();
    for &id in &trace.initial {
        let request = trace.request(id);
        tally.add(request.owner, request.bytes);
    }
    for event in trace.events.iter().take(event.map_or(0, |event| event.saturating_add(1))) {
        match event.action {
            Action::Allocate(id) => tally.add(trace.request(id).owner, trace.request(id).bytes),
            Action::Free(id) => tally.remove(trace.request(id).owner, trace.request(id).bytes),
            _ => {}
        }
    }
    tally.ranked()
}

/// What each owner held by a list of owners, bytes and allocations, the largest first.
pub(crate) fn ranked(listed: &[(OwnerId, u64, u64)]) -> Vec<Usage> {
    let mut tally = Tally::default();
    for &(owner, bytes, count) in listed {
        let entry = tally.0.entry(owner).or_default();
        *entry = (entry.0.saturating_add(bytes), entry.1.saturating_add(count));
    }
    tally.ranked()
}

/// What each owner holds in a layout, the largest first.
pub(crate) fn live_in(layout: &Layout) -> Vec<Usage> {
    let mut tally = Tally::default();
    for piece in layout.pieces().filter(|piece| piece.state != PieceState::Free) {
        tally.add(piece.owner, piece.requested);
    }
    tally.ranked()
}

/// What was held by call site, the largest first.
pub(crate) fn by_site(owners: &Owners, held: &[Usage]) -> Vec<SiteUsage> {
    let mut sums: HashMap<CallSite, (u64, u64)> = HashMap::new();
    for usage in held {
        let (bytes, count) = sums.entry(call_site(owners, usage.owner)).or_default();
        (*bytes, *count) = (bytes.saturating_add(usage.bytes), count.saturating_add(usage.count));
    }
    let mut ranked: Vec<SiteUsage> =
        sums.into_iter().map(|(site, (bytes, count))| SiteUsage { site, bytes, count }).collect();
    ranked.sort_unstable_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.site.cmp(&b.site)));
    ranked
}

/// How many stretches an explanation keeps of a trace: more than any terminal has columns.
const STRETCHES: usize = 1200;

/// A trace from its first event to its last.
pub(crate) fn timeline(trace: &Trace) -> Timeline {
    let count = |wanted: fn(&Action) -> bool| trace.events.iter().filter(|e| wanted(&e.action)).count();
    let (first, last) = (trace.events.first(), trace.events.last());
    let span = first.zip(last).map_or(0, |(first, last)| last.time.saturating_sub(first.time));
    Timeline {
        events: trace.events.len(),
        marks: count(|action| matches!(action, Action::Mark(_))),
        refusals: count(|action| matches!(action, Action::Refuse(_))),
        microseconds: span,
        complete: trace.complete,
        curve: curve(trace, STRETCHES),
    }
}

/// How much was held over a trace, in `stretches` stretches of events or fewer.
pub fn curve(trace: &Trace, stretches: usize) -> Curve {
    let events = trace.events.len().max(1);
    let count = stretches.clamp(1, events);
    let mut curve = Curve { live: Vec::new(), reserved: Vec::new(), marks: Vec::new(), refusals: Vec::new() };
    let sum = |bytes: &mut dyn Iterator<Item = u64>| bytes.fold(0_u64, u64::saturating_add);
    let mut live = sum(&mut trace.initial.iter().map(|&id| trace.request(id).bytes));
    let mut reserved = sum(&mut trace.initial_reserved.iter().map(|&(_, bytes)| bytes));
    let mut known = !trace.initial_reserved.is_empty();
    for stretch in 0..count {
        let bound = |n: usize| (n as u128 * trace.events.len() as u128 / count as u128) as usize;
        let (mut most_live, mut most_reserved) = (live, reserved);
        for event in &trace.events[bound(stretch)..bound(stretch + 1)] {
            match event.action {
                Action::Allocate(id) => live = live.saturating_add(trace.request(id).bytes),
                Action::Free(id) => live = live.saturating_sub(trace.request(id).bytes),
                Action::Reserve { bytes, .. } => {
                    (reserved, known) = (reserved.saturating_add(bytes), true);
                }
                Action::Release { bytes, .. } => {
                    (reserved, known) = (reserved.saturating_sub(bytes), true);
                }
                Action::Refuse(_) if curve.refusals.last() != Some(&stretch) => curve.refusals.push(stretch),
                Action::Mark(_) if curve.marks.last() != Some(&stretch) => curve.marks.push(stretch),
                Action::Refuse(_) | Action::Mark(_) => {}
            }
            (most_live, most_reserved) = (most_live.max(live), most_reserved.max(reserved));
        }
        curve.live.push(most_live);
        curve.reserved.push(most_reserved);
    }
    if !known {
        curve.reserved.clear();
    }
    curve
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_memory::{Frame, Request};
    use proptest::prelude::*;

    /// A trace of requests that are freed in another order than they came.
    fn trace(raw: &[(u64, u32, bool)]) -> Trace {
        let mut trace = Trace::default();
        let mut live = Vec::new();
        for (time, &(bytes, owner, free)) in raw.iter().enumerate() {
            if free && !live.is_empty() {
                let id = live.swap_remove(bytes as usize % live.len());
                trace.push(time as u64, Action::Free(id));
            } else {
                let owner = OwnerId(owner);
                let id = trace.push_request(Request { bytes, address: 0, stream: 0, owner });
                live.push(id);
                trace.push(time as u64, Action::Allocate(id));
            }
        }
        trace
    }

    proptest! {
        #[test]
        fn owners_sum_to_what_is_live_and_the_curve_peaks_where_the_trace_does(
            raw in prop::collection::vec((0_u64..1000, 0_u32..5, any::<bool>()), 0..200),
            stretches in 1_usize..90,
        ) {
            let trace = trace(&raw);
            let (peak, at) = trace.peak_live();
            prop_assert_eq!(live_at(&trace, at).iter().map(|u| u.bytes).sum::<u64>(), peak);
            let curve = curve(&trace, stretches);
            prop_assert_eq!(curve.live.iter().copied().max(), Some(peak));
            prop_assert!(curve.live.len() <= stretches && curve.reserved.is_empty());
        }
    }

    #[test]
    fn owners_of_one_site_are_one_line() {
        let mut owners = Owners::default();
        let frame = |name: &str, file: &str, line| Frame { name: name.into(), file: file.into(), line };
        let main = owners.child(OwnerId::UNKNOWN, frame("main", "train.py", 7));
        let library = "/lib/python3.12/site-packages/torch/nn/functional.py";
        let first = owners.child(main, frame("relu", library, 1));
        let second = owners.child(main, frame("gelu", library, 2));
        let held = [first, second, OwnerId::UNKNOWN].map(|owner| Usage { owner, bytes: 10, count: 2 });
        let sites = by_site(&owners, &held);
        assert_eq!(sites.len(), 2);
        assert_eq!(
            (sites[0].site.location.as_str(), sites[0].bytes, sites[0].count),
            ("train.py:7 main", 20, 4)
        );
        assert_eq!((sites[1].site.location.as_str(), sites[1].bytes), ("(no stack was recorded)", 10));
    }

    #[test]
    fn what_the_pool_took_is_drawn_with_marks_and_refusals() {
        let mut trace = Trace { initial_reserved: vec![(0, 100)], ..Trace::default() };
        let id = trace.push_request(Request { bytes: 7, address: 0, stream: 0, owner: OwnerId::UNKNOWN });
        trace.push(0, Action::Reserve { address: 100, bytes: 50 });
        trace.push(1, Action::Mark(0));
        trace.push(2, Action::Release { address: 0, bytes: 100 });
        trace.push(3, Action::Refuse(id));
        let curve = curve(&trace, 4);
        assert_eq!(curve.reserved, [150, 150, 150, 50]);
        assert_eq!((curve.marks, curve.refusals), (vec![1], vec![3]));
    }
}
