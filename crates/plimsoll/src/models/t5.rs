//! A transformer from text to text.

use crate::layers::{Activation, Dense, Embedding, MultiHeadAttention, RelativeBias, RmsNorm};
use crate::{Attend, Context, Init, Result, Tensor};

/// An encoder and a decoder, as T5: RMSNorm before each part, relative positions as a bias that all layers of a side share,
/// attention without scale, no biases of dense layers. The head is the table of the tokens, transposed.
///
/// Parameters are `tokens/table`; `encoder/bias/table`, `encoder/block0/norm1`, `attention`, `norm2`, `up`, `down` and so
/// on, `encoder/norm`; the same of `decoder`, whose blocks have `cross_norm` and `cross` as well.
///
/// ```
/// use plimsoll::models::T5;
/// use plimsoll::{Context, DType, Precision};
/// let cx = Context::trace(true, Precision::F32);
/// let source = cx.input("source", &[2, 12], DType::I32)?;
/// let target = cx.input("target", &[2, 9], DType::I32)?;
/// let model = T5 { layers: 2, width: 32, heads: 4, hidden: 64, vocab: 100, buckets: 32, farthest: 128 };
/// assert_eq!(model.logits(&cx, &source, &target)?.shape()[..], [2, 9, 100]);
/// # Ok::<(), plimsoll::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct T5 {
    /// How many blocks each side has.
    pub layers: usize,
    /// How wide tokens are.
    pub width: usize,
    /// How many heads attention has.
    pub heads: usize,
    /// How wide the perceptrons are.
    pub hidden: usize,
    /// How many tokens there are.
    pub vocab: usize,
    /// How many buckets relative positions have.
    pub buckets: usize,
    /// The distance from which on positions are alike.
    pub farthest: usize,
}

impl T5 {
    /// Logits `[batch, target tokens, vocab]` of what follows each of the integer tokens of the target, given those of the
    /// source, both `[batch, tokens]`.
    ///
    /// # Errors
    /// If shapes do not go together.
    pub fn logits(&self, cx: &Context, source: &Tensor, target: &Tensor) -> Result<Tensor> {
        cx.expect_axes("t5", source, &["batch", "tokens"])?;
        cx.expect_axes("t5", target, &["batch", "tokens"])?;
        let table = Embedding::new(self.vocab, self.width);
        let memory = self.stack(cx, "encoder", &cx.layer("tokens", &table, source)?, None)?;
        let decoded = self.stack(cx, "decoder", &cx.layer("tokens", &table, target)?, Some(&memory))?;
        let init = Init::Normal(0.02);
        let table = cx.scope("tokens", |cx| cx.parameter("table", &[self.vocab, self.width], init))?;
        decoded.mul_scalar(1.0 / (self.width.max(1) as f64).sqrt())?.matmul_transposed(&table)
    }

    fn stack(&self, cx: &Context, scope: &str, x: &Tensor, memory: Option<&Tensor>) -> Result<Tensor> {
        cx.scope(scope, |cx| {
            let tokens = x.shape()[1];
            let relative = RelativeBias::new(self.heads).buckets(self.buckets, self.farthest);
            let relative = if memory.is_some() { relative.causal() } else { relative };
            let bias = cx.scope("bias", |cx| relative.of(cx, tokens, tokens))?;
            let unscaled = Attend::new().scale(1.0);
            let own = if memory.is_some() { unscaled.clone().causal() } else { unscaled.clone() };
            let own = own.bias(&bias);
            let attention = MultiHeadAttention::new(self.heads).no_bias();
            let mut x = x.clone();
            for at in 0..self.layers {
                x = cx.scope(&format!("block{at}"), |cx| {
                    let y = cx.layer("norm1", RmsNorm::new(), &x)?;
                    let mut x = x.add(&cx.scope("attention", |cx| attention.with(cx, &y, own.clone()))?)?;
                    if let Some(memory) = memory {
                        let y = cx.layer("cross_norm", RmsNorm::new(), &x)?;
                        let found =
                            cx.scope("cross", |cx| attention.cross(cx, &y, memory, unscaled.clone()))?;
                        x = x.add(&found)?;
                    }
                    let y = cx.layer("norm2", RmsNorm::new(), &x)?;
                    let up = Dense::new(self.hidden).no_bias().activation(Activation::Relu);
                    x.add(&cx.layer("down", Dense::new(self.width).no_bias(), &cx.layer("up", up, &y)?)?)
                })?;
            }
            cx.layer("norm", RmsNorm::new(), &x)
        })
    }
}
