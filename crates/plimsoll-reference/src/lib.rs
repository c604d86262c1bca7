//! An evaluator that is obviously right.
//!
//! Devices are fast because their kernels block, vectorise, fuse and reorder. This crate does none of that: it
//! evaluates a [`Graph`] node by node, in `f64`, with plain loops over indices that read like the definitions
//! in textbooks, and rounds each result once to the precision of its type. It shares no code with any device
//! or with the gradient rules, so that agreeing with it means something.
//!
//! Misuse (a missing input, a tensor of another shape) panics: this is a tool for tests.

mod attention;
mod elementwise;
mod movement;
mod products;
mod program;
pub mod random_step;
mod recurrent;
mod structured;
mod tensor;

pub use program::{run, with_rematerializations};
pub use tensor::Tensor;

use plimsoll_graph::op::Binary;
use plimsoll_graph::{DType, Graph, Op, Shape, ValueId};
use std::collections::HashMap;

/// The values `wanted` of a graph whose inputs are given.
///
/// # Panics
/// If an input that is needed is missing, or is not of the type the graph declares.
pub fn evaluate(graph: &Graph, inputs: &HashMap<ValueId, Tensor>, wanted: &[ValueId]) -> Vec<Tensor> {
    let mut values: Vec<Option<Tensor>> = vec![None; graph.len()];
    let needed = needed(graph, wanted);
    for (node, _) in graph.nodes().iter().zip(needed).filter(|(_, needed)| *needed) {
        let first = node.results().next().expect("a node has a result");
        if matches!(node.op, Op::Input { .. }) {
            let given = inputs.get(&first).unwrap_or_else(|| panic!("no input `{}`", graph.scope(first)));
            let (shape, dtype) = (graph.shape(first), graph.dtype(first));
            assert_eq!((given.shape, given.dtype), (shape, dtype), "input `{}`", graph.scope(first));
            values[first.index()] = Some(given.clone());
            continue;
        }
        let operands: Vec<&Tensor> =
            node.operands.iter().map(|id| values[id.index()].as_ref().expect("an earlier node")).collect();
        let results = compute(&node.op, graph.shape(first), graph.dtype(first), &operands);
        for (id, data) in node.results().zip(results) {
            values[id.index()] = Some(Tensor::rounded(graph.shape(id), graph.dtype(id), data));
        }
    }
    wanted.iter().map(|id| values[id.index()].clone().expect("it was needed")).collect()
}

/// For each node, whether one of `wanted` depends on it.
fn needed(graph: &Graph, wanted: &[ValueId]) -> Vec<bool> {
    let mut needed = vec![false; graph.nodes().len()];
    for &value in wanted {
        needed[graph.producer(value).index()] = true;
    }
    for (index, node) in graph.nodes().iter().enumerate().rev() {
        if needed[index] {
            for &operand in &node.operands {
                needed[graph.producer(operand).index()] = true;
            }
        }
    }
    needed
}

/// The elements of each result of an op, not yet rounded to their types. `shape` and `dtype` are those of the
/// first.
fn compute(op: &Op, shape: Shape, dtype: DType, x: &[&Tensor]) -> Vec<Vec<f64>> {
    match op {
        Op::Input { .. } => unreachable!("inputs are given"),
        Op::Constant { value, .. } => vec![vec![elementwise::cast(*value, dtype); shape.elements()]],
        Op::Iota { axis, .. } => vec![movement::iota(&shape, *axis)],
        &Op::Random { distribution, stream, per_sample, .. } => {
            vec![elementwise::random(distribution, x[0], (stream, per_sample), &shape, dtype)]
        }
        Op::Unary(f) => vec![x[0].data.iter().map(|&v| f.value(v)).collect()],
        Op::Binary(f) => vec![elementwise::binary(*f, x[0], x[1])],
        Op::Compare(f) => vec![elementwise::compare(*f, x[0], x[1])],
        Op::Select => vec![elementwise::select(x[0], x[1], x[2])],
        Op::Cast { dtype } => vec![x[0].data.iter().map(|&v| elementwise::cast(v, *dtype)).collect()],
        Op::Reduce { kind, axes, .. } => vec![movement::reduce(*kind, *axes, x[0], &shape)],
        Op::ArgMax { axis } => vec![movement::arg_max(*axis, x[0], &shape)],
        Op::Reshape { .. } | Op::StopGradient => vec![x[0].data.clone()],
        Op::Permute { order } => vec![movement::permute(order, x[0], &shape)],
        Op::Broadcast { .. } => vec![movement::broadcast(x[0], &shape)],
        Op::Slice(slice) => vec![movement::slice(slice, x[0], &shape)],
        Op::Pad(pad) => vec![movement::pad(pad, x[0], &shape)],
        Op::Concat { axis } => vec![movement::concat(*axis, x, &shape)],
        Op::Gather => vec![movement::gather(x[0], x[1])],
        Op::ScatterAdd { rows } => vec![movement::scatter_add(*rows, x[0], x[1], &shape)],
        Op::Dot { transpose_a, transpose_b } => {
            vec![products::dot(*transpose_a, *transpose_b, x[0], x[1], &shape)]
        }
        Op::Conv2d(conv) => vec![products::conv2d(conv, x[0], x[1], &shape)],
        Op::Conv2dInputGrad { conv, .. } => vec![products::conv2d_input_grad(conv, x[0], x[1], &shape)],
        Op::Conv2dFilterGrad { conv, .. } => vec![products::conv2d_filter_grad(conv, x[0], x[1], &shape)],
        Op::Pool2d(pool) => vec![products::pool2d(pool, x[0], &shape)],
        Op::Pool2dGrad(pool) => vec![products::pool2d_grad(pool, x[0], x[1])],
        Op::Softmax => vec![structured::softmax(x[0])],
        Op::LogSoftmax => vec![structured::log_softmax(x[0])],
        Op::CrossEntropy => structured::cross_entropy(x[0], x[1]),
        Op::CrossEntropyGrad => vec![structured::cross_entropy_grad(x[0], x[1], x[2], x[3])],
        Op::ProjectedCrossEntropy { transpose_weight, .. } => {
            structured::projected_cross_entropy(*transpose_weight, x)
        }
        Op::LayerNorm { epsilon } => structured::layer_norm(*epsilon, x[0], x[1], x[2]),
        Op::LayerNormGrad => structured::layer_norm_grad(x[0], x[1], x[2], x[3], x[4]),
        Op::ResidualLayerNormGrad => {
            let mut results = structured::layer_norm_grad(x[0], x[1], x[2], x[3], x[4]);
            let gradient = Tensor::rounded(shape, dtype, std::mem::take(&mut results[0]));
            results[0] = elementwise::binary(Binary::Add, &gradient, x[5]);
            results
        }
        Op::BatchNorm { epsilon } => structured::batch_norm(*epsilon, x[0], x[1], x[2]),
        Op::BatchMoments { epsilon } => structured::batch_moments(*epsilon, x[0]),
        Op::BatchNormGrad { epsilon } => structured::batch_norm_grad(*epsilon, x[0], x[1], x[2], x[3], x[4]),
        Op::Attention(attention) => attention::forward(attention, x[0], x[1], x[2]),
        Op::AttentionGrad(attention) => attention::backward(attention, x),
        Op::JointAttentionGrad(attention) => attention::joint_backward(attention, x),
        Op::Lstm => recurrent::lstm(x),
        Op::LstmGrad => recurrent::lstm_grad(x),
        Op::Gru => recurrent::gru(x),
        Op::GruGrad => recurrent::gru_grad(x),
    }
}
