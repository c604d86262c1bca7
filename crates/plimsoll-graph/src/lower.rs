//! Lowering: from a step to a program of kernels.
//!
//! Ops that are better fused than whole are taken apart, and some made one; what costs less to make again than to keep is made
//! again; dead nodes go; movement ops become views; elementwise
//! chains and reductions over rows fuse; what is left becomes one kernel each, and products hand their results
//! on to the loops that follow them. Numbers do not change: a fused register has the precision of the value it
//! stands for. Last, kernels of several results are cut down to ways to make one of them again.

mod cost;
mod decompose;
mod emit;
mod epilogue;
mod family;
mod fuse;
mod kernel_list;
mod recompute;
mod rematerialize;
mod view;

use crate::Program;
use crate::step::Step;
pub(crate) use cost::arithmetic;
pub(crate) use emit::{kernel, loop_kernel};
pub(crate) use family::family;

/// Lowers a step to kernels.
pub fn lower(step: &Step) -> Program {
    let step = &*recompute::recompute(decompose::decompose(step));
    let mut units = fuse::Units::of(step);
    for value in step.outputs.iter().map(|o| o.value).chain(step.states.iter().filter_map(|s| s.next)) {
        // A constant that is reported or kept needs an address.
        let (base, _) = units.access(value);
        units.materialize(base);
    }
    let mut program = epilogue::fuse_epilogues(emit::Emitter::new(step, &units).emit());
    program.rematerializations = rematerialize::rematerializations(&program);
    program
}
