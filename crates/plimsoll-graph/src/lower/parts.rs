//! Ops that are one node in a graph, where their gradient needs them whole, and several kernels in a program.
//!
//! Batch norm is statistics, which need a kernel of their own, and then arithmetic on each element, which does not:
//! taken apart, normalising fuses with what follows it, its result needs no memory, and it can be made again without
//! taking the statistics again.

use crate::op::Op;
use crate::step::Step;
use crate::{Graph, Result, ValueId};
use std::borrow::Cow;

/// The step with such ops taken apart.
pub(super) fn expanded(step: &Step) -> Cow<'_, Step> {
    if !step.graph.nodes().iter().any(|node| matches!(node.op, Op::BatchNorm { .. })) {
        return Cow::Borrowed(step);
    }
    let (graph, places) = step.graph.rewritten(|graph, op, operands| match *op {
        Op::BatchNorm { epsilon } => {
            let results = batch_norm(graph, epsilon, operands);
            Some(results.expect("what batch norm takes, its parts take"))
        }
        _ => None,
    });
    let place = |value: &mut ValueId| *value = places[value.index()];
    let mut step = Step { graph, ..step.clone() };
    for state in &mut step.states {
        place(&mut state.value);
        state.next.iter_mut().for_each(place);
    }
    step.inputs.iter_mut().chain(&mut step.outputs).for_each(|named| place(&mut named.value));
    step.gradients.iter_mut().for_each(place);
    Cow::Owned(step)
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
