//! Sets of a part's items, as bits: searches join and copy them at every dead end.

/// A set of items, each a number below the size that the set was made for.
#[derive(Clone, Debug)]
pub(super) struct ItemSet {
    words: Vec<u64>,
}

impl ItemSet {
    /// An empty set that has room for numbers below `size`.
    pub(super) fn new(size: usize) -> Self {
        Self { words: vec![0; size.div_ceil(64)] }
    }

    pub(super) fn clear(&mut self) {
        self.words.fill(0);
    }

    pub(super) fn insert(&mut self, item: u32) {
        self.words[item as usize / 64] |= 1 << (item % 64);
    }

    pub(super) fn remove(&mut self, item: u32) {
        self.words[item as usize / 64] &= !(1 << (item % 64));
    }

    pub(super) fn contains(&self, item: u32) -> bool {
        self.words[item as usize / 64] >> (item % 64) & 1 == 1
    }

    /// Becomes the same as `other`, a set of the same size.
    pub(super) fn copy(&mut self, other: &Self) {
        self.words.copy_from_slice(&other.words);
    }

    /// Adds all of `other`, a set of the same size.
    pub(super) fn join(&mut self, other: &Self) {
        for (word, other) in self.words.iter_mut().zip(&other.words) {
            *word |= other;
        }
    }
}
