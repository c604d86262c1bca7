//! The elements of a row, combined.

use super::Fold;
use crate::numbers::Element;

/// The number of running results in a block.
pub(crate) const LANES: usize = 32;

/// The elements of a block.
pub(crate) const BLOCK: usize = 4096;

/// A row that has been combined up to some element.
pub(crate) struct RowFold<F: Fold> {
    lanes: [F::Number; LANES],
    blocks: F::Number,
    /// The elements of the block that is not combined yet.
    filled: usize,
}

impl<F: Fold> Clone for RowFold<F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F: Fold> Copy for RowFold<F> {}

impl<F: Fold> RowFold<F> {
    /// Nothing yet.
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Self { lanes: [F::identity(); LANES], blocks: F::identity(), filled: 0 }
    }

    /// Takes in the next elements of the row. They stay within a block, and unless they end it or the row they are a
    /// multiple of [`LANES`].
    #[inline(always)]
    pub(crate) fn add<S: Element<Acc = F::Number>>(&mut self, elements: &[S]) {
        debug_assert!(self.filled + elements.len() <= BLOCK && self.filled.is_multiple_of(LANES));
        let mut lanes = self.lanes;
        let (whole, rest) = elements.as_chunks::<LANES>();
        for chunk in whole {
            for (lane, element) in lanes.iter_mut().zip(chunk) {
                *lane = F::combine(*lane, element.widen());
            }
        }
        for (lane, element) in lanes.iter_mut().zip(rest) {
            *lane = F::combine(*lane, element.widen());
        }
        self.lanes = lanes;
        self.filled += elements.len();
        if self.filled == BLOCK {
            self.end_block();
        }
    }

    /// The result, after the last element of the row.
    #[inline(always)]
    pub(crate) fn total(mut self) -> F::Number {
        if self.filled > 0 {
            self.end_block();
        }
        self.blocks
    }

    #[inline(always)]
    fn end_block(&mut self) {
        let mut half = LANES / 2;
        while half > 0 {
            for lane in 0..half {
                self.lanes[lane] = F::combine(self.lanes[lane], self.lanes[lane + half]);
            }
            half /= 2;
        }
        *self = Self { blocks: F::combine(self.blocks, self.lanes[0]), ..Self::new() };
    }
}

/// The elements of one row, combined.
#[inline(always)]
pub(crate) fn fold_row<F: Fold, S: Element<Acc = F::Number>>(row: &[S]) -> F::Number {
    let mut fold = RowFold::<F>::new();
    for block in row.chunks(BLOCK) {
        fold.add(block);
    }
    fold.total()
}
