//! The network of a diffusion model.

use super::blocks::centred;
use crate::layers::{Conv2d, Dense, GroupNorm, MultiHeadAttention};
use crate::{Context, DType, ErrorKind, Resize, Result, Tensor};

/// A U-Net that predicts the noise of images `[batch, height, width, channels]` at times `[batch]`: residual blocks with
/// group norms and silu, to which the time is added, and self-attention at the bottom.
///
/// Parameters are `time/hidden`, `time/out`; `stem`; `down0/block`, `down0/shrink` and so on; `bottom/block0`, `bottom/norm`,
/// `bottom/attention`, `bottom/block1`; `up0/grow`, `up0/block` and so on; `norm` and `head`.
#[derive(Debug, Clone, PartialEq)]
pub struct DiffusionUNet {
    /// How wide each level is, from the top.
    pub widths: Vec<usize>,
    /// How many groups norms have.
    pub groups: usize,
    /// How many heads the attention at the bottom has.
    pub heads: usize,
}

impl DiffusionUNet {
    /// The noise in images, like them.
    ///
    /// # Errors
    /// If shapes do not go together, or images cannot be halved often enough.
    pub fn noise(&self, cx: &Context, x: &Tensor, times: &Tensor) -> Result<Tensor> {
        cx.expect_axes("diffusion", x, &["batch", "height", "width", "channels"])?;
        let [batch, height, width, channels] = [0, 1, 2, 3].map(|axis| x.shape()[axis]);
        let step = 1usize.checked_shl(self.widths.len().saturating_sub(1) as u32).unwrap_or(usize::MAX);
        let [Some(&narrow), Some(&wide)] = [self.widths.first(), self.widths.last()] else {
            return Err(cx.error(ErrorKind::Argument, "diffusion: there are no levels; `widths` is empty"));
        };
        let fits = height.is_multiple_of(step) && width.is_multiple_of(step);
        if !fits || times.shape()[..] != [batch] {
            let message = format!(
                "diffusion: images are multiples of {step} pixels and times [{batch}], these are {x} and {times}"
            );
            return Err(cx.error(ErrorKind::Shape, message));
        }
        let time = self.embedded(cx, times, narrow)?.cast(x.dtype())?;
        let mut y = cx.layer("stem", centred(narrow, 3), x)?;
        let mut skips = vec![];
        for (level, &width) in self.widths.iter().enumerate() {
            y = cx.scope(&format!("down{level}"), |cx| {
                let y = self.block(cx, "block", &y, &time, width)?;
                skips.push(y.clone());
                let last = level + 1 == self.widths.len();
                if last { Ok(y) } else { cx.layer("shrink", centred(width, 3).stride([2, 2]), &y) }
            })?;
        }
        y = cx.scope("bottom", |cx| {
            let y = self.block(cx, "block0", &y, &time, wide)?;
            let shape = y.shape();
            let tokens = cx.layer("norm", GroupNorm::new(self.groups), &y)?;
            let tokens = tokens.reshape(&[batch, shape[1] * shape[2], wide])?;
            let seen = cx.layer("attention", MultiHeadAttention::new(self.heads), &tokens)?;
            self.block(cx, "block1", &y.add(&seen.reshape(&shape)?)?, &time, wide)
        })?;
        for (level, skip) in skips.iter().enumerate().rev() {
            y = cx.scope(&format!("up{level}"), |cx| {
                let size = [skip.shape()[1], skip.shape()[2]];
                let y = if y.shape()[1] == size[0] {
                    y.clone()
                } else {
                    cx.layer("grow", centred(y.shape()[3], 3), &y.resize(size, Resize::Nearest)?)?
                };
                self.block(cx, "block", &Tensor::concat(&[&y, skip], 3)?, &time, self.widths[level])
            })?;
        }
        let y = cx.layer("norm", GroupNorm::new(self.groups), &y)?.silu()?;
        cx.layer("head", centred(channels, 3), &y)
    }

    /// Times as sines and cosines of them at rates from 1 down to 1/10000, through a perceptron.
    fn embedded(&self, cx: &Context, times: &Tensor, width: usize) -> Result<Tensor> {
        let half = (width / 2).max(1);
        let rate = cx.iota(&[1, half], 1, DType::F32)?.mul_scalar(-(10000f64.ln()) / half as f64)?.exp()?;
        let angles = times.cast(DType::F32)?.unsqueeze(1)?.mul(&rate)?;
        let waves = Tensor::concat(&[&angles.sin()?, &angles.cos()?], 1)?.cast(cx.precision().compute())?;
        cx.scope("time", |cx| {
            let hidden = cx.layer("hidden", Dense::new(width.saturating_mul(4)), &waves)?.silu()?;
            cx.layer("out", Dense::new(width.saturating_mul(4)), &hidden)
        })
    }

    fn block(&self, cx: &Context, scope: &str, x: &Tensor, time: &Tensor, width: usize) -> Result<Tensor> {
        cx.scope(scope, |cx| {
            let y = cx.layer("norm1", GroupNorm::new(self.groups), x)?.silu()?;
            let y = cx.layer("conv1", centred(width, 3), &y)?;
            let shift = cx.layer("time", Dense::new(width), &time.silu()?)?;
            let y = y.add(&shift.reshape(&[x.shape()[0], 1, 1, width])?)?;
            let y = cx.layer("norm2", GroupNorm::new(self.groups), &y)?.silu()?;
            let y = cx.layer("conv2", centred(width, 3), &y)?;
            let x = if x.shape()[3] == width {
                x.clone()
            } else {
                cx.layer("skip", Conv2d::new(width, [1, 1]), x)?
            };
            x.add(&y)
        })
    }
}
