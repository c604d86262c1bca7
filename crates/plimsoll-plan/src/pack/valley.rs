//! Filling valleys: the greedy that scales.
//!
//! Draw the packing with time to the right and addresses upward, and look at its skyline. The next item goes
//! into the lowest valley: the best-ranked of those that fit between its walls, flat on its floor. If none
//! does, the valley is given up and filled to its lower wall. Nothing is ever put under anything, so the
//! skyline is all there is to remember, and with an index of what fits into a valley the whole costs little
//! more than sorting. Lifetimes of training steps nest, and for these it is close to perfect.

use std::collections::{BTreeMap, BTreeSet};

use super::part::{Part, Span};

/// Packs the items of `part`, preferring what comes early in `ranked`.
pub(super) fn pack(part: &Part, ranked: &[u32]) -> Vec<u64> {
    let mut offsets = vec![0; part.len()];
    let mut waiting = Waiting::new(part, ranked);
    let mut skyline = Skyline::new(part.live.len() as u32);
    while let Some((valley, floor)) = skyline.take_lowest() {
        if let Some(rank) = waiting.take_first_within(valley) {
            let index = ranked[rank as usize] as usize;
            let span = part.spans[index];
            offsets[index] = floor;
            skyline.put(Span { lower: valley.lower, upper: span.lower }, floor);
            skyline.put(Span { lower: span.upper, upper: valley.upper }, floor);
            skyline.put(span, floor + part.sizes[index]);
        } else if let Some(wall) = skyline.lower_wall(valley) {
            skyline.put(valley, wall);
        } else {
            break;
        }
    }
    offsets
}

/// The height of the packing so far, over time: level stretches, no two neighbours of one height.
struct Skyline {
    /// End and height of each stretch, by its start.
    stretches: BTreeMap<u32, (u32, u64)>,
    /// Height and start of each stretch.
    by_height: BTreeSet<(u64, u32)>,
}

impl Skyline {
    fn new(sections: u32) -> Self {
        let mut skyline = Self { stretches: BTreeMap::new(), by_height: BTreeSet::new() };
        skyline.put(Span { lower: 0, upper: sections }, 0);
        skyline
    }

    /// Removes the lowest stretch, to be put back in pieces.
    fn take_lowest(&mut self) -> Option<(Span, u64)> {
        let (height, lower) = self.by_height.pop_first()?;
        let (upper, _) = self.stretches.remove(&lower)?;
        Some((Span { lower, upper }, height))
    }

    /// The height of the lower of the two stretches beside a hole.
    fn lower_wall(&self, hole: Span) -> Option<u64> {
        let left = self.stretches.range(..hole.lower).next_back().map(|(_, &(_, height))| height);
        let right = self.stretches.get(&hole.upper).map(|&(_, height)| height);
        left.into_iter().chain(right).min()
    }

    /// Fills a hole, or a piece of it, and joins it with neighbours of the same height.
    fn put(&mut self, mut span: Span, height: u64) {
        if span.len() == 0 {
            return;
        }
        if let Some((&lower, &(upper, level))) = self.stretches.range(..span.lower).next_back()
            && (upper, level) == (span.lower, height)
        {
            self.remove(lower, level);
            span.lower = lower;
        }
        if let Some(&(upper, level)) = self.stretches.get(&span.upper)
            && level == height
        {
            self.remove(span.upper, level);
            span.upper = upper;
        }
        self.stretches.insert(span.lower, (span.upper, height));
        self.by_height.insert((height, span.lower));
    }

    fn remove(&mut self, lower: u32, height: u64) {
        self.stretches.remove(&lower);
        self.by_height.remove(&(height, lower));
    }
}

/// The items that have no place yet, in a tree that halves them by start and by end in turn, to find the first
/// by rank that lies within a span.
struct Waiting {
    /// A complete binary tree: the root is node 1, the children of node `n` are `2 n` and `2 n + 1`.
    nodes: Vec<Node>,
    /// The rank and span of each item, those of one leaf side by side. A rank is `GONE` once taken.
    entries: Vec<(u32, Span)>,
    /// The leaf of each rank.
    leaf_of: Vec<u32>,
}

/// What there is below a node.
#[derive(Clone, Copy)]
struct Node {
    first: u32,
    lower: (u32, u32),
    upper: (u32, u32),
}

const GONE: u32 = u32::MAX;
const LEAF_ITEMS: usize = 8;

