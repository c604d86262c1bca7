//! The bytes that live at each position of a schedule, as a tree that is cheap to edit.
//!
//! Every decision of the search moves a lifetime: bytes are added to or taken from a range of positions, and
//! the question is always the same: how high is it now, here or anywhere? Both take logarithmic time.

use std::ops::Range;

/// Bytes by position: range add and range maximum.
#[derive(Debug, Clone)]
pub(crate) struct LiveBytes {
    positions: usize,
    /// The size of the tree's lowest level, a power of two.
    leaves: usize,
    /// The largest value below each node, what is added to the node itself included.
    largest: Vec<i64>,
    /// What is added to all positions below each node.
    added: Vec<i64>,
}

impl LiveBytes {
    /// A tree of these values.
    pub(crate) fn new(values: &[i64]) -> LiveBytes {
        let leaves = values.len().next_power_of_two().max(1);
        let mut largest = vec![i64::MIN / 4; 2 * leaves];
        largest[leaves..leaves + values.len()].copy_from_slice(values);
        for node in (1..leaves).rev() {
            largest[node] = largest[2 * node].max(largest[2 * node + 1]);
        }
        LiveBytes { positions: values.len(), leaves, largest, added: vec![0; 2 * leaves] }
    }

    /// The most bytes at any position.
    pub(crate) fn peak(&self) -> i64 {
        if self.positions == 0 { 0 } else { self.largest[1] }
    }

    /// Adds bytes (or takes them, if negative) at a range of positions.
    pub(crate) fn add(&mut self, range: Range<usize>, bytes: i64) {
        if range.start < range.end {
            self.add_below(1, 0..self.leaves, &range, bytes);
        }
    }

    /// The most bytes at any position of a range; very low if that is empty.
    pub(crate) fn most(&self, range: Range<usize>) -> i64 {
        if range.start >= range.end { i64::MIN / 4 } else { self.most_below(1, 0..self.leaves, &range) }
    }

    fn add_below(&mut self, node: usize, covers: Range<usize>, range: &Range<usize>, bytes: i64) {
        if range.end <= covers.start || covers.end <= range.start {
            return;
        }
        if range.start <= covers.start && covers.end <= range.end {
            self.largest[node] += bytes;
            self.added[node] += bytes;
            return;
        }
        let middle = covers.start.midpoint(covers.end);
        self.add_below(2 * node, covers.start..middle, range, bytes);
        self.add_below(2 * node + 1, middle..covers.end, range, bytes);
        self.largest[node] = self.largest[2 * node].max(self.largest[2 * node + 1]) + self.added[node];
    }

    fn most_below(&self, node: usize, covers: Range<usize>, range: &Range<usize>) -> i64 {
        if range.end <= covers.start || covers.end <= range.start {
            return i64::MIN / 4;
        }
        if range.start <= covers.start && covers.end <= range.end {
            return self.largest[node];
        }
        let middle = covers.start.midpoint(covers.end);
        let left = self.most_below(2 * node, covers.start..middle, range);
        let right = self.most_below(2 * node + 1, middle..covers.end, range);
        left.max(right) + self.added[node]
    }
}

#[cfg(test)]
mod tests {
    use super::LiveBytes;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn edits_and_questions_agree_with_a_plain_list(
            mut list in prop::collection::vec(-100i64..100, 1..40),
            edits in prop::collection::vec((0usize..40, 0usize..40, -50i64..50), 0..30),
        ) {
            let mut tree = LiveBytes::new(&list);
            for (a, b, bytes) in edits {
                let range = a.min(b).min(list.len())..a.max(b).min(list.len());
                tree.add(range.clone(), bytes);
                list[range.clone()].iter_mut().for_each(|x| *x += bytes);
                prop_assert_eq!(tree.peak(), *list.iter().max().unwrap());
                if !range.is_empty() {
                    prop_assert_eq!(tree.most(range.clone()), *list[range].iter().max().unwrap());
                }
            }
        }
    }
}
