//! A remedy for large logits: the output projection and its cross-entropy, some rows at a time.
//!
//! The logits of a language model are often the largest value of a training step, and only the loss needs them. In
//! a step that has both the loss and its gradient, everything between the last hidden value and the gradients of
//! that value and of the weight can be one op, which makes logits for a chunk of rows, uses them up and goes on to
//! the next. The numbers stay the same to the bit, so a step may be rewritten or not as the budget demands.

use crate::{Graph, Node, NodeId, Op, Step, ValueId};

/// The part of the logits that a chunk has, unless that is beyond [`MOST_CHUNK_BYTES`].
const CHUNKS: usize = 8;
const MOST_CHUNK_BYTES: usize = 64 << 20;
/// Products of fewer rows would be slow.
const LEAST_CHUNK_ROWS: usize = 128;

/// The step with every projection to logits of at least so many bytes, their cross-entropy and its gradients replaced
/// by one [`Op::ProjectedCrossEntropy`], so that the logits never exist whole. Results are the same to the bit.
/// `None` where there is nothing to replace.
///
/// What is replaced is a product of `[n, width]` by a weight or its transpose, its cross-entropy against labels, the
/// gradient of that, and the products that give the gradients of both operands. Between them may be reshapes, and
/// the logits may be asked for their largest class; any other use of them, or a loss whose gradient depends on the
/// loss, keeps them as they are. States, inputs, outputs, gradients and scopes keep their order and names; values
/// are numbered anew.
pub fn chunk_loss(step: &Step, least_bytes: usize) -> Option<Step> {
    let mut rewritten = Site::find(step, least_bytes)?.replaced(step)?;
    while let Some(site) = Site::find(&rewritten, least_bytes) {
        rewritten = site.replaced(&rewritten)?;
    }
    Some(rewritten)
}

/// A part of a step that one op can replace.
struct Site {
    /// The op that replaces it, and its operands.
    op: Op,
    operands: [ValueId; 4],
    /// The nodes that make the logits, the loss, and the gradients of both operands.
    projection: NodeId,
    loss: NodeId,
    dx: NodeId,
    dweight: NodeId,
    /// Those that ask the logits for their largest class.
    predictions: Vec<NodeId>,
    /// The gradient of the logits, and the reshapes in between.
    inner: Vec<NodeId>,
}

impl Site {
    fn find(step: &Step, least_bytes: usize) -> Option<Site> {
        let uses = Uses::of(step);
        let is_large = |node: &&Node| step.graph.ty(node.operands[0]).bytes() >= least_bytes;
        let nodes = step.graph.nodes().iter();
        let mut gradients = nodes.filter(|node| node.op == Op::CrossEntropyGrad).filter(is_large);
        gradients.find_map(|node| Site::of(&step.graph, &uses, node))
    }

    /// The site around a gradient of logits.
    fn of(graph: &Graph, uses: &Uses, gradient: &Node) -> Option<Site> {
        let [logits, labels, log_sum, slope] = std::array::from_fn(|i| gradient.operands[i]);
        let shape = graph.shape(logits);
        let projection = graph.producer(origin(graph, logits));
        let loss = graph.producer(log_sum);
        let (product, entropy) = (graph.node(projection), graph.node(loss));
        let Op::Dot { transpose_a: false, transpose_b: transpose_weight } = product.op else {
            return None;
        };
        let made = result(product, 0);
        let is_its_loss = entropy.op == Op::CrossEntropy
            && origin(graph, entropy.operands[0]) == made
            && entropy.operands[1] == labels
            && graph.result_index(log_sum) == 1;
        if !is_its_loss || graph.shape(made) != shape {
            return None;
        }
        let (x, weight, dlogits) = (product.operands[0], product.operands[1], result(gradient, 0));

        let (mut predictions, mut inner) = (vec![], vec![graph.producer(dlogits)]);
        for (user, operand) in uses.through_reshapes(graph, made, &mut inner)? {
            let seen = graph.shape(operand);
            match graph.node(user).op {
                Op::CrossEntropy if user == loss => {}
                Op::CrossEntropyGrad if user == graph.producer(dlogits) => {}
                Op::ArgMax { axis } if axis + 1 == seen.rank() && seen[axis] == shape[1] => {
                    predictions.push(user);
                }
                _ => return None,
            }
        }
        if uses.through_reshapes(graph, log_sum, &mut inner)?.len() != 1 {
            return None;
        }
        let (mut dx, mut dweight) = (None, None);
        for (user, u) in uses.through_reshapes(graph, dlogits, &mut inner)? {
            let Node { op, operands, .. } = graph.node(user);
            let by = |a: bool, b: bool| *op == Op::Dot { transpose_a: a, transpose_b: b };
            let factors = if transpose_weight { [u, x] } else { [x, u] };
            let place = if by(false, !transpose_weight) && operands[..] == [u, weight] {
                &mut dx
            } else if by(true, false) && operands[..] == factors {
                &mut dweight
            } else {
                return None;
            };
            if graph.shape(u) != shape || place.replace(user).is_some() {
                return None;
            }
        }
        let op = Op::ProjectedCrossEntropy { transpose_weight, chunk: chunk_rows(graph, made, x)? };
        let operands = [x, weight, labels, slope];
        let (dx, dweight) = (dx?, dweight?);
        let site = Site { op, operands, projection, loss, dx, dweight, predictions, inner };
        site.comes_after_its_operands(graph).then_some(site)
    }

