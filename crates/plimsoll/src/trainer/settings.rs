//! The settings of a training in words, for pages and logs.

use super::{Trainer, TrainingLength};
use plimsoll_memory::format_bytes;

impl Trainer {
    /// Whether it has a budget that bounds RAM, as it does on the CPU.
    pub fn has_ram_budget(&self) -> bool {
        self.budget.is_some() && self.device.is_cpu()
    }

    /// What it was set to do, by name, for people to read.
    ///
    /// ```
    /// let trainer = plimsoll::Spec::find("digits")?.batch(64).trainer();
    /// assert!(trainer.settings().contains(&("batch".to_string(), "64".to_string())));
    /// # Ok::<(), plimsoll::Error>(())
    /// ```
    pub fn settings(&self) -> Vec<(String, String)> {
        let length = match self.length {
            TrainingLength::Epochs(epochs) => ("epochs", epochs.to_string()),
            TrainingLength::Steps(steps) => ("steps", steps.to_string()),
        };
        let threads = self.threads.map_or("all there are".into(), |threads| threads.to_string());
        let mut settings = vec![
            ("loss", self.loss.to_string()),
            ("optimizer", self.optimizer.to_string()),
            ("batch", self.batch.to_string()),
            length,
            ("seed", self.seed.to_string()),
            ("precision", self.precision.to_string()),
            ("device", self.device.to_string()),
            ("threads", threads),
            ("budget", self.budget.map_or("none".into(), format_bytes)),
        ];
        if let Some(bytes) = self.host_budget {
            settings.push(("host budget", format_bytes(bytes)));
        }
        if self.micro_batches > 1 {
            settings.push(("micro-batches", self.micro_batches.to_string()));
        }
        if let Some(lengths) = &self.lengths {
            settings.push(("lengths", format!("{} to {}", lengths.start(), lengths.end())));
        }
        if self.exact {
            settings.push(("remedies", "exact ones alone".into()));
        }
        settings.into_iter().map(|(name, value)| (name.to_string(), value)).collect()
    }
}
