//! The rows of a matrix, combined to one number for each column.
//!
//! Blocks of rows are combined apart, by whichever thread comes first, and the blocks' parts then in their order.

use super::{Fold, Sum};
use crate::kernels::memory::*;
use crate::kernels::product::matrix::Matrix;
use crate::kernels::tasks::each_range;
use crate::numbers::{Element, Float};
use crate::runtime::Pool;
use crate::simd::{Body, InstructionSet, Isa};
use std::ops::Range;

/// The rows of a block, of so many in all: so few that the chain of a block's rows and that of the blocks are about equally
/// long, but enough that most matrices of a few rows are one block.
pub(crate) fn block_rows(rows: usize) -> usize {
    rows.isqrt().next_multiple_of(8).max(64)
}

/// The most columns that [`fold_columns`] combines.
pub(crate) const COLUMNS: usize = 512;

/// Combines `rows` rows of at most [`COLUMNS`] columns, row by row, into numbers that stay in the cache.
///
/// # Safety
/// The rows, `stride` elements apart, must be initialised and not be written meanwhile, and `to` be valid for a number for
/// each column; it may be where the first row is.
#[inline(always)]
pub(crate) unsafe fn fold_columns<F: Fold, S: Element<Acc = F::Number>>(
    from: *const S,
    stride: usize,
    rows: usize,
    columns: usize,
    to: *mut F::Number,
) {
    let mut results = [F::identity(); COLUMNS];
    let results = &mut results[..columns];
    let mut row = 0;
    // SAFETY: the caller vouches for rows and columns, and for a result for each column.
    unsafe {
        while row + 4 <= rows {
            let rows = [0, 1, 2, 3].map(|next| from.add((row + next) * stride));
            for (column, result) in results.iter_mut().enumerate() {
                for row in rows {
                    *result = F::combine(*result, (*row.add(column)).widen());
                }
            }
            row += 4;
        }
        for row in row..rows {
            for (column, result) in results.iter_mut().enumerate() {
                *result = F::combine(*result, (*from.add(row * stride + column)).widen());
            }
        }
        std::ptr::copy_nonoverlapping(results.as_ptr(), to, columns);
    }
}

/// How the rows of a matrix are cut into blocks.
#[derive(Clone, Copy)]
pub(crate) struct Blocks {
    rows: usize,
    /// The rows of a block, but for the last.
    step: usize,
}

impl Blocks {
    /// Blocks of `rows` rows.
    pub(crate) fn new(rows: usize) -> Self {
        Self { rows, step: block_rows(rows) }
    }

    /// The number of blocks, at least one.
    pub(crate) fn count(&self) -> usize {
        self.rows.div_ceil(self.step).max(1)
    }

    /// Calls `task` for every block, with its number and its rows.
    pub(crate) fn each(&self, pool: &Pool, task: &(dyn Fn(usize, Range<usize>) + Sync)) {
        pool.run(self.count(), &|_, block| {
            task(block, block * self.step..self.rows.min((block + 1) * self.step))
        });
    }

    /// The bytes of `sums` sums for each block.
    pub(crate) fn parts_bytes<A>(&self, sums: usize) -> usize {
        bytes_of::<A>(self.count() * sums)
    }
}

/// Sums the rows of a matrix with contiguous columns. The sums are left in the first `width` of `parts`.
///
/// # Safety
/// The matrix must be initialised and `parts` valid for [`Blocks::parts_bytes`] of `width` sums.
pub(crate) unsafe fn sum_rows<T: Element<Acc: Float>>(
    pool: &Pool,
    isa: Isa,
    matrix: Matrix<T>,
    blocks: Blocks,
    width: usize,
    parts: Address<T::Acc>,
) {
    let stride = matrix.rows;
    blocks.each(pool, &|block, rows| {
        let (from, to) = (matrix.at(rows.start, 0).start, parts.at(block * width));
        isa.run(SumRows { from, stride, rows: rows.len(), columns: 0..width, to });
    });
    // SAFETY: every block's parts have been written.
    unsafe { add_blocks(pool, isa, parts, blocks.count(), width) };
}

/// Adds up the parts of `blocks` blocks, `width` sums each. The sums are left in the place of the first block's
/// parts.
///
/// # Safety
/// The parts must be initialised.
pub(crate) unsafe fn add_blocks<A: Float>(
    pool: &Pool,
    isa: Isa,
    parts: Address<A>,
    blocks: usize,
    width: usize,
) {
    each_range(pool, width, COLUMNS, &|_, columns| {
        isa.run(SumRows { from: parts, stride: width, rows: blocks, columns, to: parts });
    });
}

/// The sums of some columns.
struct SumRows<T: Element> {
    from: Address<T>,
    stride: usize,
    rows: usize,
    columns: Range<usize>,
    to: Address<T::Acc>,
}

impl<T: Element> Body for SumRows<T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<I: InstructionSet>(self) {
        let Self { from, stride, rows, columns, to } = self;
        for first in columns.clone().step_by(COLUMNS) {
            let count = COLUMNS.min(columns.end - first);
            // SAFETY: the columns are within the matrix, and no other task accesses their sums.
            unsafe {
                let (from, to) = (from.at(first).pointer(), to.at(first).pointer());
                fold_columns::<Sum<T::Acc>, T>(from, stride, rows, count, to);
            }
        }
    }
}
