//! What a kernel costs: floating-point operations and bytes moved, each operand counted once.

use crate::op::Op;
use crate::program::{Body, Loop, Operand, Scalar};

/// Floating-point operations, multiply and add counted as two.
pub(crate) fn flops(body: &Body, reads: &[Operand], writes: &[Operand]) -> u64 {
    match body {
        Body::Loop(body) => loop_flops(body),
        Body::Op(op) => op_flops(op, reads, writes),
        Body::Copy | Body::Wait => 0,
    }
}

/// Bytes read and written.
pub(crate) fn bytes(reads: &[Operand], writes: &[Operand]) -> u64 {
    reads.iter().chain(writes).map(|o| (o.view.distinct() * o.dtype.size()) as u64).sum()
}

fn loop_flops(body: &Loop) -> u64 {
    let arithmetic = body.instructions.iter().filter(|i| {
        !matches!(i.scalar, Scalar::Load { .. } | Scalar::Constant(_) | Scalar::Iota { .. } | Scalar::Cast(_))
    });
    (body.domain.elements() * arithmetic.count()) as u64
}

fn op_flops(op: &Op, reads: &[Operand], writes: &[Operand]) -> u64 {
    let elements = |o: &Operand| o.view.shape.elements() as u64;
    match op {
        Op::Dot { transpose_a, .. } => {
            let a = &reads[0].view.shape;
            let k = a[a.rank() - if *transpose_a { 2 } else { 1 }] as u64;
            2 * k * elements(&writes[0])
        }
        Op::Conv2d(_) => {
            let filter = &reads[1].view.shape;
            2 * elements(&writes[0]) * (filter[0] * filter[1] * filter[2]) as u64
        }
        Op::Conv2dInputGrad { .. } => {
            let filter = &reads[0].view.shape;
            2 * elements(&reads[1]) * (filter[0] * filter[1] * filter[2]) as u64
        }
        Op::Conv2dFilterGrad { filter, .. } => {
            2 * elements(&reads[1]) * (filter[0] * filter[1] * filter[2]) as u64
        }
        // Two products per pair of query and key; backward there are five, and scores are made again.
        Op::Attention(attention) => attention_pairs(reads, attention.causal) * 4 * width(reads),
        Op::AttentionGrad(attention) => attention_pairs(reads, attention.causal) * 10 * width(reads),
        Op::Lstm | Op::Gru => recurrent_flops(reads),
        Op::LstmGrad | Op::GruGrad => 2 * recurrent_flops(reads),
        Op::Pool2d(pool) => elements(&writes[0]) * (pool.window[0] * pool.window[1]) as u64,
        Op::Pool2dGrad(pool) => elements(&reads[1]) * (pool.window[0] * pool.window[1]) as u64,
        Op::Pad(_) | Op::Concat { .. } | Op::Gather => 0,
        Op::CrossEntropy | Op::CrossEntropyGrad | Op::LayerNorm { .. } => 5 * elements(&reads[0]),
        Op::BatchMoments { .. } => 4 * elements(&reads[0]),
        // The logits' product, and those of both gradients.
        Op::ProjectedCrossEntropy { .. } => 6 * reads[0].view.shape[0] as u64 * elements(&reads[1]),
        Op::LayerNormGrad | Op::BatchNormGrad { .. } => 10 * elements(&reads[0]),
        _ => reads.iter().map(elements).max().unwrap_or(0),
    }
}

fn attention_pairs(reads: &[Operand], causal: bool) -> u64 {
    let (q, k) = (&reads[0].view.shape, &reads[1].view.shape);
    let pairs = (q[0] * q[2] * q[1] * k[1]) as u64;
    if causal { pairs / 2 } else { pairs }
}

fn width(reads: &[Operand]) -> u64 {
    reads[0].view.shape[3] as u64
}

fn recurrent_flops(reads: &[Operand]) -> u64 {
    let x = &reads[0].view.shape;
    let weights = (reads[1].view.shape.elements() + reads[2].view.shape.elements()) as u64;
    2 * (x[0] * x[1]) as u64 * weights
}
