//! Optimizers, as graph code.
//!
//! An optimizer extends a step with what every parameter becomes. Its slots are states of the step, so
//! their bytes are in the plan like all others. Formulas and defaults are PyTorch's, so that a recipe found
//! in the wild keeps its meaning.

mod adafactor;
mod clip;
mod group;
mod rule;
mod slot;

pub use clip::Clip;
pub use group::Group;
pub use slot::{SMALLEST_IN_EIGHT_BITS, SlotFormat};

use crate::pattern::Patterns;
use crate::program::Role;
use crate::schedule::Schedule;
use crate::step::{Initial, Step};
use crate::{DType, Error, Result, ValueId};
use rule::{Rule, Time};
use std::fmt;
use std::sync::{Arc, Weak};

/// How parameters follow their gradients: an object with parameters, slots and a clock of its own.
///
/// A clone is the same optimizer: it goes on with the same slots and the same count of updates, wherever it is used. Two
/// that are made apart are two, whatever their constants. Where some of its parameters need another rate, decay or limit
/// than the others, they are a [`Group`].
///
/// ```
/// use plimsoll_graph::optimizer::{Clip, Group, Optimizer};
/// let adam = Optimizer::adamw(1e-3)
///     .clip(Clip::GlobalNorm(1.0))
///     .group(Group::of(["*/bias", "*/ln*"]).weight_decay(0.0))
///     .group(Group::of(["head"]).rate(1e-2));
/// let critic = Optimizer::adam(4e-4).only(["critic"]);
/// assert!(critic.trains("critic/dense/kernel") && !critic.trains("actor/dense/kernel"));
/// assert!(adam.is(&adam.clone()) && !adam.is(&critic));
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Optimizer {
    identity: Identity,
    /// What its states are named after.
    name: Box<str>,
    /// The parameters that it trains; all if there are none.
    only: Patterns,
    rule: Rule,
    slot_format: SlotFormat,
    schedule: Schedule,
    decay: Decay,
    clip: Option<Clip>,
    groups: Vec<Group>,
}

/// What tells optimizers apart that have the same constants. It lives as long as one of its clones.
#[derive(Debug, Clone)]
struct Identity(Arc<()>);

/// Optimizers are compared by what they do.
impl PartialEq for Identity {
    fn eq(&self, _: &Identity) -> bool {
        true
    }
}

/// The name of an optimizer that was given none.
pub const UNNAMED: &str = "optimizer";

/// How parameters are pulled towards zero.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Decay {
    /// The parameter times this is added to its gradient.
    Penalty(f64),
    /// The parameter shrinks by the learning rate times this, apart from its gradient.
    Decoupled(f64),
}

impl Optimizer {
    fn new(rule: Rule, rate: impl Into<Schedule>) -> Self {
        Optimizer {
            identity: Identity(Arc::new(())),
            name: UNNAMED.into(),
            only: Patterns::default(),
            rule,
            slot_format: SlotFormat::Full,
            schedule: rate.into(),
            decay: Decay::Penalty(0.0),
            clip: None,
            groups: vec![],
        }
    }

    /// Names it, and with it its slots and its clock among a run's states. The first of a run that has no name is
    /// [`UNNAMED`].
    pub fn named(mut self, name: &str) -> Self {
        self.name = name.into();
        self
    }

    /// What its states are named after.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Trains only the parameters whose names match one of these patterns, as [`crate::pattern`] says: `generator` is for
    /// `generator/dense/kernel` and all others that begin with `generator/`. It trains all parameters unless this says
    /// otherwise.
    pub fn only(mut self, patterns: impl IntoIterator<Item = impl Into<Box<str>>>) -> Self {
        self.only = Patterns::new(patterns);
        self
    }

    /// Gives those of its parameters that are in a group, and in none before it, rates, decay or limits of their own.
    pub fn group(mut self, group: Group) -> Self {
        self.groups.push(group);
        self
    }

    /// Its groups, of which the first that a parameter is in counts.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// Whether it trains a parameter of that name.
    pub fn trains(&self, parameter: &str) -> bool {
        self.only.is_empty() || self.only.matches(parameter)
    }

    /// Whether the other is this one, or a clone of it.
    pub fn is(&self, other: &Optimizer) -> bool {
        Arc::ptr_eq(&self.identity.0, &other.identity.0)
    }

    /// What can be asked whether any clone of this optimizer is left: who keeps states for it can let go of them then.
    pub fn watch(&self) -> Weak<()> {
        Arc::downgrade(&self.identity.0)
    }

    /// Steps against the gradient.
    pub fn sgd(rate: impl Into<Schedule>) -> Self {
        Self::new(Rule::Sgd { momentum: 0.0, nesterov: false }, rate)
    }

    /// Steps along a decaying sum of gradients; with `nesterov`, looking one step ahead.
    pub fn momentum(rate: impl Into<Schedule>, momentum: f64, nesterov: bool) -> Self {
        Self::new(Rule::Sgd { momentum, nesterov }, rate)
    }

