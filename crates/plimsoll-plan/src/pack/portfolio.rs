//! Many greedy packers, the best of which wins.
//!
//! Each is cheap and each is bad at something. Together they leave little to gain on the graphs of real
//! training steps, and that little is left to [`improve`](super::improve).

use std::sync::atomic::{AtomicUsize, Ordering};

use super::fit::{self, Fit};
use super::part::Part;
use super::rank::{Order, rank};
use super::{parallel, valley};

/// Parts of more items than this get only the members that scale.
const QUADRATIC_ITEMS: usize = 2048;
/// Problems of fewer items than this are done before a thread has started.
const THREADED_ITEMS: usize = 512;

enum Member {
    Valley(Order),
    Fit(Order, Fit),
}

/// The best first, so that reaching the target early saves the most.
const MEMBERS: [Member; 15] = [
    Member::Valley(Order::Start),
    Member::Valley(Order::End),
    Member::Valley(Order::Length),
    Member::Valley(Order::PeakLength),
    Member::Valley(Order::Area),
    Member::Valley(Order::PeakArea),
    Member::Valley(Order::Size),
    Member::Fit(Order::Start, Fit::Best),
    Member::Fit(Order::Size, Fit::First),
    Member::Fit(Order::Size, Fit::Best),
    Member::Fit(Order::Area, Fit::First),
    Member::Fit(Order::Area, Fit::Best),
    Member::Fit(Order::Length, Fit::First),
    Member::Fit(Order::Length, Fit::Best),
    Member::Fit(Order::Start, Fit::First),
];

impl Member {
    fn takes(&self, part: &Part) -> bool {
        matches!(self, Member::Valley(_)) || part.len() <= QUADRATIC_ITEMS
    }

    fn pack(&self, part: &Part) -> Vec<u64> {
        match *self {
            Member::Valley(order) => valley::pack(part, &rank(part, order, 0)),
            Member::Fit(order, fit) => fit::pack(part, &rank(part, order, 0), fit),
        }
    }
}

/// Offsets for each part: of the first member that gets down to `target`, or else of the best.
pub(super) fn pack(parts: &[Part], target: u64) -> Vec<Vec<u64>> {
    let jobs: Vec<(usize, usize)> = (0..MEMBERS.len())
        .flat_map(|member| (0..parts.len()).map(move |part| (part, member)))
        .filter(|&(part, member)| MEMBERS[member].takes(&parts[part]))
        .collect();
    // The first member that reached the target, for each part. Later ones need not run.
    let reached: Vec<AtomicUsize> = parts.iter().map(|_| AtomicUsize::new(usize::MAX)).collect();
    let run = |number: usize| {
        let (part, member) = jobs[number];
        if reached[part].load(Ordering::Relaxed) < member {
            return None;
        }
        let offsets = MEMBERS[member].pack(&parts[part]);
        let height = parts[part].height(&offsets);
        if height <= target {
            reached[part].fetch_min(member, Ordering::Relaxed);
        }
        Some((height.max(target), offsets))
    };
    let items: usize = parts.iter().map(Part::len).sum();
    let results: Vec<_> = if items < THREADED_ITEMS {
        (0..jobs.len()).map(run).collect()
    } else {
        parallel::map(jobs.len(), run)
    };

    let mut best: Vec<Option<(u64, Vec<u64>)>> = parts.iter().map(|_| None).collect();
    for (&(part, _), result) in jobs.iter().zip(results) {
        if let Some((height, offsets)) = result
            && best[part].as_ref().is_none_or(|&(least, _)| height < least)
        {
            best[part] = Some((height, offsets));
        }
    }
    best.into_iter().map(|best| best.map_or_else(Vec::new, |(_, offsets)| offsets)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pack::part::split;
    use crate::packing::{Item, Packing, Problem};
    use crate::validate;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_member_packs_every_part(
            raw in prop::collection::vec((0_u64..60, 0_u64..25, 0_u64..50), 0..80),
        ) {
            let items = raw.into_iter().map(|(lower, length, size)| Item::new(lower, lower + length, size));
            let problem = Problem::new(items.collect(), 1).unwrap();
            for member in &MEMBERS {
                let mut offsets = vec![0; problem.items.len()];
                for part in split(&problem) {
                    for (&index, offset) in part.items.iter().zip(member.pack(&part)) {
                        offsets[index] = offset;
                    }
                }
                prop_assert_eq!(validate(&problem, &Packing::from_offsets(&problem, offsets)), Ok(()));
            }
        }
    }
}
