//! What to say when nothing fits the budget of training: which changes would.
//!
//! Changes are not guessed: each is planned like a run of its own, and what it needs is what its plan takes.

use super::Trainer;
use crate::device::target::Target;
use crate::{DType, Error, Optimizer, Precision, Result};
use plimsoll_data::Dataset;
use plimsoll_memory::format_bytes;

/// A change that the user could make, and the least memory it would need.
struct Change {
    words: String,
    bytes: u64,
}

impl Trainer {
    /// The error about a budget that does not do, with the changes that would.
    pub(super) fn advised(
        &self,
        data: &Dataset,
        held_out: Option<&Dataset>,
        target: &Target,
        refused: Error,
    ) -> Result<Error> {
        let (Some(budget), Some(least)) = (self.budget, refused.least_bytes()) else { return Ok(refused) };
        let mut message = refused.to_string();
        for Change { words, bytes } in self.changes(data, held_out, target, [budget, least])? {
            let verdict = if bytes <= budget { "fits, with" } else { "not alone, with" };
            message += &format!("\n  {words}: {verdict} {} ({bytes} bytes) at least", format_bytes(bytes));
        }
        Ok(Error::new(refused.kind(), message).at_least(least))
    }

    /// Changes that need less than `least`, those that fit first.
    fn changes(
        &self,
        data: &Dataset,
        held_out: Option<&Dataset>,
        target: &Target,
        [budget, least]: [u64; 2],
    ) -> Result<Vec<Change>> {
        let mut changes: Vec<Change> = vec![];
        let mut consider = |words: String, trainer: &Trainer| -> Result<u64> {
            let bytes = trainer.run(data, held_out)?.roughly_least(target)?;
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
            let bytes = smallest.run(data, held_out)?.roughly_least(target)?;
            changes.push(Change { words: "batch 1, bf16 and plain SGD together".into(), bytes });
        }
        changes.sort_by_key(|c| c.bytes > budget);
        Ok(changes)
    }
}
