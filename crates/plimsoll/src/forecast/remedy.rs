//! What is done so that training fits, and at what price.

use plimsoll_memory::format_bytes;
use plimsoll_plan::Remedies;
use serde_json::{Value, json};
use std::fmt;

/// Something that is done so that training fits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Remedy {
    /// What it is.
    pub kind: RemedyKind,
    /// The bytes it makes again or moves in a step; 0 where that is not what it does.
    pub bytes: u64,
    /// The seconds of a step that it computes or copies for. Copies may run beside kernels.
    pub seconds: f64,
}

/// The kinds of remedies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemedyKind {
    /// A step is run in so many parts that add up their gradients.
    MicroBatches(usize),
    /// Logits are made and used up some rows at a time.
    ChunkedLoss,
    /// So many kernels make again what was dropped.
    Recompute(usize),
    /// States are in host memory between their uses.
    OffloadStates,
    /// Other values go to host memory and back.
    OffloadActivations,
}

/// What a remedy does to the numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Nothing: training is the same to the bit.
    Exact,
    /// Sums are taken in another order.
    Rounding,
}

impl Remedy {
    /// What it does to the numbers.
    pub fn class(&self) -> Class {
        match self.kind {
            RemedyKind::MicroBatches(_) => Class::Rounding,
            _ => Class::Exact,
        }
    }

    /// The remedy as data.
    pub fn to_json(&self) -> Value {
        let kind = match self.kind {
            RemedyKind::MicroBatches(_) => "micro_batches",
            RemedyKind::ChunkedLoss => "chunked_loss",
            RemedyKind::Recompute(_) => "recompute",
            RemedyKind::OffloadStates => "offload_states",
            RemedyKind::OffloadActivations => "offload_activations",
        };
        let class = match self.class() {
            Class::Exact => "exact",
            Class::Rounding => "rounding",
        };
        json!({
            "kind": kind,
            "class": class,
            "bytes": self.bytes,
            "seconds": self.seconds,
            "words": self.to_string(),
        })
    }

    /// What a plan and the way it is run do.
    pub(crate) fn list(plan: &Remedies, micro_batches: usize, chunked: bool) -> Vec<Remedy> {
        let remedy = |kind, bytes, seconds| Remedy { kind, bytes, seconds };
        let all = [
            (micro_batches > 1).then(|| remedy(RemedyKind::MicroBatches(micro_batches), 0, 0.0)),
            chunked.then(|| remedy(RemedyKind::ChunkedLoss, 0, 0.0)),
            (plan.recomputed > 0).then(|| {
                let kind = RemedyKind::Recompute(plan.recomputed);
                remedy(kind, plan.recomputed_bytes, plan.recompute_seconds)
            }),
            (plan.offloaded_state_bytes > 0).then(|| {
                remedy(RemedyKind::OffloadStates, plan.offloaded_state_bytes, plan.state_copy_seconds)
            }),
            (plan.offloaded_bytes > 0)
                .then(|| remedy(RemedyKind::OffloadActivations, plan.offloaded_bytes, plan.copy_seconds)),
        ];
        all.into_iter().flatten().collect()
    }
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            RemedyKind::MicroBatches(parts) => write!(f, "{parts} micro-batches"),
            RemedyKind::ChunkedLoss => f.write_str("chunked loss"),
            RemedyKind::Recompute(kernels) => write!(f, "recompute {kernels} kernels"),
            RemedyKind::OffloadStates => write!(f, "offload {} of states", format_bytes(self.bytes)),
            RemedyKind::OffloadActivations => {
                write!(f, "offload {} of activations", format_bytes(self.bytes))
            }
        }
    }
}

/// Remedies in words, one after another.
pub(crate) fn in_words(remedies: &[Remedy]) -> String {
    remedies.iter().map(Remedy::to_string).collect::<Vec<_>>().join(", ")
}
