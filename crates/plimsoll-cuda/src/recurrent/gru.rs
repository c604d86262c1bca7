//! A gated recurrent layer over time, and its gradient.

use super::{Backward, Forward, Layer, ScratchLayout};
use crate::codegen::engine::Engine;
use crate::codegen::function::Argument;
use crate::error::Result;
use crate::routine::{Call, Routine};
use plimsoll_graph::program::Operand;
use std::sync::Arc;

/// Prepares `Op::Gru`.
pub(crate) fn prepare(engine: &Arc<Engine>, reads: &[Operand]) -> Result<Box<dyn Routine>> {
    // The gates are one column of blocks wider than the weights: the product goes to the first three.
    Ok(Box::new(Gru(Forward::new(engine, reads, 4, "gru_step")?)))
}

/// Prepares `Op::GruGrad`.
pub(crate) fn prepare_grad(engine: &Arc<Engine>, reads: &[Operand]) -> Result<Box<dyn Routine>> {
    let backward = Backward::new(engine, reads, "gru_grad_step", "gru_grad_first")?;
    Ok(Box::new(GruGrad { places: GruGradScratch::new(&backward.layer), backward }))
}

struct Gru(Forward);

impl Routine for Gru {
    fn workspace(&self) -> u64 {
        self.0.workspace()
    }

    unsafe fn run(&self, call: &Call<'_>) -> Result<()> {
        let &[x, input_weight, hidden_weight, input_bias, hidden_bias, first_hidden] = call.reads else {
            unreachable!("the layer has six operands");
        };
        let &[states, gates] = call.writes else { unreachable!("the layer has two results") };
        // SAFETY: these are the operands of the layer, and what its kernel takes.
        unsafe {
            self.0.run(call, [x, input_weight, hidden_weight, first_hidden, gates], |product, state| {
                [product, input_bias, hidden_bias, first_hidden, gates, states, state]
            })
        }
    }
}

struct GruGrad {
    backward: Backward,
    places: GruGradScratch,
}

/// Where scratch memory has the gradients of all products with inputs, of all with states, and the states before each
/// step, a step's gradients of the hidden product, of the state by way of the gates and past them, and what products
/// need.
#[derive(Debug, Clone, Copy)]
pub(super) struct GruGradScratch {
    input_slopes: u64,
    hidden_slopes: u64,
    befores: u64,
    slopes: u64,
    product: u64,
    dstate: u64,
    pub(super) products: u64,
}

impl GruGradScratch {
    pub(super) fn new(layer: &Layer) -> Self {
        let Layer { batch, hidden, columns, .. } = *layer;
        let mut scratch = ScratchLayout::new();
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
        self.places.products + self.backward.workspace()
    }

    unsafe fn run(&self, call: &Call<'_>) -> Result<()> {
        let &[x, input_weight, hidden_weight, first_hidden, states, gates, upstream] = call.reads else {
            unreachable!("the gradient has seven operands");
        };
        let &[dx, dinput_weight, dhidden_weight, dinput_bias, dhidden_bias, dfirst] = call.writes else {
            unreachable!("the gradient has six results");
        };
        let GruGradScratch { input_slopes, hidden_slopes, befores, slopes, product, dstate, products } =
            self.places;
        let [input_slopes, hidden_slopes, befores, slopes, product, dstate, products] =
            [input_slopes, hidden_slopes, befores, slopes, product, dstate, products]
                .map(|at| call.workspace + at);
        let Backward { layer, gradients, .. } = &self.backward;
        // SAFETY: the operands and scratch memory have the extents that the products and kernels were made for.
        unsafe {
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
            self.backward.run_steps(call, &addresses, [slopes, hidden_weight, product], products)?;
            if layer.time == 0 {
                gradients.zero_state(call, layer, dfirst)?;
            } else {
                layer.launch(
                    &self.backward.first,
                    call,
                    &[product, dstate, dfirst].map(Argument::Address),
                )?;
            }
            gradients.inputs.run(call, [input_slopes, input_weight, dx], products)?;
            gradients.input_weight.run(call, [x, input_slopes, dinput_weight], products)?;
            gradients.hidden_weight.run(call, [befores, hidden_slopes, dhidden_weight], products)?;
            gradients.run_bias(call, input_slopes, dinput_bias, products)?;
            gradients.run_bias(call, hidden_slopes, dhidden_bias, products)
        }
    }
}
