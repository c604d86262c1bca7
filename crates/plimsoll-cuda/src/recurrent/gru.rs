//! A gated recurrent layer over time, and its gradient.

use super::{Gradients, Layer, Multiply, Scratch};
use crate::engine::Engine;
use crate::error::Result;
use crate::function::{Argument, Function};
use crate::routine::{Call, Routine};
use plimsoll_graph::program::Operand;
use std::sync::Arc;

/// Prepares `Op::Gru`.
pub(crate) fn prepare(engine: &Arc<Engine>, reads: &[Operand]) -> Result<Box<dyn Routine>> {
    let layer = Layer::new(reads)?;
    Ok(Box::new(Gru {
        layer,
        places: Places::new(&layer),
        // The gates are one column of blocks wider than the weights: the product goes to the first three.
        inputs: Multiply::new(engine, layer.inputs_by_weight(4 * layer.hidden))?,
        state: Multiply::new(engine, layer.state_by_weight())?,
        step: layer.function(engine, "gru_step")?,
    }))
}

/// Prepares `Op::GruGrad`.
pub(crate) fn prepare_grad(engine: &Arc<Engine>, reads: &[Operand]) -> Result<Box<dyn Routine>> {
    let layer = Layer::new(reads)?;
    Ok(Box::new(GruGrad {
        layer,
        places: GradPlaces::new(&layer),
        state: Multiply::new(engine, layer.gates_by_weight())?,
        gradients: Gradients::prepare(engine, &layer)?,
        step: layer.function(engine, "gru_grad_step")?,
        first: layer.function(engine, "gru_grad_first")?,
    }))
}

struct Gru {
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

impl Routine for Gru {
    fn workspace(&self) -> u64 {
        self.places.products + self.inputs.workspace().max(self.state.workspace())
    }

    unsafe fn run(&self, call: &Call<'_>) -> Result<()> {
        let &[x, input_weight, hidden_weight, input_bias, hidden_bias, first_hidden] = call.reads else {
            unreachable!("the layer has six operands");
        };
        let &[states, gates] = call.writes else { unreachable!("the layer has two results") };
        let Places { product, state, products } = self.places;
        let [product, state, products] = [product, state, products].map(|at| call.workspace + at);
        // SAFETY: the operands and scratch memory have the extents that the products and the kernel were made for.
        unsafe {
            self.inputs.run(call, [x, input_weight, gates], products)?;
            for step in 0..self.layer.time {
                let before = if step == 0 { first_hidden } else { state };
                self.state.run(call, [before, hidden_weight, product], products)?;
                let addresses = [product, input_bias, hidden_bias, first_hidden, gates, states, state];
                self.layer.launch_step(&self.step, call, &addresses, step)?;
            }
        }
        Ok(())
    }
}

struct GruGrad {
    layer: Layer,
    places: GradPlaces,
    /// The product of the gradients of a step's hidden product with the hidden weight.
    state: Multiply,
    gradients: Gradients,
    step: Function,
    first: Function,
}

/// Where scratch memory has the gradients of all products with inputs, of all with states, and the states before each
/// step, a step's gradients of the hidden product, of the state by way of the gates and past them, and what products
/// need.
#[derive(Debug, Clone, Copy)]
pub(super) struct GradPlaces {
    input_slopes: u64,
    hidden_slopes: u64,
    befores: u64,
    slopes: u64,
    product: u64,
    dstate: u64,
    pub(super) products: u64,
}

impl GradPlaces {
    pub(super) fn new(layer: &Layer) -> Self {
        let Layer { batch, hidden, columns, .. } = *layer;
        let mut scratch = Scratch::new();
        Self {
            input_slopes: scratch.take(layer.bytes(layer.rows() * columns)),
            hidden_slopes: scratch.take(layer.bytes(layer.rows() * columns)),
            befores: scratch.take(layer.bytes(layer.rows() * hidden)),
            slopes: scratch.take(layer.bytes(batch * columns)),
            product: scratch.take(layer.number_bytes(batch * hidden)),
            dstate: scratch.take(layer.number_bytes(batch * hidden)),
            products: scratch.next,
        }
    }
}

impl Routine for GruGrad {
    fn workspace(&self) -> u64 {
        self.places.products + self.state.workspace().max(self.gradients.workspace())
    }

    unsafe fn run(&self, call: &Call<'_>) -> Result<()> {
        let &[x, input_weight, hidden_weight, first_hidden, states, gates, upstream] = call.reads else {
            unreachable!("the gradient has seven operands");
        };
        let &[dx, dinput_weight, dhidden_weight, dinput_bias, dhidden_bias, dfirst] = call.writes else {
            unreachable!("the gradient has six results");
        };
        let GradPlaces { input_slopes, hidden_slopes, befores, slopes, product, dstate, products } =
            self.places;
        let [input_slopes, hidden_slopes, befores, slopes, product, dstate, products] =
            [input_slopes, hidden_slopes, befores, slopes, product, dstate, products]
                .map(|at| call.workspace + at);
        let gradients = &self.gradients;
        // SAFETY: the operands and scratch memory have the extents that the products and kernels were made for.
        unsafe {
            for step in (0..self.layer.time).rev() {
                let addresses = [
                    gates,
                    states,
                    first_hidden,
                    upstream,
                    product,
                    dstate,
                    slopes,
                    input_slopes,
                    hidden_slopes,
                    befores,
                ];
                self.layer.launch_step(&self.step, call, &addresses, step)?;
                self.state.run(call, [slopes, hidden_weight, product], products)?;
            }
            if self.layer.time == 0 {
                gradients.zero_state(call, &self.layer, dfirst)?;
            } else {
                self.layer.launch(&self.first, call, &[product, dstate, dfirst].map(Argument::Address))?;
            }
            gradients.inputs.run(call, [input_slopes, input_weight, dx], products)?;
            gradients.input_weight.run(call, [x, input_slopes, dinput_weight], products)?;
            gradients.hidden_weight.run(call, [befores, hidden_slopes, dhidden_weight], products)?;
            gradients.run_bias(call, input_slopes, dinput_bias, products)?;
            gradients.run_bias(call, hidden_slopes, dhidden_bias, products)
        }
    }
}
