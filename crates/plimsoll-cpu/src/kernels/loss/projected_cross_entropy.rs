//! A projection to logits, their cross-entropy and all its gradients, some rows at a time.
//!
//! The logits of a language model are often the largest value of a step, and nothing but its loss needs them. Here
//! they exist for one chunk of rows: made in workspace, turned into losses and predictions, replaced by their
//! gradient, and used up for that of the operands. Every number is the one that the ops give that this one stands
//! for: rows of a product do not depend on the other rows, and the weight's gradient is summed over the rows in the
//! order that the whole product has.

#[cfg(test)]
mod tests;

use crate::gemm::{DepthSum, Gemm, Matrix, MatrixMut, gemm_rows, gemm_rows_workspace};
use crate::kernels::loss::cross_entropy::{gradient_of_row, loss_of_row};
use crate::kernels::memory::*;
use crate::kernels::reduce::find_in_row;
use crate::kernels::tasks::{each_range, rows_per_task};
use crate::numbers::{Element, Float, with_float};
use crate::runtime::{Call, Routine};
use crate::simd::{Body, InstructionSet, Isa};
use plimsoll_graph::DType;
use plimsoll_graph::program::Operand;
use std::ops::Range;

/// Prepares `Op::ProjectedCrossEntropy`, whose gradient of x may overwrite x.
pub(crate) fn prepare(transpose_weight: bool, chunk: usize, reads: &[Operand]) -> Box<dyn Routine> {
    with_float!(reads[0].dtype, T => Box::new(Projected::<T>::new(transpose_weight, chunk, reads)))
}

struct Projected<T> {
    isa: Isa,
    rows: usize,
    width: usize,
    classes: usize,
    labels: DType,
    /// Whether the weight is `[classes, width]`.
    transposed: bool,
    /// The gradient of the weight, a sum over the rows.
    weight_gradient: DepthSum<T>,
    /// The rows of each chunk.
    chunks: Vec<Range<usize>>,
}

impl<T: Element<Acc: Float> + Element> Projected<T> {
    fn new(transposed: bool, chunk: usize, reads: &[Operand]) -> Self {
        let (x, weight) = (reads[0].view.shape, reads[1].view.shape);
        let (rows, width, classes) = (x[0], x[1], weight[if transposed { 0 } else { 1 }]);
        let weight_gradient = DepthSum::new(weight[0], weight[1], rows);
        let chunks = weight_gradient.parts(chunk);
        let (isa, labels) = (Isa::detect(), reads[2].dtype);
        Self { isa, rows, width, classes, labels, transposed, weight_gradient, chunks }
    }

    /// The bytes of a chunk's logits and of the weight's sums, the first parts of the workspace.
    fn places(&self) -> [usize; 2] {
        let most = self.chunks.iter().map(Range::len).max().unwrap_or(0);
        [bytes_of::<T>(most * self.classes), bytes_of::<T::Acc>(self.weight_gradient.scratch())]
    }

    /// The bytes of workspace of the products, the last part.
    fn products(&self, threads: usize) -> usize {
        let Self { rows, width, classes, .. } = *self;
        let of_chunk = |chunk: &Range<usize>| {
            let logits = gemm_rows_workspace::<T>(chunk.len(), classes, width, rows, threads);
            let dx = gemm_rows_workspace::<T>(chunk.len(), width, classes, rows, threads);
            logits.max(dx).max(self.weight_gradient.workspace(chunk.clone(), threads))
        };
        self.chunks.iter().map(of_chunk).max().unwrap_or(0)
    }
}

impl<T: Element<Acc: Float> + Element> Routine for Projected<T> {
    fn workspace(&self, threads: usize) -> usize {
        self.places().iter().sum::<usize>() + self.products(threads)
    }

