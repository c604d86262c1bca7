//! Plain stacks of convolutions.

use super::blocks::{centred, conv_norm};
use crate::layers::{Activation, Dense, Dropout, Flatten, Layer, MaxPool};
use crate::{Context, Result, Tensor};

/// A network of 3×3 convolutions with max-pools between stages and two hidden dense layers: images
/// `[batch, height, width, channels]` to logits `[batch, classes]`.
///
/// Parameters are `stage0/conv0` and so on (with `norm0` where there are norms), `hidden0`, `hidden1` and `head`.
#[derive(Debug, Clone, PartialEq)]
pub struct Vgg {
    /// How many convolutions each stage has, and how wide they are.
    pub stages: Vec<(usize, usize)>,
    /// How wide the dense layers are.
    pub hidden: usize,
    /// Whether convolutions have batch norms in place of biases.
    pub batch_norm: bool,
    /// The fraction dropped of what dense layers give.
    pub dropout: f64,
    /// How many classes there are.
    pub classes: usize,
}

impl Vgg {
    /// VGG-11.
    pub fn vgg11(classes: usize) -> Self {
        let stages = vec![(1, 64), (1, 128), (2, 256), (2, 512), (2, 512)];
        Vgg { stages, hidden: 4096, batch_norm: false, dropout: 0.5, classes }
    }

    /// VGG-16.
    pub fn vgg16(classes: usize) -> Self {
        Vgg { stages: vec![(2, 64), (2, 128), (3, 256), (3, 512), (3, 512)], ..Vgg::vgg11(classes) }
    }
}

impl Layer for Vgg {
    fn forward(&self, cx: &Context, x: &Tensor) -> Result<Tensor> {
        cx.expect_axes("vgg", x, &["batch", "height", "width", "channels"])?;
        let mut x = x.clone();
        for (stage, &(count, width)) in self.stages.iter().enumerate() {
            x = cx.scope(&format!("stage{stage}"), |cx| {
                let mut x = x.clone();
                for at in 0..count {
                    let (conv, norm) = (format!("conv{at}"), format!("norm{at}"));
                    x = if self.batch_norm {
                        conv_norm(cx, &x, [&conv, &norm], centred(width, 3))?.relu()?
                    } else {
                        cx.layer(&conv, centred(width, 3).activation(Activation::Relu), &x)?
                    };
                }
                MaxPool::new([2, 2]).forward(cx, &x)
            })?;
        }
        x = Flatten.forward(cx, &x)?;
        for hidden in ["hidden0", "hidden1"] {
            x = cx.layer(hidden, Dense::new(self.hidden).activation(Activation::Relu), &x)?;
            x = Dropout(self.dropout).forward(cx, &x)?;
        }
        cx.layer("head", Dense::new(self.classes), &x)
    }

    fn kind(&self) -> &'static str {
        "vgg"
    }
}
