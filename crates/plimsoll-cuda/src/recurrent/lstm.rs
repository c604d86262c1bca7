//! A long short-term memory layer over time, and its gradient.

use super::{Gradients, Layer, Multiply, Scratch};
use crate::engine::Engine;
use crate::error::Result;
use crate::function::{Argument, Function};
use crate::routine::{Call, Routine};
use plimsoll_graph::program::Operand;
use std::sync::Arc;

/// Prepares `Op::Lstm`.
pub(crate) fn prepare(engine: &Arc<Engine>, reads: &[Operand]) -> Result<Box<dyn Routine>> {
    let layer = Layer::new(reads)?;
    Ok(Box::new(Lstm {
        layer,
        places: Places::new(&layer),
        inputs: Multiply::new(engine, layer.inputs_by_weight(layer.columns))?,
        state: Multiply::new(engine, layer.state_by_weight())?,
        step: layer.function(engine, "lstm_step")?,
    }))
}

/// Prepares `Op::LstmGrad`.
pub(crate) fn prepare_grad(engine: &Arc<Engine>, reads: &[Operand]) -> Result<Box<dyn Routine>> {
    let layer = Layer::new(reads)?;
    Ok(Box::new(LstmGrad {
        layer,
        places: GradPlaces::new(&layer),
        state: Multiply::new(engine, layer.gates_by_weight())?,
        gradients: Gradients::prepare(engine, &layer)?,
        step: layer.function(engine, "lstm_grad_step")?,
        first: layer.function(engine, "lstm_grad_first")?,
    }))
}

struct Lstm {
    layer: Layer,
    places: Places,
    /// The products of all inputs, and of a step's state, with the weights.
    inputs: Multiply,
    state: Multiply,
    step: Function,
}

/// Where scratch memory has a step's product, its state, and what products need.
#[derive(Debug, Clone, Copy)]
pub(super) struct Places {
    product: u64,
    state: u64,
    pub(super) products: u64,
}

impl Places {
    pub(super) fn new(layer: &Layer) -> Self {
        let mut scratch = Scratch::new();
        let product = scratch.take(layer.number_bytes(layer.batch * layer.columns));
        let state = scratch.take(layer.bytes(layer.batch * layer.hidden));
        Self { product, state, products: scratch.next }
    }
}

impl Routine for Lstm {
    fn workspace(&self) -> u64 {
        self.places.products + self.inputs.workspace().max(self.state.workspace())
    }

    unsafe fn run(&self, call: &Call<'_>) -> Result<()> {
        let &[x, input_weight, hidden_weight, bias, first_hidden, first_cell] = call.reads else {
            unreachable!("the layer has six operands");
        };
        let &[states, gates, cells] = call.writes else { unreachable!("the layer has three results") };
        let [product, state, products] =
            [self.places.product, self.places.state, self.places.products].map(|at| call.workspace + at);
        // SAFETY: the operands and scratch memory have the extents that the products and the kernel were made for.
        unsafe {
            self.inputs.run(call, [x, input_weight, gates], products)?;
            for step in 0..self.layer.time {
                let before = if step == 0 { first_hidden } else { state };
                self.state.run(call, [before, hidden_weight, product], products)?;
                let addresses = [product, bias, gates, first_cell, cells, states, state];
                self.layer.launch_step(&self.step, call, &addresses, step)?;
            }
        }
        Ok(())
    }
}

struct LstmGrad {
    layer: Layer,
    places: GradPlaces,
    /// The product of the gradients of a step's gates with the hidden weight.
    state: Multiply,
    gradients: Gradients,
    step: Function,
    first: Function,
}

/// Where scratch memory has the gradients of all gates and the states before each step, a step's gradients of gates, of
/// the state and of the cell, and what products need.
#[derive(Debug, Clone, Copy)]
pub(super) struct GradPlaces {
    all_slopes: u64,
    befores: u64,
    slopes: u64,
    product: u64,
    dcell: u64,
    pub(super) products: u64,
}

impl GradPlaces {
    pub(super) fn new(layer: &Layer) -> Self {
        let Layer { batch, hidden, columns, .. } = *layer;
        let mut scratch = Scratch::new();
        Self {
            all_slopes: scratch.take(layer.bytes(layer.rows() * columns)),
            befores: scratch.take(layer.bytes(layer.rows() * hidden)),
            slopes: scratch.take(layer.bytes(batch * columns)),
            product: scratch.take(layer.number_bytes(batch * hidden)),
            dcell: scratch.take(layer.number_bytes(batch * hidden)),
            products: scratch.next,
        }
    }
}

impl Routine for LstmGrad {
    fn workspace(&self) -> u64 {
        self.places.products + self.state.workspace().max(self.gradients.workspace())
    }

    unsafe fn run(&self, call: &Call<'_>) -> Result<()> {
        let &[x, input_weight, hidden_weight, first_hidden, first_cell, states, gates, cells, upstream] =
            call.reads
        else {
            unreachable!("the gradient has nine operands");
        };
        let &[dx, dinput_weight, dhidden_weight, dbias, dfirst_hidden, dfirst_cell] = call.writes else {
            unreachable!("the gradient has six results");
        };
        let GradPlaces { all_slopes, befores, slopes, product, dcell, products } = self.places;
        let [all_slopes, befores, slopes, product, dcell, products] =
            [all_slopes, befores, slopes, product, dcell, products].map(|at| call.workspace + at);
        let gradients = &self.gradients;
        // SAFETY: the operands and scratch memory have the extents that the products and kernels were made for.
        unsafe {
            for step in (0..self.layer.time).rev() {
                let addresses = [
                    gates,
                    cells,
                    states,
                    first_cell,
                    first_hidden,
                    upstream,
                    product,
                    dcell,
                    slopes,
                    all_slopes,
                    befores,
                    dfirst_cell,
                ];
                self.layer.launch_step(&self.step, call, &addresses, step)?;
                self.state.run(call, [slopes, hidden_weight, product], products)?;
            }
            if self.layer.time > 0 {
                let arguments = [product, dfirst_hidden].map(Argument::Address);
                self.layer.launch(&self.first, call, &arguments)?;
            } else {
                gradients.zero_state(call, &self.layer, dfirst_hidden)?;
                gradients.zero_state(call, &self.layer, dfirst_cell)?;
            }
            gradients.inputs.run(call, [all_slopes, input_weight, dx], products)?;
            gradients.input_weight.run(call, [x, all_slopes, dinput_weight], products)?;
            gradients.hidden_weight.run(call, [befores, all_slopes, dhidden_weight], products)?;
            gradients.run_bias(call, all_slopes, dbias, products)
        }
    }
}
