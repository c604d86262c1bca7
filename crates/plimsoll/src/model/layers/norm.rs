//! Norms.

use super::Layer;
use crate::{Context, DType, ErrorKind, Init, Result, Tensor};

/// Normalises each channel (last axis) over all other axes: in training by the batch's own statistics, in
/// inference, and where its parameters are frozen, by their running means, which training keeps. A batch with one value for each channel, as a last batch of
/// one sample may be, has no variance: running statistics stay as they are.
#[derive(Debug, Clone)]
pub struct BatchNorm {
    epsilon: f64,
    momentum: f64,
}

impl BatchNorm {
    /// With epsilon 1e-5, and running statistics that move by a tenth towards those of each batch.
    pub fn new() -> Self {
        BatchNorm { epsilon: 1e-5, momentum: 0.1 }
    }

    /// Adds this to the variance.
    pub fn epsilon(mut self, epsilon: f64) -> Self {
        self.epsilon = epsilon;
        self
    }

    /// Moves running statistics by this fraction towards those of each batch.
    pub fn momentum(mut self, momentum: f64) -> Self {
        self.momentum = momentum;
        self
    }

    /// Moves a running statistic towards that of the batch.
    fn follow(&self, cx: &Context, running: &Tensor, batch: &Tensor) -> Result<()> {
        let kept = running.mul_scalar(1.0 - self.momentum)?;
        let moved = kept.add(&batch.cast(running.dtype())?.mul_scalar(self.momentum)?)?;
        cx.set_statistic(running, &moved)
    }
}

impl Default for BatchNorm {
    fn default() -> Self {
        Self::new()
    }
}

impl Layer for BatchNorm {
    fn forward(&self, cx: &Context, x: &Tensor) -> Result<Tensor> {
        let channels = last_extent(cx, "batch_norm", x)?;
        let frozen = cx.is_frozen("gamma") && cx.is_frozen("beta");
        let gamma = cx.parameter("gamma", &[channels], Init::Ones)?;
        let beta = cx.parameter("beta", &[channels], Init::Zeros)?;
        let running_mean = cx.statistic("mean", &[channels], Init::Zeros)?;
        let running_variance = cx.statistic("variance", &[channels], Init::Ones)?;
        if !cx.training() || frozen {
            // In `f32`, as the training kernel computes inside.
            let [x32, gamma, beta] = [x, &gamma, &beta].map(|t| t.cast(DType::F32));
            let deviation = running_variance.add_scalar(self.epsilon)?.rsqrt()?;
            let y = x32?.sub(&running_mean)?.mul(&deviation.mul(&gamma?)?)?.add(&beta?)?;
            return y.cast(x.dtype());
        }
        let [y, mean, variance] =
            x.batch_norm(&gamma.cast(x.dtype())?, &beta.cast(x.dtype())?, self.epsilon)?;
        let count = x.shape().elements() / channels.max(1);
        if count > 1 {
            let unbiased = variance.mul_scalar(count as f64 / (count - 1) as f64)?;
            self.follow(cx, &running_mean, &mean)?;
            self.follow(cx, &running_variance, &unbiased)?;
        }
        Ok(y)
    }

    fn kind(&self) -> &'static str {
        "batch_norm"
    }
}

/// Normalises each row over the last axis.
#[derive(Debug, Clone)]
pub struct LayerNorm {
    epsilon: f64,
}

impl LayerNorm {
    /// With epsilon 1e-5.
    pub fn new() -> Self {
        LayerNorm { epsilon: 1e-5 }
    }

    /// Adds this to the variance.
    pub fn epsilon(mut self, epsilon: f64) -> Self {
        self.epsilon = epsilon;
        self
    }
}

impl Default for LayerNorm {
    fn default() -> Self {
        Self::new()
    }
}

impl Layer for LayerNorm {
    fn forward(&self, cx: &Context, x: &Tensor) -> Result<Tensor> {
        let width = last_extent(cx, "layer_norm", x)?;
        let gamma = cx.parameter("gamma", &[width], Init::Ones)?.cast(x.dtype())?;
        let beta = cx.parameter("beta", &[width], Init::Zeros)?.cast(x.dtype())?;
        x.layer_norm(&gamma, &beta, self.epsilon)
    }

    fn kind(&self) -> &'static str {
        "layer_norm"
    }
}

