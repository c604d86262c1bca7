//! A gated recurrent layer over time, and its gradient.

use super::{Backward, Forward, GradScratch};
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
    Ok(Box::new(GruGrad(Backward::new(engine, reads, "gru_grad_step", "gru_grad_first", APART)?)))
}

/// The reset gate scales the product with the state alone, so that the two products have gradients of their own.
pub(super) const APART: bool = true;

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

struct GruGrad(Backward);

impl Routine for GruGrad {
    fn workspace(&self) -> u64 {
        self.0.workspace()
    }

    unsafe fn run(&self, call: &Call<'_>) -> Result<()> {
        let &[x, input_weight, hidden_weight, first_hidden, states, gates, upstream] = call.reads else {
            unreachable!("the gradient has seven operands");
        };
        let &[dx, dinput_weight, dhidden_weight, dinput_bias, dhidden_bias, dfirst] = call.writes else {
            unreachable!("the gradient has six results");
        };
        let Backward { layer, gradients, first, scratch, .. } = &self.0;
        let GradScratch { input_slopes, hidden_slopes, befores, slopes, product, carried: dstate, products } =
            scratch.at(call.workspace);
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
            self.0.run_steps(call, &addresses, hidden_weight)?;
            if layer.time > 0 {
                layer.launch(first, call, &[product, dstate, dfirst].map(Argument::Address))?;
            } else {
                gradients.zero_state(call, layer, dfirst)?;
            }
            self.0.run_products(call, [x, input_weight], [dx, dinput_weight, dhidden_weight])?;
            gradients.run_bias(call, input_slopes, dinput_bias, products)?;
            gradients.run_bias(call, hidden_slopes, dhidden_bias, products)
        }
    }
}