    /// Steps divided by the root of a running mean of squares (smoothing 0.99, epsilon 1e-8).
    pub fn rmsprop(rate: impl Into<Schedule>) -> Self {
        Self::rmsprop_with(rate, 0.99, 1e-8, 0.0)
    }

    /// [`Optimizer::rmsprop`] with its constants, and with momentum if that is not zero.
    pub fn rmsprop_with(rate: impl Into<Schedule>, smoothing: f64, epsilon: f64, momentum: f64) -> Self {
        Self::new(Rule::RmsProp { smoothing, epsilon, momentum }, rate)
    }

    /// Steps divided by the root of the sum of squares so far (epsilon 1e-10).
    pub fn adagrad(rate: impl Into<Schedule>) -> Self {
        Self::new(Rule::Adagrad { epsilon: 1e-10 }, rate)
    }

    /// Adam (betas 0.9 and 0.999, epsilon 1e-8).
    pub fn adam(rate: impl Into<Schedule>) -> Self {
        Self::adam_with(rate, 0.9, 0.999, 1e-8)
    }

    /// Adam with its constants.
    pub fn adam_with(rate: impl Into<Schedule>, beta1: f64, beta2: f64, epsilon: f64) -> Self {
        Self::new(Rule::Adam { beta1, beta2, epsilon }, rate)
    }

    /// Adam with decoupled weight decay of 0.01.
    pub fn adamw(rate: impl Into<Schedule>) -> Self {
        let adam = Self::adam(rate);
        Optimizer { decay: Decay::Decoupled(0.01), ..adam }
    }

    /// Adafactor, with PyTorch's constants: of the squares of a matrix's gradients it remembers means of rows and columns
    /// alone, so that its slots take next to nothing. The rate (0.01 is usual) is relative to the size of a parameter's
    /// elements, and at most one over the root of the number of updates. Parameters of more than two axes are stacks of
    /// matrices over their last two.
    pub fn adafactor(rate: impl Into<Schedule>) -> Self {
        let adafactor = Self::new(Rule::Adafactor, rate);
        Optimizer { decay: Decay::Decoupled(0.0), ..adafactor }
    }

    /// Stores its slots in fewer bytes. What is trained changes: never done without being asked for.
    pub fn slot_format(mut self, format: SlotFormat) -> Self {
        self.slot_format = format;
        self
    }

    /// Whether its slots would take fewer bytes in another format.
    pub fn has_full_slots(&self) -> bool {
        self.slots() > 0 && self.slot_format == SlotFormat::Full
    }

    /// Pulls parameters towards zero with this strength, in the way of the optimizer: AdamW shrinks them,
    /// the others add to the gradient.
    pub fn weight_decay(mut self, strength: f64) -> Self {
        self.decay = match self.decay {
            Decay::Penalty(_) => Decay::Penalty(strength),
            Decay::Decoupled(_) => Decay::Decoupled(strength),
        };
        self
    }

    /// How many values it remembers for each element of a parameter.
    pub fn slots(&self) -> usize {
        match self.rule {
            Rule::Adafactor => 0,
            Rule::Sgd { momentum, .. } => usize::from(momentum != 0.0),
            Rule::RmsProp { momentum, .. } => 1 + usize::from(momentum != 0.0),
            Rule::Adagrad { .. } => 1,
            Rule::Adam { .. } => 2,
        }
    }

    /// Limits gradients before they are applied.
    pub fn clip(mut self, clip: Clip) -> Self {
        self.clip = Some(clip);
        self
    }

    /// The name of the state that its rates are multiplied by: an `f64[]` that is 1 at first and that no step changes, so
    /// that whoever trains can change rates between steps.
    pub fn rate_factor(&self) -> String {
        format!("{}:rate", self.name)
    }

    /// Extends `step` by the updates of the states `trainable` by their gradients. Its clock counts them.
    pub(crate) fn update(&self, step: &mut Step, gradients: Vec<ValueId>, trainable: &[usize]) -> Result<()> {
        self.check()?;
        let clock = format!("{}:updates", self.name);
        let clock = step.state(&clock, Role::Optimizer, &[], DType::I64, Initial::Constant(0.0))?;
        let factor =
            step.state(&self.rate_factor(), Role::Optimizer, &[], DType::F64, Initial::Constant(1.0))?;
        let scope = step.graph.enter(&self.name);
        let kinds: Vec<(Option<usize>, DType)> = trainable
            .iter()
            .map(|&index| {
                (self.group_of(&step.states[index].name), step.graph.dtype(step.states[index].value))
            })
            .collect();
        let mut times: Vec<((Option<usize>, DType), Time)> = vec![];
        for &(group, dtype) in &kinds {
            if times.iter().all(|(kind, _)| *kind != (group, dtype)) {
                times.push(((group, dtype), self.time(step, group, clock, factor, dtype)?));
            }
        }
        let groups: Vec<Option<usize>> = kinds.iter().map(|kind| kind.0).collect();
        let gradients = self.clipped(step, gradients, &groups)?;
        let counted = step.graph.add_scalar(clock, 1.0)?;
        step.graph.leave(scope);
        step.update(clock, counted)?;
        for ((&index, gradient), kind) in trainable.iter().zip(gradients).zip(kinds) {
            let (name, parameter) = (step.states[index].name.clone(), step.states[index].value);
            let Some((_, time)) = times.iter().find(|(of, _)| *of == kind) else { continue };
            let scope = step.graph.enter(&name);
            let next = self.update_one(step, &name, parameter, gradient, time)?;
            step.graph.leave(scope);
            step.update(parameter, next)?;
        }
        Ok(())
    }

