//! The gradient of scaled dot-product attention.
//!
//! Probabilities are computed again from the scores and the log-sum of each query. One task takes a whole head:
//! the gradients of its keys and values are sums over all its queries, and are added up in one order only.

use crate::kernels::attention::{Heads, KEYS, QUERIES};
use crate::kernels::memory::*;
use crate::kernels::product::matrix::{Matrix, Multiply, Size, alone};
use crate::kernels::summation::{LANES, RowFold, Sum};
use crate::numbers::{Element, Float, with_float};
use crate::runtime::{Call, Routine};
use crate::simd::{Body, InstructionSet};
use plimsoll_graph::op::Attention;
use plimsoll_graph::program::{Operand, View};
use std::marker::PhantomData;

/// Prepares `Op::AttentionGrad`, or `Op::JointAttentionGrad` where there is one result. Operands may be strided views.
pub(crate) fn prepare(attention: Attention, reads: &[Operand], writes: &[Operand]) -> Box<dyn Routine> {
    with_float!(reads[0].dtype, T => Box::new(Backward::<T>::new(attention, reads, writes.len() == 1)))
}

struct Backward<T> {
    heads: Heads,
    /// The views of q, k and v, the output, the log-sum, and the output's gradient.
    views: [View; 6],
    /// The gradients of q, k and v: which result each is in, and where.
    results: [(usize, View); 3],
    element: PhantomData<T>,
}

impl<T: Element<Acc: Float>> Backward<T> {
    fn new(attention: Attention, reads: &[Operand], joint: bool) -> Self {
        let views = [0, 1, 2, 3, 4, 5].map(|index| reads[index].view);
        let results = [0, 1, 2].map(|index| {
            let mut view = View::dense(views[index].shape);
            if joint {
                // Three rows of all heads lie where there would be one.
                view.offset = index * view.strides[1];
                view.strides[..2].iter_mut().for_each(|stride| *stride *= 3);
            }
            (if joint { 0 } else { index }, view)
        });
        Self { heads: Heads::new(attention, &reads[0], &reads[1]), views, results, element: PhantomData }
    }

    /// The bytes of a worker's probabilities, their gradients, the gradients of a block of queries, of all keys
    /// and of all values, and of the workspace of its products.
    fn parts(&self) -> [usize; 6] {
        let Heads { keys, width, .. } = self.heads;
        let products = self.heads.block_sizes().flat_map(|(queries, keys)| {
            let scores = Size { m: queries, n: keys, k: width };
            let to_keys = Size { m: keys, n: width, k: queries };
            let to_queries = Size { m: queries, n: width, k: keys };
            [scores, to_keys, to_queries].map(|size| size.workspace::<T::Acc>(1))
        });
        let (block, gradients) = (bytes_of::<T::Acc>(QUERIES * KEYS), bytes_of::<T::Acc>(keys * width));
        let queries = bytes_of::<T::Acc>(QUERIES * width);
        [block, block, queries, gradients, gradients, products.max().unwrap_or(0)]
    }
}

impl<T: Element<Acc: Float>> Routine for Backward<T> {
    fn workspace(&self, threads: usize) -> usize {
        threads * self.parts().iter().sum::<usize>()
    }

    unsafe fn run(&self, call: &Call<'_>) {
        let Heads { isa, batch, heads, .. } = self.heads;
        let parts = self.parts();
        let workspace = Address::<u8>::workspace(call, 0);
        let operands = [0, 1, 2, 3, 5].map(|index| (Address::<T>::read(call, index), self.views[index]));
        let log_sum = (Address::<T::Acc>::read(call, 4), self.views[4]);
        let results = self.results.map(|(index, view)| (Address::<T>::write(call, index), view));
        call.pool.run(batch * heads, &|worker, task| {
            let (batch, head) = (task / heads, task % heads);
            let own = workspace.at(worker * parts.iter().sum::<usize>());
            let part = |index: usize| own.at(parts[..index].iter().sum());
            let [q, k, v, output, doutput] =
                operands.map(|(start, view)| self.heads.head(start, &view, batch, head));
            let [dq, dk, dv] = results.map(|(start, view)| self.heads.head(start, &view, batch, head));
            let (start, view) = log_sum;
            let log_sum = Matrix {
                start: start.at(view.offset + batch * view.strides[0] + head * view.strides[1]),
                rows: view.strides[2],
                columns: 0,
            };
            isa.run(Head::<T> {
                heads: self.heads,
                q,
                k,
                v,
                output,
                log_sum,
                doutput,
                results: [dq, dk, dv],
                probabilities: part(0).cast(),
                slopes: part(1).cast(),
                queries: part(2).cast(),
                keys: part(3).cast(),
                values: part(4).cast(),
                products: Multiply { pool: alone(), isa, workspace: part(5) },
            });
        });
    }
}

/// One head of one element of the batch.
struct Head<'a, T: Element<Acc: Float>> {
    heads: Heads,
    q: Matrix<T>,
    k: Matrix<T>,
    v: Matrix<T>,
    output: Matrix<T>,
    log_sum: Matrix<T::Acc>,
    doutput: Matrix<T>,
    /// The gradients of q, k and v.
    results: [Matrix<T>; 3],
    /// The probabilities of a block of queries and keys.
    probabilities: Address<T::Acc>,
    /// The gradients of the probabilities, then of the scores.
    slopes: Address<T::Acc>,
    /// The gradients of a block of queries, of all keys and of all values.
    queries: Address<T::Acc>,
    keys: Address<T::Acc>,
    values: Address<T::Acc>,
    products: Multiply<'a>,
}

