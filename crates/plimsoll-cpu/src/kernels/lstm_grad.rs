//! The gradient of a long short-term memory layer over time.

use super::common::*;
use super::matrix::{Matrix, Multiply};
use super::recurrent::{Gradients, Layer};
use crate::numbers::{Float, FloatElement, with_float};
use crate::routine::{Call, Routine};
use crate::simd::{Body, InstructionSet};
use plimsoll_graph::program::Operand;
use std::marker::PhantomData;
use std::ops::Range;

/// Prepares `Op::LstmGrad`.
pub(crate) fn prepare(reads: &[Operand], _writes: &[Operand]) -> Box<dyn Routine> {
    with_float!(reads[0].dtype, T => Box::new(LstmGrad::<T>::new(reads)))
}

struct LstmGrad<T> {
    layer: Layer,
    element: PhantomData<T>,
}

impl<T: FloatElement> LstmGrad<T> {
    fn new(reads: &[Operand]) -> Self {
        Self { layer: Layer::new(&reads[0], &reads[2]), element: PhantomData }
    }

    /// The bytes of the gradients of all gates, and of one step's hidden state and cell state.
    fn parts(&self) -> [usize; 3] {
        let Layer { batch, hidden, columns, .. } = self.layer;
        let state = bytes_of::<T::Acc>(batch * hidden);
        [bytes_of::<T>(self.layer.rows() * columns), state, state]
    }
}

impl<T: FloatElement> Routine for LstmGrad<T> {
    fn workspace(&self, threads: usize) -> usize {
        let columns = self.layer.columns;
        let step = self.layer.gates_by_weight(columns).workspace::<T::Acc>(threads);
        let end = self.layer.gradients_workspace::<T>(columns, &[columns], threads);
        self.parts().iter().sum::<usize>() + step.max(end)
    }

    unsafe fn run(&self, call: &Call<'_>) {
        let Layer { isa, batch, time, hidden, columns, .. } = self.layer;
        let layer = self.layer;
        let [x, input_weight, hidden_weight, first_hidden, first_cell, states, gates, cells, dy] =
            [0, 1, 2, 3, 4, 5, 6, 7, 8].map(|index| Address::<T>::read(call, index));
        let [dx, dinput_weight, dhidden_weight, dbias, dfirst_hidden, dfirst_cell] =
            [0, 1, 2, 3, 4, 5].map(|index| Address::<T>::write(call, index));
        let parts = self.parts();
        let dgates = Address::<T>::workspace(call, 0);
        let dstate = Address::<T::Acc>::workspace(call, parts[0]);
        let dcell = Address::<T::Acc>::workspace(call, parts[0] + parts[1]);
        let multiply =
            Multiply { pool: call.pool, isa, workspace: Address::workspace(call, parts.iter().sum()) };
        // SAFETY: the operands have these extents, and the workspace room for the parts and the products.
        unsafe {
            dstate.slice_mut(batch * hidden).fill(T::Acc::ZERO);
            dcell.slice_mut(batch * hidden).fill(T::Acc::ZERO);
            for step in (0..time).rev() {
                let dgates = layer.step(dgates, columns, step);
                layer.each(call, &|rows| {
                    isa.run(Step {
                        rows,
                        hidden,
                        gates: layer.step(gates, columns, step),
                        cells: layer.step(cells, hidden, step),
                        before: layer.before(cells, first_cell, step),
                        dy: layer.step(dy, hidden, step),
                        dstate,
                        dcell,
                        dgates,
                    });
                });
                let weight = Matrix::new(hidden_weight, columns).transposed();
                let size = layer.gates_by_weight(columns);
                multiply.run(size, T::Acc::ONE, dgates, weight, Matrix::new(dstate, hidden), false);
            }
            round(dstate.slice(batch * hidden), dfirst_hidden.slice_mut(batch * hidden));
            round(dcell.slice(batch * hidden), dfirst_cell.slice_mut(batch * hidden));
            let gradients = Gradients {
                layer,
                x,
                input_weight,
                states,
                first: first_hidden,
                gates: dgates,
                width: columns,
                dx,
                dinput_weight,
                dhidden_weight,
            };
            gradients.run(multiply, &[(0..columns, 0)]);
            round(multiply.workspace.cast::<T::Acc>().slice(columns), dbias.slice_mut(columns));
        }
    }
}

/// Some rows of a time step: from the gradients of the states to those of the gates.
struct Step<T: FloatElement> {
    rows: Range<usize>,
    hidden: usize,
    gates: Matrix<T>,
    cells: Matrix<T>,
    before: Matrix<T>,
    dy: Matrix<T>,
    /// The gradient of the hidden state from the step after.
    dstate: Address<T::Acc>,
    /// The gradient of the cell state from the step after, to be replaced with that for the step before.
    dcell: Address<T::Acc>,
    dgates: Matrix<T>,
}

impl<T: FloatElement> Body for Step<T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<I: InstructionSet>(self) {
        let (zero, one) = (T::Acc::ZERO, T::Acc::ONE);
        let (mut gates, mut cells, mut before) = ([[zero; CHUNK]; 4], [zero; CHUNK], [zero; CHUNK]);
        let mut dy = [zero; CHUNK];
        for row in self.rows {
            for (at, count) in chunks(self.hidden) {
                // SAFETY: the row is within the operands, and no other task writes to it.
                unsafe {
                    for (gate, values) in gates.iter_mut().enumerate() {
                        load(self.gates.at(row, gate * self.hidden + at).start, count, values);
                    }
                    load(self.cells.at(row, at).start, count, &mut cells);
                    load(self.before.at(row, at).start, count, &mut before);
                    load(self.dy.at(row, at).start, count, &mut dy);
                    let dstate = self.dstate.at(row * self.hidden + at).slice(count);
                    let dcell = self.dcell.at(row * self.hidden + at).slice_mut(count);
                    let [enter, keep, new, show] = &mut gates;
                    for i in 0..count {
                        let (entered, kept, candidate, shown) = (enter[i], keep[i], new[i], show[i]);
                        let dstate = dstate[i] + dy[i];
                        let cell = T::Acc::tanh(cells[i]);
                        let slope = dcell[i] + dstate * shown * (one - cell * cell);
                        enter[i] = slope * candidate * entered * (one - entered);
                        keep[i] = slope * before[i] * kept * (one - kept);
                        new[i] = slope * entered * (one - candidate * candidate);
                        show[i] = dstate * cell * shown * (one - shown);
                        dcell[i] = slope * kept;
                    }
                    for (gate, slopes) in gates.iter().enumerate() {
                        store(slopes, self.dgates.at(row, gate * self.hidden + at).start, count);
                    }
                }
            }
        }
    }
}
