//! The window: one update from the gradients of several micro-batches.
//!
//! A batch that does not fit can be run in parts. Each part's step adds its gradients to states that are kept
//! between them, and one last step applies what has come together. Both kinds of step declare the same states in the
//! same order, so that they find them at the same offsets of one arena.

use crate::optimizer::Optimizer;
use crate::program::Role;
use crate::step::{Initial, Step};
use crate::{DType, Error, Result, ValueId};

/// The name of the input that says which part of its window a micro-batch is: its samples over the window's. It is
/// the last input of a step that accumulates.
pub const WEIGHT: &str = "window/weight";

impl Step {
    /// Extends the step with the gradients of `loss`, a mean over its samples, times the `f32[]` input [`WEIGHT`],
    /// each added to a state `{parameter}:gradient`, and counts its `samples` as drawn from the random state. Over
    /// a window the states become the gradients of the mean over all its samples.
    ///
    /// # Errors
    /// If `loss` is not a float scalar or has no gradient, or there is nothing to train.
    pub fn accumulate(&mut self, loss: ValueId, samples: usize) -> Result<()> {
        let clock = self.random_state()?;
        let parameters = self.trainable_values()?;
        let weight = self.input(WEIGHT, &[], DType::F32)?;
        let weighted = self.graph.scoped("window", |g| {
            let weight = g.cast(weight, g.dtype(loss))?;
            g.mul(loss, weight)
        })?;
        self.reorder();
        self.gradients = self.gradients_of(weighted, &parameters)?;
        let names: Vec<String> =
            self.states.iter().filter(|s| s.trainable).map(|s| format!("{}:gradient", s.name)).collect();
        for (index, name) in names.iter().enumerate() {
            let gradient = self.gradients[index];
            let ty = self.graph.ty(gradient);
            let sum = self.state(name, Role::Gradient, &ty.shape, ty.dtype, Initial::Constant(0.0))?;
            let next = self.graph.scoped("window", |g| g.add(sum, gradient))?;
            self.update(sum, next)?;
        }
        let advanced = self.graph.scoped("random", |g| {
            let index = g.iota(&[3], 0, DType::I64)?;
            let last = g.full_like(2.0, index)?;
            let kept = g.lt(index, last)?;
            let grown = g.add_scalar(clock, samples as f64)?;
            g.select(kept, clock, grown)
        })?;
        self.update(clock, advanced)
    }

    /// The step that ends a window of steps like this one, which accumulates: an optimizer's updates of all trainable
    /// states by the gradients that have come together, which become zero again. It has no inputs. Its states are
    /// those of this step and then the optimizer's, which [`Step::adopt_states`] gives to this step as well.
    ///
    /// # Errors
    /// If this step does not accumulate, or the optimizer's constants are not usable.
    pub fn end_of_window(&self, optimizer: &Optimizer) -> Result<Step> {
        let mut step = Step::new();
        step.adopt_states(self)?;
        let sums: Vec<ValueId> =
            step.states.iter().filter(|s| s.role == Role::Gradient).map(|s| s.value).collect();
        if sums.len() != step.trainable_values()?.len() {
            return Err(Error::argument("only a step that accumulates gradients is a part of a window"));
        }
        let clock = step.random_state()?;
        step.apply_gradients(sums.clone(), clock, optimizer)?;
        for sum in sums {
            let zero = step.graph.scoped("window", |g| g.full_like(0.0, sum))?;
            step.update(sum, zero)?;
        }
        step.next_step(clock)?;
        Ok(step)
    }
}