/// Divides each row by the root of the mean of its squares over the last axis; no mean is taken off and nothing added.
///
/// ```
/// use plimsoll::layers::{Layer, RmsNorm};
/// use plimsoll::{Context, DType, Precision};
/// let cx = Context::trace(true, Precision::Bf16);
/// let x = cx.input("x", &[8, 128, 64], DType::F32)?;
/// assert_eq!(RmsNorm::new().forward(&cx, &x)?.to_string(), "bf16[8, 128, 64]");
/// # Ok::<(), plimsoll::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct RmsNorm {
    epsilon: f64,
}

impl RmsNorm {
    /// With epsilon 1e-5.
    pub fn new() -> Self {
        RmsNorm { epsilon: 1e-5 }
    }

    /// Adds this to the mean of the squares.
    pub fn epsilon(mut self, epsilon: f64) -> Self {
        self.epsilon = epsilon;
        self
    }
}

impl Default for RmsNorm {
    fn default() -> Self {
        Self::new()
    }
}

impl Layer for RmsNorm {
    fn forward(&self, cx: &Context, x: &Tensor) -> Result<Tensor> {
        let width = last_extent(cx, "rms_norm", x)?;
        let gamma = cx.parameter("gamma", &[width], Init::Ones)?;
        x.rms_norm(&gamma, self.epsilon)
    }

    fn kind(&self) -> &'static str {
        "rms_norm"
    }
}

/// Normalises each sample `[batch, .., channels]` by the statistics of groups of its channels, over all axes between: the
/// same in training and inference, whatever the batch.
///
/// ```
/// use plimsoll::layers::{GroupNorm, Layer};
/// use plimsoll::{Context, DType, Precision};
/// let cx = Context::trace(true, Precision::F32);
/// let images = cx.input("images", &[2, 16, 16, 32], DType::F32)?;
/// assert_eq!(GroupNorm::new(8).forward(&cx, &images)?.shape()[..], [2, 16, 16, 32]);
/// # Ok::<(), plimsoll::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct GroupNorm {
    groups: usize,
    epsilon: f64,
}

impl GroupNorm {
    /// So many groups of channels, with epsilon 1e-5.
    pub fn new(groups: usize) -> Self {
        GroupNorm { groups, epsilon: 1e-5 }
    }

    /// Adds this to the variance.
    pub fn epsilon(mut self, epsilon: f64) -> Self {
        self.epsilon = epsilon;
        self
    }
}

impl Layer for GroupNorm {
    fn forward(&self, cx: &Context, x: &Tensor) -> Result<Tensor> {
        let channels = last_extent(cx, "group_norm", x)?;
        let gamma = cx.parameter("gamma", &[channels], Init::Ones)?;
        let beta = cx.parameter("beta", &[channels], Init::Zeros)?;
        x.group_norm(self.groups, &gamma, &beta, self.epsilon)
    }

    fn kind(&self) -> &'static str {
        "group_norm"
    }
}

/// Normalises each channel of each sample `[batch, .., channels]` by its own statistics: a [`GroupNorm`] with a group for
/// each channel.
#[derive(Debug, Clone)]
pub struct InstanceNorm {
    epsilon: f64,
}

impl InstanceNorm {
    /// With epsilon 1e-5.
    pub fn new() -> Self {
        InstanceNorm { epsilon: 1e-5 }
    }

    /// Adds this to the variance.
    pub fn epsilon(mut self, epsilon: f64) -> Self {
        self.epsilon = epsilon;
        self
    }
}

impl Default for InstanceNorm {
    fn default() -> Self {
        Self::new()
    }
}

impl Layer for InstanceNorm {
    fn forward(&self, cx: &Context, x: &Tensor) -> Result<Tensor> {
        let channels = last_extent(cx, "instance_norm", x)?;
        GroupNorm { groups: channels, epsilon: self.epsilon }.forward(cx, x)
    }

    fn kind(&self) -> &'static str {
        "instance_norm"
    }
}

fn last_extent(cx: &Context, layer: &str, x: &Tensor) -> Result<usize> {
    match x.shape().last() {
        Some(&extent) if x.dtype().is_float() => Ok(extent),
        _ => {
            Err(cx.error(ErrorKind::Shape, format!("{layer}: the input is floats [.., width], this is {x}")))
        }
    }
}
