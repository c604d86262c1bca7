//! A recurrent layer, step by step.

use super::{Cell, Layer};
use crate::kernels::memory::*;
use crate::kernels::product::matrix::{Matrix, Multiply};
use crate::numbers::{Element, Float};
use crate::runtime::{Call, Routine};
use std::marker::PhantomData;

pub(super) struct Forward<T, C> {
    layer: Layer,
    kind: PhantomData<(T, C)>,
}

impl<T: Element<Acc: Float>, C: Cell> Forward<T, C> {
    pub(super) fn new(layer: Layer) -> Self {
        Self { layer, kind: PhantomData }
    }

    /// The bytes of the products of a time step.
    fn product_bytes(&self) -> usize {
        bytes_of::<T::Acc>(self.layer.batch * self.layer.columns)
    }
}

impl<T: Element<Acc: Float>, C: Cell> Routine for Forward<T, C> {
    fn workspace(&self, threads: usize) -> usize {
        let inputs = self.layer.inputs_by_weight().workspace::<T>(threads);
        let step = self.layer.state_by_weight().workspace::<T::Acc>(threads);
        self.product_bytes() + inputs.max(step)
    }

    unsafe fn run(&self, call: &Call<'_>) {
        let layer = self.layer;
        let Layer { isa, time, input, columns, .. } = layer;
        let [x, input_weight, hidden_weight, first] =
            [0, 1, 2, C::FIRST_STATE].map(|index| Address::<T>::read(call, index));
        let [states, gates] = [0, 1].map(|index| Address::<T>::write(call, index));
        let products = Address::<T::Acc>::workspace(call, 0);
        let workspace = Address::workspace(call, self.product_bytes());
        let (multiply, one) = (Multiply { pool: call.pool, isa, workspace }, T::Acc::ONE);
        let (x, input_weight) = (Matrix::new(x, input), Matrix::new(input_weight, columns));
        let hidden_weight = Matrix::new(hidden_weight, columns);
        // SAFETY: the operands have these extents, and the workspace room for the products.
        unsafe {
            // The gates may be wider than the weights: the product then goes to their first columns.
            let target = Matrix::new(gates, layer.gates());
            multiply.run(layer.inputs_by_weight(), one, x, input_weight, target, false);
            for time in 0..time {
                let before = layer.before(states, first, time);
                let target = Matrix::new(products, columns);
                multiply.run(layer.state_by_weight(), one, before, hidden_weight, target, false);
                layer.run(call, &C::forward::<T>(&layer, call, time, products));
            }
        }
    }
}
