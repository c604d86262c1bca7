//! The gradient of a gated recurrent layer over time.

use super::common::*;
use super::matrix::{Matrix, Multiply};
use super::recurrent::{Gradients, Layer};
use crate::numbers::{Float, FloatElement, with_float};
use crate::routine::{Call, Routine};
use crate::simd::{Body, InstructionSet};
use plimsoll_graph::program::Operand;
use std::marker::PhantomData;
use std::ops::Range;

/// Prepares `Op::GruGrad`.
pub(crate) fn prepare(reads: &[Operand], _writes: &[Operand]) -> Box<dyn Routine> {
    with_float!(reads[0].dtype, T => Box::new(GruGrad::<T>::new(reads)))
}

struct GruGrad<T> {
    layer: Layer,
    element: PhantomData<T>,
}

impl<T: FloatElement> GruGrad<T> {
    fn new(reads: &[Operand]) -> Self {
        Self { layer: Layer::new(&reads[0], &reads[2]), element: PhantomData }
    }

    /// The bytes of the gradients of all gates and the new gate's hidden product, and of one step's hidden state.
    fn parts(&self) -> [usize; 2] {
        let Layer { batch, hidden, .. } = self.layer;
        [bytes_of::<T>(self.layer.rows() * 4 * hidden), bytes_of::<T::Acc>(batch * hidden)]
    }

    /// The columns of the hidden weight that reset and update gate see, and the new gate, and where the gradients
    /// of their products are.
    fn columns(&self) -> [(Range<usize>, usize); 2] {
        let hidden = self.layer.hidden;
        [(0..2 * hidden, 0), (2 * hidden..3 * hidden, 3 * hidden)]
    }
}

impl<T: FloatElement> Routine for GruGrad<T> {
    fn workspace(&self, threads: usize) -> usize {
        let columns = self.columns().map(|(from, _)| from.len());
        let steps = columns.map(|columns| self.layer.gates_by_weight(columns).workspace::<T::Acc>(threads));
        let end = self.layer.gradients_workspace::<T>(4 * self.layer.hidden, &columns, threads);
        self.parts().iter().sum::<usize>() + steps[0].max(steps[1]).max(end)
    }

    unsafe fn run(&self, call: &Call<'_>) {
        let Layer { isa, batch, time, hidden, columns, .. } = self.layer;
        let layer = self.layer;
        let [x, input_weight, hidden_weight, first, states, gates, dy] =
            [0, 1, 2, 3, 4, 5, 6].map(|index| Address::<T>::read(call, index));
        let [dx, dinput_weight, dhidden_weight, dinput_bias, dhidden_bias, dfirst] =
            [0, 1, 2, 3, 4, 5].map(|index| Address::<T>::write(call, index));
        let parts = self.parts();
        let dgates = Address::<T>::workspace(call, 0);
        let dstate = Address::<T::Acc>::workspace(call, parts[0]);
        let multiply =
            Multiply { pool: call.pool, isa, workspace: Address::workspace(call, parts[0] + parts[1]) };
        let weight = Matrix::new(hidden_weight, columns);
        // SAFETY: the operands have these extents, and the workspace room for the parts and the products.
        unsafe {
            dstate.slice_mut(batch * hidden).fill(T::Acc::ZERO);
            for step in (0..time).rev() {
                let dgates = layer.step(dgates, 4 * hidden, step);
                layer.each(call, &|rows| {
                    isa.run(Step {
                        rows,
                        hidden,
                        gates: layer.step(gates, 4 * hidden, step),
                        before: layer.before(states, first, step),
                        dy: layer.step(dy, hidden, step),
                        dstate,
                        dgates,
                    });
                });
                for (from, to) in self.columns() {
                    let size = layer.gates_by_weight(from.len());
                    let weight = weight.at(0, from.start).transposed();
                    multiply.run(
                        size,
                        T::Acc::ONE,
                        dgates.at(0, to),
                        weight,
                        Matrix::new(dstate, hidden),
                        true,
                    );
                }
            }
            round(dstate.slice(batch * hidden), dfirst.slice_mut(batch * hidden));
            let gradients = Gradients {
                layer,
                x,
                input_weight,
                states,
                first,
                gates: dgates,
                width: 4 * hidden,
                dx,
                dinput_weight,
                dhidden_weight,
            };
            gradients.run(multiply, &self.columns());
            let sums = multiply.workspace.cast::<T::Acc>();
            round(sums.slice(3 * hidden), dinput_bias.slice_mut(3 * hidden));
            for (from, to) in self.columns() {
                round(sums.at(to).slice(from.len()), dhidden_bias.at(from.start).slice_mut(from.len()));
            }
        }
    }
}

/// Some rows of a time step: from the gradient of the state to those of the gates.
struct Step<T: FloatElement> {
    rows: Range<usize>,
    hidden: usize,
    gates: Matrix<T>,
    before: Matrix<T>,
    dy: Matrix<T>,
    /// The gradient of the hidden state from the step after, to be replaced with what goes past the gates to the
    /// step before.
    dstate: Address<T::Acc>,
    dgates: Matrix<T>,
}

impl<T: FloatElement> Body for Step<T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<I: InstructionSet>(self) {
        let (zero, one) = (T::Acc::ZERO, T::Acc::ONE);
        let (mut gates, mut before, mut dy) = ([[zero; CHUNK]; 4], [zero; CHUNK], [zero; CHUNK]);
        for row in self.rows {
            for (at, count) in chunks(self.hidden) {
                // SAFETY: the row is within the operands, and no other task writes to it.
                unsafe {
                    for (gate, values) in gates.iter_mut().enumerate() {
                        load(self.gates.at(row, gate * self.hidden + at).start, count, values);
                    }
                    load(self.before.at(row, at).start, count, &mut before);
                    load(self.dy.at(row, at).start, count, &mut dy);
                    let dstate = self.dstate.at(row * self.hidden + at).slice_mut(count);
                    let [reset, update, new, product] = &mut gates;
                    for i in 0..count {
                        let (reset_by, kept, candidate, hidden) = (reset[i], update[i], new[i], product[i]);
                        let slope = dstate[i] + dy[i];
                        let dnew = slope * (one - kept) * (one - candidate * candidate);
                        reset[i] = dnew * hidden * reset_by * (one - reset_by);
                        update[i] = slope * (before[i] - candidate) * kept * (one - kept);
                        new[i] = dnew;
                        product[i] = dnew * reset_by;
                        dstate[i] = slope * kept;
                    }
                    for (gate, slopes) in gates.iter().enumerate() {
                        store(slopes, self.dgates.at(row, gate * self.hidden + at).start, count);
                    }
                }
            }
        }
    }
}
