//! A network from volumes to volumes.

use crate::layers::{BatchNorm, Conv3d, Layer, MaxPool3d};
use crate::{Context, ErrorKind, Result, Tensor};

/// A U-Net of volumes `[batch, depth, height, width, channels]`, extents multiples of two to the number of levels, to logits
/// `[batch, depth, height, width, classes]`. It goes up by repeated voxels.
///
/// Parameters are those of a [`UNet`](super::UNet): `down0/conv1`, `norm1`, `conv2`, `norm2` and so on, the same of `bottom`,
/// `up0/conv1` and so on, and `head`.
#[derive(Debug, Clone, PartialEq)]
pub struct UNet3d {
    /// How wide each level is, from the top; the bottom has twice the channels of the last.
    pub widths: Vec<usize>,
    /// How many classes of voxels there are.
    pub classes: usize,
}

fn two_convolutions(cx: &Context, x: &Tensor, width: usize) -> Result<Tensor> {
    let mut x = x.clone();
    for [conv, norm] in [["conv1", "norm1"], ["conv2", "norm2"]] {
        let y = cx.layer(conv, Conv3d::new(width, [3; 3]).padding([1; 3]).no_bias(), &x)?;
        x = cx.layer(norm, BatchNorm::new(), &y)?.relu()?;
    }
    Ok(x)
}

impl Layer for UNet3d {
    fn forward(&self, cx: &Context, x: &Tensor) -> Result<Tensor> {
        cx.expect_axes("unet3d", x, &["batch", "depth", "height", "width", "channels"])?;
        let step = 1usize.checked_shl(self.widths.len() as u32).unwrap_or(usize::MAX);
        if x.shape()[1..4].iter().any(|extent| !extent.is_multiple_of(step)) {
            let message = format!("unet3d: depth, height and width of {x} must be multiples of {step}");
            return Err(cx.error(ErrorKind::Shape, message));
        }
        let mut skips = vec![];
        let mut x = x.clone();
        for (level, &width) in self.widths.iter().enumerate() {
            let skip = cx.scope(&format!("down{level}"), |cx| two_convolutions(cx, &x, width))?;
            x = MaxPool3d([2; 3]).forward(cx, &skip)?;
            skips.push(skip);
        }
        let bottom = self.widths.last().map_or(1, |width| width.saturating_mul(2));
        x = cx.scope("bottom", |cx| two_convolutions(cx, &x, bottom))?;
        for (level, skip) in skips.iter().enumerate().rev() {
            let raised = (1..4).try_fold(x, |x, axis| x.repeat_interleave(axis, 2))?;
            let joined = Tensor::concat(&[skip, &raised], 4)?;
            let scope = format!("up{level}");
            x = cx.scope(&scope, |cx| two_convolutions(cx, &joined, self.widths[level]))?;
        }
        cx.layer("head", Conv3d::new(self.classes, [1; 3]), &x)
    }

    fn kind(&self) -> &'static str {
        "unet3d"
    }
}
