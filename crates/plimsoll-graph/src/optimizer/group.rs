//! Groups: parameters of one optimizer that it treats differently from the others.

use super::Clip;
use crate::pattern::Patterns;
use crate::schedule::Schedule;

/// Parameters of an optimizer with a rate, decay or limit of their own: what is not said is as the optimizer has it. They
/// share its clock, so that schedules of all groups begin with its first update.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    pub(super) members: Patterns,
    pub(super) schedule: Option<Schedule>,
    pub(super) rate_scale: f64,
    pub(super) decay: Option<f64>,
    pub(super) clip: Option<Clip>,
}

impl Group {
    /// The parameters whose names match one of these patterns, as [`crate::pattern`] says.
    pub fn of(patterns: impl IntoIterator<Item = impl Into<Box<str>>>) -> Group {
        let members = Patterns::new(patterns);
        Group { members, schedule: None, rate_scale: 1.0, decay: None, clip: None }
    }

    /// A learning rate, or a schedule of it, in place of the optimizer's.
    pub fn rate(mut self, rate: impl Into<Schedule>) -> Self {
        self.schedule = Some(rate.into());
        self
    }

    /// Multiplies the rate, the optimizer's or the group's own, at all times.
    pub fn rate_scale(mut self, scale: f64) -> Self {
        self.rate_scale = scale;
        self
    }

    /// Weight decay of this strength, in the way of the optimizer.
    pub fn weight_decay(mut self, strength: f64) -> Self {
        self.decay = Some(strength);
        self
    }

    /// Limits the gradients of these parameters by themselves: they are no part of a norm that limits the others.
    pub fn clip(mut self, clip: Clip) -> Self {
        self.clip = Some(clip);
        self
    }

    /// Which parameters it is of.
    pub fn members(&self) -> &Patterns {
        &self.members
    }
}
