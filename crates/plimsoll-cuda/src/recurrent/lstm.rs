//! A long short-term memory layer over time, and its gradient.

use super::{Backward, Forward, GradScratch};
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
    Ok(Box::new(LstmGrad(Backward::new(engine, reads, "lstm_grad_step", "lstm_grad_first", APART)?)))
}

/// Gates are sums of both products, so that these have one gradient.
pub(super) const APART: bool = false;

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

struct LstmGrad(Backward);

impl Routine for LstmGrad {
    fn workspace(&self) -> u64 {
        self.0.workspace()
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
        let Backward { layer, gradients, first, scratch, .. } = &self.0;
        let GradScratch { input_slopes, befores, slopes, product, carried: dcell, products, .. } =
            scratch.at(call.workspace);
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
                input_slopes,
                befores,
                dfirst_cell,
            ];
            self.0.run_steps(call, &addresses, hidden_weight)?;
            if layer.time > 0 {
                layer.launch(first, call, &[product, dfirst_hidden].map(Argument::Address))?;
            } else {
                gradients.zero_state(call, layer, dfirst_hidden)?;
                gradients.zero_state(call, layer, dfirst_cell)?;
            }
            self.0.run_products(call, [x, input_weight], [dx, dinput_weight, dhidden_weight])?;
            gradients.run_bias(call, input_slopes, dbias, products)
        }
    }
}
