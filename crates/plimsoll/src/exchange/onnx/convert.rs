//! From a graph of ours to nodes of ONNX: elementwise ops, movements, and what needs no code of its own.
//!
//! ONNX broadcasts where our graphs say so: a value that is only repeated stays as small as it was until something needs
//! it whole.

use super::batch::{Dim, SizedStep};
use super::model_file::{Attribute, ModelFile, type_number};
use super::values::{Converted, bytes_of};
use crate::exchange::TensorFile;
use crate::{DType, Error, ErrorKind, Op, Result};
use plimsoll_graph::op::{Binary, Comparison, Pad, Reduction, Slice, Unary};
use plimsoll_graph::{Axes, Graph, Node, ValueId};
use std::collections::HashMap;

/// A graph on its way into a file.
pub(super) struct Converter<'a> {
    pub(super) sized: &'a SizedStep,
    pub(super) weights: &'a TensorFile,
    pub(super) file: ModelFile,
    pub(super) values: Vec<Converted>,
    /// Numbers, by their bits and type.
    pub(super) constants: HashMap<(u64, DType), String>,
    /// Weights, by their names and an order of axes.
    pub(super) arranged: HashMap<(String, Vec<usize>), String>,
    /// The order of axes in which each weight is in the file.
    pub(super) first_orders: HashMap<ValueId, Vec<usize>>,
    /// Rows of a number for each channel, shaped for images whose channels come first, by their names.
    pub(super) rows: HashMap<String, String>,
    /// Masks of attention, by queries and keys.
    pub(super) masks: HashMap<[usize; 2], String>,
    /// The number of samples, as a tensor of one number.
    pub(super) samples: Option<String>,
}

