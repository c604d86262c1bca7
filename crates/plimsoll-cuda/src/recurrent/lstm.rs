//! A long short-term memory layer over time, and its gradient.

use super::{Backward, Forward, Layer, ScratchLayout};
use crate::codegen::engine::Engine;
use crate::codegen::function::Argument;
use crate::error::Result;
use crate::routine::{Call, Routine};
use plimsoll_graph::program::Operand;
use std::sync::Arc;

/// Prepares `Op::Lstm`.
pub(crate) fn prepare(engine: &Arc<Engine>, reads: &[Operand]) -> Result<Box<dyn Routine>> {
    Ok(Box::new(Lstm(Forward::new(engine, reads, 4, "lstm_step")?)))
}

/// Prepares `Op::LstmGrad`.
pub(crate) fn prepare_grad(engine: &Arc<Engine>, reads: &[Operand]) -> Result<Box<dyn Routine>> {
    let backward = Backward::new(engine, reads, "lstm_grad_step", "lstm_grad_first")?;
    Ok(Box::new(LstmGrad { places: LstmGradScratch::new(&backward.layer), backward }))
}

struct Lstm(Forward);

impl Routine for Lstm {
    fn workspace(&self) -> u64 {
        self.0.workspace()
    }

    unsafe fn run(&self, call: &Call<'_>) -> Result<()> {
        let &[x, input_weight, hidden_weight, bias, first_hidden, first_cell] = call.reads else {
            unreachable!("the layer has six operands");
        };
        let &[states, gates, cells] = call.writes else { unreachable!("the layer has three results") };
        // SAFETY: these are the operands of the layer, and what its kernel takes.
        unsafe {
            self.0.run(call, [x, input_weight, hidden_weight, first_hidden, gates], |product, state| {
                [product, bias, gates, first_cell, cells, states, state]
            })
        }
    }
}

struct LstmGrad {
    backward: Backward,
    places: LstmGradScratch,
}

/// Where scratch memory has the gradients of all gates and the states before each step, a step's gradients of gates, of
/// the state and of the cell, and what products need.
#[derive(Debug, Clone, Copy)]
pub(super) struct LstmGradScratch {
    all_slopes: u64,
    befores: u64,
    slopes: u64,
    product: u64,
    dcell: u64,
    pub(super) products: u64,
}

impl LstmGradScratch {
    pub(super) fn new(layer: &Layer) -> Self {
        let Layer { batch, hidden, columns, .. } = *layer;
        let mut scratch = ScratchLayout::new();
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
        self.places.products + self.backward.workspace()
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
        let LstmGradScratch { all_slopes, befores, slopes, product, dcell, products } = self.places;
        let [all_slopes, befores, slopes, product, dcell, products] =
            [all_slopes, befores, slopes, product, dcell, products].map(|at| call.workspace + at);
        let Backward { layer, gradients, .. } = &self.backward;
        // SAFETY: the operands and scratch memory have the extents that the products and kernels were made for.
        unsafe {
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
            self.backward.run_steps(call, &addresses, [slopes, hidden_weight, product], products)?;
            if layer.time > 0 {
                let arguments = [product, dfirst_hidden].map(Argument::Address);
                layer.launch(&self.backward.first, call, &arguments)?;
            } else {
                gradients.zero_state(call, layer, dfirst_hidden)?;
                gradients.zero_state(call, layer, dfirst_cell)?;
            }
            gradients.inputs.run(call, [all_slopes, input_weight, dx], products)?;
            gradients.input_weight.run(call, [x, all_slopes, dinput_weight], products)?;
            gradients.hidden_weight.run(call, [befores, all_slopes, dhidden_weight], products)?;
            gradients.run_bias(call, all_slopes, dbias, products)
        }
    }
}