impl<T: Element<Acc: Float>> Body for Head<'_, T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<I: InstructionSet>(self) {
        let Heads { queries, keys, width, .. } = self.heads;
        // SAFETY: the worker's memory has room for what is kept, blocks are within the operands, and no other task
        // writes to this head's results.
        unsafe {
            self.keys.slice_mut(keys * width).fill(T::Acc::ZERO);
            self.values.slice_mut(keys * width).fill(T::Acc::ZERO);
            for first in (0..queries).step_by(QUERIES) {
                self.query_block(first);
            }
            let [_, dk, dv] = self.results;
            self.finish(self.keys, dk, keys);
            self.finish(self.values, dv, keys);
        }
    }
}

impl<T: Element<Acc: Float>> Head<'_, T> {
    /// Computes the gradients of a block of queries and adds its part to those of keys and values.
    #[inline(always)]
    unsafe fn query_block(&self, first: usize) {
        let width = self.heads.width;
        let count = self.heads.query_count(first);
        let (one, scale) = (T::Acc::ONE, T::Acc::of(self.heads.scale));
        let (probabilities, slopes) = (Matrix::new(self.probabilities, KEYS), Matrix::new(self.slopes, KEYS));
        let (q, doutput) = (self.q.at(first, 0), self.doutput.at(first, 0));
        // SAFETY: the caller vouches for the block, and blocks of keys are within the operands.
        unsafe {
            let mut means = [T::Acc::ZERO; QUERIES];
            for (query, mean) in means[..count].iter_mut().enumerate() {
                *mean = self.mean_slope(first + query);
            }
            for (key, keys) in self.heads.key_blocks(first + count - 1) {
                let (k, v) = (self.k.at(key, 0), self.v.at(key, 0));
                let dk = Matrix::new(self.keys.at(key * width), width);
                let dv = Matrix::new(self.values.at(key * width), width);
                let size = Size { m: count, n: keys, k: width };
                self.products.run(size, scale, q, k.transposed(), probabilities, false);
                self.products.run(size, one, doutput, v.transposed(), slopes, false);
                for (query, mean) in means[..count].iter().enumerate() {
                    let visible = self.heads.visible(first + query).saturating_sub(key).min(keys);
                    let log_sum = self.log_sum.at(first + query, 0).start.get();
                    let probabilities = self.probabilities.at(query * KEYS).slice_mut(KEYS);
                    let slopes = self.slopes.at(query * KEYS).slice_mut(KEYS);
                    score_slopes(probabilities, slopes, visible, keys, log_sum, *mean);
                }
                let size = Size { m: keys, n: width, k: count };
                self.products.run(size, one, probabilities.transposed(), doutput, dv, true);
                self.products.run(size, scale, slopes.transposed(), q, dk, true);
                let size = Size { m: count, n: width, k: keys };
                self.products.run(size, scale, slopes, k, Matrix::new(self.queries, width), key > 0);
            }
            self.finish(self.queries, self.results[0].at(first, 0), count);
        }
    }

    /// The mean of the gradients of a query's probabilities, weighted by them: the product of its output with the
    /// output's gradient.
    #[inline(always)]
    unsafe fn mean_slope(&self, query: usize) -> T::Acc {
        let (output, doutput) = (self.output.at(query, 0), self.doutput.at(query, 0));
        let mut sum = RowFold::<Sum<T::Acc>>::new();
        let mut chunk = [T::Acc::ZERO; CHUNK];
        for (at, count) in chunks(self.heads.width) {
            for (offset, product) in chunk[..count].iter_mut().enumerate() {
                // SAFETY: the caller vouches for the query.
                let (output, slope) = unsafe {
                    (output.at(0, at + offset).start.get(), doutput.at(0, at + offset).start.get())
                };
                *product = output.widen() * slope.widen();
            }
            sum.add(&chunk[..count]);
        }
        sum.total()
    }

    /// Writes rows of gradients to where they belong.
    #[inline(always)]
    unsafe fn finish(&self, from: Address<T::Acc>, to: Matrix<T>, rows: usize) {
        let width = self.heads.width;
        for row in 0..rows {
            // SAFETY: the caller vouches for the rows.
            unsafe { round(from.at(row * width).slice(width), to.at(row, 0).start.slice_mut(width)) };
        }
    }
}

/// Turns scores into probabilities, and gradients of probabilities into gradients of scores: of the first
/// `visible` of `count`; the others are zero.
#[inline(always)]
fn score_slopes<A: Float>(
    scores: &mut [A],
    slopes: &mut [A],
    visible: usize,
    count: usize,
    log_sum: A,
    mean: A,
) {
    // Whole lanes, so that the loop has no remainder.
    let end = visible.next_multiple_of(LANES);
    for (score, slope) in scores[..end].iter_mut().zip(&mut slopes[..end]) {
        *score = A::exp(*score - log_sum);
        *slope = *score * (*slope - mean);
    }
    let rest = visible..end.max(count);
    scores[rest.clone()].fill(A::ZERO);
    slopes[rest].fill(A::ZERO);
}
