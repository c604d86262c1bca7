//! Gradient tapes: what eager ops did, so that their gradients can be asked for.
//!
//! A tape records a graph. A gradient is the same graph transformation that compiled steps use, run at once on
//! the recorded tensors.

use crate::eager::{Eager, Home};
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
    tensors: HashMap<ValueId, Tensor>,
}

impl GradientTape {
    pub(crate) fn new(eager: &Eager, persistent: bool) -> GradientTape {
        let record = Rc::new(RefCell::new(Record::default()));
        eager.home.tapes.borrow_mut().push(Rc::clone(&record));
        GradientTape { eager: eager.clone(), record, persistent, spent: false }
    }

    /// The gradients of `loss`, summed if it is not a scalar, for each of `wrt`; zeros where `loss` does not
    /// depend on it.
    ///
    /// # Errors
    /// If `loss` was not recorded, has no gradient, or this tape has been asked before and is not persistent.
    pub fn gradient(&mut self, loss: &Tensor, wrt: &[&Tensor]) -> Result<Vec<Tensor>> {
        if self.spent {
            let message = "this tape is spent: its gradients have been taken, and it has let go of its tensors; \
                           use a persistent tape to take gradients more than once";
            return Err(Error::new(ErrorKind::Gradient, message));
        }
        let record = if self.persistent { self.record.borrow().duplicate() } else { self.record.take() };
        if !self.persistent {
            self.stop();
            self.spent = true;
        }
        record.gradient(&self.eager.home, loss, wrt)
    }

    /// Stops recording. Gradients of what was recorded can still be taken.
    pub fn stop(&mut self) {
        self.eager.home.tapes.borrow_mut().retain(|tape| !Rc::ptr_eq(tape, &self.record));
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
            values.push(self.value(operand)?);
        }
        let mark = self.graph.enter(scope);
        let made = build(&mut self.graph, &values);
        self.graph.leave(mark);
        for (value, tensor) in made?.into_iter().zip(results) {
            if !self.tensors.contains_key(&value) {
                self.bind(value, tensor)?;
            }
        }
        Ok(())
    }

    /// The value a tensor is, which becomes an input if it has not been seen.
    fn value(&mut self, tensor: &Tensor) -> Result<ValueId> {
        let name = tensor.real()?.name;
        if let Some(&known) = self.values.get(&name) {
            return Ok(known);
        }
        let value = self.graph.input("recorded", &tensor.shape(), tensor.dtype())?;
        self.bind(value, tensor)?;
        Ok(value)
    }

    fn bind(&mut self, value: ValueId, tensor: &Tensor) -> Result<()> {
        self.values.insert(tensor.real()?.name, value);
        self.tensors.insert(value, tensor.clone());
        Ok(())
    }

    fn duplicate(&self) -> Record {
        Record { graph: self.graph.clone(), values: self.values.clone(), tensors: self.tensors.clone() }
    }

    fn gradient(mut self, home: &Rc<Home>, loss: &Tensor, wrt: &[&Tensor]) -> Result<Vec<Tensor>> {
        let Some(&loss) = self.values.get(&loss.real()?.name) else {
            let message = format!("{loss} was not computed while this tape recorded");
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
        home.run(&step, &operands, |_, buffer| buffer.role = Role::Gradient)
    }

    /// The step that computes `wanted` from recorded tensors.
    fn part(&self, wanted: &[ValueId]) -> Result<(Step, Vec<Tensor>)> {
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
                        let name = operands.len().to_string();
                        copies.insert(result, step.input(&name, &tensor.shape(), tensor.dtype())?);
                        operands.push(tensor.clone());
                    }
                    None => compute = true,
                }
            }
            if compute {
                let inputs: Vec<ValueId> = node.operands.iter().map(|o| copies[o]).collect();
                let scope = node.results().next().map_or("", |result| graph.scope(result));
                let mark = step.graph.enter(scope);
                let copy = step.graph.push(node.op.clone(), &inputs)?;
                step.graph.leave(mark);
                let results: Vec<ValueId> = step.graph.node(copy).results().collect();
                for (old, new) in node.results().zip(results) {
                    copies.entry(old).or_insert(new);
                }
            }
        }
        for (index, value) in wanted.iter().enumerate() {
            step.output(&index.to_string(), copies[value]);
        }
        Ok((step, operands))
    }
}
