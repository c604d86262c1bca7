//! Networks of inverted residuals: wide depthwise convolutions between narrow ends.

use super::blocks::{centred, conv_norm};
use crate::layers::{Activation, Dense, GlobalMeanPool, Layer, SqueezeExcite};
use crate::{Context, Result, Tensor};

/// A MobileNet or EfficientNet: images `[batch, height, width, channels]` to logits `[batch, classes]`.
///
/// Parameters are `stem/conv`, `stem/norm`; `block0/expand`, `expand_norm`, `depthwise`, `depthwise_norm`, `squeeze/..`,
/// `project`, `project_norm` and so on; `last/conv`, `last/norm`, `hidden` where there is one, and `head`.
///
/// ```
/// use plimsoll::layers::Layer;
/// use plimsoll::models::MobileNet;
/// use plimsoll::{Context, DType, Precision};
/// let cx = Context::trace(true, Precision::F32);
/// let images = cx.input("images", &[2, 224, 224, 3], DType::F32)?;
/// for model in [MobileNet::v2(10), MobileNet::v3_large(10), MobileNet::efficientnet_b0(10)] {
///     let cx = Context::trace(true, Precision::F32);
///     let images = cx.input("images", &[2, 224, 224, 3], DType::F32)?;
///     assert_eq!(model.forward(&cx, &images)?.shape()[..], [2, 10]);
/// }
/// # Ok::<(), plimsoll::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct MobileNet {
    /// How wide the stem is, which halves images.
    pub stem: usize,
    /// The blocks.
    pub blocks: Vec<InvertedResidual>,
    /// How wide the convolution after the blocks is.
    pub last: usize,
    /// How wide a dense layer before the head is, if there is one.
    pub hidden: Option<usize>,
    /// The function after stem, last convolution and hidden layer.
    pub activation: Activation,
    /// How many classes there are.
    pub classes: usize,
}

/// A block: widen, convolve each channel by itself, perhaps scale channels, narrow; and add where the shape stays.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct InvertedResidual {
    /// How many channels there are inside.
    pub inside: usize,
    /// How many come out.
    pub outside: usize,
    /// The extent of the depthwise convolution.
    pub window: usize,
    /// Its stride.
    pub stride: usize,
    /// To how many channels squeeze-and-excite squeezes, if it is there, and by what it gates.
    pub squeeze: Option<(usize, Activation)>,
    /// The function after both first convolutions, and within squeeze-and-excite of EfficientNets.
    pub activation: Activation,
}

impl MobileNet {
    /// MobileNetV2.
    pub fn v2(classes: usize) -> Self {
        let rows = [
            (1, 16, 1, 1),
            (6, 24, 2, 2),
            (6, 32, 3, 2),
            (6, 64, 4, 2),
            (6, 96, 3, 1),
            (6, 160, 3, 2),
            (6, 320, 1, 1),
        ];
        let mut blocks = vec![];
        let mut width = 32;
        for (expand, outside, count, stride) in rows {
            for at in 0..count {
                let stride = if at == 0 { stride } else { 1 };
                let inside = width * expand;
                let activation = Activation::Relu6;
                blocks.push(InvertedResidual {
                    inside,
                    outside,
                    window: 3,
                    stride,
                    squeeze: None,
                    activation,
                });
                width = outside;
            }
        }
        MobileNet { stem: 32, blocks, last: 1280, hidden: None, activation: Activation::Relu6, classes }
    }

