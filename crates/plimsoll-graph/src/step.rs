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
use crate::{DType, Error, Graph, Op, Result, ValueId, ValueType};
use serde::Serialize;
use std::collections::HashMap;

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
    /// The outputs, by position, that are sums over samples: those of the parts of a batch are added up.
    pub sums: Vec<usize>,
    /// What is to be minimised, and by which optimizers.
    pub objectives: Vec<Objective>,
    /// The gradients of parameters, where there are any; of a scaled loss, in the type that they were computed in.
    pub gradients: Vec<ValueId>,
    /// The labels whose number, without negative ones, means are over.
    pub counted: Counted,
    /// Where the graph's phases begin.
    pub phases: Phases,
}

/// Where the phases of a step begin in its graph, by the number of nodes before each. What is before is the forward pass.
#[derive(Debug, Clone, Copy, Default)]
pub struct Phases {
    /// The first node of the backward pass.
    pub backward: Option<usize>,
    /// The first node of the updates by optimizers.
    pub update: Option<usize>,
}

/// Labels that stand for nothing where they are negative, so that means are over the others. In a part of a batch the
/// number that counts is that of the whole, which comes from outside.
#[derive(Debug, Clone, Default)]
pub struct Counted {
    /// The numbers that come from outside, in the order of their inputs, each by the position of its labels' input.
    pub inputs: Vec<usize>,
    /// Whether the step counts labels that are computed in it, so that it cannot be run in parts.
    pub has_computed: bool,
}

/// Losses that one optimizer minimises.
#[derive(Debug, Clone)]
pub struct Objective {
    /// The losses, which are added up.
    pub losses: Vec<ValueId>,
    /// Who minimises them.
    pub optimizer: Optimizer,
}

/// Parameters that an optimizer changes by their gradients.
pub(crate) struct Update {
    pub(crate) optimizer: Optimizer,
    /// The states, by position.
    pub(crate) trainable: Vec<usize>,
    pub(crate) gradients: Vec<ValueId>,
}

impl Update {
    /// Extends a step with the update.
    pub(crate) fn extend(self, step: &mut Step) -> Result<()> {
        self.optimizer.update(step, self.gradients, &self.trainable)
    }
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

/// The states of several steps: every name once, in the order in which they were first declared.
#[derive(Debug, Clone, Default)]
pub struct StateTable {
    states: Vec<(State, ValueType)>,
    positions: HashMap<Box<str>, usize>,
}

impl StateTable {
    /// Adds the states of a step.
    ///
    /// # Errors
    /// If one is here already with another type.
    pub fn extend(&mut self, step: &Step) -> Result<()> {
        for state in &step.states {
            let ty = step.graph.ty(state.value);
            match self.positions.get(&state.name) {
                Some(&known) => {
                    StateTable::agree(&state.name, self.states[known].1, ty)?;
                    self.states[known].0.trainable |= state.trainable;
                }
                None => {
                    self.positions.insert(state.name.clone(), self.states.len());
                    self.states.push((State { next: None, ..state.clone() }, ty));
                }
            }
        }
        Ok(())
    }

    /// The states with their types, in order. Their values are those of the steps that declared them.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &(State, ValueType)> {
        self.states.iter()
    }

