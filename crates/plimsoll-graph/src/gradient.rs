//! Gradients: a transformation that appends the backward pass to a graph.
//!
//! The backward pass is made of the same ops as the forward pass, so that everything after it (optimizers,
//! lowering, planning, recomputation) sees one graph and needs no notion of differentiation. Each op has one
//! vector-Jacobian rule: from the gradient of its result it builds the gradients of its operands. The rules
//! are in the files below, by subject.
//!
//! Rules keep memory in mind. A gradient that nobody asked for is not built, so the first layer has no
//! gradient for its input. Where a derivative can be written with the result instead of the operand
//! (`tanh`, `relu`, `softmax`) it is, so that the operand can die in the forward pass.
//!
//! A gradient has the type of its value. Rules for half precision that take more than one rounding are
//! evaluated in the accumulator type and rounded once, at the end.

mod elementwise;
mod movement;
mod products;
mod structured;
mod tiles;

use crate::op::Op;
use crate::{Error, Graph, NodeId, Result, ValueId};
use tiles::Tiles;

/// Appends the gradients of `Σ outputs · seeds` for the values `wrt`, and returns them in the order of `wrt`:
/// `None` where no path leads from the value to an output.
///
/// An output is a float value with its upstream gradient, of the same type; `None` stands for ones. Seeds are
/// taken as they are: nothing is differentiated through them. Where a value is used many times, contributions
/// are added from the last use to the first; those of slices that cover it side by side are put together instead.
/// New nodes are in the scopes of the forward nodes they belong to.
///
/// Time and memory are linear in the size of the graph; only nodes between `wrt` and `outputs` get new ones.
///
/// ```
/// use plimsoll_graph::{DType, Graph, gradients};
/// let mut g = Graph::new();
/// let x = g.input("x", &[3], DType::F32)?;
/// let unused = g.input("unused", &[3], DType::F32)?;
/// let y = g.exp(x)?;
/// let found = gradients(&mut g, &[(y, None)], &[x, unused])?;
/// assert_eq!(g.shape(found[0].unwrap()), g.shape(x));
/// assert_eq!(found[1], None);
/// # Ok::<(), plimsoll_graph::Error>(())
/// ```
///
/// # Errors
/// If an output or a value of `wrt` is not a float, a seed is not of its output's type, or an op on the way
/// has no gradient. Nodes that were appended before the error stay in the graph, unused.
pub fn gradients(
    graph: &mut Graph,
    outputs: &[(ValueId, Option<ValueId>)],
    wrt: &[ValueId],
) -> Result<Vec<Option<ValueId>>> {
    check(graph, outputs, wrt)?;
    let first = wrt.iter().map(|&value| graph.producer(value)).min();
    let last = outputs.iter().map(|&(value, _)| graph.producer(value)).max();
    let (Some(NodeId(first)), Some(NodeId(last))) = (first, last) else {
        return Ok(vec![None; wrt.len()]);
    };
    let depends = dependents(graph, wrt, first, last);
    let mut gradients = vec![None; graph.len()];
    for &(value, seed) in outputs.iter().filter(|(value, _)| depends[value.index()]) {
        let node = graph.producer(value);
        in_scope_of(graph, node, |graph| {
            let seed = seed.map_or_else(|| graph.full_like(1.0, value), Ok)?;
            accumulate(graph, &mut gradients[value.index()], seed)
        })?;
    }
    let mut tiles = Tiles::default();
    for node in (first..=last).rev().map(NodeId) {
        for result in graph.node(node).results() {
            for (slice, upstream) in tiles.left_over(result) {
                in_scope_of(graph, slice, |graph| {
                    let contribution = movement::padded(graph, slice, upstream)?;
                    accumulate(graph, &mut gradients[result.index()], contribution)
                })?;
            }
        }
        if let Some(site) = Site::new(graph, node, &gradients, &depends)? {
            in_scope_of(graph, node, |graph| {
                let contributions = match tiles.add(graph, &site)? {
                    Some(contributions) => contributions,
                    None => rule(graph, &site)?,
                };
                for (&operand, contribution) in site.operands.iter().zip(contributions) {
                    if let Some(contribution) = contribution {
                        accumulate(graph, &mut gradients[operand.index()], contribution)?;
                    }
                }
                Ok(())
            })?;
        }
    }
    Ok(wrt.iter().map(|value| gradients[value.index()]).collect())
}

