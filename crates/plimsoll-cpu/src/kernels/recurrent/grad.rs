//! The gradient of a recurrent layer, step by step from the last.

use super::{Cell, Layer, StepGradients};
use crate::gemm::{Layout, PackLeft, copy};
use crate::kernels::memory::*;
use crate::kernels::product::matrix::{Matrix, Multiply};
use crate::kernels::summation::columns::{Blocks, sum_rows};
use crate::numbers::{Element, Float};
use crate::runtime::{Call, Routine};
use crate::simd::Vector;
use std::marker::PhantomData;
use std::ops::Range;

pub(super) struct Backward<T, C> {
    layer: Layer,
    kind: PhantomData<(T, C)>,
}

impl<T: Element<Acc: Float>, C: Cell> Backward<T, C> {
    pub(super) fn new(layer: Layer) -> Self {
        Self { layer, kind: PhantomData }
    }

    /// The bytes of the gradients of all gates, of one step's hidden state, and of one step's other states.
    fn parts(&self) -> [usize; 3] {
        let state = bytes_of::<T::Acc>(self.layer.state());
        [bytes_of::<T>(self.layer.rows() * self.layer.gates()), state, C::MORE_STATES * state]
    }
}

impl<T: Element<Acc: Float>, C: Cell> Routine for Backward<T, C> {
    fn workspace(&self, threads: usize) -> usize {
        let layer = &self.layer;
        let by_columns = C::columns(layer.hidden).map(|(from, _)| {
            let step = layer.gates_by_weight(from.len()).workspace::<T::Acc>(threads);
            step.max(layer.states_by_gates(from.len()).workspace::<T>(threads))
        });
        let of_inputs = [layer.inputs_by_gates(), layer.all_gates_by_weight()];
        let of_inputs = of_inputs.into_iter().map(|size| size.workspace::<T>(threads));
        let sums = Blocks::new(layer.rows()).parts_bytes::<T::Acc>(layer.gates());
        self.parts().iter().sum::<usize>() + by_columns.chain(of_inputs).max().unwrap_or(0).max(sums)
    }

    unsafe fn run(&self, call: &Call<'_>) {
        let layer = self.layer;
        let Layer { isa, time, input, hidden, columns, .. } = layer;
        let [x, input_weight, hidden_weight, first, states] =
            [0, 1, 2, 3, C::STATES].map(|index| Address::<T>::read(call, index));
        let [dx, dinput_weight, dhidden_weight, dfirst] =
            [0, 1, 2, C::FIRST_STATE_GRAD].map(|index| Address::<T>::write(call, index));
        let parts = self.parts();
        let dgates = Address::<T>::workspace(call, 0);
        let dstate = Address::<T::Acc>::workspace(call, parts[0]);
        let more_states = Address::<T::Acc>::workspace(call, parts[0] + parts[1]);
        let workspace = Address::workspace(call, parts.iter().sum());
        let (multiply, one) = (Multiply { pool: call.pool, isa, workspace }, T::Acc::ONE);
        let hidden_weight = Matrix::new(hidden_weight, columns);
        // SAFETY: the operands have these extents, and the workspace room for the parts and the products.
        unsafe {
            dstate.slice_mut(layer.state()).fill(T::Acc::ZERO);
            more_states.slice_mut(C::MORE_STATES * layer.state()).fill(T::Acc::ZERO);
            for time in (0..time).rev() {
                let gates = layer.step(dgates, layer.gates(), time);
                let gradients = StepGradients { state: dstate, more_states, gates };
                layer.run(call, &C::backward::<T>(&layer, call, time, gradients));
                for (from, to) in C::columns(hidden) {
                    let size = layer.gates_by_weight(from.len());
                    let (weight, target) = (hidden_weight.at(0, from.start), Matrix::new(dstate, hidden));
                    let weight = weight.transposed();
                    multiply.run(size, one, gates.at(0, to), weight, target, C::STATE_PASSES);
                }
            }
            round(dstate.slice(layer.state()), dfirst.slice_mut(layer.state()));

            let gates = Matrix::new(dgates, layer.gates());
            let before = Before { states, first, time, hidden };
            for (from, to) in C::columns(hidden) {
                let size = layer.states_by_gates(from.len());
                let target = Matrix::new(dhidden_weight, columns).at(0, from.start);
                multiply.run_packed(size, one, &before, &gates.at(0, to).right(), target, false);
            }
            let (x, target) = (Matrix::new(x, input).transposed(), Matrix::new(dinput_weight, columns));
            multiply.run(layer.inputs_by_gates(), one, x, gates, target, false);
            let (weight, target) = (Matrix::new(input_weight, columns).transposed(), Matrix::new(dx, input));
            multiply.run(layer.all_gates_by_weight(), one, gates, weight, target, false);
            let (blocks, sums) = (Blocks::new(layer.rows()), workspace.cast());
            sum_rows(call.pool, isa, gates, blocks, layer.gates(), sums);
            C::finish::<T>(&layer, call, sums, more_states);
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

impl<T: Element<Acc: Float>> PackLeft<T::Acc> for Before<T> {
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
