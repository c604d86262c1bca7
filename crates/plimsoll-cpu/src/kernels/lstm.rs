//! A long short-term memory layer over time.
//!
//! Halves: sums are kept in single precision, but what is kept from one time step to the next, the hidden and the
//! cell state, is rounded, as are the products with the inputs.

use super::common::*;
use super::matrix::{Matrix, Multiply};
use super::recurrent::Layer;
use crate::numbers::{Float, FloatElement, with_float};
use crate::routine::{Call, Routine};
use crate::simd::{Body, InstructionSet};
use plimsoll_graph::program::Operand;
use std::marker::PhantomData;
use std::ops::Range;

/// Prepares `Op::Lstm`.
pub(crate) fn prepare(reads: &[Operand], _writes: &[Operand]) -> Box<dyn Routine> {
    with_float!(reads[0].dtype, T => Box::new(Lstm::<T>::new(reads)))
}

struct Lstm<T> {
    layer: Layer,
    element: PhantomData<T>,
}

impl<T: FloatElement> Lstm<T> {
    fn new(reads: &[Operand]) -> Self {
        Self { layer: Layer::new(&reads[0], &reads[2]), element: PhantomData }
    }

    /// The bytes of the products of a time step.
    fn product_bytes(&self) -> usize {
        bytes_of::<T::Acc>(self.layer.batch * self.layer.columns)
    }
}

impl<T: FloatElement> Routine for Lstm<T> {
    fn workspace(&self, threads: usize) -> usize {
        let inputs = self.layer.inputs_by_weight().workspace::<T>(threads);
        let step = self.layer.state_by_weight().workspace::<T::Acc>(threads);
        self.product_bytes() + inputs.max(step)
    }

    unsafe fn run(&self, call: &Call<'_>) {
        let Layer { isa, time, input, hidden, columns, .. } = self.layer;
        let [x, input_weight, hidden_weight, bias, first_hidden, first_cell] =
            [0, 1, 2, 3, 4, 5].map(|index| Address::<T>::read(call, index));
        let [states, gates, cells] = [0, 1, 2].map(|index| Address::<T>::write(call, index));
        let product = Address::<T::Acc>::workspace(call, 0);
        let multiply =
            Multiply { pool: call.pool, isa, workspace: Address::workspace(call, self.product_bytes()) };
        let one = T::Acc::ONE;
        let (x, input_weight) = (Matrix::new(x, input), Matrix::new(input_weight, columns));
        let hidden_weight = Matrix::new(hidden_weight, columns);
        // SAFETY: the operands have these extents, and the workspace room for the products.
        unsafe {
            let size = self.layer.inputs_by_weight();
            multiply.run(size, one, x, input_weight, Matrix::new(gates, columns), false);
            for step in 0..time {
                let before = self.layer.before(states, first_hidden, step);
                let (size, target) = (self.layer.state_by_weight(), Matrix::new(product, columns));
                multiply.run(size, one, before, hidden_weight, target, false);
                self.layer.each(call, &|rows| {
                    isa.run(Step {
                        rows,
                        hidden,
                        product,
                        bias,
                        gates: self.layer.step(gates, columns, step),
                        before: self.layer.before(cells, first_cell, step),
                        cells: self.layer.step(cells, hidden, step),
                        states: self.layer.step(states, hidden, step),
                    });
                });
            }
        }
    }
}

/// Some rows of a time step: from the products with inputs and hidden state to the next states.
struct Step<T: FloatElement> {
    rows: Range<usize>,
    hidden: usize,
    product: Address<T::Acc>,
    bias: Address<T>,
    /// Products with the inputs, to be replaced with activated gates.
    gates: Matrix<T>,
    before: Matrix<T>,
    cells: Matrix<T>,
    states: Matrix<T>,
}

impl<T: FloatElement> Body for Step<T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<I: InstructionSet>(self) {
        let zero = T::Acc::ZERO;
        let (mut gates, mut bias, mut cells) = ([[zero; CHUNK]; 4], [zero; CHUNK], [zero; CHUNK]);
        for row in self.rows {
            for (at, count) in chunks(self.hidden) {
                // SAFETY: the row is within the operands, and no other task writes to it.
                unsafe {
                    for (gate, sums) in gates.iter_mut().enumerate() {
                        let column = gate * self.hidden + at;
                        load(self.gates.at(row, column).start, count, sums);
                        load(self.bias.at(column), count, &mut bias);
                        let product = self.product.at(row * 4 * self.hidden + column).slice(count);
                        for ((sum, bias), product) in sums[..count].iter_mut().zip(&bias).zip(product) {
                            *sum = *sum + *product + *bias;
                            *sum = if gate == 2 { T::Acc::tanh(*sum) } else { T::Acc::sigmoid(*sum) };
                        }
                        store(sums, self.gates.at(row, column).start, count);
                    }
                    load(self.before.at(row, at).start, count, &mut cells);
                    let [enter, keep, new, show] = &mut gates;
                    for i in 0..count {
                        cells[i] = keep[i] * cells[i] + enter[i] * new[i];
                        show[i] = show[i] * T::Acc::tanh(cells[i]);
                    }
                    store(&cells, self.cells.at(row, at).start, count);
                    store(show, self.states.at(row, at).start, count);
                }
            }
        }
    }
}
