//! What a kernel costs: floating-point operations and bytes moved, each operand counted once.
//!
//! A function that is made of many operations, such as an exponential, counts for as many additions as take as long
//! as it does in the CPU's vectorised loops, to a power of two.

use super::family::is_half;
use crate::op::{Binary, Op};
use crate::program::{Body, Kernel, Loop, Operand, Scalar};
use plimsoll_ir::Arithmetic;

/// What an exponential or a logarithm counts for.
const EXPONENTIAL: u64 = 4;

/// Floating-point operations, multiply and add counted as two.
pub(crate) fn flops(body: &Body, reads: &[Operand], writes: &[Operand]) -> u64 {
    match body {
        Body::Loop(body) => loop_flops(body),
        Body::Op(op) => op_flops(op, reads, writes),
        Body::WithEpilogue(then) => {
            op_flops(&then.op, &reads[..then.operands], &[then.made()]) + loop_flops(&then.body)
        }
        Body::Copy | Body::Wait => 0,
    }
}

/// What kind of operations a kernel's flops are.
pub(crate) fn arithmetic(kernel: &Kernel) -> Arithmetic {
    let op = match &kernel.body {
        Body::Op(op) => op,
        Body::WithEpilogue(fused) => &fused.op,
        Body::Loop(_) | Body::Copy | Body::Wait => return Arithmetic::Elementwise,
    };
    match (op, is_half(kernel)) {
        (Op::ProjectedCrossEntropy { .. }, true) => Arithmetic::ProjectionHalf,
        (Op::ProjectedCrossEntropy { .. }, false) => Arithmetic::Projection,
        (Op::Dot { .. } | Op::Lstm | Op::LstmGrad | Op::Gru | Op::GruGrad, true) => Arithmetic::MatrixHalf,
        (Op::Dot { .. } | Op::Lstm | Op::LstmGrad | Op::Gru | Op::GruGrad, false) => Arithmetic::Matrix,
        (Op::Conv2d(_) | Op::Conv2dInputGrad { .. } | Op::Conv2dFilterGrad { .. }, true) => {
            Arithmetic::ConvolutionHalf
        }
        (Op::Conv2d(_) | Op::Conv2dInputGrad { .. } | Op::Conv2dFilterGrad { .. }, false) => {
            Arithmetic::Convolution
        }
        (Op::Attention(_) | Op::AttentionGrad(_) | Op::JointAttentionGrad(_), _) => Arithmetic::Attention,
        _ => Arithmetic::Elementwise,
    }
}

/// Bytes read and written.
pub(crate) fn bytes(body: &Body, reads: &[Operand], writes: &[Operand]) -> u64 {
    let operands = reads.iter().chain(writes).map(|o| (o.view.distinct() * o.dtype.size()) as u64);
    operands.sum::<u64>() + logits_bytes(body, reads)
}

/// The traffic of logits that no buffer holds but memory does, beside that of the products: read for the loss, read
/// again and replaced by their gradients.
fn logits_bytes(body: &Body, reads: &[Operand]) -> u64 {
    let Body::Op(Op::ProjectedCrossEntropy { transpose_weight, .. }) = body else { return 0 };
    let (x, weight) = (&reads[0].view.shape, &reads[1].view.shape);
    let classes = if *transpose_weight { weight[0] } else { weight[1] };
    3 * (x[0] * classes * reads[0].dtype.size()) as u64
}

fn loop_flops(body: &Loop) -> u64 {
    let each: u64 = body.instructions.iter().map(|i| scalar_flops(&i.scalar)).sum();
    body.domain.elements() as u64 * each
}

fn scalar_flops(scalar: &Scalar) -> u64 {
    match scalar {
        Scalar::Load { .. } | Scalar::Constant(_) | Scalar::Iota { .. } | Scalar::Cast(_) => 0,
        // Ten rounds of the generator for every number.
        Scalar::Random { .. } => 128,
        Scalar::Unary(function, _) => function.additions(),
        Scalar::Binary(Binary::Div, ..) => 2,
        Scalar::Binary(Binary::Pow, ..) => 32,
        _ => 1,
    }
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
        Op::AttentionGrad(attention) | Op::JointAttentionGrad(attention) => {
            attention_pairs(reads, attention.causal) * 10 * width(reads)
        }
        Op::Lstm | Op::Gru => recurrent_flops(reads),
        Op::LstmGrad | Op::GruGrad => 2 * recurrent_flops(reads),
        Op::Pool2d(pool) => elements(&writes[0]) * (pool.window[0] * pool.window[1]) as u64,
        Op::Pool2dGrad(pool) => elements(&reads[1]) * (pool.window[0] * pool.window[1]) as u64,
        Op::Pad(_) | Op::Concat { .. } | Op::Gather => 0,
        // Each row is gone through twice, first for its largest.
        Op::CrossEntropy => (8 + EXPONENTIAL) * elements(&reads[0]),
        Op::CrossEntropyGrad => (3 + EXPONENTIAL) * elements(&reads[0]),
        Op::LayerNorm { .. } => 5 * elements(&reads[0]),
        Op::BatchMoments { .. } => 4 * elements(&reads[0]),
        // The logits' product, and those of both gradients.
        Op::ProjectedCrossEntropy { .. } => 6 * reads[0].view.shape[0] as u64 * elements(&reads[1]),
        Op::LayerNormGrad | Op::BatchNormGrad { .. } => 10 * elements(&reads[0]),
        Op::ResidualLayerNormGrad => 11 * elements(&reads[0]),
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

#[cfg(test)]
mod tests {
    use crate::{DType, Graph, Result, Step, ValueId, lower};

    /// The operations of a loop over 1,000 elements.
    fn flops(build: impl Fn(&mut Graph, ValueId) -> Result<ValueId>) -> u64 {
        let mut step = Step::new();
        let x = step.input("x", &[10, 100], DType::F32).expect("an input");
        let y = build(&mut step.graph, x).expect("a value");
        step.output("y", y);
        lower(&step).kernels.iter().map(|kernel| kernel.flops).sum()
    }

    #[test]
    fn a_function_counts_for_the_additions_that_it_takes_as_long_as() {
        assert_eq!(flops(|g, x| g.add(x, x)), 1_000);
        assert_eq!(flops(|g, x| g.exp(x)), 4_000);
        assert_eq!(flops(|g, x| g.gelu(x)), 16_000);
        let both = flops(|g, x| {
            let y = g.exp(x)?;
            g.add(y, x)
        });
        assert_eq!(both, 5_000);
    }

    #[test]
    fn moving_and_converting_elements_counts_for_nothing() {
        assert_eq!(flops(|g, x| g.cast(x, DType::BF16)), 0);
    }
}
