//! Residual networks for images.

use crate::layers::{BatchNorm, Conv2d, Dense, GlobalMeanPool, Layer, MaxPool, Padding};
use crate::{Context, Result, Tensor};

/// ResNet-50 with the stride on the 3×3 convolutions: images `[batch, height, width, channels]`, by
/// convention 224 × 224 × 3, to logits `[batch, classes]`.
///
/// Parameters are `stem/conv`, `stem/norm`; for every stage 0..4 and block `stage0/block0/conv1`, `norm1` to
/// `conv3`, `norm3`, and in each first block `projection/conv`, `projection/norm`; then `head`.
///
/// ```
/// use plimsoll::layers::Layer;
/// use plimsoll::models::ResNet50;
/// use plimsoll::{Context, DType, Precision};
/// let cx = Context::trace(true, Precision::Bf16);
/// let images = cx.input("images", &[4, 224, 224, 3], DType::F32)?;
/// let logits = ResNet50::new(1000).forward(&cx, &images)?;
/// assert_eq!(logits.shape()[..], [4, 1000]);
/// # Ok::<(), plimsoll::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct ResNet50 {
    classes: usize,
}

/// Width inside the blocks of a stage, and how many blocks it has.
const STAGES: [(usize, usize); 4] = [(64, 3), (128, 4), (256, 6), (512, 3)];

/// How much wider blocks are outside than inside.
const EXPANSION: usize = 4;

impl ResNet50 {
    /// A network for this many classes.
    pub fn new(classes: usize) -> Self {
        ResNet50 { classes }
    }
}

impl Layer for ResNet50 {
    fn forward(&self, cx: &Context, x: &Tensor) -> Result<Tensor> {
        cx.expect_axes("resnet50", x, &["batch", "height", "width", "channels"])?;
        let mut x = cx.scope("stem", |cx| {
            let y = convolve(cx, x, ["conv", "norm"], 64, 7, 2)?.relu()?;
            MaxPool::new([3, 3]).stride([2, 2]).padding(Padding::Explicit([1; 4])).forward(cx, &y)
        })?;
        for (stage, (width, blocks)) in STAGES.into_iter().enumerate() {
            for block in 0..blocks {
                let stride = if stage > 0 && block == 0 { 2 } else { 1 };
                let scope = format!("stage{stage}/block{block}");
                x = cx.scope(&scope, |cx| bottleneck(cx, &x, width, stride, block == 0))?;
            }
        }
        let x = GlobalMeanPool.forward(cx, &x)?;
        cx.layer("head", Dense::new(self.classes), &x)
    }

    fn kind(&self) -> &'static str {
        "resnet50"
    }
}

/// Narrow, convolve, widen, add.
fn bottleneck(cx: &Context, x: &Tensor, width: usize, stride: usize, project: bool) -> Result<Tensor> {
    let y = convolve(cx, x, ["conv1", "norm1"], width, 1, 1)?.relu()?;
    let y = convolve(cx, &y, ["conv2", "norm2"], width, 3, stride)?.relu()?;
    let y = convolve(cx, &y, ["conv3", "norm3"], EXPANSION * width, 1, 1)?;
    let x = if project {
        convolve(cx, x, ["projection/conv", "projection/norm"], EXPANSION * width, 1, stride)?
    } else {
        x.clone()
    };
    x.add(&y)?.relu()
}

/// A square convolution of odd extent, centred, and a batch norm.
fn convolve(
    cx: &Context,
    x: &Tensor,
    [conv, norm]: [&str; 2],
    filters: usize,
    extent: usize,
    stride: usize,
) -> Result<Tensor> {
    let layer = Conv2d::new(filters, [extent, extent])
        .stride([stride, stride])
        .padding(Padding::Explicit([extent / 2; 4]))
        .no_bias();
    let y = cx.layer(conv, layer, x)?;
    cx.layer(norm, BatchNorm::new(), &y)
}
