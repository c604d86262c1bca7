//! Metrics: numbers about a model that people read, and no gradient follows.
//!
//! The mean of a metric over batches is seldom the metric of all their samples: a last batch is smaller, an F1 or an R² is no
//! mean at all. So a metric is two things: sums over samples, which the step computes, and a function on the host from sums
//! to the value. Sums of parts, batches and whole data sets are added up, so that a value does not depend on how samples were
//! batched. Counts are exact, sums of numbers are in `f64`.

mod binary;
mod classes;
mod numbers;

pub use classes::accuracy;

use crate::loss::Loss;
use crate::{DType, Error, ErrorKind, Result, Tensor, name};
use std::fmt;
use std::rc::Rc;
use std::str::FromStr;

/// A metric: sums that a step computes of predictions and targets, and what is made of them.
///
/// ```
/// use plimsoll::metric::Metric;
/// let metrics = [Metric::accuracy(), Metric::top(5)];
/// // One's own: the mean error, from the sum of errors and their number.
/// let bias = Metric::new(
///     "bias",
///     |prediction, target| {
///         let errors = prediction.sub(target)?;
///         Ok(vec![errors.sum_all()?, errors.full_like(1.0)?.sum_all()?])
///     },
///     |sums| sums[0] / sums[1],
/// );
/// assert_eq!([metrics[1].name(), bias.name()], ["top_5", "bias"]);
/// # Ok::<(), plimsoll::Error>(())
/// ```
#[derive(Clone)]
pub struct Metric {
    name: Box<str>,
    needs: Needs,
    sums: Rc<Sums>,
    value: Rc<Value>,
}

/// Sums over the samples of a step.
type Sums = dyn Fn(&Measured<'_>) -> Result<Vec<Tensor>>;

/// What all elements of the sums come to.
type Value = dyn Fn(&[f64]) -> f64;

/// What a metric is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Labels and logits of classes.
    Classes,
    /// Numbers.
    Numbers,
    /// Two classes, or numbers that are 0 or 1.
    Binary,
    /// Whatever it is given.
    Anything,
}

/// What there is to measure in a step.
pub(crate) struct Measured<'a> {
    pub(crate) prediction: &'a Tensor,
    pub(crate) target: &'a Tensor,
    pub(crate) loss: &'a Tensor,
    pub(crate) kind: Loss,
}

type MakeMetric = fn() -> Metric;

/// The metrics that have no constants, by name.
const NAMES: [(&str, MakeMetric); 13] = [
    ("accuracy", Metric::accuracy),
    ("perplexity", Metric::perplexity),
    ("mae", Metric::mae),
    ("rmse", Metric::rmse),
    ("r2", Metric::r2),
    ("auc", Metric::auc),
    ("precision", Metric::precision),
    ("recall", Metric::recall),
    ("f1", Metric::f1),
    ("macro_precision", Metric::macro_precision),
    ("macro_recall", Metric::macro_recall),
    ("macro_f1", Metric::macro_f1),
    ("top_5", || Metric::top(5)),
];

impl Metric {
    /// A metric of one's own: `sums` makes tensors of sums over samples of a prediction and its target, and `value` takes all
    /// their elements, in order, added up over whatever is measured.
    pub fn new(
        name: &str,
        sums: impl Fn(&Tensor, &Tensor) -> Result<Vec<Tensor>> + 'static,
        value: impl Fn(&[f64]) -> f64 + 'static,
    ) -> Metric {
        Metric::built(name, Needs::Anything, move |of| sums(of.prediction, of.target), value)
    }

    fn built(
        name: &str,
        needs: Needs,
        sums: impl Fn(&Measured<'_>) -> Result<Vec<Tensor>> + 'static,
        value: impl Fn(&[f64]) -> f64 + 'static,
    ) -> Metric {
        Metric { name: name.into(), needs, sums: Rc::new(sums), value: Rc::new(value) }
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The mean of the loss over all that counts: labels that are not negative, or else samples.
    pub(crate) fn loss() -> Metric {
        Metric::built("loss", Needs::Anything, loss_sums, ratio)
    }

    /// e to the mean cross-entropy: how many classes a model is torn between.
    pub fn perplexity() -> Metric {
        Metric::built("perplexity", Needs::Classes, loss_sums, |sums| ratio(sums).exp())
    }

    /// What it is about.
    pub(crate) fn needs(&self) -> Needs {
        self.needs
    }

    /// Its sums in a step, as one `f64` vector.
    pub(crate) fn sums(&self, of: &Measured<'_>) -> Result<Tensor> {
        let sums = (self.sums)(of)?;
        let flat = |sum: &Tensor| sum.cast(DType::F64)?.reshape(&[sum.shape().elements()]);
        let flat = sums.iter().map(flat).collect::<Result<Vec<Tensor>>>()?;
        if flat.is_empty() {
            let message = format!("the metric `{}` sums nothing up: give at least one tensor", self.name);
            return Err(Error::new(ErrorKind::Argument, message));
        }
        Tensor::concat(&flat.iter().collect::<Vec<_>>(), 0)
    }

    /// Its value, given the elements of all its sums.
    pub fn value(&self, sums: &[f64]) -> f64 {
        (self.value)(sums)
    }
}

impl fmt::Debug for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Metric({})", self.name)
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl FromStr for Metric {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let top = name.strip_prefix("top_").and_then(|k| k.parse().ok()).filter(|&k: &usize| k > 0);
        match top {
            Some(k) => Ok(Metric::top(k)),
            None => name::find("metric", &NAMES, name).map(|metric| metric()),
        }
    }
}

/// The loss of all that counts, and how much that is.
fn loss_sums(of: &Measured<'_>) -> Result<Vec<Tensor>> {
    let wide = of.loss.cast(DType::F64)?;
    if of.kind != Loss::SparseCrossEntropy {
        let samples = of.target.shape().first().copied().unwrap_or(1) as f64;
        return Ok(vec![wide.mul_scalar(samples)?, wide.full_like(samples)?]);
    }
    // The loss of a part is its share of the whole's mean.
    let share = of.target.counted()?.cast(DType::F64)?;
    Ok(vec![wide.mul(&share)?, count(&counts(of.target)?)?])
}

/// Which labels are not negative.
fn counts(labels: &Tensor) -> Result<Tensor> {
    labels.ge(&labels.full_like(0.0)?)
}

/// How many truths hold. `f32` counts up to 2²⁴ exactly, which is more than a batch has.
fn count(truths: &Tensor) -> Result<Tensor> {
    truths.cast(DType::F32)?.sum_all()
}

/// The first sum over the second; 0 if that is.
fn ratio(sums: &[f64]) -> f64 {
    match sums {
        [sum, count, ..] if *count != 0.0 => sum / count,
        _ => 0.0,
    }
}
