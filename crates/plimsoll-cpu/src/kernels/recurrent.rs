//! What layers over time have in common.
//!
//! The products with the inputs of all time steps are one product, and so are the gradients of the weights; only
//! the products with the hidden state go step by step. What is kept from one step to the next is in results of the
//! layer already, so the gradients need scratch memory for the gates alone.

use super::common::*;
use super::matrix::{Matrix, Multiply, Size};
use super::summation::columns::{Blocks, sum_rows};
use crate::gemm::{Layout, Left, copy};
use crate::numbers::{Float, FloatElement};
use crate::routine::Call;
use crate::simd::{Isa, Vector};
use plimsoll_graph::program::Operand;
use std::ops::Range;

/// The extents of a layer over time.
#[derive(Clone, Copy)]
pub(super) struct Layer {
    pub(super) isa: Isa,
    pub(super) batch: usize,
    pub(super) time: usize,
    pub(super) input: usize,
    pub(super) hidden: usize,
    /// The columns of the weights: the hidden extent for every gate.
    pub(super) columns: usize,
}

impl Layer {
    /// The layer of this input and hidden weight.
    pub(super) fn new(x: &Operand, hidden_weight: &Operand) -> Self {
        let [batch, time, input] = [0, 1, 2].map(|axis| x.view.shape[axis]);
        let [hidden, columns] = [0, 1].map(|axis| hidden_weight.view.shape[axis]);
        Self { isa: Isa::detect(), batch, time, input, hidden, columns }
    }

    /// The rows of all time steps.
    pub(super) fn rows(&self) -> usize {
        self.batch * self.time
    }

    /// A time step of a `[batch, time, width]` tensor: a row for each element of the batch.
    pub(super) fn step<T: Copy>(&self, start: Address<T>, width: usize, time: usize) -> Matrix<T> {
        Matrix::new(start.at(time * width), self.time * width)
    }

    /// The state before a time step, of the states after each and the first one.
    pub(super) fn before<T: Copy>(&self, states: Address<T>, first: Address<T>, time: usize) -> Matrix<T> {
        match time.checked_sub(1) {
            Some(time) => self.step(states, self.hidden, time),
            None => Matrix::new(first, self.hidden),
        }
    }

    /// Calls `task` for ranges of the batch.
    pub(super) fn each(&self, call: &Call<'_>, task: &(dyn Fn(Range<usize>) + Sync)) {
        each_range(call.pool, self.batch, rows_per_task(8 * self.hidden), &|_, range| task(range));
    }

    /// The product of all inputs with the input weight.
    pub(super) fn inputs_by_weight(&self) -> Size {
        Size { m: self.rows(), n: self.columns, k: self.input }
    }

    /// The product of a step's hidden state with the hidden weight.
    pub(super) fn state_by_weight(&self) -> Size {
        Size { m: self.batch, n: self.columns, k: self.hidden }
    }

    /// The product of the gradients of `columns` of a step's gates with the hidden weight.
    pub(super) fn gates_by_weight(&self, columns: usize) -> Size {
        Size { m: self.batch, n: self.hidden, k: columns }
    }

    fn inputs_by_gates(&self) -> Size {
        Size { m: self.input, n: self.columns, k: self.rows() }
    }

    fn states_by_gates(&self, columns: usize) -> Size {
        Size { m: self.hidden, n: columns, k: self.rows() }
    }

    fn all_gates_by_weight(&self) -> Size {
        Size { m: self.rows(), n: self.input, k: self.columns }
    }

    /// The workspace of [`Gradients::run`], for gradients of gates in `width` columns, of which the hidden weight
    /// sees `columns` together.
    pub(super) fn gradients_workspace<T: FloatElement>(
        &self,
        width: usize,
        columns: &[usize],
        threads: usize,
    ) -> usize {
        let sizes = [self.inputs_by_gates(), self.all_gates_by_weight()];
        let hidden = columns.iter().map(|&columns| self.states_by_gates(columns));
        let products = sizes.into_iter().chain(hidden).map(|size| size.workspace::<T>(threads));
        let sums = Blocks::new(self.rows()).parts_bytes::<T::Acc>(width);
        products.max().unwrap_or(0).max(sums)
    }
}

