//! Scaled dot-product attention.
//!
//! The matrix of scores has an element for every pair of a query and a key, and is never written as a whole: a
//! task takes a block of queries through the keys block by block, keeping for every query the largest score and
//! the sum of exponentials so far, and rescales when a larger score comes (Milakov and Gimelshein; Dao et al.).
//! What it needs of memory does not grow with the number of keys.

pub(crate) mod grad;
#[cfg(test)]
mod tests;

use crate::kernels::memory::*;
use crate::kernels::product::matrix::{Matrix, Multiply, Size, alone};
use crate::kernels::summation::{Fold, LANES, MaxNumber, Sum, fold_row};
use crate::numbers::{Element, Float, with_float};
use crate::runtime::{Call, Routine};
use crate::simd::{Body, InstructionSet, Isa};
use plimsoll_graph::op::Attention;
use plimsoll_graph::program::{Operand, View};
use std::marker::PhantomData;

/// Prepares `Op::Attention`. Operands may be strided views.
pub(crate) fn prepare(attention: Attention, reads: &[Operand], _writes: &[Operand]) -> Box<dyn Routine> {
    with_float!(reads[0].dtype, T => Box::new(Forward::<T>::new(attention, reads)))
}

/// The queries that a task takes through the keys together.
pub(super) const QUERIES: usize = 64;
/// The keys of a block.
pub(super) const KEYS: usize = 256;
/// A query block that sees only some keys of a block leaves out the rest in steps of this many.
const KEY_STEP: usize = 64;

/// The extents of attention, and which keys a query sees.
#[derive(Clone, Copy)]
pub(super) struct Heads {
    pub(super) isa: Isa,
    pub(super) batch: usize,
    pub(super) heads: usize,
    pub(super) queries: usize,
    pub(super) keys: usize,
    pub(super) width: usize,
    pub(super) scale: f64,
    causal: bool,
}

impl Heads {
    pub(super) fn new(attention: Attention, q: &Operand, k: &Operand) -> Self {
        let [batch, queries, heads, width] = [0, 1, 2, 3].map(|axis| q.view.shape[axis]);
        let Attention { causal, scale } = attention;
        // Running must not allocate, so the pool that tasks multiply on is made now.
        alone();
        Self { isa: Isa::detect(), batch, heads, queries, keys: k.view.shape[1], width, scale, causal }
    }

    /// How many keys a query sees, from the first on.
    #[inline(always)]
    pub(super) fn visible(&self, query: usize) -> usize {
        if self.causal {
            (query + 1 + self.keys.saturating_sub(self.queries)).min(self.keys)
        } else {
            self.keys
        }
    }

    /// The blocks of keys that queries up to `last` need: where each begins and how many keys it has.
    pub(super) fn key_blocks(&self, last: usize) -> impl Iterator<Item = (usize, usize)> + use<> {
        let end = self.visible(last).next_multiple_of(KEY_STEP).min(self.keys);
        (0..end).step_by(KEYS).map(move |first| (first, KEYS.min(end - first)))
    }

    /// The numbers of queries in a block and of keys in a block that occur.
    pub(super) fn block_sizes(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let queries = [self.queries.min(QUERIES), self.queries % QUERIES];
        let whole = (KEY_STEP..=KEYS).step_by(KEY_STEP);
        let last = self.keys % KEYS;
        let keys = whole.chain([last]).filter(move |&count| count > 0);
        queries
            .into_iter()
            .filter(|&count| count > 0)
            .flat_map(move |queries| keys.clone().map(move |keys| (queries, keys)))
    }

    /// The queries of the block that begins with `first`.
    #[inline(always)]
    pub(super) fn query_count(&self, first: usize) -> usize {
        QUERIES.min(self.queries - first)
    }

    /// One head of one element of the batch, in a view of axes batch, position, head, width.
    pub(super) fn head<T: Copy>(
        &self,
        start: Address<T>,
        view: &View,
        batch: usize,
        head: usize,
    ) -> Matrix<T> {
        let [s0, s1, s2, s3] = [0, 1, 2, 3].map(|axis| view.strides[axis]);
        Matrix { start: start.at(view.offset + batch * s0 + head * s2), rows: s1, columns: s3 }
    }
}

struct Forward<T> {
    heads: Heads,
    /// The views of q, k and v, and of the result.
    views: [View; 4],
    element: PhantomData<T>,
}

impl<T: Element<Acc: Float>> Forward<T> {
    fn new(attention: Attention, reads: &[Operand]) -> Self {
        let [q, k, v] = [0, 1, 2].map(|index| reads[index].view);
        let views = [q, k, v, View::dense(q.shape)];
        Self { heads: Heads::new(attention, &reads[0], &reads[1]), views, element: PhantomData }
    }

    /// The bytes of a worker's scores, outputs, largest scores and sums, and of the workspace of its products.
    fn parts(&self) -> [usize; 4] {
        let width = self.heads.width;
        let products = self.heads.block_sizes().map(|(queries, keys)| {
            let scores = Size { m: queries, n: keys, k: width }.workspace::<T::Acc>(1);
            scores.max(Size { m: queries, n: width, k: keys }.workspace::<T::Acc>(1))
        });
        [
            bytes_of::<T::Acc>(QUERIES * KEYS),
            bytes_of::<T::Acc>(QUERIES * width),
            bytes_of::<T::Acc>(2 * QUERIES),
            products.max().unwrap_or(0),
        ]
    }
}

