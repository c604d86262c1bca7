//! Metrics of yes and no: logits against numbers that are 0 or 1, or the logits of two classes against labels of which
//! negative ones stand for nothing. A positive logit, or a larger one of the second class, is a yes.

use super::{Measured, Metric, Needs, count, counts, ratio};
use crate::{DType, ErrorKind, Result, Tensor};

/// How finely scores are told apart by [`Metric::auc`].
const BINS: usize = 4096;

impl Metric {
    /// How many of those that are predicted to be positive are; 0 if none is predicted to be.
    pub fn precision() -> Metric {
        confusion("precision", |[hits, predicted, _]| ratio(&[hits, predicted]))
    }

    /// How many of those that are positive are predicted to be; 0 if none is.
    pub fn recall() -> Metric {
        confusion("recall", |[hits, _, actual]| ratio(&[hits, actual]))
    }

    /// The harmonic mean of precision and recall; 0 if nothing is or is predicted to be positive.
    pub fn f1() -> Metric {
        confusion("f1", |[hits, predicted, actual]| ratio(&[2.0 * hits, predicted + actual]))
    }

    /// The area under the ROC curve: how often a positive has a higher score than a negative, ties counting half; 0.5 if
    /// there are not both.
    ///
    /// Scores are counted in 4096 bins, so that nothing but counts is kept of them, and those of one bin count as ties. The
    /// value is off by at most half the fraction of pairs of a positive and a negative that share a bin. Bins are even in
    /// x / (1 + |x|) of the logit x: near 0 they are 0.0005 wide, near 10 0.06.
    pub fn auc() -> Metric {
        let sums = |of: &Measured<'_>| {
            let Decisions { scores, positive, counted } = decisions("auc", of)?;
            let bounded = scores.div(&scores.abs()?.add_scalar(1.0)?)?;
            // What is not a number is in the first bin, as all comparisons with it are false.
            let lowest = bounded.full_like(-1.0)?;
            let bounded = bounded.ge(&lowest)?.select(&bounded, &lowest)?;
            let bins = bounded.add_scalar(1.0)?.mul_scalar(BINS as f64 / 2.0)?.floor()?;
            let bins = bins.minimum(&bins.full_like((BINS - 1) as f64)?)?.cast(DType::I32)?;
            let negative = counted.mul(&positive.not()?)?;
            let sides = [positive, negative].map(|side| {
                let rows = side.shape().elements();
                side.cast(DType::F32)?.reshape(&[rows, 1])
            });
            let [positive, negative] = sides;
            Ok(vec![Tensor::concat(&[&positive?, &negative?], 1)?.scatter_add(&bins, BINS)?])
        };
        let value = |sums: &[f64]| {
            let bins = sums.as_chunks::<2>().0;
            let (mut below, mut ordered) = (0.0, 0.0);
            for [positive, negative] in bins {
                ordered += positive * (below + negative / 2.0);
                below += negative;
            }
            let pairs = below * bins.iter().map(|bin| bin[0]).sum::<f64>();
            if pairs == 0.0 { 0.5 } else { ordered / pairs }
        };
        Metric::built("auc", Needs::Binary, sums, value)
    }
}

/// A score of how many are positive and predicted to be, how many are predicted to be, and how many are.
fn confusion(name: &'static str, score: fn([f64; 3]) -> f64) -> Metric {
    let sums = move |of: &Measured<'_>| {
        let Decisions { scores, positive, counted } = decisions(name, of)?;
        let predicted = scores.gt(&scores.full_like(0.0)?)?.mul(&counted)?;
        Ok(vec![count(&predicted.mul(&positive)?)?, count(&predicted)?, count(&positive)?])
    };
    let value = move |sums: &[f64]| sums.try_into().map_or(f64::NAN, score);
    Metric::built(name, Needs::Binary, sums, value)
}

/// Scores of samples, each with whether it is positive, and whether it counts; all of one axis.
struct Decisions {
    scores: Tensor,
    positive: Tensor,
    counted: Tensor,
}

fn decisions(metric: &str, of: &Measured<'_>) -> Result<Decisions> {
    let Measured { prediction, target, .. } = of;
    let samples = target.shape().elements();
    let flat = |tensor: Tensor| tensor.reshape(&[samples]);
    let scores = prediction.cast(DType::F32)?;
    if target.dtype().is_float() && prediction.shape() == target.shape() {
        let positive = flat(target.gt(&target.full_like(0.5)?)?)?;
        let counted = positive.eq(&positive)?;
        return Ok(Decisions { scores: flat(scores)?, positive, counted });
    }
    let (rank, shape) = (prediction.rank(), prediction.shape());
    let of_two = rank > 0 && shape[rank - 1] == 2 && shape[..rank - 1] == target.shape()[..];
    if !of_two || target.dtype().is_float() {
        let message = format!(
            "{metric}: it takes logits and numbers of one shape that are 0 or 1, or logits [.., 2] and integer labels \
             [..], these are {prediction} and {target}"
        );
        return Err(prediction.error(ErrorKind::Shape, message));
    }
    let score = |class: usize| flat(scores.slice(rank - 1, class..class + 1)?);
    let labels = target.as_indices()?;
    let positive = flat(labels.eq(&labels.full_like(1.0)?)?)?;
    Ok(Decisions { scores: score(1)?.sub(&score(0)?)?, positive, counted: flat(counts(&labels)?)? })
}
