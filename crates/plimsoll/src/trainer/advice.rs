//! What to say when nothing fits: the floor, what sets it, and which changes would fit.
//!
//! Changes are not guessed: each is planned like a run of its own, and what it needs is what its plan takes.

use super::Trainer;
use super::fitting::Variant;
use crate::target::Target;
use crate::{DType, Error, ErrorKind, Optimizer, Precision, Result};
use plimsoll_data::Dataset;
use plimsoll_graph::Program;
use plimsoll_memory::{Category, format_bytes};
use plimsoll_plan::{Fitted, Offload, Source};

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
    /// The least memory that any plan of these variants takes.
    pub(super) fn least_of(&self, data: &Dataset, target: &Target, variants: &[Variant]) -> Result<Least> {
        let mut least: Option<Least> = None;
        for variant in variants {
            let Some(smallest) = variant.main.smallest()? else { continue };
            // The update at the end of a window can need more than the rest.
            let budgets = [smallest.plan.peak_bytes, u64::MAX];
            for budget in budgets {
                let within = self.variant_within(data, target, variant, budget, f64::INFINITY)?;
                let Some(within) = within else { continue };
                if least.as_ref().is_none_or(|least| within.peak_bytes < least.bytes) {
                    let because = reason(&variant.main.program, &within.fitted);
                    least = Some(Least { bytes: within.peak_bytes, because });
                }
                break;
            }
        }
        least.ok_or_else(|| Error::new(ErrorKind::Argument, "there are no steps to run"))
    }

    /// The least memory of a run that is not split, or split as far as it may be: what a change is judged by.
    fn roughly_least(&self, data: &Dataset, target: &Target) -> Result<u64> {
        let mut counts = vec![self.micro_batches];
        if self.may_split(data)? {
            counts.extend(self.splits().last());
        }
        let mut variants = vec![];
        for micro_batches in counts {
            variants.extend(self.leanest_variant(data, target, micro_batches, Offload::ValuesAndStates)?);
        }
        Ok(self.least_of(data, target, &variants)?.bytes)
    }

    /// The error that says why a budget does not do, and what would.
    pub(super) fn infeasible(&self, data: &Dataset, target: &Target, budget: u64) -> Result<Error> {
        let least = self.least_of(data, target, &self.variants(data, target)?)?;
        let mut message = format!(
            "training does not fit the budget of {} ({budget} bytes): it takes at least {} ({} bytes), {}\n\
             what would fit:\n  a budget of {} or more",
            format_bytes(budget),
            format_bytes(least.bytes),
            least.bytes,
            least.because,
            format_bytes(least.bytes),
        );
        for Change { words, bytes } in self.changes(data, target, budget, least.bytes)? {
            let verdict = if bytes <= budget { "fits, with" } else { "not alone, with" };
            message += &format!("\n  {words}: {verdict} {} ({bytes} bytes) at least", format_bytes(bytes));
        }
        Ok(Error::new(ErrorKind::Budget, message))
    }

    /// Changes that need less than `least`, those that fit first.
    fn changes(&self, data: &Dataset, target: &Target, budget: u64, least: u64) -> Result<Vec<Change>> {
        let mut changes: Vec<Change> = vec![];
        let mut consider = |words: String, trainer: &Trainer| -> Result<u64> {
            let bytes = trainer.roughly_least(data, target)?;
            if bytes < least {
                changes.push(Change { words, bytes });
            }
            Ok(bytes)
        };
        if self.precision.compute() == DType::F32 {
            consider("precision bf16".into(), &self.clone().precision(Precision::Bf16))?;
        }
        let plain = self.clone().optimizer(Optimizer::sgd(1e-3));
        if self.optimizer.slots() > 0 {
            consider("plain SGD as the optimizer".into(), &plain)?;
        }
        if self.micro_batches == 1 && self.batch > 1 && self.step(data)?.has_batch_statistics() {
            // The word is the user's to give: batch statistics become those of the micro-batches.
            let split = self.clone().micro_batches(self.batch.div_ceil(2));
            consider(
                format!("micro_batches = {} (batch norm then sees 2 samples)", self.batch.div_ceil(2)),
                &split,
            )?;
        }
        let (mut batch, mut before) = (self.batch / 2, least);
        while batch >= 1 {
            let smaller = self.clone().batch(batch).micro_batches(self.micro_batches.min(batch));
            let bytes = consider(format!("batch {batch}"), &smaller)?;
            // Where halving the batch saves next to nothing, it is not the batch.
            if bytes <= budget || bytes > before - before / 20 {
                break;
            }
            (batch, before) = (batch / 2, bytes);
        }
        if changes.iter().all(|c| c.bytes > budget) {
            let smallest = plain.precision(Precision::Bf16).batch(1).micro_batches(1);
            let bytes = smallest.roughly_least(data, target)?;
            changes.push(Change { words: "batch 1, bf16 and plain SGD together".into(), bytes });
        }
        changes.sort_by_key(|c| c.bytes > budget);
        Ok(changes)
    }
}

/// What the peak of a plan is made of.
fn reason(program: &Program, fitted: &Fitted) -> String {
    let Fitted { work, plan, sources, origins, .. } = fitted;
    let ledger = plan.ledger(work);
    let states = [Category::Parameters, Category::Gradients, Category::Optimizer];
    let kept: u64 = states.iter().map(|&c| ledger.get(c)).sum();
    let name = |b: u32| &program.buffers[origins[b as usize] as usize].name;
    // At a copy or a wait, what lives is what the next kernel needs.
    let kernel = sources[plan.peak_position.min(sources.len())..].iter().find_map(|source| match source {
        Source::Kernel(k) | Source::Again(k) => program.kernels.get(*k as usize),
        Source::Rematerialize(m) => program.rematerializations.get(*m as usize),
        Source::Copy | Source::Wait => None,
    });
    let at = kernel.map_or(String::new(), |k| {
        let scope = if k.scope.is_empty() { "the step" } else { &k.scope };
        format!(" at {} of `{scope}`", k.name())
    });
    let mut largest = plan.live_at_peak(work);
    largest.truncate(3);
    let names: Vec<String> =
        largest.iter().map(|&(b, bytes)| format!("`{}` {}", name(b), format_bytes(bytes))).collect();
    format!(
        "which is set by {} of parameters, gradients and optimizer state and {} of other values{at}; the largest there: {}",
        format_bytes(kept),
        format_bytes(plan.peak_bytes.saturating_sub(kept)),
        names.join(", ")
    )
}