    /// Whether no operand depends on what the op computes.
    fn comes_after_its_operands(&self, graph: &Graph) -> bool {
        let mut needed = vec![false; graph.nodes().len()];
        for &operand in &self.operands {
            needed[graph.producer(operand).index()] = true;
        }
        for index in (0..needed.len()).rev() {
            if needed[index] {
                let operands = graph.nodes()[index].operands.iter();
                operands.for_each(|&operand| needed[graph.producer(operand).index()] = true);
            }
        }
        let replaced = [self.projection, self.loss, self.dx, self.dweight];
        !replaced.iter().chain(&self.predictions).chain(&self.inner).any(|node| needed[node.index()])
    }

    /// The step with the op in the place of these nodes. It needs the loss's gradient and makes the loss, so nodes
    /// go from the order of the step to the nearest one in which every node comes after its operands.
    fn replaced(&self, step: &Step) -> Option<Step> {
        let graph = &step.graph;
        let mut rebuilt = Rebuilt {
            site: self,
            old: graph,
            new: graph.emptied(),
            values: vec![None; graph.len()],
            prediction: None,
        };
        let is_input = |&id: &NodeId| matches!(graph.node(id).op, Op::Input { .. });
        let ids = || (0..graph.nodes().len() as u32).map(NodeId);
        let stays = |id: &NodeId| *id != self.projection && !self.inner.contains(id);
        // Inputs come first: states stay in the order they were declared in.
        for id in ids().filter(is_input).chain(ids().filter(stays)) {
            rebuilt.make(id)?;
        }
        let mut result = step.clone();
        let find = |value: &mut ValueId| rebuilt.values[value.index()].map(|new| *value = new);
        for state in &mut result.states {
            find(&mut state.value)?;
            state.next.as_mut().map_or(Some(()), find)?;
        }
        for named in result.inputs.iter_mut().chain(&mut result.outputs) {
            find(&mut named.value)?;
        }
        for gradient in &mut result.gradients {
            find(gradient)?;
        }
        result.graph = rebuilt.new;
        Some(result)
    }
}

/// A graph with a site replaced, while it is made.
struct Rebuilt<'a> {
    site: &'a Site,
    old: &'a Graph,
    new: Graph,
    /// What has become of each value.
    values: Vec<Option<ValueId>>,
    prediction: Option<ValueId>,
}