    /// The position of a state.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.positions.get(name).copied()
    }

    fn agree(name: &str, known: ValueType, ty: ValueType) -> Result<()> {
        if known == ty {
            return Ok(());
        }
        Err(Error::shape(format!(
            "`{name}` is {known} in one step of the run and {ty} in another: parameters may not depend on the batch or \
             the length, and other parameters need other names"
        )))
    }
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

    /// How many of some integer labels are not negative, and at least 1, as `f32[]`. If `is_given`, it is an input
    /// `{labels}:counted`, for which the labels must be an input as well.
    ///
    /// # Errors
    /// If the number cannot be given since the labels are computed, or they are not integers.
    pub fn count_labels(&mut self, labels: ValueId, is_given: bool) -> Result<ValueId> {
        let position = self.inputs.iter().position(|input| input.value == labels);
        let Some(position) = position else {
            self.counted.has_computed = true;
            if is_given {
                return Err(Error::argument(
                    "labels that are computed in the step cannot be counted over the parts of a batch: make them an \
                     input, or do not split the batch",
                ));
            }
            return self.graph.count_labels(labels);
        };
        if !is_given {
            return self.graph.count_labels(labels);
        }
        let name = format!("{}:counted", self.inputs[position].name);
        if let Some(known) = self.inputs.iter().find(|input| *input.name == *name) {
            return Ok(known.value);
        }
        self.counted.inputs.push(position);
        self.input(&name, &[], DType::F32)
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
    /// window, if it is a part of one. Declared on first use; every step that draws from it advances it.
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

    /// Reports a sum over samples under a name.
    pub fn output_sum(&mut self, name: &str, value: ValueId) {
        self.sums.push(self.outputs.len());
        self.output(name, value);
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

    /// Notes that `loss` is to be minimised by an optimizer, which changes those of the step's parameters that it trains,
    /// unless a loss of the step is not finite: then parameters, slots and clocks stay as they were, so that what went wrong
    /// can be looked at. What a step does about it is decided when it is complete: [`Step::update_parameters`] or
    /// [`Step::accumulate`]. Losses of one optimizer are added up.
    ///
    /// # Errors
    /// If `loss` is not a float scalar.
    pub fn minimise(&mut self, loss: ValueId, optimizer: &Optimizer) -> Result<()> {
        let graph = &self.graph;
        if graph.shape(loss).rank() != 0 || !graph.dtype(loss).is_float() {
            let message =
                format!("a loss is a float scalar, this is {}; take its mean, or sum it", graph.ty(loss));
            return Err(Error::gradient(message).at(graph.op(loss).name(), graph.scope(loss)));
        }
        match self.objectives.iter_mut().find(|objective| objective.optimizer.is(optimizer)) {
            Some(objective) => objective.losses.push(loss),
            None => self.objectives.push(Objective { losses: vec![loss], optimizer: optimizer.clone() }),
        }
        Ok(())
    }

    /// [`Step::minimise`] and then [`Step::update_parameters`].
    ///
    /// # Errors
    /// As those.
    pub fn train(&mut self, loss: ValueId, optimizer: &Optimizer) -> Result<()> {
        self.minimise(loss, optimizer)?;
        self.update_parameters()
    }

    /// Extends the step with the gradients of the losses that are to be minimised and with the updates by their
    /// optimizers, and advances the random state if there is one.
    ///
    /// # Errors
    /// If a loss has no gradient, an optimizer has nothing to train, or two would change one parameter.
    pub fn update_parameters(&mut self) -> Result<()> {
        let groups = self.groups()?;
        self.reorder();
        self.phases.backward = Some(self.graph.nodes().len());
        let mut updates = vec![];
        for (objective, trainable) in self.objectives.clone().into_iter().zip(groups) {
            let gradients = self.gradients_of(&objective.losses, &trainable)?;
            updates.push(Update { optimizer: objective.optimizer, trainable, gradients });
        }
        let losses: Vec<ValueId> = self.objectives.iter().flat_map(|of| of.losses.clone()).collect();
        self.apply(updates, &losses)?;
        self.advance_random_state()
    }

    /// The states that each objective trains.
    pub(crate) fn groups(&self) -> Result<Vec<Vec<usize>>> {
        let mut taken: Vec<Option<&Optimizer>> = vec![None; self.states.len()];
        let mut groups = vec![];
        for (index, Objective { optimizer, .. }) in self.objectives.iter().enumerate() {
            let named_alike = |other: &&Objective| other.optimizer.name() == optimizer.name();
            if let Some(other) = self.objectives[..index].iter().find(named_alike) {
                return Err(Error::argument(format!(
                    "the {} and the {optimizer} of one step have one name, which their states are named after: name them \
                     apart",
                    other.optimizer
                )));
            }
            let in_group = |i: &usize| self.states[*i].trainable && optimizer.trains(&self.states[*i].name);
            let group: Vec<usize> = (0..self.states.len()).filter(in_group).collect();
            if group.is_empty() {
                return Err(Error::argument(match self.states.iter().find(|state| state.trainable) {
                    Some(state) => format!(
                        "the {optimizer} has nothing to train: no parameter is among those of its names; there is `{}`, for one",
                        state.name
                    ),
                    None => {
                        "there is nothing to train: the model has no parameters, or all are frozen".into()
                    }
                }));
            }
            for &index in &group {
                if let Some(other) = taken[index].replace(optimizer) {
                    return Err(Error::argument(format!(
                        "the {other} and the {optimizer} would both change `{}` in one step: give each a group of its own",
                        self.states[index].name
                    )));
                }
            }
            groups.push(group);
        }
        Ok(groups)
    }

    /// The gradients of a sum of losses, or of a multiple of it if this step scales its losses.
    pub(crate) fn gradients_of(&mut self, losses: &[ValueId], trainable: &[usize]) -> Result<Vec<ValueId>> {
        let scaling = Scaling::of(self);
        let mut seeded = vec![];
        for &loss in losses {
            seeded.push((loss, scaling.map(|scaling| scaling.seed(&mut self.graph, loss)).transpose()?));
        }
        let parameters: Vec<ValueId> = trainable.iter().map(|&index| self.states[index].value).collect();
        gradient_from(&mut self.graph, &seeded, &parameters)
    }

    /// Puts ops where they take fewer bytes, before gradients are taken.
    pub(crate) fn reorder(&mut self) {
        let outputs = self.outputs.iter().map(|output| output.value);
        self.graph.pool_before_rectifying(outputs.chain(self.states.iter().filter_map(|state| state.next)));
    }

    /// Advances the random state, if there is one, to the next step, whose batch begins with sample 0: what is drawn next
    /// is new.
    ///
    /// # Errors
    /// None in practice.
    pub fn advance_random_state(&mut self) -> Result<()> {
        let Some(state) = self.states.iter().find(|s| s.role == Role::Random).map(|s| s.value) else {
            return Ok(());
        };
        let advanced = self.graph.scoped("random", |g| {
            // Of [seed, step, first], the index is what the first two grow by.
            let index = g.iota(&[3], 0, DType::I64)?;
            let grown = g.add(state, index)?;
            let (last, zero) = (g.full_like(2.0, index)?, g.full_like(0.0, index)?);
            let kept = g.lt(index, last)?;
            g.select(kept, grown, zero)
        })?;
        self.update(state, advanced)
    }

    /// Extends the step with an optimizer's updates of all trainable states by their gradients, given in their order. If
    /// this step scales its loss, these are gradients of the scaled one.
    ///
    /// # Errors
    /// If the optimizer's constants are not usable, or there are other gradients than one of each parameter's shape.
    pub fn apply_gradients(&mut self, gradients: Vec<ValueId>, optimizer: &Optimizer) -> Result<()> {
        let trainable: Vec<usize> = (0..self.states.len()).filter(|&i| self.states[i].trainable).collect();
        if gradients.len() != trainable.len() {
            return Err(Error::argument(format!(
                "{} gradients for {} trainable parameters",
                gradients.len(),
                trainable.len()
            )));
        }
        self.apply(vec![Update { optimizer: optimizer.clone(), trainable, gradients }], &[])
    }

    /// Extends the step with updates, which change nothing if one of these losses is not finite.
    pub(crate) fn apply(&mut self, updates: Vec<Update>, losses: &[ValueId]) -> Result<()> {
        self.phases.update = Some(self.graph.nodes().len());
        if let Some(scaling) = Scaling::of(self) {
            // It looks at all gradients, which are not finite if a loss is not.
            return scaling.apply(self, updates);
        }
        self.gradients.extend(updates.iter().flat_map(|update| &update.gradients));
        let trainable: Vec<usize> = updates.iter().flat_map(|update| update.trainable.clone()).collect();
        let slots = self.states.len();
        updates.into_iter().try_for_each(|update| update.extend(self))?;
        let finite = self.graph.scoped("loss", |g| {
            let truths = losses.iter().map(|&loss| g.is_finite(loss)).collect::<Result<Vec<ValueId>>>()?;
            // The product of truths is whether all hold.
            truths.into_iter().map(Ok).reduce(|a, b| g.mul(a?, b?)).transpose()
        })?;
        match finite {
            Some(finite) => self.keep_unless(finite, trainable.into_iter().chain(slots..self.states.len())),
            None => Ok(()),
        }
    }

    /// Has states stay as they are where a truth does not hold.
    pub(crate) fn keep_unless(&mut self, holds: ValueId, states: impl Iterator<Item = usize>) -> Result<()> {
        for index in states {
            let State { name, value, next, .. } = self.states[index].clone();
            if let Some(next) = next {
                let next = self.graph.scoped(&name, |g| g.select(holds, next, value))?;
                self.update(value, next)?;
            }
        }
        Ok(())
    }

    /// Declares all states of a table, in its order: those that this step has stay as they are, the others are unchanged
    /// by it. Steps with one table agree on where everything is. Nothing may be updated afterwards.
    ///
    /// # Errors
    /// If this step has a state that the table does not have, or has it with another type.
    pub fn adopt_states(&mut self, table: &StateTable) -> Result<()> {
        let mut own: HashMap<Box<str>, State> =
            std::mem::take(&mut self.states).into_iter().map(|state| (state.name.clone(), state)).collect();
        for (state, ty) in table.iter() {
            let adopted = match own.remove(&state.name) {
                Some(own) => {
                    StateTable::agree(&state.name, *ty, self.graph.ty(own.value))?;
                    own
                }
                None => {
                    let value = self.graph.input(&state.name, &ty.shape, ty.dtype)?;
                    State { value, next: None, ..state.clone() }
                }
            };
            self.states.push(adopted);
        }
        match own.keys().min() {
            None => Ok(()),
            Some(name) => Err(Error::argument(format!(
                "the state `{name}` is not declared by the first steps of the run: parameters may not depend on the \
                 batch or the length"
            ))),
        }
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