impl<'a> Converter<'a> {
    pub(super) fn new(sized: &'a SizedStep, weights: &'a TensorFile) -> Converter<'a> {
        Converter {
            sized,
            weights,
            file: ModelFile::default(),
            values: vec![Converted::default(); sized.step.graph.len()],
            constants: HashMap::new(),
            arranged: HashMap::new(),
            first_orders: HashMap::new(),
            rows: HashMap::new(),
            masks: HashMap::new(),
            samples: None,
        }
    }

    pub(super) fn convert(mut self) -> Result<ModelFile> {
        let step = &self.sized.step;
        for named in step.inputs.iter().chain(&step.outputs) {
            if self.file.fresh(&named.name) != *named.name {
                let message = format!("an input and an output are both called `{}`", named.name);
                return Err(Error::new(ErrorKind::Name, message));
            }
        }
        for input in &step.inputs {
            let dtype = step.graph.dtype(input.value);
            self.file.input(&input.name, dtype, self.sized.dims(input.value));
            self.values[input.value.index()].plain = Some(input.name.to_string());
        }
        let needed = needed(&step.graph, step.outputs.iter().map(|output| output.value));
        for node in step.graph.nodes() {
            if node.results().any(|value| needed[value.index()]) && !matches!(node.op, Op::Input { .. }) {
                let further = node.results().skip(1).find(|value| needed[value.index()]);
                if further.is_some() {
                    return Err(self.refused(node, "only its first result can be had"));
                }
                self.node(node)?;
            }
        }
        for output in &step.outputs {
            let name = self.plain(output.value)?;
            let dtype = step.graph.dtype(output.value);
            self.file.output(&output.name, &name, dtype, self.sized.dims(output.value));
        }
        Ok(self.file)
    }

    pub(super) fn graph(&self) -> &'a Graph {
        &self.sized.step.graph
    }

    pub(super) fn dims(&self, value: ValueId) -> &'a [Dim] {
        self.sized.dims(value)
    }

    /// The scope of a node.
    pub(super) fn scope(&self, node: &Node) -> &'a str {
        node.results().next().map_or("", |value| self.graph().scope(value))
    }

    /// An op that cannot be written.
    pub(super) fn refused(&self, node: &Node, why: &str) -> Error {
        let message = format!("{} cannot be written as ONNX: {why}", node.op.name());
        Error::new(ErrorKind::Argument, message).in_scope(self.scope(node))
    }

    fn node(&mut self, node: &Node) -> Result<()> {
        let scope = self.scope(node);
        let operands = &node.operands[..];
        match &node.op {
            Op::Constant { value, dtype, .. } => {
                let name = self.number(*value, *dtype);
                self.repeat(node, name, vec![]);
            }
            Op::Iota { shape, axis, dtype } => self.iota(node, shape[*axis], *axis, *dtype)?,
            Op::Unary(function) => {
                let function = *function;
                let dtype = self.graph().dtype(operands[0]);
                if function == Unary::GeluSlope {
                    return Err(self.refused(node, "it is of a gradient"));
                }
                self.elementwise(node, |c, names| c.unary(scope, function, &names[0], dtype))?;
            }
            Op::Binary(function) => {
                let op = self.binary(node, *function)?;
                self.elementwise(node, |c, names| c.file.node(scope, op, &[&names[0], &names[1]], &[]))?;
            }
            Op::Compare(comparison) => {
                let comparison = *comparison;
                self.elementwise(node, |c, names| c.compare(scope, comparison, names))?;
            }
            Op::Select => self.elementwise(node, |c, names| {
                c.file.node(scope, "Where", &[&names[0], &names[1], &names[2]], &[])
            })?,
            Op::Cast { dtype } => {
                let dtype = *dtype;
                self.elementwise(node, |c, names| c.cast(scope, &names[0], dtype))?;
            }
            Op::StopGradient => {
                let value = self.values[operands[0].index()].clone();
                self.set(node, value);
            }
            Op::Reduce { kind, axes, .. } => self.reduce(node, *kind, *axes)?,
            Op::ArgMax { axis } => {
                let x = self.plain(operands[0])?;
                let attributes = [number("axis", *axis as i64), number("keepdims", 0)];
                let index = self.file.node(scope, "ArgMax", &[&x], &attributes);
                let index = self.cast(scope, &index, DType::I32);
                self.set_plain(node, index);
            }
            Op::Reshape { .. } => self.reshape(node)?,
            Op::Permute { order } => {
                let x = self.arranged(operands[0], order)?;
                self.set_plain(node, x);
            }
            Op::Broadcast { .. } => {
                let operand = operands[0];
                let small = self.small_name(operand)?;
                let dims = self.small_dims(operand).to_vec();
                self.repeat(node, small, dims);
            }
            Op::Slice(slice) => self.slice(node, slice)?,
            Op::Pad(pad) => self.pad(node, pad)?,
            Op::Concat { axis } => self.concat(node, *axis)?,
            Op::Dot { transpose_a, transpose_b } => {
                let a = self.matrix(operands[0], *transpose_a)?;
                let b = self.matrix(operands[1], *transpose_b)?;
                let product = self.file.node(scope, "MatMul", &[&a, &b], &[]);
                self.set_plain(node, product);
            }
            Op::Gather => {
                let [table, indices] = [self.plain(operands[0])?, self.plain(operands[1])?];
                let indices = match self.graph().dtype(operands[1]) {
                    DType::I32 | DType::I64 => indices,
                    _ => self.cast(scope, &indices, DType::I64),
                };
                let rows = self.file.node(scope, "Gather", &[&table, &indices], &[number("axis", 0)]);
                self.set_plain(node, rows);
            }
            Op::Softmax | Op::LogSoftmax => {
                let op = if node.op == Op::Softmax { "Softmax" } else { "LogSoftmax" };
                let x = self.plain(operands[0])?;
                let y = self.file.node(scope, op, &[&x], &[number("axis", -1)]);
                self.set_plain(node, y);
            }
            Op::Conv2d(_)
            | Op::Conv2dInputGrad { .. }
            | Op::Pool2d(_)
            | Op::LayerNorm { .. }
            | Op::Attention(_)
            | Op::Lstm
            | Op::Gru => self.structured(node)?,
            Op::Random { .. } => {
                return Err(self.refused(node, "what is drawn anew cannot be repeated there"));
            }
            _ => return Err(self.refused(node, "it is of training, and not of inference")),
        }
        Ok(())
    }

    /// An op of elements: on what repeats as it is, and on images however their channels lie.
    fn elementwise(&mut self, node: &Node, build: impl FnOnce(&mut Self, &[String]) -> String) -> Result<()> {
        let operands = &node.operands[..];
        let lies_first = |c: &Self, value: ValueId| {
            let value = &c.values[value.index()];
            value.channels_first.is_some() && value.repeats.is_none()
        };
        let only_first =
            |c: &Self, value: ValueId| lies_first(c, value) && c.values[value.index()].plain.is_none();
        let is_row = |c: &Self, value: ValueId| {
            let value = &c.values[value.index()];
            value.repeats.as_ref().is_some_and(|dims| channels(dims).is_some())
        };
        if operands.iter().any(|&value| only_first(self, value))
            && operands.iter().all(|&value| lies_first(self, value) || is_row(self, value))
        {
            let mut names = vec![];
            for &value in operands {
                names.push(if lies_first(self, value) {
                    self.channels_first(value)?
                } else {
                    self.row_of_channels(value)?
                });
            }
            let result = build(self, &names);
            self.set_channels_first(node, result);
            return Ok(());
        }
        let mut names = vec![];
        let mut dims: Vec<Dim> = vec![];
        for &value in operands {
            names.push(self.small_name(value)?);
            dims = broadcast(&dims, self.small_dims(value));
        }
        let result = build(self, &names);
        self.repeat(node, result, dims);
        Ok(())
    }

    /// A row of numbers for each channel, so that it repeats over images whose channels come first.
    fn row_of_channels(&mut self, value: ValueId) -> Result<String> {
        let name = self.small_name(value)?;
        let Some(Some(channels)) = channels(self.small_dims(value)) else { return Ok(name) };
        if let Some(known) = self.rows.get(&name) {
            return Ok(known.clone());
        }
        let shape = self.file.numbers("shape", &[channels as i64, 1, 1]);
        let row = self.file.node(self.graph().scope(value), "Reshape", &[&name, &shape], &[]);
        self.rows.insert(name, row.clone());
        Ok(row)
    }

    fn unary(&mut self, scope: &str, function: Unary, x: &str, dtype: DType) -> String {
        let op = match function {
            Unary::Neg => "Neg",
            Unary::Abs => "Abs",
            Unary::Sign => "Sign",
            Unary::Exp => "Exp",
            Unary::Log => "Log",
            Unary::Softplus => "Softplus",
            Unary::Sqrt => "Sqrt",
            Unary::Sin => "Sin",
            Unary::Cos => "Cos",
            Unary::Tanh => "Tanh",
            Unary::Sigmoid => "Sigmoid",
            Unary::Erf => "Erf",
            Unary::Relu => "Relu",
            Unary::Floor => "Floor",
            Unary::Not => "Not",
            Unary::Rsqrt => {
                let root = self.file.node(scope, "Sqrt", &[x], &[]);
                return self.file.node(scope, "Reciprocal", &[&root], &[]);
            }
            Unary::Gelu | Unary::GeluSlope => {
                let [half, one, root] = [0.5, 1.0, 0.5_f64.sqrt()].map(|value| self.number(value, dtype));
                let scaled = self.file.node(scope, "Mul", &[x, &root], &[]);
                let erf = self.file.node(scope, "Erf", &[&scaled], &[]);
                let sum = self.file.node(scope, "Add", &[&erf, &one], &[]);
                let product = self.file.node(scope, "Mul", &[x, &sum], &[]);
                return self.file.node(scope, "Mul", &[&product, &half], &[]);
            }
            Unary::IsFinite => {
                let infinite = self.file.node(scope, "IsInf", &[x], &[]);
                let nan = self.file.node(scope, "IsNaN", &[x], &[]);
                let either = self.file.node(scope, "Or", &[&infinite, &nan], &[]);
                return self.file.node(scope, "Not", &[&either], &[]);
            }
        };
        self.file.node(scope, op, &[x], &[])
    }

    fn binary(&self, node: &Node, function: Binary) -> Result<&'static str> {
        let dtype = self.graph().dtype(node.operands[0]);
        Ok(match function {
            Binary::Add if dtype == DType::Bool => "Or",
            Binary::Mul if dtype == DType::Bool => "And",
            Binary::Add => "Add",
            Binary::Sub => "Sub",
            Binary::Mul => "Mul",
            Binary::Div if dtype.is_float() => "Div",
            Binary::Div => {
                return Err(self.refused(node, "whole numbers divided by 0 are 0 here, and not there"));
            }
            Binary::Max => "Max",
            Binary::Min => "Min",
            Binary::Pow => "Pow",
        })
    }

    fn compare(&mut self, scope: &str, comparison: Comparison, names: &[String]) -> String {
        let op = match comparison {
            Comparison::Eq | Comparison::Ne => "Equal",
            Comparison::Lt => "Less",
            Comparison::Le => "LessOrEqual",
            Comparison::Gt => "Greater",
            Comparison::Ge => "GreaterOrEqual",
        };
        let result = self.file.node(scope, op, &[&names[0], &names[1]], &[]);
        match comparison {
            Comparison::Ne => self.file.node(scope, "Not", &[&result], &[]),
            _ => result,
        }
    }

    fn cast(&mut self, scope: &str, x: &str, dtype: DType) -> String {
        self.file.node(scope, "Cast", &[x], &[number("to", type_number(dtype))])
    }

    fn iota(&mut self, node: &Node, count: usize, axis: usize, dtype: DType) -> Result<()> {
        let Some(result) = node.results().next() else { return Ok(()) };
        let rank = self.dims(result).len();
        if self.dims(result)[axis] != Dim::Fixed(count) {
            return Err(self.refused(node, "it counts samples"));
        }
        let shape: Vec<usize> = (axis..rank).map(|a| if a == axis { count } else { 1 }).collect();
        let bytes = (0..count).flat_map(|index| bytes_of(index as f64, dtype)).collect();
        let name = self.file.constant("index", dtype, &shape, bytes);
        self.repeat(node, name, shape.into_iter().map(Dim::Fixed).collect());
        Ok(())
    }

    fn reduce(&mut self, node: &Node, kind: Reduction, axes: Axes) -> Result<()> {
        let (scope, x) = (self.scope(node), node.operands[0]);
        let [from, to] = [Some(x), node.results().next()].map(|v| v.map(|v| self.graph().dtype(v)));
        let mut axes: Vec<i64> = axes.iter().map(|axis| axis as i64).collect();
        // Without height and width, samples and channels are in one order.
        let value = &self.values[x.index()];
        let both = axes.contains(&1) && axes.contains(&2);
        let mut name = if value.channels_first.is_some() && value.plain.is_none() && both {
            axes.iter_mut().for_each(|axis| *axis = [0, 2, 3, 1][*axis as usize]);
            self.channels_first(x)?
        } else {
            self.plain(x)?
        };
        let is_bool = from == Some(DType::Bool);
        match to {
            _ if is_bool => name = self.cast(scope, &name, DType::I32),
            Some(wide) if from != to => name = self.cast(scope, &name, wide),
            _ => {}
        }
        let keep = number("keepdims", 0);
        let mut result = match kind {
            Reduction::Sum if !is_bool => {
                let axes = self.file.numbers("axes", &axes);
                self.file.node(scope, "ReduceSum", &[&name, &axes], &[keep])
            }
            Reduction::Sum | Reduction::Max => {
                self.file.node(scope, "ReduceMax", &[&name], &[numbers("axes", axes), keep])
            }
            Reduction::Min => self.file.node(scope, "ReduceMin", &[&name], &[numbers("axes", axes), keep]),
        };
        if is_bool {
            result = self.cast(scope, &result, DType::Bool);
        }
        self.set_plain(node, result);
        Ok(())
    }

    fn reshape(&mut self, node: &Node) -> Result<()> {
        let Some(result) = node.results().next() else { return Ok(()) };
        let dims = self.dims(result);
        let x = node.operands[0];
        if self.values[x.index()].repeats.as_ref().is_some_and(Vec::is_empty) {
            // One number repeats in any shape.
            let name = self.small_name(x)?;
            self.repeat(node, name, vec![]);
            return Ok(());
        }
        let open = dims.iter().filter(|dim| matches!(dim, Dim::Samples(_))).count();
        let is_empty = dims.contains(&Dim::Fixed(0));
        let shape = if open <= 1 && !is_empty {
            let extents: Vec<i64> = dims
                .iter()
                .map(|dim| match dim {
                    Dim::Fixed(extent) => *extent as i64,
                    Dim::Samples(_) => -1,
                })
                .collect();
            self.file.numbers("shape", &extents)
        } else {
            self.shape(dims)?
        };
        let name = self.plain(x)?;
        // A 0 is an extent of 0, not that of the operand.
        let attributes = [number("allowzero", 1)];
        let name = self.file.node(
            self.scope(node),
            "Reshape",
            &[&name, &shape],
            &attributes[..usize::from(is_empty)],
        );
        self.set_plain(node, name);
        Ok(())
    }

    fn slice(&mut self, node: &Node, slice: &Slice) -> Result<()> {
        let x = node.operands[0];
        let shape = self.graph().shape(x);
        let cut =
            |axis: &usize| (slice.start[*axis], slice.stop[*axis], slice.step[*axis]) != (0, shape[*axis], 1);
        let axes: Vec<usize> = (0..shape.rank()).filter(cut).collect();
        let name = self.plain(x)?;
        let [starts, ends, along, steps] = [
            axes.iter().map(|&axis| slice.start[axis] as i64).collect::<Vec<_>>(),
            axes.iter().map(|&axis| slice.stop[axis] as i64).collect(),
            axes.iter().map(|&axis| axis as i64).collect(),
            axes.iter().map(|&axis| slice.step[axis] as i64).collect(),
        ]
        .map(|numbers| self.file.numbers("slice", &numbers));
        let part = self.file.node(self.scope(node), "Slice", &[&name, &starts, &ends, &along, &steps], &[]);
        self.set_plain(node, part);
        Ok(())
    }

    fn pad(&mut self, node: &Node, pad: &Pad) -> Result<()> {
        if pad.between.iter().any(|&between| between > 0) {
            return Err(self.refused(node, "it pads between elements"));
        }
        let x = node.operands[0];
        let name = self.plain(x)?;
        let pads: Vec<i64> = pad.before.iter().chain(pad.after.iter()).map(|&extent| extent as i64).collect();
        let pads = self.file.numbers("pads", &pads);
        let value = self.number(pad.value, self.graph().dtype(x));
        let padded = self.file.node(self.scope(node), "Pad", &[&name, &pads, &value], &[]);
        self.set_plain(node, padded);
        Ok(())
    }

    fn concat(&mut self, node: &Node, axis: usize) -> Result<()> {
        let lies_first =
            node.operands.iter().all(|&value| self.values[value.index()].channels_first.is_some());
        let mut names = vec![];
        for &value in &node.operands {
            names.push(if lies_first { self.channels_first(value)? } else { self.plain(value)? });
        }
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let axis = if lies_first { [0, 2, 3, 1][axis] } else { axis };
        let joined = self.file.node(self.scope(node), "Concat", &names, &[number("axis", axis as i64)]);
        match lies_first {
            true => self.set_channels_first(node, joined),
            false => self.set_plain(node, joined),
        }
        Ok(())
    }

    /// A matrix, or several, perhaps transposed.
    fn matrix(&mut self, value: ValueId, transposed: bool) -> Result<String> {
        let rank = self.dims(value).len();
        let mut order: Vec<usize> = (0..rank).collect();
        if transposed && rank >= 2 {
            order.swap(rank - 1, rank - 2);
        }
        self.arranged(value, &order)
    }
}

