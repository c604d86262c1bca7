//! Which routine runs a kernel.
//!
//! The matches name every op, so that an op without a kernel does not compile.

use crate::attention;
use crate::codegen::engine::Engine;
use crate::codegen::loops;
use crate::conv;
use crate::conv::dnn::Direction;
use crate::epilogue::prepare_with_epilogue;
use crate::error::{Error, ErrorKind, Result};
use crate::gemm::dot;
use crate::ops::{
    batch_norm, cross_entropy, gather, layer_norm, movement, pool2d, projected_cross_entropy, reduce,
};
use crate::recurrent;
use crate::routine::Routine;
use plimsoll_graph::program::{Body, Kernel};
use plimsoll_graph::{Op, op_without_kernel};
use std::sync::Arc;

/// The routine that runs a kernel on a device.
///
/// # Errors
/// If no kernel of the device can, or what it needs is missing: the compiler, or a library.
pub(crate) fn prepare(engine: &Arc<Engine>, kernel: &Kernel) -> Result<Box<dyn Routine>> {
    let Kernel { body, reads, writes, .. } = kernel;
    let op = match body {
        Body::Loop(body) => return loops::prepare(engine, body, reads, writes),
        Body::Op(op) => op,
        Body::WithEpilogue(fused) => return prepare_with_epilogue(engine, kernel, fused),
        // The runtime copies by itself.
        Body::Copy | Body::Wait => return unsupported(kernel, engine),
    };
    match op {
        // Matrix products and convolutions.
        Op::Dot { transpose_a, transpose_b } => dot::prepare(engine, *transpose_a, *transpose_b, reads),
        Op::Conv2d(conv) => conv::prepare(engine, Direction::Forward, *conv, reads, writes),
        Op::Conv2dInputGrad { conv, .. } => conv::prepare(engine, Direction::Input, *conv, reads, writes),
        Op::Conv2dFilterGrad { conv, .. } => conv::prepare(engine, Direction::Filter, *conv, reads, writes),

        // Reductions and movement.
        Op::Reduce { kind, axes, .. } => reduce::prepare(engine, *kind, *axes, reads, writes),
        Op::ArgMax { axis } => reduce::prepare_arg_max(engine, *axis, reads, writes),
        Op::Pad(pad) => movement::prepare_pad(engine, pad, reads, writes),
        Op::Concat { axis } => movement::prepare_concat(engine, *axis, reads, writes),
        Op::Gather => gather::prepare(engine, reads, writes),
        Op::ScatterAdd { rows } => gather::prepare_scatter_add(engine, *rows, reads, writes),

        // Windows, losses and norms.
        Op::Pool2d(pool) => pool2d::prepare(engine, *pool, reads, writes),
        Op::Pool2dGrad(pool) => pool2d::prepare_grad(engine, *pool, reads, writes),
        Op::CrossEntropy => cross_entropy::prepare(engine, reads, writes),
        Op::CrossEntropyGrad => cross_entropy::prepare_grad(engine, reads, writes),
        Op::ProjectedCrossEntropy { transpose_weight, chunk } => {
            projected_cross_entropy::prepare(engine, *transpose_weight, *chunk, reads, writes)
        }
        Op::LayerNorm { epsilon } => layer_norm::prepare(engine, *epsilon, reads, writes),
        Op::LayerNormGrad | Op::ResidualLayerNormGrad => layer_norm::prepare_grad(engine, reads, writes),
        Op::BatchMoments { epsilon } => batch_norm::prepare_moments(engine, *epsilon, reads, writes),
        Op::BatchNormGrad { epsilon } => batch_norm::prepare_grad(engine, *epsilon, reads, writes),

        // Attention.
        Op::Attention(attention) => attention::prepare(engine, *attention, reads),
        Op::AttentionGrad(attention) | Op::JointAttentionGrad(attention) => {
            attention::prepare_grad(engine, *attention, reads, writes)
        }

        // Recurrent layers.
        Op::Lstm => recurrent::lstm::prepare(engine, reads),
        Op::LstmGrad => recurrent::lstm::prepare_grad(engine, reads),
        Op::Gru => recurrent::gru::prepare(engine, reads),
        Op::GruGrad => recurrent::gru::prepare_grad(engine, reads),

        op_without_kernel!() => unsupported(kernel, engine),
    }
}

/// The error for a kernel that has no routine.
fn unsupported(kernel: &Kernel, engine: &Engine) -> Result<Box<dyn Routine>> {
    let operands: Vec<String> = kernel
        .reads
        .iter()
        .chain(&kernel.writes)
        .map(|operand| format!("{}{}", operand.dtype, operand.view.shape))
        .collect();
    let message = format!(
        "`{}` of `{}` ({}) has no kernel on {}",
        kernel.name(),
        kernel.scope,
        operands.join(", "),
        engine.shared.id
    );
    Err(Error::new(ErrorKind::Unsupported, message))
}