impl Rebuilt<'_> {
    /// Appends a node, after what it needs.
    fn make(&mut self, id: NodeId) -> Option<()> {
        let mut waiting = vec![id];
        while let Some(&id) = waiting.last() {
            if self.values[result(self.old.node(id), 0).index()].is_none() {
                let missing = self.operands(id).iter().find(|value| self.values[value.index()].is_none());
                if let Some(&missing) = missing {
                    waiting.push(self.old.producer(missing));
                    continue;
                }
                self.append(id)?;
            }
            waiting.pop();
        }
        Some(())
    }

    /// The values that a node needs: of the site, those that the op does.
    fn operands(&self, id: NodeId) -> &[ValueId] {
        if self.is_replaced(id) { &self.site.operands } else { &self.old.node(id).operands }
    }

    fn is_replaced(&self, id: NodeId) -> bool {
        let Site { loss, dx, dweight, predictions, .. } = self.site;
        [*loss, *dx, *dweight].contains(&id) || predictions.contains(&id)
    }

    /// Appends a node whose operands are there.
    fn append(&mut self, id: NodeId) -> Option<()> {
        let node = self.old.node(id);
        if !self.is_replaced(id) {
            let operands: Option<Vec<ValueId>> =
                node.operands.iter().map(|operand| self.values[operand.index()]).collect();
            let made = self.new.push_like(node, node.op.clone(), &operands?).ok()?;
            for (old, new) in node.results().zip(self.new.node(made).results()) {
                self.values[old.index()] = Some(new);
            }
            return Some(());
        }
        let prediction = match self.prediction {
            Some(prediction) => prediction,
            None => self.append_site()?,
        };
        if self.site.predictions.contains(&id) {
            let (old, ty) = (result(node, 0), self.new.ty(prediction));
            let shape = self.old.shape(old);
            let seen = match shape == ty.shape {
                true => prediction,
                false => {
                    let made = self.new.push_like(node, Op::Reshape { shape }, &[prediction]).ok()?;
                    result(self.new.node(made), 0)
                }
            };
            self.values[old.index()] = Some(seen);
        }
        Some(())
    }

    /// Appends the op and returns its prediction.
    fn append_site(&mut self) -> Option<ValueId> {
        let Site { op, operands, projection, loss, dx, dweight, .. } = self.site;
        let operands: Option<Vec<ValueId>> =
            operands.iter().map(|operand| self.values[operand.index()]).collect();
        let made = self.new.push_like(self.old.node(*projection), op.clone(), &operands?).ok()?;
        for (old, index) in [(loss, 0), (dx, 2), (dweight, 3)] {
            let new = result(self.new.node(made), index);
            self.values[result(self.old.node(*old), 0).index()] = Some(new);
        }
        self.prediction = Some(result(self.new.node(made), 1));
        self.prediction
    }
}

/// Who uses the values of a step.
struct Uses {
    users: Vec<Vec<NodeId>>,
    /// Which values are seen from outside.
    outside: Vec<bool>,
}

impl Uses {
    fn of(step: &Step) -> Uses {
        let graph = &step.graph;
        let (mut users, mut outside) = (vec![vec![]; graph.len()], vec![false; graph.len()]);
        for (index, node) in graph.nodes().iter().enumerate() {
            for operand in &node.operands {
                users[operand.index()].push(NodeId(index as u32));
            }
        }
        let outputs = step.outputs.iter().map(|output| output.value);
        let states = step.states.iter().filter_map(|state| state.next);
        for value in outputs.chain(states).chain(step.gradients.iter().copied()) {
            outside[value.index()] = true;
        }
        Uses { users, outside }
    }

    /// The nodes that use a value, and under which shape of it: reshapes are passed through and noted. `None` if it
    /// is seen from outside.
    fn through_reshapes(
        &self,
        graph: &Graph,
        value: ValueId,
        reshapes: &mut Vec<NodeId>,
    ) -> Option<Vec<(NodeId, ValueId)>> {
        let (mut found, mut shapes) = (vec![], vec![value]);
        while let Some(value) = shapes.pop() {
            if self.outside[value.index()] {
                return None;
            }
            for &user in &self.users[value.index()] {
                let node = graph.node(user);
                if let Op::Reshape { .. } = node.op {
                    reshapes.push(user);
                    shapes.push(result(node, 0));
                } else {
                    found.push((user, value));
                }
            }
        }
        Some(found)
    }
}

/// One of a node's results.
fn result(node: &Node, index: u32) -> ValueId {
    ValueId(node.results().next().map_or(0, |first| first.0) + index)
}

/// The value that a value is a reshape of, or itself.
fn origin(graph: &Graph, mut value: ValueId) -> ValueId {
    while let Op::Reshape { .. } = graph.op(value) {
        value = graph.node(graph.producer(value)).operands[0];
    }
    value
}

/// How many rows of logits should exist at a time: `None` if nothing is gained by it.
fn chunk_rows(graph: &Graph, logits: ValueId, x: ValueId) -> Option<usize> {
    let (rows, classes, width) = (graph.shape(logits)[0], graph.shape(logits)[1], graph.shape(x)[1]);
    let (bytes, dtype) = (graph.ty(logits).bytes(), graph.dtype(logits));
    // A product of one column is summed in an order of its own, that may depend on how its operands lie in memory.
    if rows == 0 || classes < 2 || width < 2 {
        return None;
    }
    let row = bytes / rows;
    let chunk = ((bytes / CHUNKS).min(MOST_CHUNK_BYTES) / row).max(LEAST_CHUNK_ROWS);
    // Between chunks, sums of halves are kept in the accumulator type.
    let wide = dtype.accumulator();
    let sums = if wide == dtype { 0 } else { width * classes * wide.size() };
    (chunk < rows && chunk * row + sums < bytes).then_some(chunk)
}
