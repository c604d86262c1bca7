//! Gradient tapes: what eager ops did, so that their gradients can be asked for.
//!
//! A tape records a graph. A gradient is the same graph transformation that compiled steps use, run at once on
//! the recorded tensors. What a gradient is computed by is recorded by the other tapes that are there, so that
//! gradients have gradients.

use crate::eager::{Eager, EagerState, Stored};
use crate::{Error, ErrorKind, Result, Tensor};
use plimsoll_graph::program::Role;
use plimsoll_graph::{Graph, Step, ValueId, gradients};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// Records the eager ops that are run while it exists, and gives gradients.
///
/// A tape holds on to every tensor it has seen. One that is not persistent lets go of them as soon as it has
/// been asked for gradients; dropping it afterwards frees nothing more.
///
/// ```
/// use plimsoll::Eager;
/// let eager = Eager::new()?;
/// let x = eager.tensor(&[], &[3.0])?;
/// let mut outer = eager.tape();
/// let mut inner = eager.tape();
/// let cube = x.square()?.mul(&x)?;
/// let slope = inner.gradient(&cube, &[&x])?.remove(0);
/// assert_eq!(slope.to_vec()?, [27.0]);
/// assert_eq!(outer.gradient(&slope, &[&x])?[0].to_vec()?, [18.0]);
/// # Ok::<(), plimsoll::Error>(())
/// ```
pub struct GradientTape {
    eager: Eager,
    record: Rc<RefCell<Record>>,
    persistent: bool,
    spent: bool,
}

/// A graph, and which tensors its values are.
#[derive(Default)]
pub(crate) struct Record {
    graph: Graph,
    values: HashMap<u64, ValueId>,
    tensors: HashMap<ValueId, Stored>,
}

impl GradientTape {
    pub(crate) fn new(eager: &Eager, persistent: bool) -> GradientTape {
        let record = Rc::new(RefCell::new(Record::default()));
        eager.state.tapes.borrow_mut().push(Rc::clone(&record));
        GradientTape { eager: eager.clone(), record, persistent, spent: false }
    }

    /// The gradients of `loss`, summed if it is not a scalar, for each of `wrt`; zeros where `loss` does not
    /// depend on it.
    ///
    /// # Errors
    /// If `loss` was not recorded, has no gradient, is of another eager mode, or this tape has been asked before and is
    /// not persistent.
    pub fn gradient(&mut self, loss: &Tensor, wrt: &[&Tensor]) -> Result<Vec<Tensor>> {
        if self.spent {
            let message = "this tape is spent: its gradients have been taken, and it has let go of its tensors; \
                           use a persistent tape to take gradients more than once";
            return Err(Error::new(ErrorKind::Gradient, message));
        }
        let state = &self.eager.state;
        let loss = loss.real_in(state)?.stored.clone();
        let wrt: Vec<Stored> =
            wrt.iter().map(|tensor| Ok(tensor.real_in(state)?.stored.clone())).collect::<Result<_>>()?;
        let record = if self.persistent { self.record.borrow().duplicate() } else { self.record.take() };
        if !self.persistent {
            self.eager.state.tapes.borrow_mut().retain(|tape| !Rc::ptr_eq(tape, &self.record));
            self.spent = true;
        }
        record.gradient(&self.eager.state, &self.record, &loss, &wrt)
    }

    /// Stops recording. Gradients of what was recorded can still be taken.
    pub fn stop(&mut self) {
        self.eager.state.tapes.borrow_mut().retain(|tape| !Rc::ptr_eq(tape, &self.record));
    }
}

impl Drop for GradientTape {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Record {
    /// Notes that `results` are what `build` makes of `operands` in a scope.
    pub(crate) fn record<const N: usize>(
        &mut self,
        scope: &str,
        operands: &[&Tensor],
        results: &[Tensor; N],
        build: &impl Fn(&mut Graph, &[ValueId]) -> plimsoll_graph::Result<[ValueId; N]>,
    ) -> Result<()> {
        let mut values = vec![];
        for operand in operands {
            values.push(self.value(&operand.real()?.stored)?);
        }
        let mark = self.graph.enter(scope);
        let made = build(&mut self.graph, &values);
        self.graph.leave(mark);
        for (value, tensor) in made?.into_iter().zip(results) {
            self.bind(value, &tensor.real()?.stored);
        }
        Ok(())
    }

