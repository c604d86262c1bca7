//! One product in parts, to the bits that it has as a whole.
//!
//! A value that is the largest of a step need not exist whole if what it is made of, and what is made of it, can be
//! computed a part at a time. Products of some rows, and sums over some of the depth, are such parts, if they are
//! summed in the order of the whole.

use super::blocking::{Order, Shape};
use super::product::{Product, StridedMut, workspace_in};
use super::{BatchStrides, Gemm, Matrix, Strided, gemm_part, part_workspace};
use crate::numbers::{Element, Float};
use crate::runtime::Pool;
use crate::simd::{Body, InstructionSet, Isa};
use std::marker::PhantomData;
use std::ops::Range;

/// The bytes of workspace that [`gemm_rows`] needs for `m` of the `whole` rows of a product.
pub(crate) fn gemm_rows_workspace<T: Element<Acc: Float>>(
    m: usize,
    n: usize,
    k: usize,
    whole: usize,
    threads: usize,
) -> usize {
    part_workspace::<T>(Shape { batch: 1, m, n, k }, whole, threads)
}

/// Computes some rows of a product that has `whole` rows, to the bits that [`gemm`](super::gemm) of all of them
/// gives.
///
/// # Safety
///
/// As for [`gemm`](super::gemm), with the workspace that [`gemm_rows_workspace`] says.
pub(crate) unsafe fn gemm_rows<T: Element<Acc: Float>>(
    pool: &Pool,
    args: &Gemm<T>,
    whole: usize,
    workspace: &mut [u8],
) {
    // SAFETY: the contract is the same.
    unsafe { gemm_part(Isa::detect(), pool, args, whole, workspace) }
}

/// A product `c = a · b` whose operands come a part of the depth at a time, to the bits that
/// [`gemm`](super::gemm) of all of it gives.
///
/// Its sums are kept in the accumulator type: in `c` itself where that can hold them, else in [`scratch`] scalars
/// beside it.
///
/// [`scratch`]: Self::scratch
#[derive(Clone, Copy)]
pub(crate) struct DepthSum<T> {
    shape: Shape,
    order: Order,
    element: PhantomData<T>,
}

impl<T: Element<Acc: Float>> DepthSum<T> {
    pub(crate) fn new(m: usize, n: usize, k: usize) -> Self {
        let shape = Shape { batch: 1, m, n, k };
        Self { shape, order: Order::of(shape, size_of::<T::Acc>()), element: PhantomData }
    }

    /// The parts of at most `most` of the depth that it may be summed in; of more where the order of the sums
    /// demands it. A sum that is made in one go can be interrupted anywhere, one of several blocks only between
    /// two of them, because a second block's sum has no place of its own.
    pub(crate) fn parts(&self, most: usize) -> Vec<Range<usize>> {
        let (k, most) = (self.shape.k, most.max(1));
        let anywhere = self.order.depth >= k && !self.order.in_lanes;
        let mut parts = vec![];
        let mut start = 0;
        while start < k {
            let mut end = if anywhere { k.min(start + most) } else { self.block_end(start) };
            while end < k && !anywhere && self.block_end(end) - start <= most {
                end = self.block_end(end);
            }
            parts.push(start..end);
            start = end;
        }
        parts
    }

    /// Where the block that `depth` is in ends.
    fn block_end(&self, depth: usize) -> usize {
        let Order { split_depth, depth: block, .. } = self.order;
        let split = depth / split_depth * split_depth;
        (split + ((depth - split) / block + 1) * block).min(split + split_depth).min(self.shape.k)
    }

    /// What of a part lies in one split, with the split.
    fn pieces(&self, part: Range<usize>) -> impl Iterator<Item = (usize, Range<usize>)> {
        let depth = self.order.split_depth;
        (part.start / depth..part.end.div_ceil(depth))
            .map(move |split| (split, part.start.max(split * depth)..part.end.min((split + 1) * depth)))
    }

    /// The order in which one piece is summed.
    fn order_of(&self, piece: &Range<usize>) -> Order {
        let resumed = self.is_within_block(piece.start);
        Order { splits: 1, split_depth: piece.len().max(1), resumed, ..self.order }
    }

    fn is_within_block(&self, depth: usize) -> bool {
        !(depth % self.order.split_depth).is_multiple_of(self.order.depth)
    }

    /// The scalars that the sums need beside the result.
    pub(crate) fn scratch(&self) -> usize {
        let Shape { m, n, .. } = self.shape;
        if T::IS_ACC && self.order.splits == 1 { 0 } else { self.order.splits * m * n }
    }

