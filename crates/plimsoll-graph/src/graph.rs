//! The graph: values in single assignment, each with a shape, a type and the scope it was made in.
//!
//! Nodes are appended and never change, so their order is always a valid order of execution. Everything
//! after tracing (gradients, optimizers, lowering) reads a graph or appends to it.

use crate::infer::infer;
use crate::{Error, Op, Result, ValueType};

/// A value of a [`Graph`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub(crate) u32);

/// A node of a [`Graph`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub(crate) u32);

impl ValueId {
    /// The position among the graph's values.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl NodeId {
    /// The position among the graph's nodes.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// One application of an op.
#[derive(Debug, Clone)]
pub struct Node {
    /// What is computed.
    pub op: Op,
    /// From which values.
    pub operands: Box<[ValueId]>,
    first_result: u32,
    results: u8,
    scope: u32,
}

impl Node {
    /// The values this node defines.
    pub fn results(&self) -> impl ExactSizeIterator<Item = ValueId> + use<> {
        (self.first_result..self.first_result + u32::from(self.results)).map(ValueId)
    }
}

#[derive(Debug, Clone)]
struct Value {
    ty: ValueType,
    node: NodeId,
}

/// A graph of ops, under construction or finished.
///
/// ```
/// use plimsoll_graph::{DType, Graph};
/// let mut g = Graph::new();
/// let x = g.input("x", &[32, 784], DType::F32)?;
/// let w = g.input("w", &[784, 10], DType::F32)?;
/// let y = g.dot(x, w)?;
/// assert_eq!(g.shape(y)[..], [32, 10]);
/// let wrong = g.dot(w, w).unwrap_err();
/// assert_eq!(wrong.to_string(), "dot: f32[784, 10] · f32[784, 10]: inner extents 10 and 784 differ");
/// # Ok::<(), plimsoll_graph::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Graph {
    nodes: Vec<Node>,
    values: Vec<Value>,
    scopes: Vec<Box<str>>,
    scope: u32,
    streams: u64,
}

impl Default for Graph {
    fn default() -> Self {
        Graph { nodes: vec![], values: vec![], scopes: vec!["".into()], scope: 0, streams: 0 }
    }
}

impl Graph {
    /// An empty graph.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends an op of any number of results.
    ///
    /// # Errors
    /// If the operands do not go together; the message names the op, the shapes and the scope.
    pub fn push(&mut self, op: Op, operands: &[ValueId]) -> Result<NodeId> {
        let mut types = [ValueType { shape: crate::Shape::SCALAR, dtype: crate::DType::F32 }; 9];
        let results = if operands.len() <= types.len() {
            for (t, &id) in types.iter_mut().zip(operands) {
                *t = self.values[id.index()].ty;
            }
            infer(&op, &types[..operands.len()])
        } else {
            let types: Vec<ValueType> = operands.iter().map(|&id| self.values[id.index()].ty).collect();
            infer(&op, &types)
        }
        .map_err(|e| e.at(op.name(), &self.scopes[self.scope as usize]))?;
        if self.values.len() + results.len() > u32::MAX as usize {
            return Err(Error::argument("a graph holds at most 2³² values"));
        }
        let id = NodeId(self.nodes.len() as u32);
        self.nodes.push(Node {
            op,
            operands: operands.into(),
            first_result: self.values.len() as u32,
            results: results.len() as u8,
            scope: self.scope,
        });
        self.values.extend(results.into_iter().map(|ty| Value { ty, node: id }));
        Ok(id)
    }

    /// Appends an op and returns its first result.
    ///
    /// # Errors
    /// If the operands do not go together.
    pub fn apply(&mut self, op: Op, operands: &[ValueId]) -> Result<ValueId> {
        let node = self.push(op, operands)?;
        Ok(ValueId(self.nodes[node.index()].first_result))
    }

    /// Appends an op and returns all of its results.
    ///
    /// # Errors
    /// If the operands do not go together, or `N` is not the number of results.
    pub fn apply_n<const N: usize>(&mut self, op: Op, operands: &[ValueId]) -> Result<[ValueId; N]> {
        let node = self.push(op, operands)?;
        let node = &self.nodes[node.index()];
        if usize::from(node.results) != N {
            return Err(Error::argument(format!("{} has {} results, not {N}", node.op.name(), node.results)));
        }
        Ok(std::array::from_fn(|i| ValueId(node.first_result + i as u32)))
    }

    /// Runs `build` with `name` appended to the scope that new nodes are named by.
    pub fn scoped<T>(&mut self, name: &str, build: impl FnOnce(&mut Graph) -> T) -> T {
        let outer = self.enter(name);
        let result = build(self);
        self.leave(outer);
        result
    }

    /// Appends `name` to the scope and returns what [`Graph::leave`] needs to restore it.
    pub fn enter(&mut self, name: &str) -> ScopeMark {
        let outer = self.scope;
        let path = match &*self.scopes[outer as usize] {
            "" => name.to_string(),
            path => format!("{path}/{name}"),
        };
        self.scope = self.scopes.len() as u32;
        self.scopes.push(path.into());
        ScopeMark(outer)
    }

