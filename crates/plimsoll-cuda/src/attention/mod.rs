//! Scaled dot-product attention and its gradients.
//!
//! The matrix of scores has an element for every pair of a query and a key and is never written: a block of threads
//! takes a block of queries through the keys, keeping for every query the largest score and the sum of exponentials
//! so far (online softmax: Milakov and Gimelshein; FlashAttention: Dao et al.). The gradients recompute scores from the
//! log-sums. They are two kernels, one by blocks of queries and one by blocks of keys: that is seven matrix products where
//! five would do with atomic additions, but every sum has one owner, so results have the same bits on every run, and the
//! workspace is a number or two for each query.
//!
//! Halves are multiplied on tensor cores where their layout allows 16-byte copies: by single warps (`mma`), or on Hopper
//! by groups of four warps straight from shared memory (`wgmma`). Sums of rows wider than 128 fill the registers of a warp:
//! each has 16 rows then, and two share the columns of the gradients of k and v. [`plan`] chooses.

mod geometry;
mod plan;

use crate::codegen::engine::Engine;
use crate::codegen::launches::{CompiledLaunch, LaunchArgument, LaunchSequence};
use crate::error::Result;
use crate::routine::Routine;
use geometry::AttentionShape;
use plan::{AttentionLaunch, AttentionPlan};
use plimsoll_graph::op::Attention;
use plimsoll_graph::program::Operand;
use std::sync::Arc;
#[cfg(test)]
use {crate::codegen::engine::Properties, plimsoll_graph::Op};

/// Prepares `Op::Attention`. Operands may be strided views.
pub(crate) fn prepare(
    engine: &Arc<Engine>,
    attention: Attention,
    reads: &[Operand],
) -> Result<Box<dyn Routine>> {
    compile(engine, plan::forward(&AttentionShape::forward(attention, reads)?, engine.properties()))
}

/// Prepares `Op::AttentionGrad`, or `Op::JointAttentionGrad` where there is one result. Operands may be strided views, but
/// for the log-sum.
pub(crate) fn prepare_grad(
    engine: &Arc<Engine>,
    attention: Attention,
    reads: &[Operand],
    writes: &[Operand],
) -> Result<Box<dyn Routine>> {
    let geometry = AttentionShape::backward(attention, reads, writes.len() == 1)?;
    compile(engine, plan::backward(&geometry, engine.properties()))
}

/// The source that attention or its gradient is compiled from.
#[cfg(test)]
pub(crate) fn source(
    op: &Op,
    reads: &[Operand],
    writes: &[Operand],
    device: &Properties,
) -> Option<Result<String>> {
    let plan = match *op {
        Op::Attention(attention) => {
            AttentionShape::forward(attention, reads).map(|geometry| plan::forward(&geometry, device))
        }
        Op::AttentionGrad(attention) | Op::JointAttentionGrad(attention) => {
            AttentionShape::backward(attention, reads, writes.len() == 1)
                .map(|geometry| plan::backward(&geometry, device))
        }
        _ => return None,
    };
    Some(plan.map(|plan| plan.source))
}

fn compile(engine: &Arc<Engine>, plan: AttentionPlan) -> Result<Box<dyn Routine>> {
    let compiled = plan.launches.into_iter().map(|launch| {
        let AttentionLaunch { name, grid, threads, shared, arguments, extents } = launch;
        let function = engine.compile(&plan.source, name, shared)?;
        let pointers = arguments.into_iter().map(LaunchArgument::Pointer);
        let arguments = pointers.chain([LaunchArgument::Extents(extents)]).collect();
        Ok(CompiledLaunch { function, grid, threads, shared, arguments })
    });
    let launches = compiled.collect::<Result<_>>()?;
    // SAFETY: the kernels take addresses in the order the plan has, which are those of operands with the extents and strides
    // that are written into the source or are the last argument.
    Ok(Box::new(unsafe { LaunchSequence::new(launches, plan.workspace) }))
}
