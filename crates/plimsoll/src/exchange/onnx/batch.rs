//! Which extents of a graph grow with the batch: found out by tracing it for two sizes.
//!
//! A traced graph knows one size of everything. Where two traces of a model are the same but for extents that are
//! proportional to the number of samples, a file can leave that number open.

use crate::{Error, ErrorKind, Op, Result};
use plimsoll_graph::op::Slice;
use plimsoll_graph::{Graph, Step, ValueId};

/// An extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Dim {
    Fixed(usize),
    /// So many times the number of samples.
    Samples(usize),
}

/// The numbers of samples that are traced: two that no axis of one element is mistaken for.
pub(super) const TRACED: [usize; 2] = [2, 3];

/// A traced step, and the extents of its values.
pub(super) struct SizedStep {
    pub(super) step: Step,
    /// For each value, its shape.
    dims: Vec<Vec<Dim>>,
    /// Why the number of samples is fixed, if it is.
    pub(super) fixed: Option<String>,
}

impl SizedStep {
    /// Traces a model for an open number of samples, or for one if that does not go.
    pub(super) fn trace(trace: &dyn Fn(usize) -> Result<Step>) -> Result<SizedStep> {
        let traced = TRACED.map(trace);
        let reason = match traced {
            [Ok(step), Ok(other)] => match compare(&step.graph, &other.graph) {
                Ok(dims) => return Ok(SizedStep { step, dims, fixed: None }),
                Err(reason) => reason,
            },
            [Err(error), _] | [_, Err(error)] => error.to_string(),
        };
        let step = trace(1)?;
        let graph = &step.graph;
        let shape = |value: ValueId| graph.shape(value).iter().map(|&dim| Dim::Fixed(dim)).collect();
        let dims = graph.values().map(shape).collect();
        Ok(SizedStep { step, dims, fixed: Some(reason) })
    }

    pub(super) fn dims(&self, value: ValueId) -> &[Dim] {
        &self.dims[value.index()]
    }

    /// The first input that has samples, and their axis.
    pub(super) fn samples(&self) -> Result<(&str, usize)> {
        let axis = |value| self.dims(value).iter().position(|&dim| dim == Dim::Samples(1));
        let found = self.step.inputs.iter().find_map(|input| Some((&*input.name, axis(input.value)?)));
        found.ok_or_else(|| Error::new(ErrorKind::Internal, "samples of no input, which is a bug"))
    }
}

/// The shapes of the values of two graphs that differ in the number of samples, or why they are not that.
fn compare(graph: &Graph, other: &Graph) -> std::result::Result<Vec<Vec<Dim>>, String> {
    if graph.nodes().len() != other.nodes().len() {
        return Err("the model computes otherwise for another number of samples".into());
    }
    for (node, same) in graph.nodes().iter().zip(other.nodes()) {
        if node.operands != same.operands || !is_alike(&node.op, &same.op, graph, &node.operands) {
            let scope = node.results().next().map_or("", |value| graph.scope(value));
            let name = node.op.name();
            return Err(format!("{name} in `{scope}` is otherwise for another number of samples"));
        }
    }
    let dims = |value: ValueId| {
        let (shape, same) = (graph.shape(value), other.shape(value));
        if shape.rank() != same.rank() {
            return Err(format!("a value in `{}` has other axes", graph.scope(value)));
        }
        let dim = |(&a, &b): (&usize, &usize)| match () {
            () if a == b => Ok(Dim::Fixed(a)),
            () if a * TRACED[1] == b * TRACED[0] => Ok(Dim::Samples(a / TRACED[0])),
            () => Err(format!("a value in `{}` is not proportional to the samples", graph.scope(value))),
        };
        shape.iter().zip(same.iter()).map(dim).collect()
    };
    graph.values().map(dims).collect()
}

/// Whether two ops are the same but for shapes.
fn is_alike(op: &Op, other: &Op, graph: &Graph, operands: &[ValueId]) -> bool {
    match (op, other) {
        (Op::Input { dtype, .. }, Op::Input { dtype: same, .. }) => dtype == same,
        (Op::Constant { value, dtype, .. }, Op::Constant { value: same_value, dtype: same_dtype, .. }) => {
            (value.to_bits(), dtype) == (same_value.to_bits(), same_dtype)
        }
        (Op::Iota { axis, dtype, shape }, Op::Iota { axis: a, dtype: d, shape: s }) => {
            (axis, dtype, shape[*axis]) == (a, d, s[*axis])
        }
        (Op::Reshape { .. }, Op::Reshape { .. }) | (Op::Broadcast { .. }, Op::Broadcast { .. }) => true,
        (Op::Conv2dInputGrad { conv, input }, Op::Conv2dInputGrad { conv: same_conv, input: same_input }) => {
            conv == same_conv && input[1..] == same_input[1..]
        }
        (Op::Slice(slice), Op::Slice(same)) => {
            let shape = graph.shape(operands[0]);
            (0..shape.rank()).all(|axis| {
                let part = |slice: &Slice| (slice.start[axis], slice.stop[axis], slice.step[axis]);
                part(slice) == (0, shape[axis], 1) && (same.start[axis], same.step[axis]) == (0, 1)
                    || part(slice) == part(same)
            })
        }
        _ => op == other,
    }
}
