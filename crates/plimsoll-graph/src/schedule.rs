//! Learning-rate schedules, as graph code: the rate is computed in the step from the step's number.

use crate::{DType, Error, Graph, Result, ValueId};

/// A learning rate over the steps of a run: a linear warm-up, then a course.
///
/// ```
/// use plimsoll_graph::schedule::Schedule;
/// let constant: Schedule = 1e-3.into();
/// let cosine = Schedule::cosine(1e-3, 10_000).warmup(500);
/// # let _ = (constant, cosine);
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Schedule {
    base: f64,
    warmup: u64,
    course: Course,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Course {
    Constant,
    Cosine { steps: u64 },
    Linear { steps: u64 },
    Exponential { factor: f64, every: u64, staircase: bool },
}

impl From<f64> for Schedule {
    fn from(base: f64) -> Self {
        Schedule { base, warmup: 0, course: Course::Constant }
    }
}

impl Schedule {
    /// From `base` down to zero in `steps` steps after the warm-up, along half a cosine.
    pub fn cosine(base: f64, steps: u64) -> Self {
        Schedule { base, warmup: 0, course: Course::Cosine { steps } }
    }

    /// From `base` down to zero in `steps` steps after the warm-up, along a line.
    pub fn linear(base: f64, steps: u64) -> Self {
        Schedule { base, warmup: 0, course: Course::Linear { steps } }
    }

    /// Times `factor` over every `every` steps after the warm-up, smoothly.
    pub fn exponential(base: f64, factor: f64, every: u64) -> Self {
        Schedule { base, warmup: 0, course: Course::Exponential { factor, every, staircase: false } }
    }

    /// Times `factor` at every `every`th step after the warm-up.
    pub fn steps(base: f64, factor: f64, every: u64) -> Self {
        Schedule { base, warmup: 0, course: Course::Exponential { factor, every, staircase: true } }
    }

    /// Rises from zero in this many steps first.
    pub fn warmup(mut self, steps: u64) -> Self {
        self.warmup = steps;
        self
    }

    pub(crate) fn check(&self) -> Result<()> {
        if !self.base.is_finite() || self.base < 0.0 {
            return Err(Error::argument(format!("a learning rate of {} is not usable", self.base)));
        }
        match self.course {
            Course::Cosine { steps: 0 }
            | Course::Linear { steps: 0 }
            | Course::Exponential { every: 0, .. } => {
                Err(Error::argument("a learning-rate schedule over 0 steps; give at least 1"))
            }
            _ => Ok(()),
        }
    }

    /// The rate in the step numbered `count` (an `f64` scalar, from 0), as an `f64` scalar.
    pub(crate) fn rate(&self, g: &mut Graph, count: ValueId) -> Result<ValueId> {
        let mut rate = g.constant(self.base, DType::F64)?;
        let since = g.add_scalar(count, -(self.warmup as f64))?;
        let zero = g.constant(0.0, DType::F64)?;
        let since = g.max(since, zero)?;
        match self.course {
            Course::Constant => {}
            Course::Cosine { steps } => {
                let part = fraction(g, since, steps)?;
                let angle = g.mul_scalar(part, std::f64::consts::PI)?;
                let cosine = g.cos(angle)?;
                let half = g.mul_scalar(cosine, 0.5)?;
                let factor = g.add_scalar(half, 0.5)?;
                rate = g.mul(rate, factor)?;
            }
            Course::Linear { steps } => {
                let part = fraction(g, since, steps)?;
                let negated = g.neg(part)?;
                let factor = g.add_scalar(negated, 1.0)?;
                rate = g.mul(rate, factor)?;
            }
            Course::Exponential { factor, every, staircase } => {
                let every = g.constant(every as f64, DType::F64)?;
                let mut times = g.div(since, every)?;
                if staircase {
                    times = g.floor(times)?;
                }
                let factor = g.constant(factor, DType::F64)?;
                let power = g.pow(factor, times)?;
                rate = g.mul(rate, power)?;
            }
        }
        if self.warmup > 0 {
            let next = g.add_scalar(count, 1.0)?;
            let part = fraction(g, next, self.warmup)?;
            rate = g.mul(rate, part)?;
        }
        Ok(rate)
    }
}

/// `count / steps`, at most one.
fn fraction(g: &mut Graph, count: ValueId, steps: u64) -> Result<ValueId> {
    let steps = g.constant(steps as f64, DType::F64)?;
    let part = g.div(count, steps)?;
    let one = g.constant(1.0, DType::F64)?;
    g.min(part, one)
}
