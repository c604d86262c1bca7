//! Values that cost less to make again than to keep.
//!
//! The gradient of a batch norm reads what was normalised, so that is kept from the forward pass to the backward pass anyway. What
//! an activation's gradient needs between the two (normalised elements, a sigmoid, which elements were cut off) is arithmetic on
//! it, as a sigmoid is on its operand, which the same gradient multiplies by. Kept, each is as large as what it is made from,
//! written by one pass and read by the other; made again it costs a few instructions in a loop that waits for memory. So the
//! backward pass gets copies of such nodes, and they fuse with what uses them. Numbers do not change: a copy has the operands of
//! the original.
//!
//! What something else needs from memory as well, such as the activation that the next convolution's gradient multiplies by, is
//! kept and not made again.

use super::decompose;
use crate::op::Op;
use crate::step::Step;
use crate::{Graph, NodeId, ValueId};
use std::borrow::Cow;
use std::collections::HashMap;

/// The most additions (see [`Unary`](crate::op::Unary)) that a value is made again with.
const MOST_ADDITIONS: u64 = 32;

/// An operand so many times smaller than the value is kept: it takes next to no memory.
const SMALL: usize = 16;

/// The step whose backward pass makes such values again.
pub(super) fn recompute(step: Cow<'_, Step>) -> Cow<'_, Step> {
    let Some(kept) = Kept::of(&step) else { return step };
    let original = &step.graph;
    let mut copies = HashMap::new();
    let (graph, places) = original.rewritten(|g, id, places| {
        let node = original.node(id);
        if !is_elementwise(&node.op) && !is_view(&node.op) {
            // What follows is another loop, in which a copy of its own costs less than one that is kept.
            copies.clear();
        }
        let makes_again = |value: &ValueId| kept.again[value.index()];
        if id < kept.first || !is_elementwise(&node.op) || !node.operands.iter().any(makes_again) {
            return None;
        }
        let mut copier = Copier { original, kept: &kept, places, copies: &mut copies };
        let operand = |value: &ValueId| match kept.again[value.index()] {
            true => copier.copy(g, *value, *value),
            false => places[value.index()],
        };
        let operands: Vec<ValueId> = node.operands.iter().map(operand).collect();
        Some(vec![like(g, &node.op, &operands)])
    });
    Cow::Owned(decompose::rewritten(&step, graph, &places))
}

/// Appends an op of elements to operands like those it had.
fn like(g: &mut Graph, op: &Op, operands: &[ValueId]) -> ValueId {
    g.apply(op.clone(), operands).expect("an op takes what is like its operands")
}

/// What copies nodes of the forward pass to where they are used.
struct Copier<'a> {
    original: &'a Graph,
    kept: &'a Kept,
    places: &'a [ValueId],
    /// The copies that the loop has already.
    copies: &'a mut HashMap<ValueId, ValueId>,
}

impl Copier<'_> {
    /// A copy of `value`, from which `whole` is made.
    fn copy(&mut self, g: &mut Graph, value: ValueId, whole: ValueId) -> ValueId {
        if let Some(&copy) = self.copies.get(&value) {
            return copy;
        }
        let node = self.original.node(self.original.producer(value));
        let operand = |&operand: &ValueId| match self.kept.is_there(self.original, operand, whole) {
            true => self.places[operand.index()],
            false => self.copy(g, operand, whole),
        };
        let operands: Vec<ValueId> = node.operands.iter().map(operand).collect();
        let copy = like(g, &node.op, &operands);
        self.copies.insert(value, copy);
        copy
    }
}

/// Ops that are in backward passes alone.
fn is_gradient(op: &Op) -> bool {
    matches!(
        op,
        Op::BatchNormGrad { .. }
            | Op::LayerNormGrad
            | Op::ResidualLayerNormGrad
            | Op::Conv2dFilterGrad { .. }
            | Op::AttentionGrad(_)
            | Op::JointAttentionGrad(_)
    )
}

/// Ops that are no kernel.
fn is_view(op: &Op) -> bool {
    matches!(
        op,
        Op::Input { .. }
            | Op::Constant { .. }
            | Op::Iota { .. }
            | Op::Reshape { .. }
            | Op::Permute { .. }
            | Op::Slice(_)
            | Op::StopGradient
    )
}

