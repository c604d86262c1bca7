//! A gated recurrent layer over time.
//!
//! Halves: sums are kept in single precision, but the hidden state, which is kept from one time step to the next,
//! is rounded, as are the products with the inputs.

use super::common::*;
use super::matrix::{Matrix, Multiply};
use super::recurrent::Layer;
use crate::numbers::{Float, FloatElement, with_float};
use crate::routine::{Call, Routine};
use crate::simd::{Body, InstructionSet};
use plimsoll_graph::program::Operand;
use std::marker::PhantomData;
use std::ops::Range;

/// Prepares `Op::Gru`. The new gate's hidden product that is kept includes its bias.
pub(crate) fn prepare(reads: &[Operand], _writes: &[Operand]) -> Box<dyn Routine> {
    with_float!(reads[0].dtype, T => Box::new(Gru::<T>::new(reads)))
}

struct Gru<T> {
    layer: Layer,
    element: PhantomData<T>,
}

impl<T: FloatElement> Gru<T> {
    fn new(reads: &[Operand]) -> Self {
        Self { layer: Layer::new(&reads[0], &reads[2]), element: PhantomData }
    }

    /// The bytes of the products of a time step.
    fn product_bytes(&self) -> usize {
        bytes_of::<T::Acc>(self.layer.batch * self.layer.columns)
    }
}

impl<T: FloatElement> Routine for Gru<T> {
    fn workspace(&self, threads: usize) -> usize {
        let inputs = self.layer.inputs_by_weight().workspace::<T>(threads);
        let step = self.layer.state_by_weight().workspace::<T::Acc>(threads);
        self.product_bytes() + inputs.max(step)
    }

    unsafe fn run(&self, call: &Call<'_>) {
        let Layer { isa, time, input, hidden, columns, .. } = self.layer;
        let [x, input_weight, hidden_weight, input_bias, hidden_bias, first] =
            [0, 1, 2, 3, 4, 5].map(|index| Address::<T>::read(call, index));
        let [states, gates] = [0, 1].map(|index| Address::<T>::write(call, index));
        let product = Address::<T::Acc>::workspace(call, 0);
        let multiply =
            Multiply { pool: call.pool, isa, workspace: Address::workspace(call, self.product_bytes()) };
        let one = T::Acc::ONE;
        let (x, input_weight) = (Matrix::new(x, input), Matrix::new(input_weight, columns));
        let hidden_weight = Matrix::new(hidden_weight, columns);
        // SAFETY: the operands have these extents, and the workspace room for the products.
        unsafe {
            // The gates are one column of blocks wider than the weights: the product goes to the first three.
            let size = self.layer.inputs_by_weight();
            multiply.run(size, one, x, input_weight, Matrix::new(gates, 4 * hidden), false);
            for step in 0..time {
                let before = self.layer.before(states, first, step);
                let (size, target) = (self.layer.state_by_weight(), Matrix::new(product, columns));
                multiply.run(size, one, before, hidden_weight, target, false);
                self.layer.each(call, &|rows| {
                    isa.run(Step {
                        rows,
                        hidden,
                        product,
                        biases: [input_bias, hidden_bias],
                        gates: self.layer.step(gates, 4 * hidden, step),
                        before,
                        states: self.layer.step(states, hidden, step),
                    });
                });
            }
        }
    }
}

/// Some rows of a time step: from the products with inputs and hidden state to the next state.
struct Step<T: FloatElement> {
    rows: Range<usize>,
    hidden: usize,
    product: Address<T::Acc>,
    /// Of the products with the inputs and with the hidden state.
    biases: [Address<T>; 2],
    /// Products with the inputs, to be replaced with activated gates and the new gate's hidden product.
    gates: Matrix<T>,
    before: Matrix<T>,
    states: Matrix<T>,
}

impl<T: FloatElement> Body for Step<T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<I: InstructionSet>(self) {
        let (zero, one) = (T::Acc::ZERO, T::Acc::ONE);
        let (mut inputs, mut products, mut bias) = ([[zero; CHUNK]; 3], [[zero; CHUNK]; 3], [zero; CHUNK]);
        let mut state = [zero; CHUNK];
        for row in self.rows {
            for (at, count) in chunks(self.hidden) {
                // SAFETY: the row is within the operands, and no other task writes to it.
                unsafe {
                    for gate in 0..3 {
                        let column = gate * self.hidden + at;
                        load(self.gates.at(row, column).start, count, &mut inputs[gate]);
                        load(self.product.at(row * 3 * self.hidden + column), count, &mut products[gate]);
                        for (sums, source) in
                            [&mut inputs[gate], &mut products[gate]].into_iter().zip(self.biases)
                        {
                            load(source.at(column), count, &mut bias);
                            for (sum, bias) in sums[..count].iter_mut().zip(&bias) {
                                *sum += *bias;
                            }
                        }
                    }
                    load(self.before.at(row, at).start, count, &mut state);
                    let [reset, update, new] = &mut inputs;
                    for i in 0..count {
                        reset[i] = T::Acc::sigmoid(reset[i] + products[0][i]);
                        update[i] = T::Acc::sigmoid(update[i] + products[1][i]);
                        new[i] = T::Acc::tanh(new[i] + reset[i] * products[2][i]);
                        state[i] = (one - update[i]) * new[i] + update[i] * state[i];
                    }
                    for (gate, values) in inputs.iter().chain([&products[2]]).enumerate() {
                        store(values, self.gates.at(row, gate * self.hidden + at).start, count);
                    }
                    store(&state, self.states.at(row, at).start, count);
                }
            }
        }
    }
}