/// Appends the gradients of a scalar for the values `wrt`, and returns them in that order: a constant of
/// zeros where no path leads from the value to the scalar.
///
/// # Errors
/// As [`gradients`], and if `loss` is not a scalar.
pub fn gradient(graph: &mut Graph, loss: ValueId, wrt: &[ValueId]) -> Result<Vec<ValueId>> {
    gradient_from(graph, &[(loss, None)], wrt)
}

/// [`gradient`], times a seed of the scalar's type if there is one.
pub(crate) fn gradient_from(
    graph: &mut Graph,
    losses: &[(ValueId, Option<ValueId>)],
    wrt: &[ValueId],
) -> Result<Vec<ValueId>> {
    for &(loss, _) in losses {
        if graph.shape(loss).rank() != 0 {
            let message =
                format!("gradients are of a scalar, this is {}; sum it, or take its mean", graph.ty(loss));
            return Err(Error::gradient(message).at(graph.op(loss).name(), graph.scope(loss)));
        }
    }
    let found = gradients(graph, losses, wrt)?;
    found.into_iter().zip(wrt).map(|(g, &value)| g.map_or_else(|| graph.full_like(0.0, value), Ok)).collect()
}

fn check(graph: &Graph, outputs: &[(ValueId, Option<ValueId>)], wrt: &[ValueId]) -> Result<()> {
    let here = |value: ValueId, message: String| {
        Err(Error::gradient(message).at(graph.op(value).name(), graph.scope(value)))
    };
    for value in outputs.iter().map(|output| output.0).chain(wrt.iter().copied()) {
        if !graph.dtype(value).is_float() {
            return here(value, format!("only floats have gradients, this is {}", graph.ty(value)));
        }
    }
    for &(value, seed) in outputs {
        if let Some(seed) = seed.filter(|&seed| graph.ty(seed) != graph.ty(value)) {
            return here(
                value,
                format!("a gradient of {} was given for {}", graph.ty(seed), graph.ty(value)),
            );
        }
    }
    Ok(())
}

/// For each value of the graph, whether a gradient of it leads on to one of `wrt`, as far as the nodes from
/// `first` to `last` tell.
fn dependents(graph: &Graph, wrt: &[ValueId], first: u32, last: u32) -> Vec<bool> {
    let mut depends = vec![false; graph.len()];
    for value in wrt {
        depends[value.index()] = true;
    }
    for node in (first..=last).map(|index| graph.node(NodeId(index))) {
        if passes_gradients(&node.op) && node.operands.iter().any(|operand| depends[operand.index()]) {
            for result in node.results().filter(|&result| graph.dtype(result).is_float()) {
                depends[result.index()] = true;
            }
        }
    }
    depends
}

/// Whether the derivative of an op's float results is anything but zero.
fn passes_gradients(op: &Op) -> bool {
    match op {
        Op::StopGradient => false,
        Op::Unary(function) => !function.is_flat(),
        _ => true,
    }
}

fn in_scope_of<T>(graph: &mut Graph, node: NodeId, build: impl FnOnce(&mut Graph) -> Result<T>) -> Result<T> {
    let outer = graph.enter_scope_of(node);
    let result = build(graph);
    graph.leave(outer);
    result
}

fn accumulate(graph: &mut Graph, sum: &mut Option<ValueId>, contribution: ValueId) -> Result<()> {
    *sum = Some(match *sum {
        None => contribution,
        Some(sum) => graph.add(sum, contribution)?,
    });
    Ok(())
}

/// A forward node as its rule sees it.
pub(crate) struct Site {
    op: Op,
    pub(crate) operands: Box<[ValueId]>,
    pub(crate) results: Vec<ValueId>,
    /// The gradient of the first result.
    pub(crate) upstream: ValueId,
    /// For each operand, whether its gradient is asked for.
    needed: Vec<bool>,
}

/// For each operand, what it gets from one of its uses.
pub(crate) type Contributions = Vec<Option<ValueId>>;

impl Site {
    /// The node, if there is a gradient to carry through it.
    fn new(
        graph: &Graph,
        id: NodeId,
        gradients: &[Option<ValueId>],
        depends: &[bool],
    ) -> Result<Option<Site>> {
        let node = graph.node(id);
        if !passes_gradients(&node.op) || !node.operands.iter().any(|operand| depends[operand.index()]) {
            return Ok(None);
        }
        let results: Vec<ValueId> = node.results().collect();
        if let Some(position) = results[1..].iter().position(|result| gradients[result.index()].is_some()) {
            let message = format!(
                "a gradient arrives at result {}; gradients flow through result 0 only (stop_gradient lets the \
                 others be used as numbers)",
                position + 1
            );
            return Err(Error::gradient(message).at(node.op.name(), graph.scope(results[0])));
        }
        Ok(gradients[results[0].index()].map(|upstream| Site {
            op: node.op.clone(),
            operands: node.operands.clone(),
            needed: node.operands.iter().map(|operand| depends[operand.index()]).collect(),
            results,
            upstream,
        }))
    }

