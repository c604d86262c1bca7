//! Looking for what is not finite: the same step with counts in place of its results.
//!
//! A loss that is not a number says nothing about where it came from. The step that is made here computes what a step
//! computes, value by value, and reports of each how many of its elements are not finite; it changes no state. It is planned
//! like any other, so that it fits the memory that the step has.

use crate::op::{Op, Reduction};
use crate::step::{Phases, Step};
use crate::{DType, Graph, Result, ValueId};
use serde::Serialize;
use std::fmt;
use std::ops::Range;

/// A part of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// From inputs and parameters to losses.
    Forward,
    /// From losses to gradients.
    Backward,
    /// From gradients to what parameters and slots become.
    Update,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Phase::Forward => "forward",
            Phase::Backward => "backward",
            Phase::Update => "update",
        })
    }
}

impl Phases {
    /// The phase of the node of that number.
    pub fn of(&self, node: usize) -> Phase {
        let begun = |first: Option<usize>| first.is_some_and(|first| node >= first);
        match (begun(self.update), begun(self.backward)) {
            (true, _) => Phase::Update,
            (false, true) => Phase::Backward,
            (false, false) => Phase::Forward,
        }
    }
}

impl Step {
    /// The floats that losses, gradients and states depend on, in the order in which they are computed: those that have
    /// elements of their own, and no infinities that the model put there, as in masks.
    pub fn examined(&self) -> Vec<ValueId> {
        let graph = &self.graph;
        let mut needed = vec![false; graph.len()];
        let losses = self.objectives.iter().flat_map(|of| of.losses.iter().copied());
        for value in losses.chain(self.states.iter().filter_map(|state| state.next)) {
            needed[value.index()] = true;
        }
        for node in graph.nodes().iter().rev() {
            if node.results().any(|result| needed[result.index()]) {
                node.operands.iter().for_each(|operand| needed[operand.index()] = true);
            }
        }
        let mut meant = vec![false; graph.len()];
        let mut examined = vec![];
        for node in graph.nodes() {
            let of_mask = node.operands.iter().any(|operand| meant[operand.index()]);
            let infinite = match node.op {
                Op::Constant { value, .. } => !value.is_finite(),
                Op::Pad(ref pad) => of_mask || !pad.value.is_finite(),
                _ => of_mask && (moves(&node.op) || matches!(node.op, Op::Select | Op::Binary(_))),
            };
            let made = !moves(&node.op) && !matches!(node.op, Op::Constant { .. } | Op::Iota { .. });
            for result in node.results() {
                meant[result.index()] = infinite;
                let is_float = graph.dtype(result).is_float() && graph.shape(result).elements() > 0;
                if made && !infinite && needed[result.index()] && is_float {
                    examined.push(result);
                }
            }
        }
        examined
    }

    /// The step that reports of those of [`Step::examined`] in a range how many of their elements are not finite, as `f32[]`
    /// each, and leaves all states as they are.
    ///
    /// # Errors
    /// None in practice.
    pub fn examination(&self, range: Range<usize>) -> Result<Step> {
        let mut step = self.clone();
        (step.outputs, step.sums) = (vec![], vec![]);
        step.states.iter_mut().for_each(|state| state.next = None);
        for value in self.examined().into_iter().skip(range.start).take(range.len()) {
            let count = step.graph.scoped("examination", |g| count_not_finite(g, value))?;
            step.output(&value.index().to_string(), count);
        }
        Ok(step)
    }
}

/// Whether an op moves elements and computes none.
fn moves(op: &Op) -> bool {
    matches!(
        op,
        Op::Reshape { .. }
            | Op::Permute { .. }
            | Op::Broadcast { .. }
            | Op::Slice(_)
            | Op::Pad(_)
            | Op::Concat { .. }
            | Op::StopGradient
    )
}

fn count_not_finite(g: &mut Graph, value: ValueId) -> Result<ValueId> {
    let finite = g.is_finite(value)?;
    let bad = g.not(finite)?;
    let ones = g.cast(bad, DType::F32)?;
    // Rows first: they fuse with what is asked of each element.
    let rank = g.shape(value).rank();
    let rows = if rank > 1 { g.reduce(Reduction::Sum, ones, &[rank - 1])? } else { ones };
    let axes: Vec<usize> = (0..g.shape(rows).rank()).collect();
    g.reduce(Reduction::Sum, rows, &axes)
}
