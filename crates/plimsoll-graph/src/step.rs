//! The step: a graph whose values have roles.
//!
//! What a training loop calls "one step" is here one graph: it reads batches and states, computes metrics,
//! and says what each state becomes. Parameters, optimizer slots, running statistics and the random state
//! are all *states*: values that survive from one step to the next. An inference step is the same thing
//! with states that stay as they are.

use crate::gradient::gradient_from;
use crate::optimizer::Optimizer;
use crate::program::Role;
use crate::scaling::Scaling;
use crate::{DType, Error, Graph, Op, Result, ValueId};
use serde::Serialize;

/// A graph, what its values are for, and what survives it.
#[derive(Debug, Clone, Default)]
pub struct Step {
    /// What is computed.
    pub graph: Graph,
    /// What survives from one step to the next.
    pub states: Vec<State>,
    /// What comes from outside for every step.
    pub inputs: Vec<Named>,
    /// What is reported after every step.
    pub outputs: Vec<Named>,
    /// The gradients of parameters, where there are any; of a scaled loss, in the type that they were computed in.
    pub gradients: Vec<ValueId>,
}

/// A value with a name that the outside knows it by.
#[derive(Debug, Clone)]
pub struct Named {
    /// The name.
    pub name: Box<str>,
    /// The value.
    pub value: ValueId,
}

/// A value that survives from one step to the next.
#[derive(Debug, Clone)]
pub struct State {
    /// The name it is saved under.
    pub name: Box<str>,
    /// What it is for.
    pub role: Role,
    /// Its value before the step: an input of the graph.
    pub value: ValueId,
    /// Its value after the step, if that is another.
    pub next: Option<ValueId>,
    /// Its value before the first step.
    pub initial: Initial,
    /// Whether an optimizer may change it.
    pub trainable: bool,
}

/// What a state holds before the first step.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Initial {
    /// The same number everywhere.
    Constant(f64),
    /// Evenly distributed in `[-limit, limit)`.
    Uniform {
        /// The limit.
        limit: f64,
    },
    /// Normally distributed around zero.
    Normal {
        /// The standard deviation.
        deviation: f64,
    },
    /// Seed, step and first sample of the random state: the run's seed, and zeros.
    Seed,
}

impl Step {
    /// A step with nothing in it.
    pub fn new() -> Self {
        Self::default()
    }

    /// Declares a batch from outside.
    ///
    /// # Errors
    /// If the shape is beyond limits or the name is taken.
    pub fn input(&mut self, name: &str, shape: &[usize], dtype: DType) -> Result<ValueId> {
        if self.inputs.iter().any(|i| &*i.name == name) {
            return Err(Error::argument(format!("there is already an input named `{name}`")));
        }
        let value = self.graph.input(name, shape, dtype)?;
        self.inputs.push(Named { name: name.into(), value });
        Ok(value)
    }

    /// Declares a state under a name that no other state of the step has.
    ///
    /// # Errors
    /// If the shape is beyond limits.
    pub fn state(
        &mut self,
        name: &str,
        role: Role,
        shape: &[usize],
        dtype: DType,
        initial: Initial,
    ) -> Result<ValueId> {
        let value = self.graph.input(name, shape, dtype)?;
        let trainable = role == Role::Parameter;
        self.states.push(State { name: name.into(), role, value, next: None, initial, trainable });
        Ok(value)
    }

    /// The random state: `i64[3]` of seed, step and first sample. The last is where the batch begins in its
    /// window, if it is a part of one. Declared on first use; a training step advances it.
    ///
    /// # Errors
    /// None in practice.
    pub fn random_state(&mut self) -> Result<ValueId> {
        if let Some(state) = self.states.iter().find(|s| s.role == Role::Random) {
            return Ok(state.value);
        }
        self.state("random", Role::Random, &[3], DType::I64, Initial::Seed)
    }

    /// Reports a value under a name.
    pub fn output(&mut self, name: &str, value: ValueId) {
        self.outputs.push(Named { name: name.into(), value });
    }

    /// Says what a state becomes.
    ///
    /// # Errors
    /// If `value` is not a state, or `next` is of another shape or type.
    pub fn update(&mut self, value: ValueId, next: ValueId) -> Result<()> {
        let (before, after) = (self.graph.ty(value), self.graph.ty(next));
        // States are declared one after another, so their values ascend.
        let Ok(index) = self.states.binary_search_by_key(&value, |s| s.value) else {
            return Err(Error::argument("only a state can be updated"));
        };
        let state = &mut self.states[index];
        if before != after {
            return Err(Error::shape(format!(
                "state `{}` is {before} and cannot become {after}",
                state.name
            )));
        }
        state.next = Some(next);
        Ok(())
    }

