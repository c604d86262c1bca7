//! Optimizers, as graph code.
//!
//! An optimizer extends a step with what every parameter becomes. Its slots are states of the step, so
//! their bytes are in the plan like all others. Formulas and defaults are PyTorch's, so that a recipe found
//! in the wild keeps its meaning.

mod clip;
mod group;

pub use clip::Clip;
pub use group::Group;

use crate::pattern::Patterns;
use crate::program::Role;
use crate::schedule::Schedule;
use crate::step::{Initial, Step};
use crate::{DType, Error, Result, ValueId};
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

/// A rule for one update.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Rule {
    Sgd { momentum: f64, nesterov: bool },
    RmsProp { smoothing: f64, epsilon: f64, momentum: f64 },
    Adagrad { epsilon: f64 },
    Adam { beta1: f64, beta2: f64, epsilon: f64 },
}

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

    /// Pulls parameters towards zero with this strength, in the way of the optimizer: AdamW shrinks them,
    /// the others add to the gradient.
    pub fn weight_decay(mut self, strength: f64) -> Self {
        self.decay = match self.decay {
            Decay::Penalty(_) => Decay::Penalty(strength),
            Decay::Decoupled(_) => Decay::Decoupled(strength),
        };
        self
    }

    /// How many values it remembers for each parameter.
    pub fn slots(&self) -> usize {
        match self.rule {
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
            Rule::Adagrad { .. } => {}
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

    /// The scalars that all updates of parameters of one group and type share, computed in `f64` from the number of
    /// updates before and the factor of rates.
    fn time(
        &self,
        step: &mut Step,
        group: Option<usize>,
        clock: ValueId,
        factor: ValueId,
        dtype: DType,
    ) -> Result<Time> {
        let g = &mut step.graph;
        let count = g.cast(clock, DType::F64)?;
        let (mut schedule, mut scale) = (&self.schedule, 1.0);
        if let Some(group) = group.map(|group| &self.groups[group]) {
            (schedule, scale) = (group.schedule.as_ref().unwrap_or(schedule), group.rate_scale);
        }
        let mut rate = schedule.rate(g, count)?;
        if scale != 1.0 {
            rate = g.mul_scalar(rate, scale)?;
        }
        let rate = g.mul(rate, factor)?;
        let (mut scaled_rate, mut root_correction) = (rate, None);
        if let Rule::Adam { beta1, beta2, .. } = self.rule {
            let t = g.add_scalar(count, 1.0)?;
            let mut correction = |beta: f64| {
                let beta = g.constant(beta, DType::F64)?;
                let power = g.pow(beta, t)?;
                let negated = g.neg(power)?;
                g.add_scalar(negated, 1.0)
            };
            let (first, second) = (correction(beta1)?, correction(beta2)?);
            scaled_rate = g.div(rate, first)?;
            let correction = g.rsqrt(second)?;
            root_correction = Some(g.cast(correction, dtype)?);
        }
        let scaled_rate = g.cast(scaled_rate, dtype)?;
        let (mut shrink, mut penalty) = (None, 0.0);
        match self.decay_of(group) {
            Decay::Decoupled(strength) => {
                let factor = g.mul_scalar(rate, -strength)?;
                let factor = g.add_scalar(factor, 1.0)?;
                shrink = Some(g.cast(factor, dtype)?);
            }
            Decay::Penalty(strength) => penalty = strength,
        }
        Ok(Time { scaled_rate, root_correction, shrink, penalty })
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

    /// What one parameter becomes.
    fn update_one(
        &self,
        step: &mut Step,
        name: &str,
        parameter: ValueId,
        gradient: ValueId,
        time: &Time,
    ) -> Result<ValueId> {
        let (mut parameter, mut gradient) = (parameter, gradient);
        if time.penalty != 0.0 {
            let pull = step.graph.mul_scalar(parameter, time.penalty)?;
            gradient = step.graph.add(gradient, pull)?;
        }
        if let Some(factor) = time.shrink {
            parameter = step.graph.mul(parameter, factor)?;
        }
        let direction = match self.rule {
            Rule::Sgd { momentum: 0.0, .. } => gradient,
            Rule::Sgd { momentum, nesterov } => {
                let velocity = self.slot(step, name, "momentum", parameter, |step, old| {
                    let kept = step.graph.mul_scalar(old, momentum)?;
                    step.graph.add(kept, gradient)
                })?;
                if nesterov {
                    let ahead = step.graph.mul_scalar(velocity, momentum)?;
                    step.graph.add(gradient, ahead)?
                } else {
                    velocity
                }
            }
            Rule::RmsProp { smoothing, epsilon, momentum } => {
                let square = self.slot(step, name, "square", parameter, |step, old| {
                    smoothed_square(step, old, gradient, smoothing)
                })?;
                let scaled = over_root(step, gradient, square, epsilon)?;
                if momentum == 0.0 {
                    scaled
                } else {
                    self.slot(step, name, "momentum", parameter, |step, old| {
                        let kept = step.graph.mul_scalar(old, momentum)?;
                        step.graph.add(kept, scaled)
                    })?
                }
            }
            Rule::Adagrad { epsilon } => {
                let total = self.slot(step, name, "square", parameter, |step, old| {
                    let square = step.graph.square(gradient)?;
                    step.graph.add(old, square)
                })?;
                over_root(step, gradient, total, epsilon)?
            }
            Rule::Adam { beta1, beta2, epsilon } => {
                let mean = self.slot(step, name, "mean", parameter, |step, old| {
                    let kept = step.graph.mul_scalar(old, beta1)?;
                    let new = step.graph.mul_scalar(gradient, 1.0 - beta1)?;
                    step.graph.add(kept, new)
                })?;
                let square = self.slot(step, name, "square", parameter, |step, old| {
                    smoothed_square(step, old, gradient, beta2)
                })?;
                let g = &mut step.graph;
                let root = g.sqrt(square)?;
                let root = match time.root_correction {
                    Some(correction) => g.mul(root, correction)?,
                    None => root,
                };
                let root = g.add_scalar(root, epsilon)?;
                g.div(mean, root)?
            }
        };
        let change = step.graph.mul(direction, time.scaled_rate)?;
        step.graph.sub(parameter, change)
    }
}

/// What all updates of parameters of one group and type share.
struct Time {
    /// The learning rate; for Adam, over its first correction.
    scaled_rate: ValueId,
    /// One over the root of Adam's second correction.
    root_correction: Option<ValueId>,
    /// What decoupled decay multiplies parameters with.
    shrink: Option<ValueId>,
    /// What of a parameter is added to its gradient.
    penalty: f64,
}

impl Optimizer {
    /// A slot for one parameter, and what it becomes.
    fn slot(
        &self,
        step: &mut Step,
        parameter: &str,
        slot: &str,
        like: ValueId,
        next: impl FnOnce(&mut Step, ValueId) -> Result<ValueId>,
    ) -> Result<ValueId> {
        let ty = step.graph.ty(like);
        let name = match &*self.name {
            UNNAMED => format!("{parameter}:{slot}"),
            name => format!("{parameter}:{name}/{slot}"),
        };
        let old = step.state(&name, Role::Optimizer, &ty.shape, ty.dtype, Initial::Constant(0.0))?;
        let new = next(step, old)?;
        step.update(old, new)?;
        Ok(new)
    }
}

impl fmt::Display for Optimizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rule = match self.rule {
            Rule::Sgd { momentum: 0.0, .. } => "SGD",
            Rule::Sgd { .. } => "momentum",
            Rule::RmsProp { .. } => "RMSProp",
            Rule::Adagrad { .. } => "Adagrad",
            Rule::Adam { .. } => match self.decay {
                Decay::Decoupled(_) => "AdamW",
                Decay::Penalty(_) => "Adam",
            },
        };
        write!(f, "optimizer `{}` ({rule})", self.name)
    }
}

fn smoothed_square(step: &mut Step, old: ValueId, gradient: ValueId, smoothing: f64) -> Result<ValueId> {
    let kept = step.graph.mul_scalar(old, smoothing)?;
    let square = step.graph.square(gradient)?;
    let new = step.graph.mul_scalar(square, 1.0 - smoothing)?;
    step.graph.add(kept, new)
}

/// `x / (√square + epsilon)`
fn over_root(step: &mut Step, x: ValueId, square: ValueId, epsilon: f64) -> Result<ValueId> {
    let root = step.graph.sqrt(square)?;
    let root = step.graph.add_scalar(root, epsilon)?;
    step.graph.div(x, root)
}
