//! Losses: one number that says how wrong a model is.
//!
//! Each is a mean over all elements (or positions that count), as an `f32` scalar whatever the precision of the model.
//! Shapes must be equal: a prediction `[n, 1]` against targets `[n]` would broadcast to `[n, n]` and train
//! something else.

use crate::{DType, Error, ErrorKind, Result, Tensor, name};
use std::fmt;
use std::str::FromStr;

/// A loss by name, as in workload files.
///
/// ```
/// use plimsoll::loss::Loss;
/// let loss: Loss = "sparse_cross_entropy".parse()?;
/// assert_eq!(loss, Loss::SparseCrossEntropy);
/// # Ok::<(), plimsoll::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Loss {
    /// [`sparse_cross_entropy`]
    SparseCrossEntropy,
    /// [`cross_entropy`]
    CrossEntropy,
    /// [`mse`]
    Mse,
    /// [`bce_from_logits`]
    BceFromLogits,
}

const NAMES: [(&str, Loss); 4] = [
    ("sparse_cross_entropy", Loss::SparseCrossEntropy),
    ("cross_entropy", Loss::CrossEntropy),
    ("mse", Loss::Mse),
    ("bce_from_logits", Loss::BceFromLogits),
];

impl Loss {
    /// The loss of a prediction against its target.
    ///
    /// # Errors
    /// If their shapes or element types do not go together.
    pub fn of(self, prediction: &Tensor, target: &Tensor) -> Result<Tensor> {
        match self {
            Loss::SparseCrossEntropy => sparse_cross_entropy(prediction, target),
            Loss::CrossEntropy => cross_entropy(prediction, target),
            Loss::Mse => mse(prediction, target),
            Loss::BceFromLogits => bce_from_logits(prediction, target),
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(NAMES.iter().find(|(_, loss)| loss == self).map_or("", |(name, _)| name))
    }
}

impl FromStr for Loss {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        name::find("loss", &NAMES, name)
    }
}

/// Cross-entropy of logits `[.., classes]` against integer labels `[..]`: the mean over all positions whose label is not
/// negative. Such a label stands for nothing; if all do, the loss is 0.
///
/// ```
/// use plimsoll::loss::sparse_cross_entropy;
/// use plimsoll::{Context, DType, Precision};
/// let cx = Context::trace(true, Precision::Bf16);
/// let logits = cx.input("logits", &[8, 128, 1000], DType::F32)?;
/// let labels = cx.target("labels", &[8, 128], DType::I32)?;
/// let loss = sparse_cross_entropy(&logits, &labels)?;
/// assert_eq!(loss.to_string(), "f32[]");
/// # Ok::<(), plimsoll::Error>(())
/// ```
///
/// # Errors
/// If the leading axes differ or the labels are not integers.
pub fn sparse_cross_entropy(logits: &Tensor, labels: &Tensor) -> Result<Tensor> {
    logits.cross_entropy(labels)?.shares_of_mean(labels)?.sum_all()
}

/// Cross-entropy of logits against probabilities, both `[.., classes]`: the mean over all positions.
///
/// # Errors
/// If the shapes differ.
pub fn cross_entropy(logits: &Tensor, probabilities: &Tensor) -> Result<Tensor> {
    let [logits, probabilities] = alike("cross_entropy", logits, probabilities)?;
    let products = logits.log_softmax()?.mul(&probabilities)?;
    mean(&products.sum(&[products.rank() - 1])?.neg()?)
}

/// The mean of the squared differences.
///
/// # Errors
/// If the shapes differ.
pub fn mse(prediction: &Tensor, target: &Tensor) -> Result<Tensor> {
    let [prediction, target] = alike("mse", prediction, target)?;
    mean(&prediction.sub(&target)?.square()?)
}

/// Binary cross-entropy of logits against targets between 0 and 1: the mean over all elements. It is
/// t · softplus(−x) + (1 − t) · softplus(x), of which no term cancels another, so that it is as exact where a model is
/// confident and right.
///
/// # Errors
/// If the shapes differ.
pub fn bce_from_logits(logits: &Tensor, targets: &Tensor) -> Result<Tensor> {
    let [logits, targets] = alike("bce_from_logits", logits, targets)?;
    let of_ones = logits.neg()?.softplus()?.mul(&targets)?;
    let of_zeros = logits.softplus()?.mul(&targets.neg()?.add_scalar(1.0)?)?;
    mean(&of_ones.add(&of_zeros)?)
}

/// Both in the type of sums, `f32` or `f64`, if their shapes are equal.
fn alike(loss: &str, prediction: &Tensor, target: &Tensor) -> Result<[Tensor; 2]> {
    if prediction.shape() != target.shape() {
        let message =
            format!("{loss}: the prediction is {prediction}, the target {target}; their shapes differ");
        return Err(prediction.error(ErrorKind::Shape, message));
    }
    let wide = wide(prediction.dtype());
    Ok([prediction.cast(wide)?, target.cast(wide)?])
}

/// The mean of all elements, in the type of sums.
fn mean(losses: &Tensor) -> Result<Tensor> {
    losses.cast(wide(losses.dtype()))?.mean_all()
}

/// The type that sums of a type's numbers are in.
fn wide(dtype: DType) -> DType {
    if dtype == DType::F64 { DType::F64 } else { DType::F32 }
}
