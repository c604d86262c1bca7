//! Convolutional networks built like transformers.

use crate::layers::{Activation, Conv2d, Dense, GlobalMeanPool, Layer, LayerNorm, Padding};
use crate::{Context, Init, Result, Tensor};

/// A ConvNeXt: images `[batch, height, width, channels]`, height and width multiples of 32, to logits `[batch, classes]`.
///
/// Parameters are `stem/conv`, `stem/norm`; `stage0/block0/depthwise`, `norm`, `up`, `down`, `scale` and so on;
/// `downsample1/norm`, `conv`; then `norm` and `head`.
#[derive(Debug, Clone, PartialEq)]
pub struct ConvNext {
    /// How many blocks each stage has.
    pub depths: Vec<usize>,
    /// How wide each stage is.
    pub widths: Vec<usize>,
    /// How many classes there are.
    pub classes: usize,
}

impl ConvNext {
    /// ConvNeXt-T.
    pub fn tiny(classes: usize) -> Self {
        ConvNext { depths: vec![3, 3, 9, 3], widths: vec![96, 192, 384, 768], classes }
    }
}

fn block(cx: &Context, x: &Tensor) -> Result<Tensor> {
    let width = x.shape()[3];
    let depthwise = Conv2d::new(width, [7, 7]).padding(Padding::Explicit([3; 4])).groups(width);
    let y = cx.layer("depthwise", depthwise, x)?;
    let y = cx.layer("norm", LayerNorm::new().epsilon(1e-6), &y)?;
    let y = cx.layer("up", Dense::new(width.saturating_mul(4)).activation(Activation::Gelu), &y)?;
    let y = cx.layer("down", Dense::new(width), &y)?;
    x.add(&y.mul(&cx.parameter("scale", &[width], Init::Constant(1e-6))?)?)
}

impl Layer for ConvNext {
    fn forward(&self, cx: &Context, x: &Tensor) -> Result<Tensor> {
        cx.expect_axes("convnext", x, &["batch", "height", "width", "channels"])?;
        let norm = LayerNorm::new().epsilon(1e-6);
        let mut x = x.clone();
        for (stage, (&depth, &width)) in self.depths.iter().zip(&self.widths).enumerate() {
            x = if stage == 0 {
                let patches = cx.layer("stem/conv", Conv2d::new(width, [4, 4]).stride([4, 4]), &x)?;
                cx.layer("stem/norm", &norm, &patches)?
            } else {
                cx.scope(&format!("downsample{stage}"), |cx| {
                    let y = cx.layer("norm", &norm, &x)?;
                    cx.layer("conv", Conv2d::new(width, [2, 2]).stride([2, 2]), &y)
                })?
            };
            for at in 0..depth {
                x = cx.scope(&format!("stage{stage}/block{at}"), |cx| block(cx, &x))?;
            }
        }
        let x = cx.layer("norm", &norm, &GlobalMeanPool.forward(cx, &x)?)?;
        cx.layer("head", Dense::new(self.classes), &x)
    }

    fn kind(&self) -> &'static str {
        "convnext"
    }
}
