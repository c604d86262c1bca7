//! What to say when training does not fit its budget or its device: which changes would.
//!
//! Changes are not guessed: each is planned like a run of its own, and what it needs is what its plan takes.

use super::{Trainer, Training};
use crate::device::target::Target;
use crate::forecast::remedy::{Remedy, in_words};
use crate::forecast::{Forecast, format_seconds};
use crate::{DType, Error, ErrorKind, Optimizer, Precision, Result, SlotFormat};
use plimsoll_data::Dataset;
use plimsoll_memory::format_bytes;
use serde_json::{Value, json};
use std::fmt;

/// Other training that fits a device, where what was asked for does not.
#[derive(Debug, Clone)]
pub struct Alternative {
    /// What is to be changed, as in `batch 4`.
    pub change: String,
    /// What it needs of the device's memory.
    pub needed_bytes: u64,
    /// The seconds of a step by the device's profile.
    pub step_seconds: f64,
    /// What is done to fit.
    pub remedies: Vec<Remedy>,
}

impl Alternative {
    /// The alternative as data.
    pub fn to_json(&self) -> Value {
        json!({
            "change": self.change,
            "needed_bytes": self.needed_bytes,
            "step_seconds": self.step_seconds,
            "remedies": self.remedies.iter().map(Remedy::to_json).collect::<Vec<_>>(),
        })
    }
}

impl fmt::Display for Alternative {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (needed, seconds) = (format_bytes(self.needed_bytes), format_seconds(self.step_seconds));
        write!(f, "{}: {needed}, {seconds} a step", self.change)?;
        if self.remedies.is_empty() { Ok(()) } else { write!(f, ", {}", in_words(&self.remedies)) }
    }
}

/// Training that would fit is looked for within these bytes of what there is: other plans have other kernels, whose code takes
/// a little more or less.
pub(super) const SLACK: u64 = 16 << 20;

impl Training<'_> {
    /// What would fit the device, where this training does not: less memory for the same training, then changes to it, each
    /// planned for the device. Nothing if it fits.
    ///
    /// # Errors
    /// If something cannot be planned.
    pub fn alternatives(&self) -> Result<Vec<Alternative>> {
        let forecast = self.forecast();
        match (forecast.fits(), forecast.room.memory_bytes) {
            (Some(false), Some(memory)) => self.that_fit(&forecast, memory),
            _ => Ok(vec![]),
        }
    }

    /// The error that says that training does not fit its device, and what would; `None` if it fits.
    ///
    /// # Errors
    /// If something cannot be planned.
    pub fn refusal(&self) -> Result<Option<Error>> {
        let forecast = self.forecast();
        if forecast.fits() != Some(false) {
            return Ok(None);
        }
        let alternatives = self.alternatives()?;
        let mut message = format!("training {}", forecast.answer());
        message +=
            if alternatives.is_empty() { "; nothing that was tried would" } else { "\nwhat would fit:" };
        alternatives.iter().for_each(|of| message += &format!("\n  {of}"));
        Ok(Some(Error::new(ErrorKind::OutOfMemory, message)))
    }

    /// Refuses to go on where training does not fit its device.
    ///
    /// # Errors
    /// The [refusal](Training::refusal), or if something cannot be planned.
    pub fn must_fit(&self) -> Result<()> {
        self.refusal()?.map_or(Ok(()), Err)
    }

    fn that_fit(&self, forecast: &Forecast, memory: u64) -> Result<Vec<Alternative>> {
        let (trainer, target) = (&self.trainer, self.run.target());
        let consider = |change: &str, trainer: &Trainer| -> Result<Option<Alternative>> {
            let planned = Training::on(trainer, self.data, self.held_out, target.clone());
            let forecast = match planned {
                Ok(planned) => planned.forecast(),
                Err(refused) if refused.kind() == ErrorKind::Budget => return Ok(None),
                Err(error) => return Err(error),
            };
            let (change, needed_bytes) = (change.to_string(), forecast.needed_bytes());
            let Forecast { step_seconds, remedies, .. } = forecast;
            let fits = needed_bytes <= memory;
            Ok(fits.then_some(Alternative { change, needed_bytes, step_seconds, remedies }))
        };
        let mut found = vec![];
        // What is beside that which a budget bounds is there with any.
        let beside = forecast.needed_bytes() - forecast.bounded_bytes();
        let budget = rounded_down(memory.saturating_sub(beside).saturating_sub(SLACK));
        let within = format!("a budget of {}", format_bytes(budget));
        found.extend(consider(&within, &trainer.clone().budget(budget))?);
        if trainer.precision.compute() == DType::F32 {
            found.extend(consider("precision bf16", &trainer.clone().precision(Precision::Bf16))?);
        }
        if let Some((words, lean)) = trainer.lean_slots() {
            found.extend(consider(words, &lean)?);
        }
        let plain = trainer.clone().optimizer(Optimizer::sgd(1e-3));
        if trainer.optimizer.slots() > 0 {
            found.extend(consider("plain SGD as the optimizer", &plain)?);
        }
        let halves = std::iter::successors(Some(trainer.batch / 2), |batch| Some(batch / 2));
        for batch in halves.take_while(|&batch| batch > 0) {
            let smaller = trainer.with_batch(batch);
            if let Some(fits) = consider(&format!("batch {batch}"), &smaller)? {
                found.push(fits);
                break;
            }
        }
        if !found.is_empty() {
            return Ok(found);
        }
        // Nothing fits by itself: changes together with the budget.
        let smallest = plain.with_batch(1).precision(Precision::Bf16);
        for (change, changed) in [
            ("plain SGD as the optimizer", &plain),
            ("batch 1", &trainer.with_batch(1)),
            ("batch 1, bf16 and plain SGD", &smallest),
        ] {
            let bounded = changed.clone().budget(budget);
            found.extend(consider(&format!("{change}, within {within}"), &bounded)?);
            if !found.is_empty() {
                break;
            }
        }
        Ok(found)
    }
}

