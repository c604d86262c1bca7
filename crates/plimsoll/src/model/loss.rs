//! Losses: one number that says how wrong a model is.
//!
//! Each is a mean over all elements (or positions that count), as an `f32` scalar whatever the precision of the model.
//! Shapes must be equal: a prediction `[n, 1]` against targets `[n]` would broadcast to `[n, n]` and train
//! something else.

mod ctc;

pub use ctc::ctc;

use crate::model::tensor::wide;
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
    /// [`l1`]
    L1,
    /// [`smooth_l1`] with a beta of 1, which is [`huber`] with a delta of 1
    SmoothL1,
}

const NAMES: [(&str, Loss); 6] = [
    ("sparse_cross_entropy", Loss::SparseCrossEntropy),
    ("cross_entropy", Loss::CrossEntropy),
    ("mse", Loss::Mse),
    ("bce_from_logits", Loss::BceFromLogits),
    ("l1", Loss::L1),
    ("smooth_l1", Loss::SmoothL1),
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
            Loss::L1 => l1(prediction, target),
            Loss::SmoothL1 => smooth_l1(prediction, target, 1.0),
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

/// [`sparse_cross_entropy`] against labels of which a part, `smoothing`, is spread evenly over all classes: PyTorch's
/// `cross_entropy` with `label_smoothing`.
///
/// # Errors
/// If the leading axes differ, the labels are not integers, or `smoothing` is not from 0 to 1.
pub fn smoothed_cross_entropy(logits: &Tensor, labels: &Tensor, smoothing: f64) -> Result<Tensor> {
    if !(0.0..=1.0).contains(&smoothing) {
        let message = format!("smoothed_cross_entropy: smoothing is from 0 to 1, this is {smoothing}");
        return Err(logits.error(ErrorKind::Argument, message));
    }
    let right = logits.cross_entropy(labels)?.cast(DType::F32)?;
    let all = logits.cast(DType::F32)?.log_softmax()?;
    let even = all.mean(&[all.rank() - 1])?.neg()?;
    // A label that stands for nothing has no part in the even loss either.
    let counts = labels.ge(&labels.full_like(0.0)?)?;
    let even = counts.select(&even, &even.full_like(0.0)?)?;
    let each = right.mul_scalar(1.0 - smoothing)?.add(&even.mul_scalar(smoothing)?)?;
    each.shares_of_mean(labels)?.sum_all()
}

/// The mean of the absolute differences.
///
/// # Errors
/// If the shapes differ.
pub fn l1(prediction: &Tensor, target: &Tensor) -> Result<Tensor> {
    let [prediction, target] = alike("l1", prediction, target)?;
    mean(&prediction.sub(&target)?.abs()?)
}

/// The mean of half the squared differences up to `delta`, and of straight lines beyond: `delta` · (|d| − `delta` / 2).
///
/// # Errors
/// If the shapes differ, or `delta` is not above 0.
pub fn huber(prediction: &Tensor, target: &Tensor, delta: f64) -> Result<Tensor> {
    if delta.is_nan() || delta <= 0.0 {
        let message = format!("huber: squares reach to a number above 0, this is {delta}");
        return Err(prediction.error(ErrorKind::Argument, message));
    }
    let [prediction, target] = alike("huber", prediction, target)?;
    let distance = prediction.sub(&target)?.abs()?;
    let near = distance.minimum(&distance.full_like(delta)?)?;
    mean(&near.mul(&distance.sub(&near.mul_scalar(0.5)?)?)?)
}

/// [`huber`] divided by `beta`, up to which it squares, so that its slope is 1 beyond.
///
/// # Errors
/// If the shapes differ, or `beta` is not above 0.
pub fn smooth_l1(prediction: &Tensor, target: &Tensor, beta: f64) -> Result<Tensor> {
    huber(prediction, target, beta)?.mul_scalar(1.0 / beta)
}

/// The Kullback-Leibler divergence of predicted log-probabilities from probabilities, both `[.., classes]`: summed over
/// classes, the mean over all positions (PyTorch's `kl_div` with `batchmean`). What has no probability counts nothing.
///
/// # Errors
/// If the shapes differ.
pub fn kl_div(log_probabilities: &Tensor, probabilities: &Tensor) -> Result<Tensor> {
    let [predicted, target] = alike("kl_div", log_probabilities, probabilities)?;
    if target.rank() == 0 {
        let message = format!("kl_div: takes [.., classes], this is {target}");
        return Err(target.error(ErrorKind::Shape, message));
    }
    let none = target.eq(&target.full_like(0.0)?)?;
    let logs = none.select(&target.full_like(1.0)?, &target)?.log()?;
    let terms = none.select(&target.full_like(0.0)?, &target.mul(&logs.sub(&predicted)?)?)?;
    mean(&terms.sum(&[terms.rank() - 1])?)
}

/// The cosine of the angle between rows `[.., width]`, as `[..]`. Rows shorter than 1e-8 count as if they were that long.
///
/// # Errors
/// If the shapes differ.
pub fn cosine_similarity(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let [a, b] = alike("cosine_similarity", a, b)?;
    if a.rank() == 0 {
        return Err(a.error(ErrorKind::Shape, format!("cosine_similarity: takes [.., width], this is {a}")));
    }
    let last = a.rank() - 1;
    let reciprocal_length = |x: &Tensor| {
        let square = x.square()?.sum(&[last])?;
        square.maximum(&square.full_like(1e-16)?)?.rsqrt()
    };
    a.mul(&b)?.sum(&[last])?.mul(&reciprocal_length(&a)?)?.mul(&reciprocal_length(&b)?)
}

/// For pairs of rows `[n, width]` and a sign for each, `[n]`: 1 − cosine where it is positive, else how far the cosine is
/// above `margin`; the mean over pairs (PyTorch's `cosine_embedding_loss`).
///
/// # Errors
/// If the shapes do not go together.
pub fn cosine_embedding(a: &Tensor, b: &Tensor, sign: &Tensor, margin: f64) -> Result<Tensor> {
    let cosine = cosine_similarity(a, b)?;
    let [cosine, sign] = alike("cosine_embedding", &cosine, sign)?;
    let alike = cosine.neg()?.add_scalar(1.0)?;
    let apart = cosine.add_scalar(-margin)?.relu()?;
    mean(&sign.gt(&sign.full_like(0.0)?)?.select(&alike, &apart)?)
}

/// For rows `[n, width]`: by how much `positive` is not nearer to the anchor than `negative` by `margin`; the mean over
/// rows (PyTorch's `triplet_margin_loss`, which adds 1e-6 to each difference, so that equal rows have a gradient).
///
/// # Errors
/// If the shapes differ.
pub fn triplet(anchor: &Tensor, positive: &Tensor, negative: &Tensor, margin: f64) -> Result<Tensor> {
    let distance = |other: &Tensor| {
        let [anchor, other] = alike("triplet", anchor, other)?;
        if anchor.rank() == 0 {
            return Err(
                anchor.error(ErrorKind::Shape, format!("triplet: takes [n, width], this is {anchor}"))
            );
        }
        anchor.sub(&other)?.add_scalar(1e-6)?.square()?.sum(&[anchor.rank() - 1])?.sqrt()
    };
    mean(&distance(positive)?.sub(&distance(negative)?)?.add_scalar(margin)?.relu()?)
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