    /// Notes that `results` are the outputs of a step on `operands`.
    fn record_step(&mut self, step: &Step, operands: &[Stored], results: &[Stored]) -> Result<()> {
        let mut copies: HashMap<ValueId, ValueId> = HashMap::new();
        for (input, operand) in step.inputs.iter().zip(operands) {
            copies.insert(input.value, self.value(operand)?);
        }
        for node in step.graph.nodes() {
            if node.results().all(|result| copies.contains_key(&result)) {
                continue;
            }
            copy_node(&step.graph, node, &mut self.graph, &mut copies)?;
        }
        for (output, result) in step.outputs.iter().zip(results) {
            self.bind(copies[&output.value], result);
        }
        Ok(())
    }

    /// The value a tensor is, which becomes an input if it has not been seen.
    fn value(&mut self, tensor: &Stored) -> Result<ValueId> {
        if let Some(&known) = self.values.get(&tensor.id) {
            return Ok(known);
        }
        let ty = tensor.ty();
        let value = self.graph.input("recorded", &ty.shape, ty.dtype)?;
        self.bind(value, tensor);
        Ok(value)
    }

    /// Notes which tensor a value is, unless that is known.
    fn bind(&mut self, value: ValueId, tensor: &Stored) {
        self.values.entry(tensor.id).or_insert(value);
        self.tensors.entry(value).or_insert_with(|| tensor.clone());
    }

    fn duplicate(&self) -> Record {
        Record { graph: self.graph.clone(), values: self.values.clone(), tensors: self.tensors.clone() }
    }

    fn gradient(
        mut self,
        state: &Rc<EagerState>,
        own: &Rc<RefCell<Record>>,
        loss: &Stored,
        wrt: &[Stored],
    ) -> Result<Vec<Tensor>> {
        let Some(&loss) = self.values.get(&loss.id) else {
            let message = format!("{} was not computed while this tape recorded", loss.ty());
            return Err(Error::new(ErrorKind::Gradient, message));
        };
        let mut values = vec![];
        for tensor in wrt {
            values.push(self.value(tensor)?);
        }
        let found = gradients(&mut self.graph, &[(loss, None)], &values)?;
        let mut wanted = vec![];
        for (gradient, &value) in found.into_iter().zip(&values) {
            wanted.push(match gradient {
                Some(gradient) => gradient,
                None => self.graph.full_like(0.0, value)?,
            });
        }
        let (step, operands) = self.part(&wanted)?;
        let results = state.run(&step, &operands, |_, buffer| buffer.role = Role::Gradient)?;
        let tapes = state.tapes.borrow().clone();
        for tape in tapes.iter().filter(|tape| !Rc::ptr_eq(tape, own)) {
            tape.borrow_mut().record_step(&step, &operands, &results)?;
        }
        Ok(results.into_iter().map(|stored| state.tensor(stored)).collect())
    }

    /// The step that computes `wanted` from recorded tensors.
    fn part(&self, wanted: &[ValueId]) -> Result<(Step, Vec<Stored>)> {
        let graph = &self.graph;
        let mut needed = vec![false; graph.len()];
        for value in wanted {
            needed[value.index()] = true;
        }
        for node in graph.nodes().iter().rev() {
            let computed = node.results().any(|r| needed[r.index()] && !self.tensors.contains_key(&r));
            if computed {
                node.operands.iter().for_each(|o| needed[o.index()] = true);
            }
        }
        let mut step = Step::new();
        let mut operands = vec![];
        let mut copies: HashMap<ValueId, ValueId> = HashMap::new();
        for node in graph.nodes() {
            let mut compute = false;
            for result in node.results().filter(|r| needed[r.index()]) {
                match self.tensors.get(&result) {
                    Some(tensor) => {
                        let (name, ty) = (operands.len().to_string(), tensor.ty());
                        copies.insert(result, step.input(&name, &ty.shape, ty.dtype)?);
                        operands.push(tensor.clone());
                    }
                    None => compute = true,
                }
            }
            if compute {
                copy_node(graph, node, &mut step.graph, &mut copies)?;
            }
        }
        for (index, value) in wanted.iter().enumerate() {
            step.output(&index.to_string(), copies[value]);
        }
        Ok((step, operands))
    }
}

/// Copies a node to another graph, in its scope. What is known of its results stays as it is.
fn copy_node(
    from: &Graph,
    node: &plimsoll_graph::Node,
    to: &mut Graph,
    copies: &mut HashMap<ValueId, ValueId>,
) -> Result<()> {
    let inputs: Vec<ValueId> = node.operands.iter().map(|operand| copies[operand]).collect();
    let scope = node.results().next().map_or("", |result| from.scope(result));
    let mark = to.enter(scope);
    let copy = to.push(node.op.clone(), &inputs);
    to.leave(mark);
    let results: Vec<ValueId> = to.node(copy?).results().collect();
    for (old, new) in node.results().zip(results) {
        copies.entry(old).or_insert(new);
    }
    Ok(())
}
