//! The window: one update from the gradients of several micro-batches.
//!
//! A batch that does not fit can be run in parts. Each part's step adds its gradients to states that are kept
//! between them, and one last step applies what has come together. Both kinds of step declare the same states in the
//! same order, so that they find them at the same offsets of one arena.

use crate::program::Role;
use crate::scaling::Scaling;
use crate::step::{Initial, Objective, StateTable, Step, Update};
use crate::{DType, Error, Result, ValueId};

/// The name of the input that says which part of its window a micro-batch is: its samples over the window's. It is
/// the last input of a step that accumulates.
pub const WEIGHT: &str = "window/weight";

/// The name of the state that the losses of a window are added up in, unless these are scaled: `f32[]`.
const LOSS: &str = "loss:window";

impl Step {
    /// Extends the step with the gradients of its objectives, whose losses are means over its samples, times the `f32[]`
    /// input [`WEIGHT`], each added to a state `{parameter}:gradient`, and counts its `samples` as drawn from the random
    /// state. Over a window the states become the gradients of the mean over all its samples.
    ///
    /// # Errors
    /// If a loss has no gradient, an optimizer has nothing to train, or two would change one parameter.
    pub fn accumulate(&mut self, samples: usize) -> Result<()> {
        let groups = self.groups()?;
        let weight = self.input(WEIGHT, &[], DType::F32)?;
        let mut weighted = vec![];
        for Objective { losses, .. } in &self.objectives {
            let mut of_objective = vec![];
            for &loss in losses {
                of_objective.push(self.graph.scoped("window", |g| {
                    let weight = g.cast(weight, g.dtype(loss))?;
                    g.mul(loss, weight)
                })?);
            }
            weighted.push(of_objective);
        }
        self.reorder();
        if Scaling::of(self).is_none() {
            // That it is finite in the end is what the update depends on.
            let sum = self.state(LOSS, Role::Gradient, &[], DType::F32, Initial::Constant(0.0))?;
            let next = self.graph.scoped("window", |g| {
                weighted.iter().flatten().try_fold(sum, |sum, &loss| {
                    let loss = g.cast(loss, DType::F32)?;
                    g.add(sum, loss)
                })
            })?;
            self.update(sum, next)?;
        }
        self.phases.backward = Some(self.graph.nodes().len());
        for (losses, group) in weighted.iter().zip(groups) {
            let gradients = self.gradients_of(losses, &group)?;
            for (index, gradient) in group.into_iter().zip(gradients) {
                self.gradients.push(gradient);
                let name = accumulator(&self.states[index].name);
                let ty = self.graph.ty(gradient);
                let sum = self.state(&name, Role::Gradient, &ty.shape, ty.dtype, Initial::Constant(0.0))?;
                let next = self.graph.scoped("window", |g| g.add(sum, gradient))?;
                self.update(sum, next)?;
            }
        }
        let Some(random) = self.states.iter().find(|s| s.role == Role::Random).map(|s| s.value) else {
            return Ok(());
        };
        let advanced = self.graph.scoped("random", |g| {
            let index = g.iota(&[3], 0, DType::I64)?;
            let last = g.full_like(2.0, index)?;
            let kept = g.lt(index, last)?;
            let grown = g.add_scalar(random, samples as f64)?;
            g.select(kept, random, grown)
        })?;
        self.update(random, advanced)
    }

    /// The step that ends a window of steps like this one, which accumulates: the optimizers' updates of all trainable
    /// states by the gradients that have come together, which become zero again. It has no inputs. Its states are
    /// those of this step and then the optimizers'.
    ///
    /// # Errors
    /// If this step does not accumulate, or an optimizer's constants are not usable.
    pub fn end_of_window(&self) -> Result<Step> {
        let mut step = Step { objectives: self.objectives.clone(), ..Step::new() };
        let mut table = StateTable::default();
        table.extend(self)?;
        step.adopt_states(&table)?;
        let mut updates = vec![];
        for (objective, trainable) in self.objectives.iter().zip(step.groups()?) {
            let sum = |&index: &usize| {
                let name = accumulator(&step.states[index].name);
                let found = table.position(&name).map(|position| step.states[position].value);
                found.ok_or_else(|| {
                    Error::argument("only a step that accumulates gradients is a part of a window")
                })
            };
            let gradients = trainable.iter().map(sum).collect::<Result<Vec<ValueId>>>()?;
            updates.push(Update { optimizer: objective.optimizer.clone(), trainable, gradients });
        }
        let mut sums: Vec<ValueId> = updates.iter().flat_map(|update| update.gradients.clone()).collect();
        let loss = table.position(LOSS).map(|position| step.states[position].value);
        step.apply(updates, loss.as_slice())?;
        sums.extend(loss);
        for sum in sums {
            let zero = step.graph.scoped("window", |g| g.full_like(0.0, sum))?;
            step.update(sum, zero)?;
        }
        step.advance_random_state()?;
        Ok(step)
    }
}

/// The name of the state that the gradients of a parameter are added up in.
fn accumulator(parameter: &str) -> String {
    format!("{parameter}:gradient")
}
