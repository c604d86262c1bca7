//! Sums over the rows of a matrix, one for each column.
//!
//! Blocks of rows are summed apart, by whichever thread comes first, and the blocks' parts are then added in
//! their order. The blocks depend on the shape alone, so the sums do not depend on the threads.

use super::common::*;
use super::matrix::Matrix;
use crate::numbers::{Float, FloatElement};
use crate::pool::Pool;
use crate::simd::{Body, InstructionSet, Isa};
use std::ops::Range;

/// The most blocks whose parts are kept apart: enough for the threads of a large machine.
const MOST_BLOCKS: usize = 64;

/// How the rows of a matrix are cut into blocks.
#[derive(Clone, Copy)]
pub(super) struct Blocks {
    rows: usize,
    /// The rows of a block, but for the last.
    step: usize,
}

impl Blocks {
    /// Blocks of `rows` rows of `width` elements.
    pub(super) fn new(rows: usize, width: usize) -> Self {
        let step = rows.div_ceil(MOST_BLOCKS).max(rows_per_task(width).clamp(8, 64));
        Self { rows, step }
    }

    /// The number of blocks, at least one.
    pub(super) fn count(&self) -> usize {
        self.rows.div_ceil(self.step).max(1)
    }

    /// Calls `task` for every block, with its number and its rows.
    pub(super) fn each(&self, pool: &Pool, task: &(dyn Fn(usize, Range<usize>) + Sync)) {
        pool.run(self.count(), &|_, block| {
            task(block, block * self.step..self.rows.min((block + 1) * self.step))
        });
    }

    /// The bytes of `sums` sums for each block.
    pub(super) fn parts_bytes<A>(&self, sums: usize) -> usize {
        bytes_of::<A>(self.count() * sums)
    }
}

/// Adds up the parts of `blocks` blocks, `width` sums each. The sums are left in the place of the first block's
/// parts.
///
/// # Safety
/// The parts must be initialised.
pub(super) unsafe fn add_blocks<A: Float>(
    pool: &Pool,
    isa: Isa,
    parts: Address<A>,
    blocks: usize,
    width: usize,
) {
    each_range(pool, width, CHUNK, &|_, columns| isa.run(AddBlocks { parts, blocks, width, columns }));
}

struct AddBlocks<A> {
    parts: Address<A>,
    blocks: usize,
    width: usize,
    columns: Range<usize>,
}

impl<A: Float> Body for AddBlocks<A> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<I: InstructionSet>(self) {
        let (start, count) = (self.columns.start, self.columns.len());
        let mut sums = [A::ZERO; CHUNK];
        for block in 0..self.blocks {
            // SAFETY: the caller vouches for the parts.
            let parts = unsafe { self.parts.at(block * self.width + start).slice(count) };
            for (sum, part) in sums.iter_mut().zip(parts) {
                *sum += *part;
            }
        }
        // SAFETY: no other task accesses these columns.
        unsafe { store(&sums, self.parts.at(start), count) };
    }
}

/// Sums the rows of a matrix with contiguous columns. The sums are left in the first `width` of `parts`.
///
/// # Safety
/// The matrix must be initialised and `parts` valid for [`Blocks::parts_bytes`] of `width` sums.
pub(super) unsafe fn sum_rows<T: FloatElement>(
    pool: &Pool,
    isa: Isa,
    matrix: Matrix<T>,
    blocks: Blocks,
    width: usize,
    parts: Address<T::Acc>,
) {
    blocks.each(pool, &|block, rows| isa.run(SumRows { matrix, rows, width, sums: parts.at(block * width) }));
    // SAFETY: every block's parts have been written.
    unsafe { add_blocks(pool, isa, parts, blocks.count(), width) };
}

struct SumRows<T: FloatElement> {
    matrix: Matrix<T>,
    rows: Range<usize>,
    width: usize,
    sums: Address<T::Acc>,
}

impl<T: FloatElement> Body for SumRows<T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<I: InstructionSet>(self) {
        // SAFETY: the rows are within the matrix, and no other task accesses this block's sums.
        unsafe {
            let sums = self.sums.slice_mut(self.width);
            sums.fill(T::Acc::ZERO);
            for row in self.rows {
                let row = self.matrix.at(row, 0).start.slice(self.width);
                for (sum, element) in sums.iter_mut().zip(row) {
                    *sum += element.widen();
                }
            }
        }
    }
}
