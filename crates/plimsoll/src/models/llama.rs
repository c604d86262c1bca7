//! A language model of the present kind.

use crate::layers::{Dense, Embedding, Layer, MultiHeadAttention, RmsNorm, SwiGlu};
use crate::{Context, Init, Result, Tensor};

/// A decoder-only transformer, as Llama: integer tokens `[batch, tokens]` to logits `[batch, tokens, vocab]`. It has
/// RMSNorm, rotary positions, grouped-query attention and SwiGLU, and no biases.
///
/// Parameters are `tokens/table`; `block0/norm1`, `attention/qkv`, `attention/out`, `norm2`, `mlp/gate`, `mlp/up`,
/// `mlp/down` and so on; `norm`, and `head/weight`.
///
/// ```
/// use plimsoll::layers::Layer;
/// use plimsoll::models::Llama;
/// use plimsoll::{Context, DType, Precision};
/// let model = Llama { layers: 2, width: 64, heads: 8, key_value_heads: 2, hidden: 172, vocab: 1000, base: 10000.0 };
/// let cx = Context::trace(true, Precision::Bf16);
/// let tokens = cx.input("tokens", &[8, 128], DType::I32)?;
/// assert_eq!(model.forward(&cx, &tokens)?.to_string(), "bf16[8, 128, 1000]");
/// # Ok::<(), plimsoll::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Llama {
    /// How many blocks there are.
    pub layers: usize,
    /// The width of the residual stream.
    pub width: usize,
    /// How many heads queries have.
    pub heads: usize,
    /// How many heads keys and values have.
    pub key_value_heads: usize,
    /// How wide the perceptrons are.
    pub hidden: usize,
    /// How many tokens there are.
    pub vocab: usize,
    /// The base of the rotary positions.
    pub base: f64,
}

impl Layer for Llama {
    fn forward(&self, cx: &Context, x: &Tensor) -> Result<Tensor> {
        cx.expect_axes("llama", x, &["batch", "tokens"])?;
        let mut x = cx.layer("tokens", Embedding::new(self.vocab, self.width), x)?;
        let attention = MultiHeadAttention::new(self.heads).key_value_heads(self.key_value_heads);
        let attention = attention.rotary(self.base).causal().no_bias();
        for at in 0..self.layers {
            x = cx.scope(&format!("block{at}"), |cx| {
                let y = cx.layer("norm1", RmsNorm::new(), &x)?;
                let x = x.add(&cx.layer("attention", &attention, &y)?)?;
                let y = cx.layer("norm2", RmsNorm::new(), &x)?;
                x.add(&cx.layer("mlp", SwiGlu::new(self.hidden), &y)?)
            })?;
        }
        let x = cx.layer("norm", RmsNorm::new(), &x)?;
        cx.layer("head", Dense::new(self.vocab).no_bias().init(Init::Normal(0.02)), &x)
    }

    fn kind(&self) -> &'static str {
        "llama"
    }
}