    /// The group that a parameter is in.
    fn group_of(&self, parameter: &str) -> Option<usize> {
        self.groups.iter().position(|group| group.members.matches(parameter))
    }

    /// How the parameters of a group are pulled towards zero.
    fn decay_of(&self, group: Option<usize>) -> Decay {
        match (group.and_then(|group| self.groups[group].decay), self.decay) {
            (None, decay) => decay,
            (Some(strength), Decay::Penalty(_)) => Decay::Penalty(strength),
            (Some(strength), Decay::Decoupled(_)) => Decay::Decoupled(strength),
        }
    }

    fn check(&self) -> Result<()> {
        let fraction = |name: &str, x: f64| {
            if (0.0..1.0).contains(&x) {
                Ok(())
            } else {
                Err(Error::argument(format!("{name} is {x}, it must be at least 0 and below 1")))
            }
        };
        match self.rule {
            Rule::Sgd { momentum, .. } => fraction("momentum", momentum)?,
            Rule::RmsProp { smoothing, momentum, .. } => {
                fraction("smoothing", smoothing)?;
                fraction("momentum", momentum)?;
            }
            Rule::Adagrad { .. } | Rule::Adafactor => {}
            Rule::Adam { beta1, beta2, .. } => {
                fraction("beta1", beta1)?;
                fraction("beta2", beta2)?;
            }
        }
        self.clip.map_or(Ok(()), Clip::check)?;
        self.schedule.check()?;
        for group in &self.groups {
            let of_group = |message: String| {
                Error::argument(format!("the group of {} of the {self}: {message}", group.members))
            };
            let settings = group.clip.map_or(Ok(()), Clip::check);
            let settings = settings.and_then(|()| group.schedule.as_ref().map_or(Ok(()), Schedule::check));
            settings.map_err(|error| of_group(error.to_string()))?;
            let usable = |x: f64| x.is_finite() && x >= 0.0;
            if !usable(group.rate_scale) {
                return Err(of_group(format!("a rate times {} is not usable", group.rate_scale)));
            }
            if let Some(decay) = group.decay.filter(|&decay| !usable(decay)) {
                return Err(of_group(format!("a weight decay of {decay} is not usable")));
            }
        }
        Ok(())
    }

    /// The gradients after clipping, given the group of each. Groups with a limit of their own are clipped by themselves,
    /// all others together.
    fn clipped(
        &self,
        step: &mut Step,
        mut gradients: Vec<ValueId>,
        groups: &[Option<usize>],
    ) -> Result<Vec<ValueId>> {
        let apart = |group: usize| self.groups[group].clip.map(|clip| (Some(group), clip));
        let limits = (0..self.groups.len()).filter_map(apart).chain(self.clip.map(|clip| (None, clip)));
        for (limited, clip) in limits {
            let own = |group: &Option<usize>| group.filter(|&group| self.groups[group].clip.is_some());
            let members: Vec<usize> = (0..groups.len()).filter(|&at| own(&groups[at]) == limited).collect();
            if members.is_empty() {
                continue;
            }
            let unclipped = members.iter().map(|&at| gradients[at]).collect();
            for (at, clipped) in members.into_iter().zip(clip.apply(&mut step.graph, unclipped)?) {
                gradients[at] = clipped;
            }
        }
        Ok(gradients)
    }
}

impl fmt::Display for Optimizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rule = match self.rule {
            Rule::Sgd { momentum: 0.0, .. } => "SGD",
            Rule::Sgd { .. } => "momentum",
            Rule::RmsProp { .. } => "RMSProp",
            Rule::Adagrad { .. } => "Adagrad",
            Rule::Adafactor => "Adafactor",
            Rule::Adam { .. } => match self.decay {
                Decay::Decoupled(_) => "AdamW",
                Decay::Penalty(_) => "Adam",
            },
        };
        write!(f, "optimizer `{}` ({rule}", self.name)?;
        match self.slot_format {
            SlotFormat::Full => write!(f, ")"),
            format => write!(f, ", {} slots)", format.name()),
        }
    }
}