    /// The bytes of workspace that [`add`](Self::add) needs for a part.
    pub(crate) fn workspace(&self, part: Range<usize>, threads: usize) -> usize {
        let bytes = |piece: Range<usize>| {
            let shape = Shape { k: piece.len(), ..self.shape };
            workspace_in::<T::Acc>(self.order_of(&piece), shape, true, threads)
        };
        self.pieces(part).map(|(_, piece)| bytes(piece)).max().unwrap_or(0)
    }

    /// Adds one of the [`parts`](Self::parts) of the depth, after those before it. `a` and `b` are the operands of
    /// this part alone; `sums` is where the sums are kept.
    ///
    /// # Safety
    ///
    /// The operands are valid for the part and not written meanwhile, `sums` for [`scratch`](Self::scratch) scalars,
    /// or for the result if that is none, and overlaps nothing; `workspace` is as [`workspace`](Self::workspace)
    /// says, aligned.
    pub(crate) unsafe fn add(
        &self,
        pool: &Pool,
        a: Matrix<T>,
        b: Matrix<T>,
        part: Range<usize>,
        sums: *mut T::Acc,
        workspace: &mut [u8],
    ) {
        let Shape { m, n, .. } = self.shape;
        let batch = BatchStrides { inner: 1, strides: [0; 2] };
        for (split, piece) in self.pieces(part.clone()) {
            let from = (piece.start - part.start) as isize;
            let rows = Strided {
                start: a.start.wrapping_offset(from * a.column_stride),
                lead_stride: a.row_stride,
                depth_stride: a.column_stride,
                batch,
            };
            let columns = Strided {
                start: b.start.wrapping_offset(from * b.row_stride),
                lead_stride: b.column_stride,
                depth_stride: b.row_stride,
                batch,
            };
            let target = StridedMut {
                start: sums.wrapping_add(split * m * n),
                row_stride: n as isize,
                column_stride: 1,
                batch,
            };
            let is_first = piece.start == split * self.order.split_depth;
            let product = Product::<T::Acc> {
                shape: Shape { k: piece.len(), ..self.shape },
                a: &rows,
                b: &columns,
                target: &target,
                alpha: T::Acc::ONE,
                accumulate: !is_first && !self.is_within_block(piece.start),
            };
            // SAFETY: the caller vouches for the operands and the sums, which are in rows; those that are gone on
            // with were written by the part before.
            unsafe { product.run_in(self.order_of(&piece), pool, Isa::detect(), workspace) };
        }
    }

    /// Writes the result, after all parts have been added.
    ///
    /// # Safety
    ///
    /// `sums` is where all parts were added; `c` is valid for the result, densely packed.
    pub(crate) unsafe fn finish(&self, pool: &Pool, sums: *const T::Acc, c: *mut T) {
        const STEP: usize = 1 << 14;
        let Shape { m, n, k, .. } = self.shape;
        let results = m * n;
        let splits = if k == 0 { 0 } else { self.order.splits };
        if self.scratch() == 0 && k > 0 {
            return;
        }
        let (isa, totals) = (Isa::detect(), DepthTotals { sums, c, results, splits, range: 0..0 });
        pool.run(results.div_ceil(STEP), &|_, task| {
            isa.run(totals.of(task * STEP..results.min((task + 1) * STEP)));
        });
    }
}

/// Some results, from the sums of their splits.
struct DepthTotals<T: Element<Acc: Float>> {
    sums: *const T::Acc,
    c: *mut T,
    results: usize,
    splits: usize,
    range: Range<usize>,
}

// SAFETY: tasks read what is not written meanwhile, and write results of their own.
unsafe impl<T: Element<Acc: Float>> Sync for DepthTotals<T> {}

impl<T: Element<Acc: Float>> DepthTotals<T> {
    fn of(&self, range: Range<usize>) -> Self {
        Self { range, ..*self }
    }
}

impl<T: Element<Acc: Float>> Body for DepthTotals<T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<I: InstructionSet>(self) {
        const CHUNK: usize = 64;
        for start in self.range.clone().step_by(CHUNK) {
            let count = CHUNK.min(self.range.end - start);
            let mut totals = [T::Acc::ZERO; CHUNK];
            // SAFETY: there is a sum for every result of every split, and the results are this task's to write.
            unsafe {
                for split in 0..self.splits {
                    let sums = self.sums.add(split * self.results + start);
                    for (at, total) in totals[..count].iter_mut().enumerate() {
                        *total += *sums.add(at);
                    }
                }
                for (at, total) in totals[..count].iter().enumerate() {
                    *self.c.add(start + at) = T::narrow(total.mul_add(T::Acc::ONE, T::Acc::ZERO));
                }
            }
        }
    }
}
