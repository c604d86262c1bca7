//! Metrics: numbers about a model that people read, and no gradient follows.

use crate::{DType, Error, ErrorKind, Result, Tensor, name};
use std::fmt;
use std::str::FromStr;

/// A metric by name, as in workload files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Metric {
    /// [`accuracy`]
    Accuracy,
}

const NAMES: [(&str, Metric); 1] = [("accuracy", Metric::Accuracy)];

impl Metric {
    /// The metric of a prediction against its target.
    ///
    /// # Errors
    /// If their shapes or element types do not go together.
    pub fn of(self, prediction: &Tensor, target: &Tensor) -> Result<Tensor> {
        match self {
            Metric::Accuracy => accuracy(prediction, target),
        }
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(NAMES.iter().find(|(_, metric)| metric == self).map_or("", |(name, _)| name))
    }
}

impl FromStr for Metric {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        name::find("metric", &NAMES, name)
    }
}

/// The fraction of positions where the largest of the logits `[.., classes]` is that of the integer label
/// `[..]`, as an `f32` scalar. Positions with a negative label do not count.
///
/// # Errors
/// If the leading axes differ or the labels are not integers.
pub fn accuracy(logits: &Tensor, labels: &Tensor) -> Result<Tensor> {
    let rank = logits.rank();
    let integers = matches!(labels.dtype(), DType::I32 | DType::I64 | DType::U8);
    if rank == 0 || logits.shape()[..rank - 1] != labels.shape()[..] || !integers {
        let message = format!(
            "accuracy: logits are [.., classes], labels integers [..], these are {logits} and {labels}"
        );
        return Err(logits.error(ErrorKind::Shape, message));
    }
    let indices = labels.as_indices()?;
    let chosen = logits.argmax(rank - 1)?.cast(indices.dtype())?;
    chosen.eq(&indices)?.cast(DType::F32)?.sum_all()?.div(&labels.counted()?)
}