    /// Extends the step with the gradients of `loss` and an optimizer's updates of all trainable states,
    /// and advances the random state.
    ///
    /// # Errors
    /// If `loss` is not a float scalar or has no gradient.
    pub fn train(&mut self, loss: ValueId, optimizer: &Optimizer) -> Result<()> {
        let clock = self.random_state()?;
        let parameters = self.trainable_values()?;
        self.reorder();
        let gradients = self.gradients_of(loss, &parameters)?;
        self.apply_gradients(gradients, clock, optimizer)?;
        self.next_step(clock)
    }

    /// The gradients of a loss, or of a multiple of it if this step scales its loss.
    pub(crate) fn gradients_of(&mut self, loss: ValueId, parameters: &[ValueId]) -> Result<Vec<ValueId>> {
        let seed = Scaling::of(self).map(|scaling| scaling.seed(&mut self.graph, loss)).transpose()?;
        gradient_from(&mut self.graph, loss, seed, parameters)
    }

    /// Puts ops where they take fewer bytes, before gradients are taken.
    pub(crate) fn reorder(&mut self) {
        let outputs = self.outputs.iter().map(|output| output.value);
        self.graph.pool_before_rectifying(outputs.chain(self.states.iter().filter_map(|state| state.next)));
    }

    /// Advances the random state to the next step, whose batch begins with sample 0.
    pub(crate) fn next_step(&mut self, clock: ValueId) -> Result<()> {
        let advanced = self.graph.scoped("random", |g| {
            // Of [seed, step, first], the index is what the first two grow by.
            let index = g.iota(&[3], 0, DType::I64)?;
            let grown = g.add(clock, index)?;
            let (last, zero) = (g.full_like(2.0, index)?, g.full_like(0.0, index)?);
            let kept = g.lt(index, last)?;
            g.select(kept, grown, zero)
        })?;
        self.update(clock, advanced)
    }

    /// Extends the step with an optimizer's updates of all trainable states by their gradients, given in their
    /// order. `clock` is the random state, which counts the steps. If this step scales its loss, these are gradients
    /// of the scaled one.
    ///
    /// # Errors
    /// If the optimizer's constants are not usable, or a gradient is of another shape than its parameter.
    pub fn apply_gradients(
        &mut self,
        gradients: Vec<ValueId>,
        clock: ValueId,
        optimizer: &Optimizer,
    ) -> Result<()> {
        let trainable: Vec<usize> = (0..self.states.len()).filter(|&i| self.states[i].trainable).collect();
        match Scaling::of(self) {
            Some(scaling) => scaling.apply(self, &gradients, clock, optimizer, &trainable),
            None => {
                self.gradients.clone_from(&gradients);
                optimizer.update(self, gradients, clock, &trainable)
            }
        }
    }

    /// The values of all trainable states.
    pub(crate) fn trainable_values(&self) -> Result<Vec<ValueId>> {
        let values: Vec<ValueId> = self.states.iter().filter(|s| s.trainable).map(|s| s.value).collect();
        if values.is_empty() {
            return Err(Error::argument("there is nothing to train: the model has no trainable parameters"));
        }
        Ok(values)
    }

    /// Declares the states that `other` has beyond those of this step, in their order and unchanged by it, so that
    /// both steps agree on where everything is. The states they both have come first, in the same order.
    ///
    /// # Errors
    /// None in practice: `other` has declared them already.
    pub fn adopt_states(&mut self, other: &Step) -> Result<()> {
        for state in other.states.iter().skip(self.states.len()) {
            let ty = other.graph.ty(state.value);
            let value = self.graph.input(&state.name, &ty.shape, ty.dtype)?;
            self.states.push(State { value, next: None, ..state.clone() });
        }
        Ok(())
    }

    /// Whether samples are normalised by statistics of their batch, so that a part of the batch gives other numbers
    /// than the whole.
    pub fn has_batch_statistics(&self) -> bool {
        self.graph.nodes().iter().any(|node| matches!(node.op, Op::BatchNorm { .. }))
    }

    /// The role of every value: what its bytes would be called in a ledger.
    pub fn roles(&self) -> Vec<Role> {
        let mut roles = vec![Role::Activation; self.graph.len()];
        for output in &self.outputs {
            roles[output.value.index()] = Role::Metric;
        }
        for gradient in &self.gradients {
            roles[gradient.index()] = Role::Gradient;
        }
        for input in &self.inputs {
            roles[input.value.index()] = Role::Input;
        }
        for state in &self.states {
            roles[state.value.index()] = state.role;
        }
        roles
    }
}
