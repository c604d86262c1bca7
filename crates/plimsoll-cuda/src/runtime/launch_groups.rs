//! Which kernels of a plan become one launch.
//!
//! A training step ends with an update for each parameter. Most parameters are small, and launching a kernel for each takes
//! longer than the kernels run. Kernels that differ in addresses and sizes alone become one multi-tensor launch, in the
//! place of the first of them. What may move there is decided by conflicts of addresses alone, as for streams: a plan
//! puts updates next to each other so that they can be grouped, but correctness does not rely on it.

use crate::runtime::stream_assignment::{Access, latest_needed};
use std::collections::BTreeMap;

/// Groups of two or more kernels of one kind, each in order, which may all run where the first of them does. Kernels
/// without a kind stay alone.
pub(crate) fn groups<K: Ord + Copy>(kinds: &[Option<K>], steps: &[Access]) -> Vec<Vec<usize>> {
    let mut open: BTreeMap<K, Vec<usize>> = BTreeMap::new();
    let mut groups = vec![];
    for (number, (kind, needed)) in kinds.iter().zip(latest_needed(steps)).enumerate() {
        let Some(kind) = *kind else { continue };
        let group = open.entry(kind).or_default();
        // To run where the first does, it must conflict with none from that one on.
        if group.first().is_some_and(|&first| needed.is_some_and(|needed| needed >= first)) {
            groups.push(std::mem::take(group));
        }
        group.push(number);
    }
    groups.extend(open.into_values());
    groups.retain(|group| group.len() > 1);
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::ops::Range;

    fn access(reads: &[(u64, u64)], writes: &[(u64, u64)]) -> Access {
        let ranges = |pairs: &[(u64, u64)]| pairs.iter().map(|&(start, end)| start..end).collect();
        Access { reads: ranges(reads), writes: ranges(writes), stream: None }
    }

    /// Whether two kernels conflict.
    fn ordered(a: &Access, b: &Access) -> bool {
        let overlap = |a: &[Range<u64>], b: &[Range<u64>]| {
            a.iter().any(|a| b.iter().any(|b| a.start.max(b.start) < a.end.min(b.end)))
        };
        overlap(&a.reads, &b.writes) || overlap(&a.writes, &b.reads) || overlap(&a.writes, &b.writes)
    }

    #[test]
    fn updates_of_one_kind_join_around_others_and_share_what_all_read() {
        let rate = (0, 4);
        let update = |start: u64| access(&[(start, start + 8), rate], &[(start, start + 8)]);
        let steps = [update(100), update(200), access(&[], &[(300, 308)]), update(400), update(500)];
        assert_eq!(groups(&[Some(1), Some(1), None, Some(1), Some(2)], &steps), [[0, 1, 3]]);
        assert_eq!(groups(&[Some(1), Some(2), None, Some(1), Some(2)], &steps), [[0, 3], [1, 4]]);
    }

    #[test]
    fn what_needs_one_of_them_or_something_in_between_begins_a_group_of_its_own() {
        let chain: Vec<Access> = (0..3).map(|i| access(&[(i, i + 1)], &[(i + 1, i + 2)])).collect();
        assert!(groups(&[Some(1); 3], &chain).is_empty());
        let steps = [
            access(&[(0, 4)], &[(0, 4)]),
            access(&[], &[(10, 14)]),
            access(&[(10, 14)], &[(20, 24)]),
            access(&[], &[(30, 34)]),
        ];
        assert_eq!(groups(&[Some(1), None, Some(1), Some(1)], &steps), [[2, 3]]);
    }

    #[test]
    fn what_writes_over_bytes_that_were_still_read_stays_behind() {
        let steps = [access(&[], &[(0, 4)]), access(&[(8, 12)], &[]), access(&[], &[(8, 12)])];
        assert!(groups(&[Some(1), None, Some(1)], &steps).is_empty());
    }

    fn ranges() -> impl Strategy<Value = Vec<Range<u64>>> {
        prop::collection::vec((0..400u64, 0..12u64).prop_map(|(start, bytes)| start..start + bytes), 0..3)
    }

    proptest! {
        #[test]
        fn kernels_that_conflict_are_never_grouped_and_keep_their_order(
            steps in prop::collection::vec((ranges(), ranges(), prop::option::of(0..3)), 1..40),
        ) {
            let kinds: Vec<Option<i32>> = steps.iter().map(|step| step.2).collect();
            let steps: Vec<Access> =
                steps.into_iter().map(|(reads, writes, _)| Access { reads, writes, stream: None }).collect();
            let mut place: Vec<usize> = (0..steps.len()).collect();
            for group in groups(&kinds, &steps) {
                prop_assert!(group.len() > 1 && group.is_sorted());
                for &member in &group {
                    prop_assert_eq!(place[member], member, "{} is in one group alone", member);
                    prop_assert!(kinds[member].is_some() && kinds[member] == kinds[group[0]]);
                    place[member] = group[0];
                }
            }
            for later in 0..steps.len() {
                for earlier in (0..later).filter(|&earlier| ordered(&steps[earlier], &steps[later])) {
                    prop_assert!(place[earlier] < place[later], "{} must follow {}", later, earlier);
                }
            }
        }
    }
}
