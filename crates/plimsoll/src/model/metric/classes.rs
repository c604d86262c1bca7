//! Metrics of logits `[.., classes]` against integer labels `[..]`, of which negative ones stand for nothing.

use super::{Metric, Needs, count, counts, ratio};
use crate::{DType, ErrorKind, Result, Tensor};

/// The fraction of positions where the largest of the logits `[.., classes]` is that of the integer label
/// `[..]`, as an `f32` scalar. Positions with a negative label do not count.
///
/// # Errors
/// If the leading axes differ or the labels are not integers.
pub fn accuracy(logits: &Tensor, labels: &Tensor) -> Result<Tensor> {
    count(&hits(logits, labels)?)?.div(&labels.counted()?)
}

impl Metric {
    /// The fraction of labels whose logit is the largest.
    pub fn accuracy() -> Metric {
        let sums = |of: &super::Measured<'_>| {
            Ok(vec![count(&hits(of.prediction, of.target)?)?, count(&counts(of.target)?)?])
        };
        Metric::built("accuracy", Needs::Classes, sums, ratio)
    }

    /// The fraction of labels whose logit is among the `k` largest, called `top_{k}`; of equal ones, the first are.
    pub fn top(k: usize) -> Metric {
        let sums = move |of: &super::Measured<'_>| {
            let hits = rank(of.prediction, of.target)?;
            let hits = hits.lt(&hits.full_like(k as f64)?)?.mul(&counts(of.target)?)?;
            Ok(vec![count(&hits)?, count(&counts(of.target)?)?])
        };
        Metric::built(&format!("top_{k}"), Needs::Classes, sums, ratio)
    }

    /// The mean over classes of how many of those that are predicted to be of it are, as [`Metric::macro_f1`].
    pub fn macro_precision() -> Metric {
        macro_mean("macro_precision", |[hits, predicted, _]| hits / predicted.max(1.0))
    }

    /// The mean over classes of how many of those that are of it are predicted to be, as [`Metric::macro_f1`].
    pub fn macro_recall() -> Metric {
        macro_mean("macro_recall", |[hits, _, actual]| hits / actual.max(1.0))
    }

    /// The mean over classes of F1, the harmonic mean of precision and recall. Classes that neither labels nor predictions
    /// have are left out; one of them alone counts as 0.
    pub fn macro_f1() -> Metric {
        macro_mean("macro_f1", |[hits, predicted, actual]| 2.0 * hits / (predicted + actual))
    }
}

/// The mean of a score over classes, given the positions that are of it and predicted to be, those that are predicted to be,
/// and those that are.
fn macro_mean(name: &str, score: fn([f64; 3]) -> f64) -> Metric {
    let sums = |of: &super::Measured<'_>| {
        check(of.prediction, of.target)?;
        let (logits, labels) = (of.prediction, of.target.as_indices()?);
        let positions = labels.shape().elements();
        let one_hot = |indices: &Tensor| {
            let classes = logits.shape()[logits.rank() - 1];
            let column = indices.cast(DType::I32)?.reshape(&[positions, 1])?;
            column.broadcast(&[positions, classes])?.eq(&column.iota(&[positions, classes], 1)?)
        };
        let counted = counts(&labels)?.reshape(&[positions, 1])?;
        let predicted = one_hot(&logits.argmax(logits.rank() - 1)?)?.mul(&counted)?;
        let actual = one_hot(&labels)?;
        let hits = predicted.mul(&actual)?;
        [hits, predicted, actual].map(|of| of.cast(DType::F32)?.sum(&[0])).into_iter().collect()
    };
    let value = move |sums: &[f64]| {
        let classes = sums.len() / 3;
        let scores = (0..classes).map(|class| [0, 1, 2].map(|of| sums[of * classes + class]));
        let (mut total, mut seen) = (0.0, 0.0);
        for of in scores.filter(|[_, predicted, actual]| predicted + actual > 0.0) {
            (total, seen) = (total + score(of), seen + 1.0);
        }
        ratio(&[total, seen])
    };
    Metric::built(name, Needs::Classes, sums, value)
}

/// Whether the largest logit is the label's.
fn hits(logits: &Tensor, labels: &Tensor) -> Result<Tensor> {
    check(logits, labels)?;
    let indices = labels.as_indices()?;
    logits.argmax(logits.rank() - 1)?.cast(indices.dtype())?.eq(&indices)
}

/// How many logits come before the label's: larger ones, and equal ones of classes before it.
fn rank(logits: &Tensor, labels: &Tensor) -> Result<Tensor> {
    check(logits, labels)?;
    let logits = logits.cast(DType::F32)?;
    let (shape, last) = (logits.shape(), logits.rank() - 1);
    let column = [&shape[..last], &[1]].concat();
    let labels = labels.as_indices()?.cast(DType::I32)?.reshape(&column)?.broadcast(&shape)?;
    let classes = labels.iota(&shape, last)?;
    let own = classes.eq(&labels)?.select(&logits, &logits.full_like(f64::NEG_INFINITY)?)?;
    let own = own.max(&[last])?.reshape(&column)?.broadcast(&shape)?;
    let before = logits.eq(&own)?.mul(&classes.lt(&labels)?)?;
    logits.gt(&own)?.maximum(&before)?.cast(DType::F32)?.sum(&[last])
}

fn check(logits: &Tensor, labels: &Tensor) -> Result<()> {
    let rank = logits.rank();
    let integers = matches!(labels.dtype(), DType::I32 | DType::I64 | DType::U8);
    if rank == 0 || logits.shape()[..rank - 1] != labels.shape()[..] || !integers {
        let message = format!(
            "metrics of classes: logits are [.., classes], labels integers [..], these are {logits} and {labels}"
        );
        return Err(logits.error(ErrorKind::Shape, message));
    }
    Ok(())
}
