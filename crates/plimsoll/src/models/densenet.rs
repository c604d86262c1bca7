//! Networks in which every layer sees all before it.

use super::blocks::{centred, conv_norm};
use crate::layers::{BatchNorm, Conv2d, Dense, GlobalMeanPool, Layer, MaxPool, MeanPool, Padding};
use crate::{Context, Result, Tensor};

/// A DenseNet: images `[batch, height, width, channels]` to logits `[batch, classes]`. Each layer adds `growth` channels
/// to those of all before it; between blocks channels and images are halved.
///
/// Parameters are `stem/conv`, `stem/norm`; `block0/layer0/norm1`, `conv1`, `norm2`, `conv2` and so on; `transition0/norm`,
/// `conv`; then `norm` and `head`.
#[derive(Debug, Clone, PartialEq)]
pub struct DenseNet {
    /// How many layers each block has.
    pub blocks: Vec<usize>,
    /// How many channels a layer adds.
    pub growth: usize,
    /// How wide the stem is.
    pub stem: usize,
    /// How many classes there are.
    pub classes: usize,
}

impl DenseNet {
    /// DenseNet-121.
    pub fn densenet121(classes: usize) -> Self {
        DenseNet { blocks: vec![6, 12, 24, 16], growth: 32, stem: 64, classes }
    }

    fn layer(&self, cx: &Context, x: &Tensor) -> Result<Tensor> {
        let y = cx.layer("norm1", BatchNorm::new(), x)?.relu()?;
        let y = conv_norm(cx, &y, ["conv1", "norm2"], centred(self.growth.saturating_mul(4), 1))?.relu()?;
        let new = cx.layer("conv2", centred(self.growth, 3).no_bias(), &y)?;
        Tensor::concat(&[x, &new], 3)
    }
}

impl Layer for DenseNet {
    fn forward(&self, cx: &Context, x: &Tensor) -> Result<Tensor> {
        cx.expect_axes("densenet", x, &["batch", "height", "width", "channels"])?;
        let mut x = cx.scope("stem", |cx| {
            let y = conv_norm(cx, x, ["conv", "norm"], centred(self.stem, 7).stride([2, 2]))?.relu()?;
            MaxPool::new([3, 3]).stride([2, 2]).padding(Padding::Explicit([1; 4])).forward(cx, &y)
        })?;
        for (block, &layers) in self.blocks.iter().enumerate() {
            if block > 0 {
                x = cx.scope(&format!("transition{}", block - 1), |cx| {
                    let y = cx.layer("norm", BatchNorm::new(), &x)?.relu()?;
                    let half = Conv2d::new(x.shape()[3] / 2, [1, 1]).no_bias();
                    MeanPool::new([2, 2]).forward(cx, &cx.layer("conv", half, &y)?)
                })?;
            }
            for layer in 0..layers {
                x = cx.scope(&format!("block{block}/layer{layer}"), |cx| self.layer(cx, &x))?;
            }
        }
        let x = cx.layer("norm", BatchNorm::new(), &x)?.relu()?;
        cx.layer("head", Dense::new(self.classes), &GlobalMeanPool.forward(cx, &x)?)
    }

    fn kind(&self) -> &'static str {
        "densenet"
    }
}
