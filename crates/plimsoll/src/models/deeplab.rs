//! Segmentation by dilated convolutions.

use super::blocks::{centred, conv_norm};
use crate::layers::{Conv2d, Layer, Padding};
use crate::{Context, Resize, Result, Tensor};

/// A network in the manner of DeepLab: images `[batch, height, width, channels]` to logits `[batch, height, width,
/// classes]`. Two strided convolutions, residual blocks whose dilation doubles in place of shrinking images further, a
/// pyramid of dilated convolutions beside the mean of the whole image, and bilinear resizing.
///
/// Parameters are `stem0/conv`, `stem0/norm`, `stem1/..`; `block0/conv1`, `norm1`, `conv2`, `norm2` and so on;
/// `pyramid/one/..`, `pyramid/rate0/..`, `pyramid/image/..`, `pyramid/project/..`; then `head`.
#[derive(Debug, Clone, PartialEq)]
pub struct DeepLab {
    /// How wide the network is.
    pub width: usize,
    /// How many residual blocks there are, of dilations 1, 2, 4 and so on.
    pub blocks: usize,
    /// The dilations of the pyramid.
    pub rates: Vec<usize>,
    /// How many classes of pixels there are.
    pub classes: usize,
}

impl DeepLab {
    /// Of 256 channels and four blocks, with dilations of 6, 12 and 18.
    pub fn new(classes: usize) -> Self {
        DeepLab { width: 256, blocks: 4, rates: vec![6, 12, 18], classes }
    }

    fn dilated(&self, rate: usize) -> Conv2d {
        Conv2d::new(self.width, [3, 3]).dilation([rate, rate]).padding(Padding::Explicit([rate; 4]))
    }

    fn pyramid(&self, cx: &Context, x: &Tensor) -> Result<Tensor> {
        let branch = |scope: &str, x: &Tensor, conv: Conv2d| {
            cx.scope(scope, |cx| conv_norm(cx, x, ["conv", "norm"], conv)?.relu())
        };
        let mut branches = vec![branch("one", x, centred(self.width, 1))?];
        for (at, &rate) in self.rates.iter().enumerate() {
            branches.push(branch(&format!("rate{at}"), x, self.dilated(rate))?);
        }
        let image = branch("image", &x.mean_keepdim(&[1, 2])?, centred(self.width, 1))?;
        branches.push(image.broadcast(&branches[0].shape())?);
        let joined = Tensor::concat(&branches.iter().collect::<Vec<_>>(), 3)?;
        branch("project", &joined, centred(self.width, 1))
    }
}

impl Layer for DeepLab {
    fn forward(&self, cx: &Context, x: &Tensor) -> Result<Tensor> {
        cx.expect_axes("deeplab", x, &["batch", "height", "width", "channels"])?;
        let size = [x.shape()[1], x.shape()[2]];
        let mut x = x.clone();
        for scope in ["stem0", "stem1"] {
            let conv = centred(self.width, 3).stride([2, 2]);
            x = cx.scope(scope, |cx| conv_norm(cx, &x, ["conv", "norm"], conv)?.relu())?;
        }
        for block in 0..self.blocks {
            let rate = 1usize.checked_shl(block as u32).unwrap_or(usize::MAX);
            x = cx.scope(&format!("block{block}"), |cx| {
                let y = conv_norm(cx, &x, ["conv1", "norm1"], self.dilated(rate))?.relu()?;
                x.add(&conv_norm(cx, &y, ["conv2", "norm2"], self.dilated(rate))?)?.relu()
            })?;
        }
        let x = cx.scope("pyramid", |cx| self.pyramid(cx, &x))?;
        cx.layer("head", Conv2d::new(self.classes, [1, 1]), &x)?.resize(size, Resize::Bilinear)
    }

    fn kind(&self) -> &'static str {
        "deeplab"
    }
}
