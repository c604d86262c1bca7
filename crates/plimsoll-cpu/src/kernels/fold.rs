//! The one order in which the elements of a row are combined.
//!
//! Sums of floats depend on their order. So that a reduction gives the same bits fused or alone, on any number
//! of threads and on any instruction set, there is one order for all of them: a row is cut into blocks; in a
//! block, element i goes to lane i modulo [`LANES`]; the lanes are combined in halves; and the blocks' results
//! are combined one after another.

use crate::numbers::{Element, Number};
use plimsoll_graph::DType;
use plimsoll_graph::op::Reduction;
use std::marker::PhantomData;

/// The number of running results in a block.
pub(crate) const LANES: usize = 16;

/// The elements of a block. A part of a block that ends before the block does must be of a multiple of
/// [`LANES`] elements.
pub(crate) const BLOCK: usize = 4096;

/// A way to combine numbers.
pub(crate) trait Fold: Send + Sync + 'static {
    type Number: Number;

    /// What combines with a number to that number.
    fn identity() -> Self::Number;

    fn combine(a: Self::Number, b: Self::Number) -> Self::Number;
}

pub(crate) struct Sum<T>(PhantomData<T>);
pub(crate) struct Max<T>(PhantomData<T>);
pub(crate) struct Min<T>(PhantomData<T>);

impl<T: Number> Fold for Sum<T> {
    type Number = T;

    #[inline(always)]
    fn identity() -> T {
        T::default()
    }

    #[inline(always)]
    fn combine(a: T, b: T) -> T {
        T::add(a, b)
    }
}

impl<T: Number> Fold for Max<T> {
    type Number = T;

    #[inline(always)]
    fn identity() -> T {
        T::LOWEST
    }

    #[inline(always)]
    fn combine(a: T, b: T) -> T {
        T::max(a, b)
    }
}

impl<T: Number> Fold for Min<T> {
    type Number = T;

    #[inline(always)]
    fn identity() -> T {
        T::HIGHEST
    }

    #[inline(always)]
    fn combine(a: T, b: T) -> T {
        T::min(a, b)
    }
}

/// The reduction that gives the same result and that numbers know: a sum of bools is their maximum.
pub(crate) fn plain_reduction(reduction: Reduction, dtype: DType) -> Reduction {
    match reduction {
        Reduction::Sum if dtype == DType::Bool => Reduction::Max,
        other => other,
    }
}

/// A row that has been combined up to some element.
#[derive(Clone, Copy)]
pub(crate) struct Partial<T> {
    lanes: [T; LANES],
    blocks: T,
}

impl<T: Number> Partial<T> {
    /// Nothing yet.
    #[inline(always)]
    pub(crate) fn new<F: Fold<Number = T>>() -> Self {
        Partial { lanes: [F::identity(); LANES], blocks: F::identity() }
    }

    /// Adds elements that stay within a block.
    ///
    /// # Safety
    /// `elements` must be valid for `count` reads.
    #[inline(always)]
    pub(crate) unsafe fn add<F, S>(&mut self, elements: *const S, count: usize)
    where
        F: Fold<Number = T>,
        S: Element<Acc = T>,
    {
        let mut lanes = self.lanes;
        let whole = count / LANES * LANES;
        let mut at = 0;
        while at < whole {
            for (lane, number) in lanes.iter_mut().enumerate() {
                // SAFETY: `at + lane` is below `count`.
                *number = F::combine(*number, unsafe { *elements.add(at + lane) }.widen());
            }
            at += LANES;
        }
        for (lane, number) in lanes[..count - whole].iter_mut().enumerate() {
            // SAFETY: as above.
            *number = F::combine(*number, unsafe { *elements.add(whole + lane) }.widen());
        }
        self.lanes = lanes;
    }

    /// Ends a block.
    #[inline(always)]
    pub(crate) fn end_block<F: Fold<Number = T>>(&mut self) {
        self.blocks = F::combine(self.blocks, combine_lanes::<F>(self.lanes));
        self.lanes = [F::identity(); LANES];
    }

    /// The result, after the last block has ended.
    #[inline(always)]
    pub(crate) fn result(&self) -> T {
        self.blocks
    }
}

#[inline(always)]
fn combine_lanes<F: Fold>(mut lanes: [F::Number; LANES]) -> F::Number {
    let mut half = LANES / 2;
    while half > 0 {
        for lane in 0..half {
            lanes[lane] = F::combine(lanes[lane], lanes[lane + half]);
        }
        half /= 2;
    }
    lanes[0]
}

/// The elements of one row, combined.
///
/// # Safety
/// `elements` must be valid for `count` reads.
#[inline(always)]
pub(crate) unsafe fn fold_row<F, S>(elements: *const S, count: usize) -> F::Number
where
    F: Fold,
    S: Element<Acc = F::Number>,
{
    let mut partial = Partial::new::<F>();
    let mut at = 0;
    while at < count {
        let block = BLOCK.min(count - at);
        // SAFETY: the block is within the row.
        unsafe { partial.add::<F, S>(elements.add(at), block) };
        partial.end_block::<F>();
        at += block;
    }
    partial.result()
}
