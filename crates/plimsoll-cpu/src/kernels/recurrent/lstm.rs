//! The cell of a long short-term memory layer.

use super::{Cell, CellStep, Layer, StepGradients};
use crate::kernels::memory::*;
use crate::kernels::product::matrix::Matrix;
use crate::numbers::{Element, Float};
use crate::runtime::Call;
use std::ops::Range;

/// Gates that let in, keep and show a second, cell state.
pub(crate) struct Lstm;

impl Cell for Lstm {
    const FIRST_STATE: usize = 4;
    const STATES: usize = 5;
    const FIRST_STATE_GRAD: usize = 4;
    const STATE_PASSES: bool = false;
    const MORE_STATES: usize = 1;

    fn columns(hidden: usize) -> impl Iterator<Item = (Range<usize>, usize)> {
        std::iter::once((0..4 * hidden, 0))
    }

    fn forward<T: Element<Acc: Float>>(
        layer: &Layer,
        call: &Call<'_>,
        time: usize,
        products: Address<T::Acc>,
    ) -> impl CellStep {
        let [bias, first_cell] = [3, 5].map(|index| Address::<T>::read(call, index));
        let [states, gates, cells] = [0, 1, 2].map(|index| Address::<T>::write(call, index));
        Forward {
            hidden: layer.hidden,
            products,
            bias,
            gates: layer.step(gates, layer.gates(), time),
            before: layer.before(cells, first_cell, time),
            cells: layer.step(cells, layer.hidden, time),
            states: layer.step(states, layer.hidden, time),
        }
    }

    fn backward<T: Element<Acc: Float>>(
        layer: &Layer,
        call: &Call<'_>,
        time: usize,
        gradients: StepGradients<T>,
    ) -> impl CellStep {
        let [first_cell, gates, cells, dy] = [4, 6, 7, 8].map(|index| Address::<T>::read(call, index));
        Backward {
            hidden: layer.hidden,
            gates: layer.step(gates, layer.gates(), time),
            cells: layer.step(cells, layer.hidden, time),
            before: layer.before(cells, first_cell, time),
            dy: layer.step(dy, layer.hidden, time),
            gradients,
        }
    }

    unsafe fn finish<T: Element<Acc: Float>>(
        layer: &Layer,
        call: &Call<'_>,
        sums: Address<T::Acc>,
        more_states: Address<T::Acc>,
    ) {
        let [dbias, dfirst_cell] = [3, 5].map(|index| Address::<T>::write(call, index));
        // SAFETY: the results have these extents, and the caller vouches for the rest.
        unsafe {
            round(sums.slice(layer.columns), dbias.slice_mut(layer.columns));
            round(more_states.slice(layer.state()), dfirst_cell.slice_mut(layer.state()));
        }
    }
}

struct Forward<T: Element<Acc: Float>> {
    hidden: usize,
    products: Address<T::Acc>,
    bias: Address<T>,
    /// Products with the inputs, to be replaced with activated gates.
    gates: Matrix<T>,
    before: Matrix<T>,
    cells: Matrix<T>,
    states: Matrix<T>,
}

impl<T: Element<Acc: Float>> CellStep for Forward<T> {
    type Chunks = ([Chunk<T::Acc>; 4], Chunk<T::Acc>, Chunk<T::Acc>);

    #[inline(always)]
    fn chunks() -> Self::Chunks {
        let chunk = [T::Acc::ZERO; CHUNK];
        ([chunk; 4], chunk, chunk)
    }

    #[inline(always)]
    unsafe fn run(&self, chunks: &mut Self::Chunks, row: usize, at: usize, count: usize) {
        let (gates, bias, cells) = chunks;
        // SAFETY: the row is within the operands, and no other task writes to it.
        unsafe {
            for (gate, sums) in gates.iter_mut().enumerate() {
                let column = gate * self.hidden + at;
                load(self.gates.at(row, column).start, count, sums);
                load(self.bias.at(column), count, bias);
                let products = self.products.at(row * 4 * self.hidden + column).slice(count);
                for ((sum, bias), product) in sums[..count].iter_mut().zip(&*bias).zip(products) {
                    *sum = *sum + *product + *bias;
                    *sum = if gate == 2 { T::Acc::tanh(*sum) } else { T::Acc::sigmoid(*sum) };
                }
                store(sums, self.gates.at(row, column).start, count);
            }
            load(self.before.at(row, at).start, count, cells);
            let [enter, keep, new, show] = gates;
            for i in 0..count {
                cells[i] = keep[i] * cells[i] + enter[i] * new[i];
                show[i] = show[i] * T::Acc::tanh(cells[i]);
            }
            store(cells, self.cells.at(row, at).start, count);
            store(show, self.states.at(row, at).start, count);
        }
    }
}

struct Backward<T: Element<Acc: Float>> {
    hidden: usize,
    gates: Matrix<T>,
    cells: Matrix<T>,
    before: Matrix<T>,
    dy: Matrix<T>,
    gradients: StepGradients<T>,
}

impl<T: Element<Acc: Float>> CellStep for Backward<T> {
    type Chunks = ([Chunk<T::Acc>; 4], [Chunk<T::Acc>; 3]);

    #[inline(always)]
    fn chunks() -> Self::Chunks {
        let chunk = [T::Acc::ZERO; CHUNK];
        ([chunk; 4], [chunk; 3])
    }

    #[inline(always)]
    unsafe fn run(&self, chunks: &mut Self::Chunks, row: usize, at: usize, count: usize) {
        let (one, (gates, [cells, before, dy])) = (T::Acc::ONE, chunks);
        let StepGradients { state, more_states, gates: dgates } = self.gradients;
        // SAFETY: the row is within the operands, and no other task writes to it.
        unsafe {
            for (gate, values) in gates.iter_mut().enumerate() {
                load(self.gates.at(row, gate * self.hidden + at).start, count, values);
            }
            load(self.cells.at(row, at).start, count, cells);
            load(self.before.at(row, at).start, count, before);
            load(self.dy.at(row, at).start, count, dy);
            let dstate = state.at(row * self.hidden + at).slice(count);
            let dcell = more_states.at(row * self.hidden + at).slice_mut(count);
            let [enter, keep, new, show] = &mut *gates;
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
                store(slopes, dgates.at(row, gate * self.hidden + at).start, count);
            }
        }
    }
}
