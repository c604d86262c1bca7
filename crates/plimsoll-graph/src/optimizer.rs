//! Optimizers, as graph code.
//!
//! An optimizer extends a step with what every parameter becomes. Its slots are states of the step, so
//! their bytes are in the plan like all others. Formulas and defaults are PyTorch's, so that a recipe found
//! in the wild keeps its meaning.

use crate::op::Reduction;
use crate::program::Role;
use crate::schedule::Schedule;
use crate::step::{Initial, Step};
use crate::{DType, Error, Result, ValueId};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::{Arc, Weak};

/// How parameters follow their gradients: an object with a group of parameters, slots and a clock of its own.
///
/// A clone is the same optimizer: it goes on with the same slots and the same count of updates, wherever it is used. Two
/// that are made apart are two, whatever their constants.
///
/// ```
/// use plimsoll_graph::optimizer::{Clip, Optimizer};
/// let adam = Optimizer::adam(1e-3).clip(Clip::GlobalNorm(1.0));
/// let critic = Optimizer::adam(4e-4).only(["critic"]);
/// assert!(critic.trains("critic/dense/kernel") && !critic.trains("actor/dense/kernel"));
/// assert!(adam.is(&adam.clone()) && !adam.is(&critic));
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Optimizer {
    identity: Identity,
    /// What its states are named after.
    name: Box<str>,
    /// The scopes whose parameters it trains; all if there are none.
    scopes: Vec<Box<str>>,
    rule: Rule,
    schedule: Schedule,
    decay: Decay,
    clip: Option<Clip>,
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

/// How gradients are limited before they are applied.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Clip {
    /// Each element to `[-limit, limit]`.
    Value(f64),
    /// All gradients together, scaled down if their norm is larger.
    GlobalNorm(f64),
}

impl Optimizer {
    fn new(rule: Rule, rate: impl Into<Schedule>) -> Self {
        Optimizer {
            identity: Identity(Arc::new(())),
            name: UNNAMED.into(),
            scopes: vec![],
            rule,
            schedule: rate.into(),
            decay: Decay::Penalty(0.0),
            clip: None,
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

    /// Trains only the parameters in these scopes, or of these names: `generator` is for `generator/dense/kernel` and all
    /// others that begin with `generator/`. It trains all parameters unless this says otherwise.
    pub fn only(mut self, scopes: impl IntoIterator<Item = impl Into<Box<str>>>) -> Self {
        self.scopes = scopes.into_iter().map(Into::into).collect();
        self
    }

    /// Whether a parameter of that name is in its group.
    pub fn trains(&self, parameter: &str) -> bool {
        let inside = |scope: &str| {
            parameter.strip_prefix(scope).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.scopes.is_empty() || self.scopes.iter().any(|scope| inside(scope))
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

    /// Extends `step` by the updates of the states `trainable` by their gradients. Its clock counts them.
    pub(crate) fn update(&self, step: &mut Step, gradients: Vec<ValueId>, trainable: &[usize]) -> Result<()> {
        self.check()?;
        let clock = format!("{}:updates", self.name);
        let clock = step.state(&clock, Role::Optimizer, &[], DType::I64, Initial::Constant(0.0))?;
        let scope = step.graph.enter(&self.name);
        let mut times: Vec<(DType, Time)> = vec![];
        for &index in trainable {
            let dtype = step.graph.dtype(step.states[index].value);
            if times.iter().all(|(d, _)| *d != dtype) {
                times.push((dtype, self.time(step, clock, dtype)?));
            }
        }
        let gradients = self.clipped(step, gradients)?;
        let counted = step.graph.add_scalar(clock, 1.0)?;
        step.graph.leave(scope);
        step.update(clock, counted)?;
        for (&index, gradient) in trainable.iter().zip(gradients) {
            let (name, parameter) = (step.states[index].name.clone(), step.states[index].value);
            let dtype = step.graph.dtype(parameter);
            let Some((_, time)) = times.iter().find(|(d, _)| *d == dtype) else { continue };
            let scope = step.graph.enter(&name);
            let next = self.update_one(step, &name, parameter, gradient, time)?;
            step.graph.leave(scope);
            step.update(parameter, next)?;
        }
        Ok(())
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
        match self.clip {
            Some(Clip::Value(limit) | Clip::GlobalNorm(limit)) if limit.is_nan() || limit <= 0.0 => {
                Err(Error::argument(format!("gradients cannot be clipped at {limit}: it must be above 0")))
            }
            _ => self.schedule.check(),
        }
    }

    /// The scalars that all updates of parameters of one type share, computed in `f64` from the number of updates
    /// before.
    fn time(&self, step: &mut Step, clock: ValueId, dtype: DType) -> Result<Time> {
        let g = &mut step.graph;
        let count = g.cast(clock, DType::F64)?;
        let rate = self.schedule.rate(g, count)?;
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
        let shrink = match self.decay {
            Decay::Decoupled(strength) => {
                let factor = g.mul_scalar(rate, -strength)?;
                let factor = g.add_scalar(factor, 1.0)?;
                Some(g.cast(factor, dtype)?)
            }
            Decay::Penalty(_) => None,
        };
        Ok(Time { scaled_rate, root_correction, shrink })
    }

    /// The gradients after clipping.
    fn clipped(&self, step: &mut Step, gradients: Vec<ValueId>) -> Result<Vec<ValueId>> {
        let g = &mut step.graph;
        match self.clip {
            None => Ok(gradients),
            Some(Clip::Value(limit)) => gradients
                .into_iter()
                .map(|x| {
                    let (low, high) = (g.full_like(-limit, x)?, g.full_like(limit, x)?);
                    let bounded = g.max(x, low)?;
                    g.min(bounded, high)
                })
                .collect(),
            Some(Clip::GlobalNorm(limit)) => {
                let mut total = g.constant(0.0, DType::F32)?;
                for &x in &gradients {
                    let square = g.square(x)?;
                    let axes: Vec<usize> = (0..g.shape(x).rank()).collect();
                    let sum = g.reduce(Reduction::Sum, square, &axes)?;
                    let sum = g.cast(sum, DType::F32)?;
                    total = g.add(total, sum)?;
                }
                let norm = g.sqrt(total)?;
                let norm = g.add_scalar(norm, 1e-6)?;
                let limit = g.constant(limit, DType::F32)?;
                let factor = g.div(limit, norm)?;
                let one = g.constant(1.0, DType::F32)?;
                let factor = g.min(factor, one)?;
                gradients
                    .into_iter()
                    .map(|x| {
                        let factor = g.cast(factor, g.dtype(x))?;
                        g.mul(x, factor)
                    })
                    .collect()
            }
        }
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
        if let Decay::Penalty(strength) = self.decay
            && strength != 0.0
        {
            let pull = step.graph.mul_scalar(parameter, strength)?;
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

/// The scalars that all updates of parameters of one type share.
struct Time {
    /// The learning rate; for Adam, over its first correction.
    scaled_rate: ValueId,
    /// One over the root of Adam's second correction.
    root_correction: Option<ValueId>,
    /// What decoupled decay multiplies parameters with.
    shrink: Option<ValueId>,
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