    /// MobileNetV3-Large.
    pub fn v3_large(classes: usize) -> Self {
        let (relu, swish) = (Activation::Relu, Activation::HardSwish);
        let rows = [
            (3, 16, 16, 0, relu, 1),
            (3, 64, 24, 0, relu, 2),
            (3, 72, 24, 0, relu, 1),
            (5, 72, 40, 24, relu, 2),
            (5, 120, 40, 32, relu, 1),
            (5, 120, 40, 32, relu, 1),
            (3, 240, 80, 0, swish, 2),
            (3, 200, 80, 0, swish, 1),
            (3, 184, 80, 0, swish, 1),
            (3, 184, 80, 0, swish, 1),
            (3, 480, 112, 120, swish, 1),
            (3, 672, 112, 168, swish, 1),
            (5, 672, 160, 168, swish, 2),
            (5, 960, 160, 240, swish, 1),
            (5, 960, 160, 240, swish, 1),
        ];
        let block = |(window, inside, outside, squeeze, activation, stride)| {
            let squeeze = (squeeze > 0).then_some((squeeze, Activation::HardSigmoid));
            InvertedResidual { inside, outside, window, stride, squeeze, activation }
        };
        let blocks = rows.map(block).to_vec();
        MobileNet { stem: 16, blocks, last: 960, hidden: Some(1280), activation: swish, classes }
    }

    /// EfficientNet-B0.
    pub fn efficientnet_b0(classes: usize) -> Self {
        let rows = [
            (1, 3, 1, 16, 1),
            (6, 3, 2, 24, 2),
            (6, 5, 2, 40, 2),
            (6, 3, 2, 80, 3),
            (6, 5, 1, 112, 3),
            (6, 5, 2, 192, 4),
            (6, 3, 1, 320, 1),
        ];
        let mut blocks = vec![];
        let mut width = 32;
        for (expand, window, stride, outside, count) in rows {
            for at in 0..count {
                let stride = if at == 0 { stride } else { 1 };
                let squeeze = Some((width / 4, Activation::Sigmoid));
                let (inside, activation) = (width * expand, Activation::Silu);
                blocks.push(InvertedResidual { inside, outside, window, stride, squeeze, activation });
                width = outside;
            }
        }
        MobileNet { stem: 32, blocks, last: 1280, hidden: None, activation: Activation::Silu, classes }
    }
}

impl Layer for InvertedResidual {
    fn forward(&self, cx: &Context, x: &Tensor) -> Result<Tensor> {
        cx.expect_axes("inverted_residual", x, &["batch", "height", "width", "channels"])?;
        let channels = x.shape()[3];
        let mut y = x.clone();
        if self.inside != channels {
            y = conv_norm(cx, &y, ["expand", "expand_norm"], centred(self.inside, 1))?;
            y = self.activation.apply(&y)?;
        }
        let depthwise =
            centred(self.inside, self.window).stride([self.stride, self.stride]).groups(self.inside);
        y = self.activation.apply(&conv_norm(cx, &y, ["depthwise", "depthwise_norm"], depthwise)?)?;
        if let Some((reduced, gate)) = self.squeeze {
            // MobileNets squeeze with relu, whatever the block has.
            let within = if gate == Activation::HardSigmoid { Activation::Relu } else { self.activation };
            y = cx.layer("squeeze", SqueezeExcite::new(reduced).activation(within).gate(gate), &y)?;
        }
        y = conv_norm(cx, &y, ["project", "project_norm"], centred(self.outside, 1))?;
        if self.stride == 1 && channels == self.outside { x.add(&y) } else { Ok(y) }
    }

    fn kind(&self) -> &'static str {
        "inverted_residual"
    }
}

impl Layer for MobileNet {
    fn forward(&self, cx: &Context, x: &Tensor) -> Result<Tensor> {
        cx.expect_axes("mobilenet", x, &["batch", "height", "width", "channels"])?;
        let stem = centred(self.stem, 3).stride([2, 2]);
        let mut x = self.activation.apply(&conv_norm(cx, x, ["stem/conv", "stem/norm"], stem)?)?;
        for (at, block) in self.blocks.iter().enumerate() {
            x = cx.layer(&format!("block{at}"), block, &x)?;
        }
        let last = conv_norm(cx, &x, ["last/conv", "last/norm"], centred(self.last, 1))?;
        x = GlobalMeanPool.forward(cx, &self.activation.apply(&last)?)?;
        if let Some(hidden) = self.hidden {
            x = cx.layer("hidden", Dense::new(hidden).activation(self.activation), &x)?;
        }
        cx.layer("head", Dense::new(self.classes), &x)
    }

    fn kind(&self) -> &'static str {
        "mobilenet"
    }
}