/// So many bytes with the three digits that they are printed with, or a little less.
pub(super) fn rounded_down(bytes: u64) -> u64 {
    let unit = 1u64 << (10 * (bytes.max(1).ilog2() / 10));
    let whole = bytes / unit;
    let step = match whole {
        0..10 => unit as f64 / 100.0,
        10..100 => unit as f64 / 10.0,
        _ => unit as f64,
    };
    ((bytes as f64 / step).floor() * step) as u64
}

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
        let changes = self.changes(data, held_out, target, [budget, least])?;
        let (enough, others): (Vec<Change>, Vec<Change>) =
            changes.into_iter().partition(|c| c.bytes <= budget);
        for Change { words, bytes } in enough {
            message += &format!("\n  {words}: fits, with {} ({bytes} bytes) at least", format_bytes(bytes));
        }
        if !others.is_empty() {
            message += "\nwhat would help, but not be enough:";
        }
        for Change { words, bytes } in others {
            message += &format!("\n  {words}: {} ({bytes} bytes) at least", format_bytes(bytes));
        }
        Ok(Error::new(refused.kind(), message).at_least(least))
    }

    /// The same with batches of fewer samples.
    fn with_batch(&self, batch: usize) -> Trainer {
        self.clone().batch(batch).micro_batches(self.micro_batches.min(batch))
    }

    /// Changes that need less than `least`.
    fn changes(
        &self,
        data: &Dataset,
        held_out: Option<&Dataset>,
        target: &Target,
        [budget, least]: [u64; 2],
    ) -> Result<Vec<Change>> {
        let mut changes: Vec<Change> = vec![];
        let mut consider = |words: String, trainer: &Trainer| -> Result<u64> {
            let bytes = trainer.run(data, held_out)?.roughly_least(target, budget)?;
            // What saves next to nothing is no advice.
            if bytes < least - least / 100 {
                changes.push(Change { words, bytes });
            }
            Ok(bytes)
        };
        if self.precision.compute() == DType::F32 {
            consider("precision bf16".into(), &self.clone().precision(Precision::Bf16))?;
        }
        if let Some((words, lean)) = self.lean_slots() {
            consider(words.into(), &lean)?;
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
            let smaller = self.with_batch(batch);
            let bytes = consider(format!("batch {batch}"), &smaller)?;
            // Where halving the batch saves next to nothing, it is not the batch.
            if bytes <= budget || bytes > before - before / 20 {
                break;
            }
            (batch, before) = (batch / 2, bytes);
        }
        if changes.iter().all(|c| c.bytes > budget) {
            let smallest = plain.precision(Precision::Bf16).batch(1).micro_batches(1);
            let bytes = smallest.run(data, held_out)?.roughly_least(target, budget)?;
            let words = "batch 1, bf16 and plain SGD together".into();
            if bytes < least {
                changes.push(Change { words, bytes });
            }
        }
        Ok(changes)
    }

    /// The same with the slots of its optimizer in eight bits, where they are not lean yet.
    fn lean_slots(&self) -> Option<(&'static str, Trainer)> {
        let lean = || self.clone().optimizer(self.optimizer.clone().slot_format(SlotFormat::EightBit));
        self.optimizer.has_full_slots().then(|| ("slots = \"8-bit\" for the optimizer", lean()))
    }
}
