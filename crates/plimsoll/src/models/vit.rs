//! Transformers and perceptrons over patches of images.

use crate::layers::{Activation, Conv2d, Dense, Layer, LayerNorm, TransformerBlock};
use crate::{Context, Init, Result, Tensor};

/// A vision transformer: images `[batch, height, width, channels]` to logits `[batch, classes]`, read from a token of its
/// own that is before those of the patches.
///
/// Parameters are `patches`, `class`, `positions`, `block0/..` and so on, `ln` and `head`.
#[derive(Debug, Clone, PartialEq)]
pub struct VisionTransformer {
    /// The extent of a patch.
    pub patch: usize,
    /// How many blocks there are.
    pub layers: usize,
    /// How wide tokens are.
    pub width: usize,
    /// How many heads attention has.
    pub heads: usize,
    /// How many classes there are.
    pub classes: usize,
}

impl VisionTransformer {
    /// ViT-B/16.
    pub fn base16(classes: usize) -> Self {
        VisionTransformer { patch: 16, layers: 12, width: 768, heads: 12, classes }
    }

    /// ViT-S/16.
    pub fn small16(classes: usize) -> Self {
        VisionTransformer { width: 384, heads: 6, ..VisionTransformer::base16(classes) }
    }
}

/// Images as tokens `[batch, patches, width]`.
fn patches(cx: &Context, x: &Tensor, patch: usize, width: usize) -> Result<Tensor> {
    let y = cx.layer("patches", Conv2d::new(width, [patch, patch]).stride([patch, patch]), x)?;
    y.reshape(&[y.shape()[0], y.shape()[1] * y.shape()[2], width])
}

impl Layer for VisionTransformer {
    fn forward(&self, cx: &Context, x: &Tensor) -> Result<Tensor> {
        cx.expect_axes("vit", x, &["batch", "height", "width", "channels"])?;
        let patches = patches(cx, x, self.patch, self.width)?;
        let (batch, tokens) = (patches.shape()[0], patches.shape()[1] + 1);
        let class = cx.parameter("class", &[1, self.width], Init::Normal(0.02))?;
        let class = class.broadcast(&[batch, 1, self.width])?;
        let positions = cx.parameter("positions", &[tokens, self.width], Init::Normal(0.02))?;
        let mut x = Tensor::concat(&[&class, &patches], 1)?.add(&positions)?;
        for at in 0..self.layers {
            x = cx.layer(&format!("block{at}"), TransformerBlock::new(self.heads), &x)?;
        }
        let first = cx.layer("ln", LayerNorm::new(), &x.slice(1, 0..1)?.squeeze(1)?)?;
        cx.layer("head", Dense::new(self.classes), &first)
    }

    fn kind(&self) -> &'static str {
        "vit"
    }
}

/// An MLP-Mixer: images `[batch, height, width, channels]` to logits `[batch, classes]`, by perceptrons over patches and
/// over channels in turns.
///
/// Parameters are `patches`; `block0/ln1`, `tokens/up`, `tokens/down`, `ln2`, `channels/up`, `channels/down` and so on; `ln`
/// and `head`.
#[derive(Debug, Clone, PartialEq)]
pub struct MlpMixer {
    /// The extent of a patch.
    pub patch: usize,
    /// How many blocks there are.
    pub layers: usize,
    /// How wide tokens are.
    pub width: usize,
    /// How wide the perceptrons over patches are.
    pub token_hidden: usize,
    /// How wide the perceptrons over channels are.
    pub channel_hidden: usize,
    /// How many classes there are.
    pub classes: usize,
}

impl MlpMixer {
    /// Mixer-B/16.
    pub fn base16(classes: usize) -> Self {
        MlpMixer { patch: 16, layers: 12, width: 768, token_hidden: 384, channel_hidden: 3072, classes }
    }
}

/// Two dense layers with gelu between, to the width that comes in.
fn perceptron(cx: &Context, scope: &str, x: &Tensor, hidden: usize) -> Result<Tensor> {
    let width = x.shape()[x.rank() - 1];
    cx.scope(scope, |cx| {
        let y = cx.layer("up", Dense::new(hidden).activation(Activation::Gelu), x)?;
        cx.layer("down", Dense::new(width), &y)
    })
}

impl Layer for MlpMixer {
    fn forward(&self, cx: &Context, x: &Tensor) -> Result<Tensor> {
        cx.expect_axes("mixer", x, &["batch", "height", "width", "channels"])?;
        let mut x = patches(cx, x, self.patch, self.width)?;
        for at in 0..self.layers {
            x = cx.scope(&format!("block{at}"), |cx| {
                let y = cx.layer("ln1", LayerNorm::new(), &x)?.permute(&[0, 2, 1])?;
                let y = perceptron(cx, "tokens", &y, self.token_hidden)?.permute(&[0, 2, 1])?;
                let x = x.add(&y)?;
                let y = cx.layer("ln2", LayerNorm::new(), &x)?;
                x.add(&perceptron(cx, "channels", &y, self.channel_hidden)?)
            })?;
        }
        let x = cx.layer("ln", LayerNorm::new(), &x)?.mean(&[1])?;
        cx.layer("head", Dense::new(self.classes), &x)
    }

    fn kind(&self) -> &'static str {
        "mixer"
    }
}
