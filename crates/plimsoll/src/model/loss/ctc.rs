//! Labels of sequences that say nothing of when.

use super::mean;
use crate::model::tensor::wide;
use crate::{DType, ErrorKind, Result, Tensor};

/// As good as no probability, but finite: differences of it are numbers.
const NEVER: f64 = -1e30;

/// Connectionist temporal classification: how unlikely labels are as what is left of a sequence of classes once repetitions
/// are merged and blanks, class 0, are taken out. Of each sample, the first `steps` of log-probabilities
/// `[batch, time, classes]` and the first `lengths` of integer labels `[batch, most]`, which are above 0, count. The mean over
/// samples of the loss divided by the length (PyTorch's `ctc_loss`); a sample that no sequence fits has an infinite loss.
///
/// Probabilities of all prefixes are carried from step to step, as logarithms: the graph grows with the time.
///
/// # Errors
/// If the shapes do not go together or the labels and lengths are not `i32`.
pub fn ctc(logs: &Tensor, labels: &Tensor, steps: &Tensor, lengths: &Tensor) -> Result<Tensor> {
    let (shape, most) = (logs.shape(), labels.shape().last().copied().unwrap_or(0));
    let fits = logs.rank() == 3
        && labels.shape()[..] == [shape[0], most]
        && [steps, lengths].iter().all(|x| x.shape()[..] == shape[..1])
        && [labels, steps, lengths].iter().all(|x| x.dtype() == DType::I32);
    if !fits {
        let message = format!(
            "ctc: log-probabilities are [batch, time, classes], labels i32[batch, most], steps and lengths i32[batch]; \
             these are {logs}, {labels}, {steps} and {lengths}"
        );
        return Err(logs.error(ErrorKind::Shape, message));
    }
    let logs = logs.cast(wide(logs.dtype()))?;
    let [batch, time] = [0, 1].map(|axis| shape[axis]);
    let places = 2 * most + 1;
    // Blanks around labels: what a sequence passes through, in order.
    let pairs = Tensor::concat(&[&labels.unsqueeze(2)?, &labels.full_like(0.0)?.unsqueeze(2)?], 2)?;
    let path = pairs.reshape(&[batch, 2 * most])?.pad(&[(0, 0), (1, 0)], 0.0)?;
    // The log-probability of each place at each time.
    let spread = path.unsqueeze(1)?.broadcast(&[batch, time, places])?;
    let logs = logs.gather_along(2, &spread)?;
    // A label may follow another without a blank between, if it is another.
    let before = path.slice(1, 0..places.saturating_sub(2))?.pad(&[(0, 0), (2.min(places), 0)], 0.0)?;
    let skips = path.ne(&path.full_like(0.0)?)?.mul(&path.ne(&before)?)?;

    let place = labels.iota(&[batch, places], 1)?;
    let at = |t: usize| logs.slice(1, t..t + 1)?.squeeze(1);
    let mut reached = {
        let first = at(0)?;
        place.lt(&place.full_like(2.0)?)?.select(&first, &first.full_like(NEVER)?)?
    };
    let from = |reached: &Tensor, by: usize| {
        let by = by.min(places);
        reached.slice(1, 0..places - by)?.pad(&[(0, 0), (by, 0)], NEVER)
    };
    for t in 1..time {
        let step = from(&reached, 1)?;
        let skip = skips.select(&from(&reached, 2)?, &reached.full_like(NEVER)?)?;
        let largest = reached.maximum(&step)?.maximum(&skip)?.stop_gradient()?;
        let part = |way: &Tensor| way.sub(&largest)?.exp();
        let sum = part(&reached)?.add(&part(&step)?)?.add(&part(&skip)?)?;
        let next = largest.add(&sum.log()?)?.add(&at(t)?)?;
        let goes_on = steps.gt(&steps.full_like(t as f64)?)?.unsqueeze(1)?.broadcast(&[batch, places])?;
        reached = goes_on.select(&next, &reached)?;
    }
    // The last label, or the blank after it.
    let last = lengths.mul_scalar(2.0)?.unsqueeze(1)?;
    let is_last = place.eq(&last)?.add(&place.eq(&last.add_scalar(-1.0)?)?)?;
    let ends = is_last.select(&reached, &reached.full_like(2.0 * NEVER)?)?;
    let largest = ends.max_keepdim(&[1])?.stop_gradient()?;
    let likely = ends.sub(&largest)?.exp()?.sum(&[1])?.log()?.add(&largest.squeeze(1)?)?;
    let impossible = likely.lt(&likely.full_like(NEVER / 2.0)?)?;
    let losses = impossible.select(&likely.full_like(f64::INFINITY)?, &likely.neg()?)?;
    let lengths = lengths.maximum(&lengths.full_like(1.0)?)?.cast(losses.dtype())?;
    mean(&losses.div(&lengths)?)
}