/// The gradients of a layer's inputs and weights, from those of its gates before activation.
pub(super) struct Gradients<T> {
    pub(super) layer: Layer,
    pub(super) x: Address<T>,
    pub(super) input_weight: Address<T>,
    /// The hidden states after each step, and before the first.
    pub(super) states: Address<T>,
    pub(super) first: Address<T>,
    /// The gradients of the gates, `[batch, time, width]`: first those of the input weight's columns.
    pub(super) gates: Address<T>,
    pub(super) width: usize,
    pub(super) dx: Address<T>,
    pub(super) dinput_weight: Address<T>,
    pub(super) dhidden_weight: Address<T>,
}

impl<T: FloatElement> Gradients<T> {
    /// Computes the gradients of the inputs and of the input weight; those of the hidden weight, whose columns in
    /// `from` are gradients of the gates in as many columns from `to` on, for every pair in `columns`; and the sums
    /// of the gates' gradients over all rows, which are left at the beginning of the workspace.
    ///
    /// # Safety
    /// The operands must have the layer's extents, and the workspace be valid for [`Layer::gradients_workspace`].
    pub(super) unsafe fn run(&self, multiply: Multiply<'_>, columns: &[(Range<usize>, usize)]) {
        let Gradients { layer, width, .. } = *self;
        let one = T::Acc::ONE;
        let gates = Matrix::new(self.gates, width);
        let x = Matrix::new(self.x, layer.input);
        let before =
            Before { states: self.states, first: self.first, time: layer.time, hidden: layer.hidden };
        // SAFETY: the caller vouches for the operands and the workspace.
        unsafe {
            for (from, to) in columns {
                let size = layer.states_by_gates(from.len());
                let target = Matrix::new(self.dhidden_weight, layer.columns).at(0, from.start);
                multiply.run_packed(size, one, &before, &gates.at(0, *to).right(), target, false);
            }
            let target = Matrix::new(self.dinput_weight, layer.columns);
            multiply.run(layer.inputs_by_gates(), one, x.transposed(), gates, target, false);
            let weight = Matrix::new(self.input_weight, layer.columns).transposed();
            let target = Matrix::new(self.dx, layer.input);
            multiply.run(layer.all_gates_by_weight(), one, gates, weight, target, false);
            let (blocks, parts) = (Blocks::new(layer.rows()), multiply.workspace.cast());
            sum_rows(multiply.pool, layer.isa, gates, blocks, width, parts);
        }
    }
}

/// The hidden states before all time steps, `[batch · time, hidden]`, transposed: those after the steps one step
/// later, and the first ones. As the left operand of a product, so that they need not be copied together.
struct Before<T> {
    states: Address<T>,
    first: Address<T>,
    time: usize,
    hidden: usize,
}

impl<T: FloatElement> Left<T::Acc> for Before<T> {
    #[inline(always)]
    unsafe fn pack<V: Vector<Scalar = T::Acc>>(
        &self,
        _batch: usize,
        rows: Range<usize>,
        depth: Range<usize>,
        out: *mut T::Acc,
    ) -> Layout<T::Acc> {
        let width = rows.len().next_multiple_of(V::LANES);
        for (i, step) in depth.enumerate() {
            let state = match step % self.time {
                0 => self.first.at(step / self.time * self.hidden),
                _ => self.states.at((step - 1) * self.hidden),
            };
            // SAFETY: the ranges are within the operand, and `out` has whole vectors of the rows for each depth.
            unsafe { copy::<V, T>(state.at(rows.start).pointer(), rows.len(), out.add(i * width)) };
        }
        Layout { start: out, lead_stride: 1, depth_stride: width as isize }
    }
}

#[cfg(test)]
mod tests;
