//! A network from images to images.

use crate::layers::{BatchNorm, Conv2d, Layer, MaxPool, Padding, Upsample};
use crate::{Context, ErrorKind, Result, Tensor};

/// A U-Net of four levels from 64 channels: images `[batch, height, width, channels]`, height and width
/// multiples of 16, to logits `[batch, height, width, classes]`.
///
/// Each level has two 3×3 convolutions with batch norm and relu. Down goes a max-pool; up go repeated pixels
/// and a 2×2 convolution that halves the channels, joined with what the level had on the way down.
///
/// Parameters are `down0/conv1`, `norm1`, `conv2`, `norm2` to `down3`, the same of `bottom`, then
/// `up3/up`, `up3/conv1`, `norm1`, `conv2`, `norm2` to `up0`, and `head`.
///
/// ```
/// use plimsoll::layers::Layer;
/// use plimsoll::models::UNet;
/// use plimsoll::{Context, DType, Precision};
/// let cx = Context::trace(true, Precision::F32);
/// let images = cx.input("images", &[2, 64, 48, 3], DType::F32)?;
/// let logits = UNet::new(2).forward(&cx, &images)?;
/// assert_eq!(logits.shape()[..], [2, 64, 48, 2]);
/// # Ok::<(), plimsoll::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct UNet {
    classes: usize,
}

const WIDTHS: [usize; 4] = [64, 128, 256, 512];
const BOTTOM: usize = 1024;

impl UNet {
    /// A network for this many classes of pixels.
    pub fn new(classes: usize) -> Self {
        UNet { classes }
    }
}

impl Layer for UNet {
    fn forward(&self, cx: &Context, x: &Tensor) -> Result<Tensor> {
        cx.expect_axes("unet", x, &["batch", "height", "width", "channels"])?;
        let step = 1 << WIDTHS.len();
        if x.shape()[1..3].iter().any(|extent| !extent.is_multiple_of(step)) {
            let message = format!("unet: height and width of {x} must be multiples of {step}");
            return Err(cx.error(ErrorKind::Shape, message));
        }
        let mut skips = vec![];
        let mut x = x.clone();
        for (level, width) in WIDTHS.into_iter().enumerate() {
            let skip = cx.scope(&format!("down{level}"), |cx| two_convolutions(cx, &x, width))?;
            x = MaxPool::new([2, 2]).forward(cx, &skip)?;
            skips.push(skip);
        }
        x = cx.scope("bottom", |cx| two_convolutions(cx, &x, BOTTOM))?;
        for (level, skip) in skips.iter().enumerate().rev() {
            let width = WIDTHS[level];
            x = cx.scope(&format!("up{level}"), |cx| {
                let up = Conv2d::new(width, [2, 2]).padding(Padding::Same);
                let raised = cx.layer("up", up, &Upsample(2).forward(cx, &x)?)?;
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
    let mut x = x.clone();
    for [conv, norm] in [["conv1", "norm1"], ["conv2", "norm2"]] {
        let y = cx.layer(conv, Conv2d::new(width, [3, 3]).padding(Padding::Same).no_bias(), &x)?;
        x = cx.layer(norm, BatchNorm::new(), &y)?.relu()?;
    }
    Ok(x)
}