    unsafe fn run(&self, call: &Call<'_>) {
        let Self { rows, width, classes, .. } = *self;
        let (x, weight) = (Address::<T>::read(call, 0), Address::<T>::read(call, 1));
        let (dx, dweight) = (Address::<T>::write(call, 2), Address::<T>::write(call, 3));
        let [logits_bytes, sums_bytes] = self.places();
        let logits = Address::<T>::workspace(call, 0);
        let sums = match sums_bytes {
            0 => dweight.cast::<T::Acc>(),
            _ => Address::workspace(call, logits_bytes),
        };
        let workspace = Address::<u8>::workspace(call, logits_bytes + sums_bytes);
        // SAFETY: the workspace is as large as was asked for, and this part of it is used for products alone.
        let workspace = unsafe { workspace.slice_mut(self.products(call.pool.threads())) };

        let losses = Losses::<T> {
            logits,
            labels: Indices::read(call, 2, self.labels),
            slope: Address::read(call, 3),
            loss: Address::write(call, 0),
            prediction: Address::write(call, 1),
            classes,
            start: 0,
            rows: 0..0,
        };
        let projection = match self.transposed {
            true => turned(matrix(weight, width)),
            false => matrix(weight, classes),
        };
        for chunk in &self.chunks {
            let (m, start) = (chunk.len(), chunk.start);
            let (x, dx) = (x.at(start * width), dx.at(start * width));
            let product = |n, k, a, b, c: Address<T>| {
                let c = MatrixMut { start: c.pointer(), row_stride: n as isize, batch_strides: [0; 2] };
                Gemm { batch: [1, 1], m, n, k, alpha: T::Acc::ONE, a, b, c, accumulate: false }
            };
            let of_logits = product(classes, width, matrix(x, width), projection, logits);
            let of_dx = product(width, classes, matrix(logits, classes), turned(projection), dx);
            let (a, b) = match self.transposed {
                true => (turned(matrix(logits, classes)), matrix(x, width)),
                false => (turned(matrix(x, width)), matrix(logits, classes)),
            };
            // SAFETY: the chunk's rows are within the operands and its logits within the workspace, of which no part
            // is another's. Rows of dx are written after the last use of those of x, which may be the same memory.
            unsafe {
                gemm_rows(call.pool, &of_logits, rows, workspace);
                each_range(call.pool, m, rows_per_task(classes), &|_, rows| {
                    self.isa.run(Losses { start, rows, ..losses });
                });
                self.weight_gradient.add(call.pool, a, b, chunk.clone(), sums.pointer(), workspace);
                gemm_rows(call.pool, &of_dx, rows, workspace);
            }
        }
        // SAFETY: all rows have been added.
        unsafe { self.weight_gradient.finish(call.pool, sums.pointer(), dweight.pointer()) };
    }
}

/// A dense matrix of so many columns.
fn matrix<T: Copy>(start: Address<T>, columns: usize) -> Matrix<T> {
    Matrix { start: start.pointer(), row_stride: columns as isize, column_stride: 1, batch_strides: [0; 2] }
}

/// The transpose.
fn turned<T>(matrix: Matrix<T>) -> Matrix<T> {
    Matrix { row_stride: matrix.column_stride, column_stride: matrix.row_stride, ..matrix }
}

/// Losses and predictions of some rows of a chunk, whose logits become their gradients.
struct Losses<T: Element<Acc: Float>> {
    logits: Address<T>,
    labels: Indices,
    slope: Address<T::Acc>,
    loss: Address<T::Acc>,
    prediction: Address<i32>,
    classes: usize,
    /// The first row of the chunk.
    start: usize,
    /// Rows of the chunk.
    rows: Range<usize>,
}

impl<T: Element<Acc: Float> + Element> Body for Losses<T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<I: InstructionSet>(self) {
        let classes = self.classes;
        for in_chunk in self.rows {
            let row = self.start + in_chunk;
            // SAFETY: the row is within the operands, and no other task writes to it.
            unsafe {
                let (logits, label) = (self.logits.at(in_chunk * classes), self.labels.get(row));
                let (loss, sums) = loss_of_row(logits, classes, label);
                self.loss.at(row).set(loss);
                self.prediction.at(row).set(find_in_row(logits.pointer().cast_const(), classes));
                gradient_of_row(logits, classes, label, sums, self.slope.at(row).get(), logits);
            }
        }
    }
}
