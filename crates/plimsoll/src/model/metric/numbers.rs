//! Metrics of numbers against numbers of the same shape, over all elements.

use super::{Measured, Metric, Needs, ratio};
use crate::{DType, ErrorKind, Result, Tensor};

impl Metric {
    /// The mean of absolute differences.
    pub fn mae() -> Metric {
        let sums = |of: &Measured<'_>| {
            let [prediction, target] = alike("mae", of)?;
            sum_and_count(&prediction.sub(&target)?.abs()?)
        };
        Metric::built("mae", Needs::Numbers, sums, ratio)
    }

    /// The root of the mean of squared differences.
    pub fn rmse() -> Metric {
        let sums = |of: &Measured<'_>| {
            let [prediction, target] = alike("rmse", of)?;
            sum_and_count(&prediction.sub(&target)?.square()?)
        };
        Metric::built("rmse", Needs::Numbers, sums, |sums| ratio(sums).sqrt())
    }

    /// The part of the targets' variance that is explained: 1 less the squared differences over the squared deviations of
    /// the targets from their mean. Where targets do not vary it is 1 if they are met exactly, and else 0.
    pub fn r2() -> Metric {
        let sums = |of: &Measured<'_>| {
            let [prediction, target] = alike("r2", of)?;
            let mut sums = sum_and_count(&prediction.sub(&target)?.square()?)?;
            sums.extend([target.sum_all()?, target.square()?.sum_all()?]);
            Ok(sums)
        };
        let value = |sums: &[f64]| {
            let [unexplained, count, total, squares] = sums else { return f64::NAN };
            let variance = squares - total * total / count.max(1.0);
            match (variance > 0.0, *unexplained == 0.0) {
                (true, _) => 1.0 - unexplained / variance,
                (false, met) => f64::from(u8::from(met)),
            }
        };
        Metric::built("r2", Needs::Numbers, sums, value)
    }
}

/// Both in `f64`, if their shapes are equal.
fn alike(metric: &str, of: &Measured<'_>) -> Result<[Tensor; 2]> {
    let Measured { prediction, target, .. } = of;
    if prediction.shape() != target.shape() || !target.dtype().is_float() {
        let message = format!(
            "{metric}: prediction and target are numbers of one shape, these are {prediction} and {target}"
        );
        return Err(prediction.error(ErrorKind::Shape, message));
    }
    Ok([prediction.cast(DType::F64)?, target.cast(DType::F64)?])
}

/// The sum of all elements, and how many there are.
fn sum_and_count(elements: &Tensor) -> Result<Vec<Tensor>> {
    let sum = elements.sum_all()?;
    let count = sum.full_like(elements.shape().elements() as f64)?;
    Ok(vec![sum, count])
}
