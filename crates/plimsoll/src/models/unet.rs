//! Networks from images to images.

use super::blocks::{centred, conv_norm};
use crate::layers::{Conv2d, ConvTranspose2d, Layer, MaxPool, Padding, Upsample};
use crate::{Context, ErrorKind, Resize, Result, Tensor};

/// A U-Net, by default of four levels from 64 channels: images `[batch, height, width, channels]`, height and width
/// multiples of 16, to logits `[batch, height, width, classes]`.
///
/// Each level has two 3×3 convolutions with batch norm and relu. Down goes a max-pool; what goes up is twice as large, of
/// half the channels, and joined with what the level had on the way down.
///
/// Parameters are `down0/conv1`, `norm1`, `conv2`, `norm2` to `down3`, the same of `bottom`, then
/// `up3/up`, `up3/conv1`, `norm1`, `conv2`, `norm2` to `up0`, and `head`.
///
/// ```
/// use plimsoll::layers::Layer;
/// use plimsoll::models::{UNet, Upsampling};
/// use plimsoll::{Context, DType, Precision};
/// let cx = Context::trace(true, Precision::F32);
/// let images = cx.input("images", &[2, 64, 48, 3], DType::F32)?;
/// let logits = UNet::new(2).upsampling(Upsampling::Transposed).forward(&cx, &images)?;
/// assert_eq!(logits.shape()[..], [2, 64, 48, 2]);
/// # Ok::<(), plimsoll::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct UNet {
    widths: Vec<usize>,
    upsampling: Upsampling,
    classes: usize,
}

/// How a [`UNet`] goes up a level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Upsampling {
    /// Repeated pixels and a 2×2 convolution.
    Nearest,
    /// Pixels in between and a 1×1 convolution.
    Bilinear,
    /// A transposed 2×2 convolution.
    Transposed,
}

impl UNet {
    /// A network for this many classes of pixels, of four levels from 64 channels, that repeats pixels on its way up.
    pub fn new(classes: usize) -> Self {
        UNet { widths: vec![64, 128, 256, 512], upsampling: Upsampling::Nearest, classes }
    }

    /// Gives each level, from the top, so many channels; the bottom has twice those of the last.
    pub fn widths(mut self, widths: &[usize]) -> Self {
        self.widths = widths.to_vec();
        self
    }

    /// Goes up so.
    pub fn upsampling(mut self, upsampling: Upsampling) -> Self {
        self.upsampling = upsampling;
        self
    }

    fn up(&self, cx: &Context, x: &Tensor, width: usize) -> Result<Tensor> {
        match self.upsampling {
            Upsampling::Nearest => {
                let conv = Conv2d::new(width, [2, 2]).padding(Padding::Same);
                cx.layer("up", conv, &Upsample(2).forward(cx, x)?)
            }
            Upsampling::Bilinear => {
                let size = [2 * x.shape()[1], 2 * x.shape()[2]];
                cx.layer("up", Conv2d::new(width, [1, 1]), &x.resize(size, Resize::Bilinear)?)
            }
            Upsampling::Transposed => cx.layer("up", ConvTranspose2d::new(width, [2, 2]).stride([2, 2]), x),
        }
    }
}

impl Layer for UNet {
    fn forward(&self, cx: &Context, x: &Tensor) -> Result<Tensor> {
        cx.expect_axes("unet", x, &["batch", "height", "width", "channels"])?;
        let step = 1usize.checked_shl(self.widths.len() as u32).unwrap_or(usize::MAX);
        if x.shape()[1..3].iter().any(|extent| !extent.is_multiple_of(step)) {
            let message = format!("unet: height and width of {x} must be multiples of {step}");
            return Err(cx.error(ErrorKind::Shape, message));
        }
        let mut skips = vec![];
        let mut x = x.clone();
        for (level, &width) in self.widths.iter().enumerate() {
            let skip = cx.scope(&format!("down{level}"), |cx| two_convolutions(cx, &x, width))?;
            x = MaxPool::new([2, 2]).forward(cx, &skip)?;
            skips.push(skip);
        }
        let bottom = self.widths.last().map_or(1, |width| width.saturating_mul(2));
        x = cx.scope("bottom", |cx| two_convolutions(cx, &x, bottom))?;
        for (level, skip) in skips.iter().enumerate().rev() {
            let width = self.widths[level];
            x = cx.scope(&format!("up{level}"), |cx| {
                let raised = self.up(cx, &x, width)?;
                two_convolutions(cx, &Tensor::concat(&[skip, &raised], 3)?, width)
            })?;
        }
        cx.layer("head", Conv2d::new(self.classes, [1, 1]), &x)
    }

    fn kind(&self) -> &'static str {
        "unet"
    }
}

fn two_convolutions(cx: &Context, x: &Tensor, width: usize) -> Result<Tensor> {
    let y = conv_norm(cx, x, ["conv1", "norm1"], centred(width, 3))?.relu()?;
    conv_norm(cx, &y, ["conv2", "norm2"], centred(width, 3))?.relu()
}
