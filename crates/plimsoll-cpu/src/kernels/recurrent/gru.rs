//! The cell of a gated recurrent layer.

use super::{Cell, CellStep, Layer, StepGradients};
use crate::kernels::memory::*;
use crate::kernels::product::matrix::Matrix;
use crate::numbers::{Element, Float};
use crate::runtime::Call;
use std::ops::Range;

/// Gates that reset and update the hidden state. The new gate's hidden product, which is kept beside them, includes its
/// bias.
pub(crate) struct Gru;

impl Cell for Gru {
    const FIRST_STATE: usize = 5;
    const STATES: usize = 4;
    const FIRST_STATE_GRAD: usize = 5;
    const STATE_PASSES: bool = true;
    const MORE_STATES: usize = 0;

    /// Those that reset and update gate see, and the new gate.
    fn columns(hidden: usize) -> impl Iterator<Item = (Range<usize>, usize)> {
        [(0..2 * hidden, 0), (2 * hidden..3 * hidden, 3 * hidden)].into_iter()
    }

    fn forward<T: Element<Acc: Float>>(
        layer: &Layer,
        call: &Call<'_>,
        time: usize,
        products: Address<T::Acc>,
    ) -> impl CellStep {
        let [input_bias, hidden_bias, first] = [3, 4, 5].map(|index| Address::<T>::read(call, index));
        let [states, gates] = [0, 1].map(|index| Address::<T>::write(call, index));
        Forward {
            hidden: layer.hidden,
            products,
            biases: [input_bias, hidden_bias],
            gates: layer.step(gates, layer.gates(), time),
            before: layer.before(states, first, time),
            states: layer.step(states, layer.hidden, time),
        }
    }

    fn backward<T: Element<Acc: Float>>(
        layer: &Layer,
        call: &Call<'_>,
        time: usize,
        gradients: StepGradients<T>,
    ) -> impl CellStep {
        let [first, states, gates, dy] = [3, 4, 5, 6].map(|index| Address::<T>::read(call, index));
        Backward {
            hidden: layer.hidden,
            gates: layer.step(gates, layer.gates(), time),
            before: layer.before(states, first, time),
            dy: layer.step(dy, layer.hidden, time),
            gradients,
        }
    }

    unsafe fn finish<T: Element<Acc: Float>>(
        layer: &Layer,
        call: &Call<'_>,
        sums: Address<T::Acc>,
        _more_states: Address<T::Acc>,
    ) {
        let [dinput_bias, dhidden_bias] = [3, 4].map(|index| Address::<T>::write(call, index));
        // SAFETY: the results have these extents, and the caller vouches for the rest.
        unsafe {
            round(sums.slice(layer.columns), dinput_bias.slice_mut(layer.columns));
            for (from, to) in Self::columns(layer.hidden) {
                round(sums.at(to).slice(from.len()), dhidden_bias.at(from.start).slice_mut(from.len()));
            }
        }
    }
}

struct Forward<T: Element<Acc: Float>> {
    hidden: usize,
    products: Address<T::Acc>,
    /// Of the products with the inputs and with the hidden state.
    biases: [Address<T>; 2],
    /// Products with the inputs, to be replaced with activated gates and the new gate's hidden product.
    gates: Matrix<T>,
    before: Matrix<T>,
    states: Matrix<T>,
}

impl<T: Element<Acc: Float>> CellStep for Forward<T> {
    type Chunks = ([[Chunk<T::Acc>; 3]; 2], Chunk<T::Acc>, Chunk<T::Acc>);

    #[inline(always)]
    fn chunks() -> Self::Chunks {
        let chunk = [T::Acc::ZERO; CHUNK];
        ([[chunk; 3]; 2], chunk, chunk)
    }

    #[inline(always)]
    unsafe fn run(&self, chunks: &mut Self::Chunks, row: usize, at: usize, count: usize) {
        let (one, ([inputs, products], bias, state)) = (T::Acc::ONE, chunks);
        // SAFETY: the row is within the operands, and no other task writes to it.
        unsafe {
            for gate in 0..3 {
                let column = gate * self.hidden + at;
                load(self.gates.at(row, column).start, count, &mut inputs[gate]);
                load(self.products.at(row * 3 * self.hidden + column), count, &mut products[gate]);
                for (sums, source) in [&mut inputs[gate], &mut products[gate]].into_iter().zip(self.biases) {
                    load(source.at(column), count, bias);
                    for (sum, bias) in sums[..count].iter_mut().zip(&*bias) {
                        *sum += *bias;
                    }
                }
            }
            load(self.before.at(row, at).start, count, state);
            let [reset, update, new] = &mut *inputs;
            for i in 0..count {
                reset[i] = T::Acc::sigmoid(reset[i] + products[0][i]);
                update[i] = T::Acc::sigmoid(update[i] + products[1][i]);
                new[i] = T::Acc::tanh(new[i] + reset[i] * products[2][i]);
                state[i] = (one - update[i]) * new[i] + update[i] * state[i];
            }
            for (gate, values) in inputs.iter().chain([&products[2]]).enumerate() {
                store(values, self.gates.at(row, gate * self.hidden + at).start, count);
            }
            store(state, self.states.at(row, at).start, count);
        }
    }
}

struct Backward<T: Element<Acc: Float>> {
    hidden: usize,
    gates: Matrix<T>,
    before: Matrix<T>,
    dy: Matrix<T>,
    gradients: StepGradients<T>,
}

impl<T: Element<Acc: Float>> CellStep for Backward<T> {
    type Chunks = ([Chunk<T::Acc>; 4], [Chunk<T::Acc>; 2]);

    #[inline(always)]
    fn chunks() -> Self::Chunks {
        let chunk = [T::Acc::ZERO; CHUNK];
        ([chunk; 4], [chunk; 2])
    }

    #[inline(always)]
    unsafe fn run(&self, chunks: &mut Self::Chunks, row: usize, at: usize, count: usize) {
        let (one, (gates, [before, dy])) = (T::Acc::ONE, chunks);
        // SAFETY: the row is within the operands, and no other task writes to it.
        unsafe {
            for (gate, values) in gates.iter_mut().enumerate() {
                load(self.gates.at(row, gate * self.hidden + at).start, count, values);
            }
            load(self.before.at(row, at).start, count, before);
            load(self.dy.at(row, at).start, count, dy);
            let dstate = self.gradients.state.at(row * self.hidden + at).slice_mut(count);
            let [reset, update, new, product] = &mut *gates;
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
                let dgates = self.gradients.gates.at(row, gate * self.hidden + at);
                store(slopes, dgates.start, count);
            }
        }
    }
}
