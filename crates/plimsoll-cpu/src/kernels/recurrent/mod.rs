//! Recurrent layers over time, and their gradients.
//!
//! The products with the inputs of all time steps are one product, and so are the gradients of the weights; only
//! the products with the hidden state go step by step. What is kept from one step to the next is in results of the
//! layer already, so the gradients need scratch memory for the gates alone. All that is the same for all layers; what
//! tells one from another is its [`Cell`].
//!
//! Halves: sums are kept in single precision, but what is kept from one time step to the next, the hidden and the
//! cell state, is rounded, as are the products with the inputs.

mod forward;
mod grad;
mod gru;
mod lstm;
#[cfg(test)]
mod tests;

use crate::kernels::memory::*;
use crate::kernels::product::matrix::{Matrix, Size};
use crate::kernels::tasks::{each_range, rows_per_task};
use crate::numbers::{Element, Float, with_float};
use crate::runtime::{Call, Routine};
use crate::simd::{Body, InstructionSet, Isa};
use plimsoll_graph::program::Operand;
use std::ops::Range;

pub(crate) use gru::Gru;
pub(crate) use lstm::Lstm;

/// Prepares `Op::Lstm` or `Op::Gru`.
pub(crate) fn prepare<C: Cell>(reads: &[Operand]) -> Box<dyn Routine> {
    let layer = Layer::new(&reads[0], &reads[2]);
    with_float!(reads[0].dtype, T => Box::new(forward::Forward::<T, C>::new(layer)))
}

/// Prepares `Op::LstmGrad` or `Op::GruGrad`.
pub(crate) fn prepare_grad<C: Cell>(reads: &[Operand]) -> Box<dyn Routine> {
    let layer = Layer::new(&reads[0], &reads[2]);
    with_float!(reads[0].dtype, T => Box::new(grad::Backward::<T, C>::new(layer)))
}

/// What tells one recurrent layer from another.
///
/// Operands of all layers begin with x, the input weight and the hidden weight, and results with the states and the
/// gates, which are as wide as four hidden states. Those of gradients begin with the same operands and the first hidden
/// state, and with the gradients of the former.
pub(crate) trait Cell: Send + Sync + 'static {
    /// Which operand of the layer is the hidden state before the first step.
    const FIRST_STATE: usize;
    /// Which operand of the gradient are the states.
    const STATES: usize;
    /// Which result of the gradient is that of the first hidden state.
    const FIRST_STATE_GRAD: usize;
    /// Whether the gradient of a hidden state is more than what comes by way of the gates.
    const STATE_PASSES: bool;
    /// How many more states than the hidden one the cell has.
    const MORE_STATES: usize;

    /// The columns of the hidden weight whose products have gradients of their own, and where those begin among the
    /// gradients of the gates.
    fn columns(hidden: usize) -> impl Iterator<Item = (Range<usize>, usize)>;

    /// A time step: from the products with inputs, in the place of the gates, and with the hidden state, at `products`, to
    /// gates and states.
    fn forward<T: Element<Acc: Float>>(
        layer: &Layer,
        call: &Call<'_>,
        time: usize,
        products: Address<T::Acc>,
    ) -> impl CellStep;

    /// The gradient of a time step: from those of its states to those of its gates.
    fn backward<T: Element<Acc: Float>>(
        layer: &Layer,
        call: &Call<'_>,
        time: usize,
        gradients: StepGradients<T>,
    ) -> impl CellStep;

    /// Writes the gradients of biases, from the `sums` of the gates' gradients, and of more states than the hidden one.
    ///
    /// # Safety
    /// The call is that of the gradient, and all sums are there.
    unsafe fn finish<T: Element<Acc: Float>>(
        layer: &Layer,
        call: &Call<'_>,
        sums: Address<T::Acc>,
        more_states: Address<T::Acc>,
    );
}

/// What the gradient of a time step works on beside operands.
#[derive(Clone, Copy)]
pub(crate) struct StepGradients<T: Element<Acc: Float>> {
    /// The gradient of the hidden state from the step after; if it passes the gates, to be replaced with what goes past
    /// them to the step before.
    state: Address<T::Acc>,
    /// The gradients of more states from the step after, to be replaced with those for the step before.
    more_states: Address<T::Acc>,
    /// Where the gradients of the gates go.
    gates: Matrix<T>,
}

/// The elementwise part of a time step.
pub(crate) trait CellStep: Sync {
    /// The staged elements of a chunk.
    type Chunks;

    fn chunks() -> Self::Chunks;

    /// Works on `count` elements of the hidden state from `at` on, of one row of the batch.
    ///
    /// # Safety
    /// They are within the layer, and no other task works on them.
    unsafe fn run(&self, chunks: &mut Self::Chunks, row: usize, at: usize, count: usize);
}

/// Some rows of a time step.
struct Rows<'a, S> {
    step: &'a S,
    rows: Range<usize>,
    hidden: usize,
}

impl<S: CellStep> Body for Rows<'_, S> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<I: InstructionSet>(self) {
        let mut staged = S::chunks();
        for row in self.rows {
            for (at, count) in chunks(self.hidden) {
                // SAFETY: rows of different tasks are different.
                unsafe { self.step.run(&mut staged, row, at, count) };
            }
        }
    }
}

/// The extents of a layer over time.
#[derive(Clone, Copy)]
pub(crate) struct Layer {
    isa: Isa,
    batch: usize,
    time: usize,
    input: usize,
    hidden: usize,
    /// The columns of the weights: the hidden extent for every gate.
    columns: usize,
}

impl Layer {
    /// The layer of this input and hidden weight.
    fn new(x: &Operand, hidden_weight: &Operand) -> Self {
        let [batch, time, input] = [0, 1, 2].map(|axis| x.view.shape[axis]);
        let [hidden, columns] = [0, 1].map(|axis| hidden_weight.view.shape[axis]);
        Self { isa: Isa::detect(), batch, time, input, hidden, columns }
    }

    /// The rows of all time steps.
    fn rows(&self) -> usize {
        self.batch * self.time
    }

    /// The columns of the gates, and of their gradients.
    fn gates(&self) -> usize {
        4 * self.hidden
    }

    /// The elements of one step's hidden state.
    fn state(&self) -> usize {
        self.batch * self.hidden
    }

    /// A time step of a `[batch, time, width]` tensor: a row for each element of the batch.
    fn step<T: Copy>(&self, start: Address<T>, width: usize, time: usize) -> Matrix<T> {
        Matrix::new(start.at(time * width), self.time * width)
    }

    /// The state before a time step, of the states after each and the first one.
    fn before<T: Copy>(&self, states: Address<T>, first: Address<T>, time: usize) -> Matrix<T> {
        match time.checked_sub(1) {
            Some(time) => self.step(states, self.hidden, time),
            None => Matrix::new(first, self.hidden),
        }
    }

    /// Runs the elementwise part of a time step.
    fn run(&self, call: &Call<'_>, step: &impl CellStep) {
        let Layer { isa, batch, hidden, .. } = *self;
        each_range(call.pool, batch, rows_per_task(8 * hidden), &|_, rows| {
            isa.run(Rows { step, rows, hidden })
        });
    }

    /// The product of all inputs with the input weight.
    fn inputs_by_weight(&self) -> Size {
        Size { m: self.rows(), n: self.columns, k: self.input }
    }

    /// The product of a step's hidden state with the hidden weight.
    fn state_by_weight(&self) -> Size {
        Size { m: self.batch, n: self.columns, k: self.hidden }
    }

    /// The product of the gradients of `columns` of a step's gates with the hidden weight.
    fn gates_by_weight(&self, columns: usize) -> Size {
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
}