    /// Returns to the scope before [`Graph::enter`].
    pub fn leave(&mut self, mark: ScopeMark) {
        self.scope = mark.0;
    }

    /// The scope that new nodes are named by.
    pub fn current_scope(&self) -> &str {
        &self.scopes[self.scope as usize]
    }

    /// Makes new nodes be named by the scope of an existing one, as gradients and updates are.
    pub(crate) fn enter_scope_of(&mut self, node: NodeId) -> ScopeMark {
        let outer = self.scope;
        self.scope = self.nodes[node.index()].scope;
        ScopeMark(outer)
    }

    /// This graph with some nodes replaced, and for each of its values the one that takes its place. `replace` is
    /// given the graph so far, a node of this one, and the places of all values up to it; it either appends nodes and
    /// returns the values that are the node's results from then on, or appends nothing and returns none, and the node
    /// stays.
    pub(crate) fn rewritten(
        &self,
        mut replace: impl FnMut(&mut Graph, NodeId, &[ValueId]) -> Option<Vec<ValueId>>,
    ) -> (Graph, Vec<ValueId>) {
        let mut graph = Graph { scopes: self.scopes.clone(), streams: self.streams, ..Graph::new() };
        let mut places: Vec<ValueId> = Vec::with_capacity(self.values.len());
        for (number, node) in self.nodes.iter().enumerate() {
            let operands: Box<[ValueId]> = node.operands.iter().map(|o| places[o.index()]).collect();
            graph.scope = node.scope;
            if let Some(results) = replace(&mut graph, NodeId(number as u32), &places) {
                places.extend(results);
                continue;
            }
            let id = NodeId(graph.nodes.len() as u32);
            let first_result = graph.values.len() as u32;
            for result in node.results() {
                places.push(ValueId(graph.values.len() as u32));
                graph.values.push(Value { ty: self.ty(result), node: id });
            }
            graph.nodes.push(Node { operands, first_result, ..node.clone() });
        }
        graph.scope = self.scope;
        (graph, places)
    }

    /// An empty graph with this one's scopes and streams, to be filled with its nodes by [`Graph::push_like`].
    pub(crate) fn emptied(&self) -> Graph {
        Graph { nodes: vec![], values: vec![], scopes: self.scopes.clone(), ..*self }
    }

    /// Appends an op in the scope of `node`, a node of the graph that this one was [`emptied`](Graph::emptied) from.
    pub(crate) fn push_like(&mut self, node: &Node, op: Op, operands: &[ValueId]) -> Result<NodeId> {
        let outer = std::mem::replace(&mut self.scope, node.scope);
        let pushed = self.push(op, operands);
        self.scope = outer;
        pushed
    }

    /// Exchanges the op that makes `between`, of elements one by one, with the op of node `second`, whose only operand it
    /// is and which alone uses it.
    pub(crate) fn exchange(&mut self, between: ValueId, second: usize) {
        let first = self.producer(between).index();
        let after = ValueId(self.nodes[second].first_result);
        self.values[between.index()].ty = self.ty(after);
        let (before, rest) = self.nodes.split_at_mut(second);
        std::mem::swap(&mut before[first].op, &mut rest[0].op);
        std::mem::swap(&mut before[first].scope, &mut rest[0].scope);
    }

    /// A number no other call on this graph returns.
    pub fn fresh_stream(&mut self) -> u64 {
        self.streams += 1;
        self.streams
    }

    /// All nodes, in an order that can be executed.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// One node.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// The node that defines a value.
    pub fn producer(&self, value: ValueId) -> NodeId {
        self.values[value.index()].node
    }

    /// The op that defines a value.
    pub fn op(&self, value: ValueId) -> &Op {
        &self.node(self.producer(value)).op
    }

    /// Which of its node's results a value is.
    pub fn result_index(&self, value: ValueId) -> usize {
        (value.0 - self.node(self.producer(value)).first_result) as usize
    }

    /// The scope a value was made in.
    pub fn scope(&self, value: ValueId) -> &str {
        &self.scopes[self.node(self.producer(value)).scope as usize]
    }

    /// The number of values.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// All values, in the order of their definition.
    pub fn values(&self) -> impl ExactSizeIterator<Item = ValueId> + use<> {
        (0..self.values.len() as u32).map(ValueId)
    }

    /// A value's shape and type.
    pub fn ty(&self, value: ValueId) -> ValueType {
        self.values[value.index()].ty
    }

    /// A value's shape.
    pub fn shape(&self, value: ValueId) -> crate::Shape {
        self.ty(value).shape
    }

    /// A value's element type.
    pub fn dtype(&self, value: ValueId) -> crate::DType {
        self.ty(value).dtype
    }
}

/// The scope to return to; see [`Graph::enter`].
#[derive(Debug)]
#[must_use]
pub struct ScopeMark(u32);
