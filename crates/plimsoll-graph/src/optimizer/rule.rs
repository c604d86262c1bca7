//! The rules of optimizers: what one parameter becomes.

use super::slot::{self, Range, Slots};
use super::{Decay, Optimizer, SlotFormat, adafactor};
use crate::step::Step;
use crate::{DType, Graph, Result, ValueId};

/// A rule for one update.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Rule {
    Sgd { momentum: f64, nesterov: bool },
    RmsProp { smoothing: f64, epsilon: f64, momentum: f64 },
    Adagrad { epsilon: f64 },
    Adam { beta1: f64, beta2: f64, epsilon: f64 },
    Adafactor,
}

/// What all updates of parameters of one group and type share.
pub(super) struct Time {
    /// What slots are rounded by, where they are stored in fewer bytes.
    random: Option<ValueId>,
    /// The learning rate; for Adam, over its first correction.
    scaled_rate: ValueId,
    /// One over the root of Adam's second correction.
    root_correction: Option<ValueId>,
    /// How much of a mean of squares is new, of Adafactor.
    renewed: Option<ValueId>,
    /// What decoupled decay multiplies parameters with.
    shrink: Option<ValueId>,
    /// What of a parameter is added to its gradient.
    penalty: f64,
}

impl Optimizer {
    /// The scalars that all updates of parameters of one group and type share, computed in `f64` from the number of
    /// updates before and the factor of rates.
    pub(super) fn time(
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
        let (mut scaled_rate, mut root_correction, mut renewed) = (rate, None, None);
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
        if let Rule::Adafactor = self.rule {
            let (bounded, new) = adafactor::time(g, rate, count)?;
            scaled_rate = bounded;
            renewed = Some(g.cast(new, dtype)?);
        }
        let scaled_rate = g.cast(scaled_rate, dtype)?;
        let is_lean = self.slots() > 0 && self.slot_format != SlotFormat::Full;
        let random = is_lean.then(|| slot::random_state(g, clock));
        let random = random.transpose()?;
        let (mut shrink, mut penalty) = (None, 0.0);
        match self.decay_of(group) {
            Decay::Decoupled(strength) => {
                let factor = g.mul_scalar(rate, -strength)?;
                let factor = g.add_scalar(factor, 1.0)?;
                shrink = Some(g.cast(factor, dtype)?);
            }
            Decay::Penalty(strength) => penalty = strength,
        }
        Ok(Time { random, scaled_rate, root_correction, renewed, shrink, penalty })
    }

    /// What one parameter becomes.
    pub(super) fn update_one(
        &self,
        step: &mut Step,
        name: &str,
        parameter: ValueId,
        gradient: ValueId,
        time: &Time,
    ) -> Result<ValueId> {
        let shape = step.graph.shape(parameter);
        let blocks = self.slot_format.blocks(&step.graph.ty(parameter)).filter(|_| self.slots() > 0);
        let (mut parameter, mut gradient) = (parameter, gradient);
        if let Some(blocks) = blocks {
            parameter = step.graph.reshape(parameter, &blocks)?;
            gradient = step.graph.reshape(gradient, &blocks)?;
        }
        let before = parameter;
        if time.penalty != 0.0 {
            let pull = step.graph.mul_scalar(parameter, time.penalty)?;
            gradient = step.graph.add(gradient, pull)?;
        }
        if let Some(factor) = time.shrink {
            parameter = step.graph.mul(parameter, factor)?;
        }
        let (ty, in_blocks) = (step.graph.ty(parameter), blocks.is_some());
        let slots = Slots::new(&mut step.graph, self, name, ty, in_blocks, time.random)?;
        let direction = match self.rule {
            Rule::Sgd { momentum: 0.0, .. } => gradient,
            Rule::Sgd { momentum, nesterov } => {
                let velocity = slots.update(step, "momentum", Range::Signed, |g, old| {
                    let kept = g.mul_scalar(old, momentum)?;
                    g.add(kept, gradient)
                })?;
                if nesterov {
                    let ahead = step.graph.mul_scalar(velocity, momentum)?;
                    step.graph.add(gradient, ahead)?
                } else {
                    velocity
                }
            }
            Rule::RmsProp { smoothing, epsilon, momentum } => {
                let square = slots.update(step, "square", Range::Positive, |g, old| {
                    smoothed_square(g, old, gradient, smoothing)
                })?;
                let scaled = over_root(&mut step.graph, gradient, square, epsilon)?;
                if momentum == 0.0 {
                    scaled
                } else {
                    slots.update(step, "momentum", Range::Signed, |g, old| {
                        let kept = g.mul_scalar(old, momentum)?;
                        g.add(kept, scaled)
                    })?
                }
            }
            Rule::Adagrad { epsilon } => {
                let total = slots.update(step, "square", Range::Positive, |g, old| {
                    let square = g.square(gradient)?;
                    g.add(old, square)
                })?;
                over_root(&mut step.graph, gradient, total, epsilon)?
            }
            Rule::Adam { beta1, beta2, epsilon } => {
                let mean = slots.update(step, "mean", Range::Signed, |g, old| {
                    let kept = g.mul_scalar(old, beta1)?;
                    let new = g.mul_scalar(gradient, 1.0 - beta1)?;
                    g.add(kept, new)
                })?;
                let square = slots.update(step, "square", Range::Positive, |g, old| {
                    smoothed_square(g, old, gradient, beta2)
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
            Rule::Adafactor => {
                let Some(renewed) = time.renewed else { return Ok(parameter) };
                adafactor::direction(step, &slots, before, gradient, renewed)?
            }
        };
        let g = &mut step.graph;
        let change = g.mul(direction, time.scaled_rate)?;
        let next = g.sub(parameter, change)?;
        if blocks.is_some() { g.reshape(next, &shape) } else { Ok(next) }
    }
}

fn smoothed_square(g: &mut Graph, old: ValueId, gradient: ValueId, smoothing: f64) -> Result<ValueId> {
    let kept = g.mul_scalar(old, smoothing)?;
    let square = g.square(gradient)?;
    let new = g.mul_scalar(square, 1.0 - smoothing)?;
    g.add(kept, new)
}

/// `x / (√square + epsilon)`
fn over_root(g: &mut Graph, x: ValueId, square: ValueId, epsilon: f64) -> Result<ValueId> {
    let root = g.sqrt(square)?;
    let root = g.add_scalar(root, epsilon)?;
    g.div(x, root)
}
