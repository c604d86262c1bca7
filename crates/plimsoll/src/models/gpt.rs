//! A language model: a stack of causal transformer blocks.

use crate::layers::{Dense, Dropout, Embedding, Layer, LayerNorm, TransformerBlock};
use crate::{Context, ErrorKind, Init, Result, Tensor};

/// A decoder-only transformer, as GPT-2: integer tokens `[batch, tokens]` to logits
/// `[batch, tokens, vocab]`.
///
/// Parameters are `tokens/table`, `positions/table`, `block0/..`, `block1/..`, `ln/..`, and `head/weight`
/// unless the head is tied. Weights start normal with deviation 0.02, those that add to the residual stream
/// with 0.02 / √(2 · layers).
///
/// ```
/// use plimsoll::layers::Layer;
/// use plimsoll::models::Gpt;
/// use plimsoll::{Context, DType, Precision};
/// let model =
///     Gpt { layers: 2, width: 64, heads: 4, context: 128, vocab: 1000, dropout: 0.1, tied_head: false };
/// let cx = Context::trace(true, Precision::Bf16);
/// let tokens = cx.input("tokens", &[8, 128], DType::I32)?;
/// let logits = model.forward(&cx, &tokens)?;
/// assert_eq!(logits.to_string(), "bf16[8, 128, 1000]");
/// # Ok::<(), plimsoll::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Gpt {
    /// How many blocks.
    pub layers: usize,
    /// The width of the residual stream.
    pub width: usize,
    /// How many attention heads each block has.
    pub heads: usize,
    /// The most tokens of a sequence.
    pub context: usize,
    /// How many tokens there are.
    pub vocab: usize,
    /// The fraction dropped of embeddings and of what blocks add.
    pub dropout: f64,
    /// Whether the head is the table of the tokens, transposed, in place of a weight of its own.
    pub tied_head: bool,
}

const INIT: Init = Init::Normal(0.02);

impl Layer for Gpt {
    fn forward(&self, cx: &Context, x: &Tensor) -> Result<Tensor> {
        cx.expect_axes("gpt", x, &["batch", "tokens"])?;
        let tokens = x.shape()[1];
        if tokens > self.context {
            let message = format!("gpt: {x} has {tokens} tokens, the context is {}", self.context);
            return Err(cx.error(ErrorKind::Shape, message));
        }
        let embedded = cx.layer("tokens", Embedding::new(self.vocab, self.width).init(INIT), x)?;
        let positions = cx.scope("positions", |cx| {
            let table = cx.master_parameter("table", &[self.context, self.width], INIT)?;
            table.slice(0, 0..tokens)?.cast(cx.precision().compute())
        })?;
        let mut x = Dropout(self.dropout).forward(cx, &embedded.add(&positions)?)?;

        let out_init = Init::Normal(0.02 / (2.0 * self.layers.max(1) as f64).sqrt());
        let block = TransformerBlock::new(self.heads).causal().dropout(self.dropout).out_init(out_init);
        for i in 0..self.layers {
            x = cx.layer(&format!("block{i}"), &block, &x)?;
        }
        let x = cx.layer("ln", LayerNorm::new(), &x)?;

        if self.tied_head {
            let table = cx.scope("tokens", |cx| cx.parameter("table", &[self.vocab, self.width], INIT))?;
            return cx.scope("head", |_| x.matmul_transposed(&table));
        }
        cx.layer("head", Dense::new(self.vocab).no_bias().init(INIT), &x)
    }

    fn kind(&self) -> &'static str {
        "gpt"
    }
}
