//! Ranges of addresses that do not touch, findable by place and by size.
//!
//! Whether it is holes, free memory or empty pages, an allocator asks the same things of a set of ranges: which is
//! the smallest that holds this, what lies here, add this and join it with its neighbours, cut this out. Each takes
//! logarithmic time in the number of ranges it concerns.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// A set of ranges, kept joined: neighbours that touch are one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Extents {
    /// The end of each range by its start.
    ends: BTreeMap<u64, u64>,
    /// Size and start of each range.
    sizes: BTreeSet<(u64, u64)>,
    total: u64,
}

impl Extents {
    /// The bytes of all ranges.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// The ranges, in order of address.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Range<u64>> {
        self.ends.iter().map(|(&start, &end)| start..end)
    }

    /// The smallest range that holds `bytes`, and of those the lowest.
    pub(crate) fn best_fit(&self, bytes: u64) -> Option<Range<u64>> {
        self.sizes.range((bytes, 0)..).next().map(|&(size, start)| start..start + size)
    }

    /// The largest range.
    pub(crate) fn largest(&self) -> Option<Range<u64>> {
        self.sizes.last().map(|&(size, start)| start..start + size)
    }

    /// The range that `address` lies in.
    pub(crate) fn around(&self, address: u64) -> Option<Range<u64>> {
        let (&start, &end) = self.ends.range(..=address).next_back()?;
        (address < end).then_some(start..end)
    }

    /// The parts of `range` that are in the set.
    pub(crate) fn within(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let first = self.around(range.start).map_or(range.start, |first| first.start);
        self.ends
            .range(first..range.end.max(first))
            .map(move |(&start, &end)| start.max(range.start)..end.min(range.end))
    }

    /// The parts of `range` that are not in the set.
    pub(crate) fn missing(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let mut missing = vec![];
        let mut at = range.start;
        for part in self.within(range.clone()) {
            if at < part.start {
                missing.push(at..part.start);
            }
            at = part.end;
        }
        if at < range.end {
            missing.push(at..range.end);
        }
        missing
    }

    /// Adds a range, of which nothing may be in the set yet, and returns the one that it became part of.
    pub(crate) fn insert(&mut self, range: Range<u64>) -> Range<u64> {
        let mut joined = range;
        if joined.is_empty() {
            return joined;
        }
        if let Some((&start, &end)) = self.ends.range(..joined.start).next_back()
            && end == joined.start
        {
            self.take(start..end);
            joined.start = start;
        }
        if let Some(&end) = self.ends.get(&joined.end) {
            self.take(joined.end..end);
            joined.end = end;
        }
        self.put(joined.clone());
        joined
    }

    /// Cuts a range out; parts of it that are not in the set are nothing to cut.
    pub(crate) fn remove(&mut self, range: Range<u64>) {
        let parts: Vec<Range<u64>> = self.within(range).collect();
        for part in parts {
            if let Some(whole) = self.around(part.start) {
                self.take(whole.clone());
                self.put(whole.start..part.start);
                self.put(part.end..whole.end);
            }
        }
    }

    fn put(&mut self, range: Range<u64>) {
        if !range.is_empty() {
            self.ends.insert(range.start, range.end);
            self.sizes.insert((range.end - range.start, range.start));
            self.total += range.end - range.start;
        }
    }

    fn take(&mut self, range: Range<u64>) {
        self.ends.remove(&range.start);
        self.sizes.remove(&(range.end - range.start, range.start));
        self.total -= range.end - range.start;
    }
}

#[cfg(test)]
mod tests {
    use super::Extents;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_set_of_ranges_is_the_set_of_their_addresses(
            edits in prop::collection::vec((any::<bool>(), 0u64..60, 1u64..20), 0..40),
        ) {
            let mut set = Extents::default();
            let mut plain = [false; 80];
            for (add, start, bytes) in edits {
                let range = start..start + bytes;
                if add {
                    for missing in set.missing(range.clone()) {
                        set.insert(missing);
                    }
                } else {
                    set.remove(range.clone());
                }
                range.clone().for_each(|at| plain[at as usize] = add);
                prop_assert_eq!(set.total(), plain.iter().filter(|&&b| b).count() as u64);
                for at in 0..80u64 {
                    prop_assert_eq!(set.around(at).is_some(), plain[at as usize], "{}", at);
                }
                let ranges: Vec<_> = set.iter().collect();
                prop_assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start), "{:?}", ranges);
                let fit = set.best_fit(bytes);
                let smallest = ranges.iter().filter(|r| r.end - r.start >= bytes).min_by_key(|r| (r.end - r.start, r.start));
                prop_assert_eq!(fit.as_ref(), smallest);
                let most = ranges.iter().max_by_key(|r| (r.end - r.start, r.start));
                prop_assert_eq!(set.largest(), most.cloned());
                let inside: u64 = set.within(range.clone()).map(|r| r.end - r.start).sum();
                let outside: u64 = set.missing(range.clone()).iter().map(|r| r.end - r.start).sum();
                prop_assert_eq!(inside + outside, bytes);
                prop_assert_eq!(inside == bytes, add);
            }
        }
    }
}
