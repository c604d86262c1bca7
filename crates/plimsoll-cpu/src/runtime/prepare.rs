//! Which routine runs a kernel.

use crate::kernels::loss::{cross_entropy, projected_cross_entropy};
use crate::kernels::norm::{batch_norm, layer_norm};
use crate::kernels::product::{conv2d, dot, epilogue};
use crate::kernels::recurrent::{self, Gru, Lstm};
use crate::kernels::{attention, fused, gather, movement, pool2d, reduce};
use crate::runtime::{Options, Routine};
use plimsoll_graph::program::{Body, Kernel, Operand};
use plimsoll_graph::{Op, op_without_kernel};

/// The routine that runs a kernel on this machine.
pub(crate) fn prepare(kernel: &Kernel, options: Options) -> Box<dyn Routine> {
    let Kernel { body, reads, writes, in_place, .. } = kernel;
    match body {
        Body::Loop(body) => fused::prepare(body, reads, writes, in_place),
        Body::Op(op) => prepare_op(op, reads, writes, options),
        Body::WithEpilogue(body) => epilogue::prepare(body, reads, writes, in_place, options),
        Body::Copy => movement::prepare_copy(&reads[0]),
        Body::Wait => unreachable!("a copy has ended when it returns: there is nothing to run"),
    }
}

/// The routine that runs an op on this machine. All ops are listed, so that one without a kernel does not compile.
pub(crate) fn prepare_op(
    op: &Op,
    reads: &[Operand],
    writes: &[Operand],
    options: Options,
) -> Box<dyn Routine> {
    match op {
        Op::Reduce { kind, axes, .. } => reduce::prepare(*kind, *axes, reads, writes),
        Op::ArgMax { axis } => reduce::prepare_arg_max(*axis, reads),
        Op::Pad(pad) => movement::prepare_pad(pad, reads, writes),
        Op::Concat { axis } => movement::prepare_concat(*axis, reads),
        Op::Dot { transpose_a, transpose_b } => dot::prepare(*transpose_a, *transpose_b, reads, writes),
        Op::Conv2d(conv) => conv2d::prepare(*conv, reads, options),
        Op::Conv2dInputGrad { conv, .. } => conv2d::prepare_input_grad(*conv, reads, writes, options),
        Op::Conv2dFilterGrad { conv, .. } => conv2d::prepare_filter_grad(*conv, reads, writes, options),
        Op::Pool2d(pool) => pool2d::prepare(*pool, reads, writes),
        Op::Pool2dGrad(pool) => pool2d::prepare_grad(*pool, reads, writes),
        Op::Gather => gather::prepare(reads, writes),
        Op::ScatterAdd { rows } => gather::prepare_scatter_add(*rows, reads, writes),
        Op::CrossEntropy => cross_entropy::prepare(reads, writes),
        Op::CrossEntropyGrad => cross_entropy::prepare_grad(reads, writes),
        Op::ProjectedCrossEntropy { transpose_weight, chunk } => {
            projected_cross_entropy::prepare(*transpose_weight, *chunk, reads)
        }
        Op::LayerNorm { epsilon } => layer_norm::prepare(*epsilon, reads, writes),
        Op::LayerNormGrad | Op::ResidualLayerNormGrad => layer_norm::prepare_grad(reads, writes),
        Op::BatchMoments { epsilon } => batch_norm::prepare_moments(*epsilon, reads, writes),
        Op::BatchNormGrad { epsilon } => batch_norm::prepare_grad(*epsilon, reads, writes),
        Op::Attention(attention) => attention::prepare(*attention, reads, writes),
        Op::AttentionGrad(attention) | Op::JointAttentionGrad(attention) => {
            attention::grad::prepare(*attention, reads, writes)
        }
        Op::Lstm => recurrent::prepare::<Lstm>(reads),
        Op::LstmGrad => recurrent::prepare_grad::<Lstm>(reads),
        Op::Gru => recurrent::prepare::<Gru>(reads),
        Op::GruGrad => recurrent::prepare_grad::<Gru>(reads),
        op_without_kernel!() => unreachable!("a checked program has no kernel of {}", op.name()),
    }
}
