//! Ops that are cut otherwise in a program than in a graph, which has them as gradients need them.
//!
//! Batch norm is statistics, which need a kernel of their own, and then arithmetic on each element, which does not:
//! taken apart, normalising fuses with what follows it, its result needs no memory, and it can be made again without
//! taking the statistics again.
//!
//! The gradients of attention's queries, keys and values are mostly put side by side, as they are parts of one
//! projection. Its kernel can write them so.
//!
//! The gradient of a layer norm at the beginning of a residual block is added to what comes past the block. Its kernel has
//! each element at hand and can add it.

use crate::op::{Attention, Binary, Op};
use crate::step::Step;
use crate::{Graph, NodeId, Result, ValueId};
use std::borrow::Cow;

/// The step with such ops cut for a program.
pub(super) fn decompose(step: &Step) -> Cow<'_, Step> {
    let graph = &step.graph;
    let uses = uses(step);
    let (joints, residuals) = (joints(graph, &uses), residuals(graph, &uses));
    let normalises = graph.nodes().iter().any(|node| matches!(node.op, Op::BatchNorm { .. }));
    if joints.is_empty() && residuals.is_empty() && !normalises {
        return Cow::Borrowed(step);
    }
    let (graph, places) = graph.rewritten(|g, id, places| {
        let node = graph.node(id);
        let place = |value: &ValueId| places[value.index()];
        let operands: Vec<ValueId> = node.operands.iter().map(place).collect();
        match node.op {
            Op::BatchNorm { epsilon } => {
                let results = batch_norm(g, epsilon, &operands);
                Some(results.expect("what batch norm takes, its parts take"))
            }
            Op::Concat { .. } if joints.contains(&id) => joint_attention_grad(g, &operands),
            Op::LayerNormGrad => {
                let residual = residuals.iter().find(|residual| residual.gradient == id)?;
                let operands = [&operands[..], &[place(&residual.past)]].concat();
                let results = g.apply_n::<3>(Op::ResidualLayerNormGrad, &operands);
                Some(results.expect("what is added is like what it is added to").to_vec())
            }
            // The gradient is the sum already.
            Op::Binary(Binary::Add) => {
                let residual = residuals.iter().find(|residual| residual.sum == id)?;
                Some(vec![places[graph.node(residual.gradient).results().next()?.index()]])
            }
            _ => None,
        }
    });
    Cow::Owned(rewritten(step, graph, &places))
}

/// The step with its graph rewritten, in which `places` are where its values are now.
pub(super) fn rewritten(step: &Step, graph: Graph, places: &[ValueId]) -> Step {
    let place = |value: &mut ValueId| *value = places[value.index()];
    let mut step = Step { graph, ..step.clone() };
    for state in &mut step.states {
        place(&mut state.value);
        state.next.iter_mut().for_each(place);
    }
    step.inputs.iter_mut().chain(&mut step.outputs).for_each(|named| place(&mut named.value));
    step.gradients.iter_mut().for_each(place);
    step
}

/// How often each value is used, in the graph and outside.
fn uses(step: &Step) -> Vec<u32> {
    let mut uses = vec![0; step.graph.len()];
    let outside = step.outputs.iter().map(|o| o.value).chain(step.states.iter().filter_map(|s| s.next));
    let inside = step.graph.nodes().iter().flat_map(|node| &node.operands).copied();
    outside.chain(step.gradients.iter().copied()).chain(inside).for_each(|value| uses[value.index()] += 1);
    uses
}

/// A gradient of a layer norm that is only added to what comes past its block.
struct Residual {
    gradient: NodeId,
    past: ValueId,
    sum: NodeId,
}

/// Those of which what they are added to is there when they are computed.
fn residuals(graph: &Graph, uses: &[u32]) -> Vec<Residual> {
    let sums = graph.nodes().iter().enumerate().filter(|(_, node)| node.op == Op::Binary(Binary::Add));
    let found = sums.filter_map(|(number, node)| {
        let [a, b] = [node.operands[0], node.operands[1]];
        [(a, b), (b, a)].into_iter().find_map(|(of_x, past)| {
            let gradient = graph.producer(of_x);
            let suits = matches!(graph.node(gradient).op, Op::LayerNormGrad)
                && graph.node(gradient).results().next() == Some(of_x)
                && uses[of_x.index()] == 1
                && graph.producer(past) < gradient;
            suits.then_some(Residual { gradient, past, sum: NodeId(number as u32) })
        })
    });
    found.collect()
}

/// ((x − mean) / deviation) γ + β in the accumulator type, rounded once. Channels are widened where they are
/// repeated, which is in the loop over elements and not in one of their own.
fn batch_norm(g: &mut Graph, epsilon: f64, operands: &[ValueId]) -> Result<Vec<ValueId>> {
    let x = g.ty(operands[0]);
    let wide = x.dtype.accumulator();
    let [mean, variance, reciprocal] = g.apply_n(Op::BatchMoments { epsilon }, &operands[..1])?;
    let mut y = g.cast(operands[0], wide)?;
    let binary = [Graph::sub, Graph::mul, Graph::mul, Graph::add];
    for (apply, channels) in binary.into_iter().zip([mean, reciprocal, operands[1], operands[2]]) {
        let repeated = g.broadcast(channels, &x.shape)?;
        let repeated = g.cast(repeated, wide)?;
        y = apply(g, y, repeated)?;
    }
    Ok(vec![g.cast(y, x.dtype)?, mean, variance])
}

/// The concatenations of all three gradients of one attention, each as rows of all heads, which nothing else uses.
fn joints(graph: &Graph, uses: &[u32]) -> Vec<NodeId> {
    let alone = |&value: &ValueId| {
        let made = graph.node(graph.producer(value));
        uses[value.index()] == 1 && uses[made.operands[0].index()] == 1
    };
    let joints = graph.nodes().iter().enumerate().filter(|(_, node)| {
        matches!(node.op, Op::Concat { axis: 2 })
            && node.operands.len() == 3
            && attended(graph, &node.operands).is_some()
            && node.operands.iter().all(alone)
    });
    joints.map(|(number, _)| NodeId(number as u32)).collect()
}

/// The attention whose gradients of q, k and v these are, in that order, each reshaped to rows of all heads.
fn attended(graph: &Graph, rows: &[ValueId]) -> Option<(Attention, NodeId)> {
    let of = |index: usize| {
        let reshaped = graph.node(graph.producer(rows[index]));
        let Op::Reshape { .. } = reshaped.op else { return None };
        let gradient = reshaped.operands[0];
        let node = graph.producer(gradient);
        let (from, to) = (graph.shape(gradient), graph.shape(rows[index]));
        let is_rows = from.rank() == 4 && to[..] == [from[0], from[1], from[2] * from[3]];
        (is_rows && graph.node(node).results().nth(index) == Some(gradient)).then_some(node)
    };
    let node = of(0)?;
    let Op::AttentionGrad(attention) = graph.node(node).op else { return None };
    let same = of(1) == Some(node) && of(2) == Some(node) && graph.ty(rows[0]) == graph.ty(rows[1]);
    same.then_some((attention, node))
}

/// What is concatenated, made in one piece.
fn joint_attention_grad(g: &mut Graph, rows: &[ValueId]) -> Option<Vec<ValueId>> {
    let [batch, length, width] = [0, 1, 2].map(|axis| g.shape(rows[0])[axis]);
    let (attention, node) = attended(g, rows)?;
    let operands = g.node(node).operands.clone();
    let joint = g.apply(Op::JointAttentionGrad(attention), &operands).ok()?;
    Some(vec![g.reshape(joint, &[batch, length, 3 * width]).ok()?])
}