    /// The contributions of the operands that need one, each by its position.
    fn each(&self, mut contribution: impl FnMut(usize) -> Result<ValueId>) -> Result<Contributions> {
        (0..self.operands.len()).map(|i| self.needed[i].then(|| contribution(i)).transpose()).collect()
    }

    /// The results of a node that computes every operand's gradient at once, less those not needed.
    fn all(&self, gradients: impl IntoIterator<Item = ValueId>) -> Contributions {
        self.needed.iter().zip(gradients).map(|(&needed, gradient)| needed.then_some(gradient)).collect()
    }
}

/// The vector-Jacobian rule of the site's op.
fn rule(graph: &mut Graph, site: &Site) -> Result<Contributions> {
    match &site.op {
        // No operand of these has a gradient, or no result does.
        Op::Input { .. }
        | Op::Constant { .. }
        | Op::Iota { .. }
        | Op::Random { .. }
        | Op::Compare(_)
        | Op::ArgMax { .. }
        | Op::StopGradient => Ok(vec![None; site.operands.len()]),

        Op::Unary(function) => function.gradient(graph, site),
        Op::Binary(function) => elementwise::binary(graph, site, *function),
        Op::Select => elementwise::select(graph, site),
        Op::Cast { .. } => elementwise::cast(graph, site),

        Op::Reduce { kind, axes, .. } => movement::reduce(graph, site, *kind, *axes),
        Op::Broadcast { .. } => movement::broadcast(graph, site),
        Op::Reshape { .. } => movement::reshape(graph, site),
        Op::Permute { order } => movement::permute(graph, site, order),
        Op::Slice(_) => movement::slice(graph, site),
        Op::Pad(pad) => movement::pad(graph, site, pad),
        Op::Concat { axis } => movement::concat(graph, site, *axis),
        Op::Gather => movement::gather(graph, site),
        Op::ScatterAdd { rows } => movement::scatter_add(graph, site, *rows),

        Op::Dot { transpose_a, transpose_b } => products::dot(graph, site, *transpose_a, *transpose_b),
        Op::Conv2d(conv) => products::conv2d(graph, site, *conv),
        Op::Conv2dInputGrad { conv, .. } => products::conv2d_input_grad(graph, site, *conv),
        Op::Conv2dFilterGrad { conv, .. } => products::conv2d_filter_grad(graph, site, *conv),

        Op::Pool2d(pool) => structured::pool2d(graph, site, *pool),
        Op::Softmax => structured::softmax(graph, site),
        Op::LogSoftmax => structured::log_softmax(graph, site),
        Op::CrossEntropy => structured::cross_entropy(graph, site),
        Op::LayerNorm { .. } => structured::layer_norm(graph, site),
        Op::BatchNorm { epsilon } => structured::batch_norm(graph, site, *epsilon),
        Op::Attention(attention) => structured::attention(graph, site, *attention),
        Op::Lstm => structured::lstm(graph, site),
        Op::Gru => structured::gru(graph, site),

        Op::BatchMoments { .. } => {
            let message = "statistics have no gradient of their own; batch_norm has one";
            Err(Error::gradient(message).at(site.op.name(), graph.current_scope()))
        }
        Op::Pool2dGrad(_)
        | Op::CrossEntropyGrad
        | Op::LayerNormGrad
        | Op::ResidualLayerNormGrad
        | Op::BatchNormGrad { .. }
        | Op::AttentionGrad(_)
        | Op::JointAttentionGrad(_)
        | Op::LstmGrad
        | Op::GruGrad
        | Op::ProjectedCrossEntropy { .. } => {
            let forward = site.op.name().trim_end_matches("_grad");
            let message = format!("second derivatives of {forward} are not defined");
            Err(Error::gradient(message).at(site.op.name(), graph.current_scope()))
        }
    }
}

/// Evaluates `formula` on the values in their accumulator type, and rounds its result once.
pub(crate) fn precisely<const N: usize>(
    graph: &mut Graph,
    mut values: [ValueId; N],
    formula: impl FnOnce(&mut Graph, [ValueId; N]) -> Result<ValueId>,
) -> Result<ValueId> {
    let dtype = graph.dtype(values[0]);
    for value in &mut values {
        *value = graph.cast(*value, dtype.accumulator())?;
    }
    let result = formula(graph, values)?;
    graph.cast(result, dtype)
}
