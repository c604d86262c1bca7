//! What to say when nothing fits: the floor, what sets it, and which changes would fit.
//!
//! Changes are not guessed: each is planned like a run of its own, and what it needs is what its plan takes.

use super::Trainer;
use super::fitting::Variant;
use crate::compile::Compiled;
use crate::target::Target;
use crate::{Error, ErrorKind, Optimizer, Precision, Result};
use plimsoll_data::Dataset;
use plimsoll_memory::{Category, format_bytes};
use plimsoll_plan::Fitted;

/// The least that a run can be made to take.
pub(crate) struct Least {
    pub(crate) bytes: u64,
    /// What its peak is made of, in words.
    pub(crate) because: String,
}

/// A change that the user could make, and the least memory it would need.
struct Change {
    words: String,
    bytes: u64,
}

impl Trainer {
    /// The least memory that any plan of this run takes.
    pub(crate) fn least(&self, data: &Dataset, target: &Target) -> Result<Least> {
        let mut least: Option<(u64, Variant, Fitted)> = None;
        let mut counts = vec![self.micro_batches];
        if self.may_split(data)? {
            counts.extend(self.splits());
        }
        for micro_batches in counts {
            let Some(variant) = self.leanest_variant(data, target, micro_batches)? else { continue };
            let Some(smallest) = variant.main.smallest()? else { continue };
            // The update at the end of a window can need more than the rest.
            let within = self.variant_within(data, target, &variant, smallest.plan.peak_bytes)?;
            let within = match within {
                Some(within) => Some(within),
                None => self.variant_within(data, target, &variant, u64::MAX)?,
            };
            let Some(within) = within else { continue };
            if least.as_ref().is_none_or(|(bytes, ..)| within.peak_bytes < *bytes) {
                least = Some((within.peak_bytes, variant, within.fitted));
            }
        }
        let Some((bytes, variant, fitted)) = least else {
            return Err(Error::new(ErrorKind::Argument, "there are no steps to run"));
        };
        Ok(Least { bytes, because: reason(variant.main.compiled(fitted)) })
    }

    /// The error that says why a budget does not do, and what would.
    pub(super) fn infeasible(&self, data: &Dataset, target: &Target, budget: u64) -> Result<Error> {
        let least = self.least(data, target)?;
        let mut message = format!(
            "training does not fit the budget of {} ({budget} bytes): it takes at least {} ({} bytes), {}\n\
             what would fit:\n  a budget of {} or more",
            format_bytes(budget),
            format_bytes(least.bytes),
            least.bytes,
            least.because,
            format_bytes(least.bytes),
        );
        for change in self.changes(data, target, budget)? {
            let Change { words, bytes } = change;
            let verdict = if bytes <= budget { "fits:" } else { "not enough alone:" };
            message += &format!("\n  {words}: {verdict} {} ({bytes} bytes) at least", format_bytes(bytes));
        }
        Ok(Error::new(ErrorKind::Budget, message))
    }

    /// Changes that need less, those that fit first.
    fn changes(&self, data: &Dataset, target: &Target, budget: u64) -> Result<Vec<Change>> {
        let mut changes = vec![];
        let mut consider = |words: String, trainer: &Trainer| -> Result<u64> {
            let bytes = trainer.least(data, target)?.bytes;
            changes.push(Change { words, bytes });
            Ok(bytes)
        };
        if self.precision == Precision::F32 {
            consider("precision bf16".into(), &self.clone().precision(Precision::Bf16))?;
        }
        if self.optimizer.slots() > 0 {
            consider("plain SGD as the optimizer".into(), &self.clone().optimizer(Optimizer::sgd(1e-3)))?;
        }
        if self.micro_batches == 1 && self.batch > 1 && self.step(data)?.has_batch_statistics() {
            // Its word is the user's to give: batch statistics become those of the micro-batches.
            let parts = self.batch.next_power_of_two().min(self.batch);
            let split = self.clone().micro_batches(parts);
            consider(format!("micro_batches = {parts} (batch norm then sees {} samples)", 1), &split)?;
        }
        let mut batch = self.batch / 2;
        while batch >= 1 {
            let smaller = self.clone().batch(batch).micro_batches(self.micro_batches.min(batch));
            if consider(format!("batch {batch}"), &smaller)? <= budget {
                break;
            }
            batch /= 2;
        }
        let smallest =
            self.clone().precision(Precision::Bf16).optimizer(Optimizer::sgd(1e-3)).batch(1).micro_batches(1);
        if changes.iter().all(|c| c.bytes > budget) {
            let bytes = smallest.least(data, target)?.bytes;
            changes.push(Change { words: "batch 1, bf16 and plain SGD together".into(), bytes });
        }
        changes.sort_by_key(|c| c.bytes > budget);
        Ok(changes)
    }
}

/// What the peak of a plan is made of.
fn reason(compiled: Compiled) -> String {
    let Compiled { program, work, plan, .. } = compiled;
    let ledger = plan.ledger(&work);
    let states = [Category::Parameters, Category::Gradients, Category::Optimizer];
    let kept: u64 = states.iter().map(|&c| ledger.get(c)).sum();
    let kernel = plan.order.get(plan.peak_position).map(|&k| &program.kernels[k as usize]);
    let at = kernel.map_or(String::new(), |k| {
        let scope = if k.scope.is_empty() { "the step" } else { &k.scope };
        format!(" at {} of `{scope}`", k.name())
    });
    let mut largest = plan.live_at_peak(&work);
    largest.truncate(3);
    let names: Vec<String> = largest
        .iter()
        .map(|&(b, bytes)| format!("`{}` {}", program.buffers[b as usize].name, format_bytes(bytes)))
        .collect();
    format!(
        "which is set by {} of parameters, gradients and optimizer state and {} of other values{at}; the largest there: {}",
        format_bytes(kept),
        format_bytes(plan.peak_bytes - kept.min(plan.peak_bytes)),
        names.join(", ")
    )
}