impl Node {
    const EMPTY: Self = Self { first: GONE, lower: (u32::MAX, 0), upper: (u32::MAX, 0) };

    fn of(&(rank, span): &(u32, Span)) -> Self {
        Self { first: rank, lower: (span.lower, span.lower), upper: (span.upper, span.upper) }
    }

    fn join(self, other: Self) -> Self {
        let hull = |a: (u32, u32), b: (u32, u32)| (a.0.min(b.0), a.1.max(b.1));
        Self {
            first: self.first.min(other.first),
            lower: hull(self.lower, other.lower),
            upper: hull(self.upper, other.upper),
        }
    }
}

impl Waiting {
    fn new(part: &Part, ranked: &[u32]) -> Self {
        let entries = (0..).zip(ranked).map(|(rank, &index)| (rank, part.spans[index as usize])).collect();
        let leaves = ranked.len().div_ceil(LEAF_ITEMS).next_power_of_two();
        let mut tree = Self { nodes: vec![Node::EMPTY; 2 * leaves], entries, leaf_of: vec![0; ranked.len()] };
        tree.halve(0, leaves, true);
        for leaf in 0..leaves {
            let range = tree.items_of(leaf, 1);
            for &(rank, _) in &tree.entries[range.clone()] {
                tree.leaf_of[rank as usize] = leaf as u32;
            }
            tree.nodes[leaves + leaf] =
                tree.entries[range].iter().map(Node::of).fold(Node::EMPTY, Node::join);
        }
        for node in (1..leaves).rev() {
            tree.nodes[node] = tree.nodes[2 * node].join(tree.nodes[2 * node + 1]);
        }
        tree
    }

    fn leaves(&self) -> usize {
        self.nodes.len() / 2
    }

    /// Where the entries of `count` leaves from `leaf` on are.
    fn items_of(&self, leaf: usize, count: usize) -> std::ops::Range<usize> {
        let start = |leaf: usize| leaf * self.entries.len() / self.leaves();
        start(leaf)..start(leaf + count)
    }

    /// Sorts the entries of some leaves into their halves, by start and by end in turn.
    fn halve(&mut self, leaf: usize, count: usize, by_start: bool) {
        if count == 1 {
            return;
        }
        let half = count / 2;
        let middle = self.items_of(leaf, half).len();
        let range = self.items_of(leaf, count);
        if middle < range.len() {
            let key = |&(_, span): &(u32, Span)| if by_start { span.lower } else { span.upper };
            self.entries[range].select_nth_unstable_by_key(middle, key);
        }
        self.halve(leaf, half, !by_start);
        self.halve(leaf + half, half, !by_start);
    }

    /// Removes the best-ranked item that lies within `valley`.
    fn take_first_within(&mut self, valley: Span) -> Option<u32> {
        let rank = self.first_within(1, valley, GONE);
        if rank == GONE {
            return None;
        }
        let leaf = self.leaf_of[rank as usize] as usize;
        let range = self.items_of(leaf, 1);
        let entries = &mut self.entries[range];
        let mut first = GONE;
        for entry in entries {
            if entry.0 == rank {
                entry.0 = GONE;
            }
            first = first.min(entry.0);
        }
        let mut node = self.leaves() + leaf;
        self.nodes[node].first = first;
        while node > 1 {
            node /= 2;
            self.nodes[node].first = self.nodes[2 * node].first.min(self.nodes[2 * node + 1].first);
        }
        Some(rank)
    }

    /// The best rank below `node` that lies within `valley`, or `best` if that is better.
    fn first_within(&self, node: usize, valley: Span, best: u32) -> u32 {
        let Node { first, lower, upper } = self.nodes[node];
        if first >= best || lower.1 < valley.lower || upper.0 > valley.upper {
            return best;
        }
        if lower.0 >= valley.lower && upper.1 <= valley.upper {
            return first;
        }
        if node >= self.leaves() {
            let entries = &self.entries[self.items_of(node - self.leaves(), 1)];
            let within =
                entries.iter().filter(|(_, span)| valley.lower <= span.lower && span.upper <= valley.upper);
            return within.map(|&(rank, _)| rank).fold(best, u32::min);
        }
        let better = usize::from(self.nodes[2 * node + 1].first < self.nodes[2 * node].first);
        let best = self.first_within(2 * node + better, valley, best);
        self.first_within(2 * node + 1 - better, valley, best)
    }
}