/// Ops of each element, which loops compute.
fn is_elementwise(op: &Op) -> bool {
    matches!(
        op,
        Op::Unary(_) | Op::Binary(_) | Op::Compare(_) | Op::Select | Op::Cast { .. } | Op::Broadcast { .. }
    )
}

/// What of the forward pass the backward pass uses, and where. Places in it are counted in kernels of ops: the loops between two
/// of these are at one place.
struct Kept {
    /// The first gradient of an op with a kernel of its own: nodes from here on are the backward pass.
    first: NodeId,
    /// For each value, the last place where something other than a loop uses it.
    by_ops: Vec<Option<usize>>,
    /// For each value, the last place where a loop uses it.
    by_loops: Vec<Option<usize>>,
    /// What is reported, or kept for the next step.
    outside: Vec<bool>,
    /// The values that are made again.
    again: Vec<bool>,
}

impl Kept {
    /// What the backward pass of a step uses, if there is anything in it that can be made again.
    fn of(step: &Step) -> Option<Kept> {
        let graph = &step.graph;
        let first = graph.nodes().iter().position(|node| is_gradient(&node.op))?;
        let mut kept = Kept {
            first: NodeId(first as u32),
            by_ops: vec![None; graph.len()],
            by_loops: vec![None; graph.len()],
            outside: vec![false; graph.len()],
            again: vec![false; graph.len()],
        };
        let mut place = 0;
        for node in &graph.nodes()[first..] {
            let is_loop = is_elementwise(&node.op);
            place += usize::from(!is_loop && !is_view(&node.op));
            let uses = if is_loop { &mut kept.by_loops } else { &mut kept.by_ops };
            node.operands.iter().for_each(|operand| uses[operand.index()] = Some(place));
        }
        let next = step.states.iter().filter_map(|state| state.next);
        let outside = step.outputs.iter().map(|output| output.value).chain(next);
        outside.chain(step.gradients.iter().copied()).for_each(|value| kept.outside[value.index()] = true);
        // Operands come before what is made from them, so that it is known which of them are made again.
        for value in (0..graph.len() as u32).map(ValueId) {
            let is_used = kept.by_loops[value.index()].is_some();
            kept.again[value.index()] =
                is_used && kept.is_forgotten(graph, value) && kept.can_reach(graph, value, value, &mut 0);
        }
        kept.again.contains(&true).then_some(kept)
    }

    /// Whether a value is arithmetic of the forward pass that no op of the backward pass needs in memory.
    fn is_forgotten(&self, graph: &Graph, value: ValueId) -> bool {
        graph.producer(value) < self.first
            && is_elementwise(graph.op(value))
            && self.by_ops[value.index()].is_none()
            && !self.outside[value.index()]
    }

    /// Whether a value from which `whole` is made can be made from what is there, in few additions.
    fn can_reach(&self, graph: &Graph, value: ValueId, whole: ValueId, additions: &mut u64) -> bool {
        let node = graph.node(graph.producer(value));
        *additions += match node.op {
            Op::Unary(function) => function.additions(),
            Op::Broadcast { .. } => 0,
            _ => 1,
        };
        *additions <= MOST_ADDITIONS
            && node.operands.iter().all(|&operand| {
                self.is_there(graph, operand, whole)
                    || self.is_forgotten(graph, operand) && self.can_reach(graph, operand, whole, additions)
            })
    }

    /// Whether an operand is there where `whole`, which is made from it, is used: it is given, or small, or something needs it
    /// there or later that cannot make it again.
    fn is_there(&self, graph: &Graph, operand: ValueId, whole: ValueId) -> bool {
        let is_given = matches!(graph.op(operand), Op::Input { .. } | Op::Constant { .. } | Op::Iota { .. });
        let elements = |value: ValueId| graph.shape(value).elements();
        let last = self.by_ops[operand.index()].max(self.by_loops[operand.index()]);
        is_given
            || self.outside[operand.index()]
            || elements(operand).saturating_mul(SMALL) <= elements(whole)
            || !self.again[operand.index()] && last >= self.by_loops[whole.index()]
    }
}