/// An attribute that is a number.
pub(super) fn number(name: &'static str, value: i64) -> (&'static str, Attribute) {
    (name, Attribute::Number(value))
}

/// An attribute that is several numbers.
pub(super) fn numbers<T: TryInto<i64>>(
    name: &'static str,
    values: impl IntoIterator<Item = T>,
) -> (&'static str, Attribute) {
    (name, Attribute::Numbers(values.into_iter().filter_map(|value| value.try_into().ok()).collect()))
}

/// Which values outputs are computed from.
fn needed(graph: &Graph, outputs: impl Iterator<Item = ValueId>) -> Vec<bool> {
    let mut needed = vec![false; graph.len()];
    outputs.for_each(|value| needed[value.index()] = true);
    for node in graph.nodes().iter().rev() {
        if node.results().any(|value| needed[value.index()]) {
            node.operands.iter().for_each(|value| needed[value.index()] = true);
        }
    }
    needed
}

/// How many channels a tensor has that has nothing else, or none if it is one number; nothing if it has more.
fn channels(dims: &[Dim]) -> Option<Option<usize>> {
    match dims {
        [] => Some(None),
        [leading @ .., Dim::Fixed(channels)] if leading.iter().all(|&dim| dim == Dim::Fixed(1)) => {
            Some(Some(*channels))
        }
        _ => None,
    }
}

/// The shape of an op on tensors of two shapes.
fn broadcast(a: &[Dim], b: &[Dim]) -> Vec<Dim> {
    let rank = a.len().max(b.len());
    let of = |dims: &[Dim], axis: usize| (axis + dims.len()).checked_sub(rank).map(|axis| dims[axis]);
    (0..rank)
        .map(|axis| match (of(a, axis), of(b, axis)) {
            (Some(Dim::Fixed(1)) | None, Some(dim)) | (Some(dim), _) => dim,
            (None, None) => Dim::Fixed(1),
        })
        .collect()
}
