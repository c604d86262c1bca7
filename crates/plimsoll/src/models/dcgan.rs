//! The two networks of a DCGAN.

use super::blocks::conv_norm;
use crate::layers::{BatchNorm, Conv2d, ConvTranspose2d, Layer, Padding};
use crate::{Context, ErrorKind, Result, Tensor};

/// Makes images of noise: `[batch, latent]` to `[batch, size, size, channels]` from −1 to 1, by transposed convolutions.
///
/// Parameters are `up0/conv`, `up0/norm` and so on, and `head`.
#[derive(Debug, Clone, PartialEq)]
pub struct DcganGenerator {
    /// How wide the last layer before the image is; each before it is twice as wide.
    pub width: usize,
    /// How often 4 × 4 pixels are doubled: 4 times to 64 × 64.
    pub doublings: usize,
    /// The channels of the image.
    pub channels: usize,
}

/// Tells images from those made: `[batch, size, size, channels]` to logits `[batch]`. It is the generator turned round.
///
/// Parameters are `down0/conv`, from `down1` on with `norm`, and `head`.
#[derive(Debug, Clone, PartialEq)]
pub struct DcganDiscriminator {
    /// How wide the first layer is; each after it is twice as wide.
    pub width: usize,
    /// How often the image is halved, to 4 × 4 pixels.
    pub halvings: usize,
}

impl Layer for DcganGenerator {
    fn forward(&self, cx: &Context, x: &Tensor) -> Result<Tensor> {
        cx.expect_axes("dcgan", x, &["batch", "latent"])?;
        let mut x = x.reshape(&[x.shape()[0], 1, 1, x.shape()[1]])?;
        let doubling = |filters| {
            ConvTranspose2d::new(filters, [4, 4]).stride([2, 2]).padding(Padding::Explicit([1; 4])).no_bias()
        };
        for at in 0..self.doublings {
            let width = self.width << (self.doublings - 1 - at).min(20);
            let conv = if at == 0 { ConvTranspose2d::new(width, [4, 4]).no_bias() } else { doubling(width) };
            x = cx.scope(&format!("up{at}"), |cx| {
                let y = cx.layer("conv", conv, &x)?;
                cx.layer("norm", BatchNorm::new(), &y)?.relu()
            })?;
        }
        cx.layer("head", doubling(self.channels), &x)?.tanh()
    }

    fn kind(&self) -> &'static str {
        "dcgan"
    }
}

impl Layer for DcganDiscriminator {
    fn forward(&self, cx: &Context, x: &Tensor) -> Result<Tensor> {
        cx.expect_axes("dcgan", x, &["batch", "height", "width", "channels"])?;
        let mut x = x.clone();
        for at in 0..self.halvings {
            let conv = Conv2d::new(self.width << at.min(20), [4, 4]).stride([2, 2]);
            let conv = conv.padding(Padding::Explicit([1; 4]));
            x = cx.scope(&format!("down{at}"), |cx| {
                let y = if at == 0 {
                    cx.layer("conv", conv.no_bias(), &x)?
                } else {
                    conv_norm(cx, &x, ["conv", "norm"], conv)?
                };
                y.leaky_relu(0.2)
            })?;
        }
        let logits = cx.layer("head", Conv2d::new(1, [4, 4]).no_bias(), &x)?;
        if logits.shape()[1..] != [1, 1, 1] {
            let message = format!("dcgan: {} halvings leave {x}, not 4 × 4 pixels", self.halvings);
            return Err(cx.error(ErrorKind::Shape, message));
        }
        logits.reshape(&[logits.shape()[0]])
    }

    fn kind(&self) -> &'static str {
        "dcgan"
    }
}