impl<T: Element<Acc: Float>> Routine for Forward<T> {
    fn workspace(&self, threads: usize) -> usize {
        threads * self.parts().iter().sum::<usize>()
    }

    unsafe fn run(&self, call: &Call<'_>) {
        let Heads { isa, batch, heads, queries, .. } = self.heads;
        let parts = self.parts();
        let workspace = Address::<u8>::workspace(call, 0);
        let [q, k, v] = [0, 1, 2].map(|index| Address::<T>::read(call, index));
        let (output, log_sum) = (Address::<T>::write(call, 0), Address::write(call, 1));
        let blocks = queries.div_ceil(QUERIES);
        call.pool.run(batch * heads * blocks, &|worker, task| {
            // The last queries see the most keys; they come first so that no thread ends on a long task.
            let (pair, first) = (task / blocks, (blocks - 1 - task % blocks) * QUERIES);
            let own = workspace.at(worker * parts.iter().sum::<usize>());
            let head =
                |index: usize, start| self.heads.head(start, &self.views[index], pair / heads, pair % heads);
            let block = QueryBlock::<T> {
                heads: self.heads,
                first,
                q: head(0, q).at(first, 0),
                k: head(1, k),
                v: head(2, v),
                output: head(3, output).at(first, 0),
                log_sum: log_sum.at(pair * queries + first),
                scores: own.cast(),
                sums: own.at(parts[0]).cast(),
                state: own.at(parts[0] + parts[1]).cast(),
                products: Multiply { pool: alone(), isa, workspace: own.at(parts[0] + parts[1] + parts[2]) },
            };
            isa.run(block);
        });
    }
}

/// A block of queries of one head.
struct QueryBlock<'a, T: Element<Acc: Float>> {
    heads: Heads,
    first: usize,
    q: Matrix<T>,
    k: Matrix<T>,
    v: Matrix<T>,
    output: Matrix<T>,
    log_sum: Address<T::Acc>,
    /// The scores against a block of keys, and their exponentials.
    scores: Address<T::Acc>,
    /// The values, weighted and summed.
    sums: Address<T::Acc>,
    /// For each query the largest score, then for each the sum of exponentials.
    state: Address<T::Acc>,
    products: Multiply<'a>,
}

impl<T: Element<Acc: Float>> Body for QueryBlock<'_, T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<I: InstructionSet>(self) {
        let width = self.heads.width;
        let count = self.heads.query_count(self.first);
        let (scores, sums) = (Matrix::new(self.scores, KEYS), Matrix::new(self.sums, width));
        let (one, scale) = (T::Acc::ONE, T::Acc::of(self.heads.scale));
        // SAFETY: blocks of queries and keys are within the operands, the worker's memory has room for a block, and
        // no other task writes to these queries' results.
        unsafe {
            let state = self.state.slice_mut(2 * QUERIES);
            let (largest, totals) = state.split_at_mut(QUERIES);
            largest.fill(-T::Acc::INFINITY);
            totals.fill(T::Acc::ZERO);
            for (key, keys) in self.heads.key_blocks(self.first + count - 1) {
                let size = Size { m: count, n: keys, k: width };
                self.products.run(size, scale, self.q, self.k.at(key, 0).transposed(), scores, false);
                for query in 0..count {
                    let visible = self.heads.visible(self.first + query).saturating_sub(key).min(keys);
                    let scores = self.scores.at(query * KEYS).slice_mut(KEYS);
                    let decay = exponentials(scores, visible, keys, &mut largest[query], &mut totals[query]);
                    if key > 0 {
                        for sum in self.sums.at(query * width).slice_mut(width) {
                            *sum = *sum * decay;
                        }
                    }
                }
                let size = Size { m: count, n: width, k: keys };
                self.products.run(size, one, scores, self.v.at(key, 0), sums, key > 0);
            }
            for query in 0..count {
                let total = totals[query];
                self.log_sum.at(query).set(largest[query] + T::Acc::ln(total));
                let output = self.output.at(query, 0).start.slice_mut(width);
                for (to, sum) in output.iter_mut().zip(self.sums.at(query * width).slice(width)) {
                    *to = T::narrow(*sum / total);
                }
            }
        }
    }
}

/// Turns the first `visible` of `count` scores into exponentials relative to the largest score so far and the
/// others into zero, and takes them into the total. Returns what earlier exponentials must be multiplied with.
#[inline(always)]
fn exponentials<A: Float>(
    scores: &mut [A],
    visible: usize,
    count: usize,
    largest: &mut A,
    total: &mut A,
) -> A {
    // Whole lanes, so that no loop has a remainder; what is not seen has the exponential zero.
    let end = visible.next_multiple_of(LANES);
    scores[visible..end].fill(-A::INFINITY);
    if end < count {
        scores[end..count].fill(A::ZERO);
    }
    if visible == 0 {
        return A::ONE;
    }
    let scores = &mut scores[..end];
    let new = MaxNumber::combine(*largest, fold_row::<MaxNumber<A>, A>(scores));
    for score in &mut *scores {
        *score = A::exp(*score - new);
    }
    let decay = A::exp(*largest - new);
    *total = *total * decay + fold_row::<Sum<A>, A>(scores);
    *largest = new;
    decay
}
