//! Residual networks for images.

use super::blocks::{centred, conv_norm};
use crate::layers::{Dense, GlobalMeanPool, Layer, MaxPool, Padding};
use crate::{Context, Result, Tensor};

/// A residual network of four stages: images `[batch, height, width, channels]`, by convention 224 × 224 × 3, to logits
/// `[batch, classes]`. Where stages shrink images, the stride is on the 3×3 convolution.
///
/// Parameters are `stem/conv`, `stem/norm`; for every stage 0..4 and block `stage0/block0/conv1`, `norm1` and so on, and
/// where the shape changes `projection/conv`, `projection/norm`; then `head`.
///
/// ```
/// use plimsoll::layers::Layer;
/// use plimsoll::models::ResNet;
/// use plimsoll::{Context, DType, Precision};
/// let cx = Context::trace(true, Precision::Bf16);
/// let images = cx.input("images", &[4, 224, 224, 3], DType::F32)?;
/// let logits = ResNet::resnext50(1000).forward(&cx, &images)?;
/// assert_eq!(logits.shape()[..], [4, 1000]);
/// # Ok::<(), plimsoll::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct ResNet {
    /// How many blocks each stage has.
    pub blocks: [usize; 4],
    /// The width of the stem and inside the blocks of the first stage; it doubles from stage to stage.
    pub width: usize,
    /// Whether blocks narrow, convolve and widen fourfold, or convolve twice.
    pub bottleneck: bool,
    /// How many groups the 3×3 convolutions of bottlenecks have.
    pub groups: usize,
    /// How wide each group is in the first stage: `width` where there is one group.
    pub group_width: usize,
    /// How many classes there are.
    pub classes: usize,
}

/// ResNet-50: [`ResNet::resnet50`].
#[derive(Debug, Clone)]
pub struct ResNet50(ResNet);

impl ResNet50 {
    /// A network for this many classes.
    pub fn new(classes: usize) -> Self {
        ResNet50(ResNet::resnet50(classes))
    }
}

impl Layer for ResNet50 {
    fn forward(&self, cx: &Context, x: &Tensor) -> Result<Tensor> {
        self.0.forward(cx, x)
    }

    fn kind(&self) -> &'static str {
        "resnet50"
    }
}

/// How much wider bottlenecks are outside than inside.
const EXPANSION: usize = 4;

impl ResNet {
    /// ResNet-18.
    pub fn resnet18(classes: usize) -> Self {
        ResNet { blocks: [2, 2, 2, 2], width: 64, bottleneck: false, groups: 1, group_width: 64, classes }
    }

    /// ResNet-34.
    pub fn resnet34(classes: usize) -> Self {
        ResNet { blocks: [3, 4, 6, 3], ..ResNet::resnet18(classes) }
    }

    /// ResNet-50.
    pub fn resnet50(classes: usize) -> Self {
        ResNet { bottleneck: true, ..ResNet::resnet34(classes) }
    }

    /// ResNet-101.
    pub fn resnet101(classes: usize) -> Self {
        ResNet { blocks: [3, 4, 23, 3], ..ResNet::resnet50(classes) }
    }

    /// ResNeXt-50 of 32 groups of 4 channels.
    pub fn resnext50(classes: usize) -> Self {
        ResNet { groups: 32, group_width: 4, ..ResNet::resnet50(classes) }
    }

    fn block(&self, cx: &Context, x: &Tensor, stage: usize, stride: usize) -> Result<Tensor> {
        let width = self.width << stage;
        let (y, outside) = if self.bottleneck {
            let inside =
                (width / self.width.max(1)).saturating_mul(self.group_width).saturating_mul(self.groups);
            let outside = EXPANSION * width;
            let y = conv_norm(cx, x, ["conv1", "norm1"], centred(inside, 1))?.relu()?;
            let conv = centred(inside, 3).stride([stride, stride]).groups(self.groups);
            let y = conv_norm(cx, &y, ["conv2", "norm2"], conv)?.relu()?;
            (conv_norm(cx, &y, ["conv3", "norm3"], centred(outside, 1))?, outside)
        } else {
            let y =
                conv_norm(cx, x, ["conv1", "norm1"], centred(width, 3).stride([stride, stride]))?.relu()?;
            (conv_norm(cx, &y, ["conv2", "norm2"], centred(width, 3))?, width)
        };
        let x = if stride > 1 || x.shape()[3] != outside {
            let conv = centred(outside, 1).stride([stride, stride]);
            conv_norm(cx, x, ["projection/conv", "projection/norm"], conv)?
        } else {
            x.clone()
        };
        x.add(&y)?.relu()
    }
}

impl Layer for ResNet {
    fn forward(&self, cx: &Context, x: &Tensor) -> Result<Tensor> {
        cx.expect_axes("resnet", x, &["batch", "height", "width", "channels"])?;
        let mut x = cx.scope("stem", |cx| {
            let conv = centred(self.width, 7).stride([2, 2]);
            let y = conv_norm(cx, x, ["conv", "norm"], conv)?.relu()?;
            MaxPool::new([3, 3]).stride([2, 2]).padding(Padding::Explicit([1; 4])).forward(cx, &y)
        })?;
        for (stage, blocks) in self.blocks.into_iter().enumerate() {
            for block in 0..blocks {
                let stride = if stage > 0 && block == 0 { 2 } else { 1 };
                x =
                    cx.scope(&format!("stage{stage}/block{block}"), |cx| self.block(cx, &x, stage, stride))?;
            }
        }
        let x = GlobalMeanPool.forward(cx, &x)?;
        cx.layer("head", Dense::new(self.classes), &x)
    }

    fn kind(&self) -> &'static str {
        "resnet"
    }
}
