//! A transformer that reads in both directions.

use crate::layers::{Activation, Dense, Dropout, Embedding, Layer, LayerNorm, MultiHeadAttention};
use crate::{Attend, Context, DType, ErrorKind, Init, Result, Tensor};

/// An encoder as BERT, with norms after what they normalise: integer tokens `[batch, tokens]` to logits
/// `[batch, tokens, vocab]` of what stands where something was masked out. The head is the table of the tokens,
/// transposed.
///
/// As a layer, every token counts. [`Bert::with_padding`] says which are there.
///
/// Parameters are `tokens/table`, `positions/table`, `ln`; `block0/attention`, `ln1`, `up`, `down`, `ln2` and so on;
/// `head/dense`, `head/ln` and `head/bias`.
#[derive(Debug, Clone, PartialEq)]
pub struct Bert {
    /// How many blocks there are.
    pub layers: usize,
    /// How wide tokens are.
    pub width: usize,
    /// How many heads attention has.
    pub heads: usize,
    /// How wide the perceptrons are.
    pub hidden: usize,
    /// The most tokens of a sequence.
    pub context: usize,
    /// How many tokens there are.
    pub vocab: usize,
    /// The fraction dropped of embeddings and of what attention and perceptrons give.
    pub dropout: f64,
}

const INIT: Init = Init::Normal(0.02);

impl Bert {
    /// BERT-base.
    pub fn base() -> Self {
        Bert { layers: 12, width: 768, heads: 12, hidden: 3072, context: 512, vocab: 30522, dropout: 0.1 }
    }

    /// Logits where tokens are real, as bool `[batch, tokens]` says; the others are padding that no token sees.
    ///
    /// ```
    /// use plimsoll::models::Bert;
    /// use plimsoll::{Context, DType, Precision};
    /// let cx = Context::trace(true, Precision::F32);
    /// let tokens = cx.input("tokens", &[2, 16], DType::I32)?;
    /// let real = cx.input("real", &[2, 16], DType::Bool)?;
    /// let model = Bert { layers: 2, ..Bert::base() };
    /// assert_eq!(model.with_padding(&cx, &tokens, &real)?.shape()[..], [2, 16, 30522]);
    /// # Ok::<(), plimsoll::Error>(())
    /// ```
    ///
    /// # Errors
    /// If shapes do not go together, or there are more tokens than the context has.
    pub fn with_padding(&self, cx: &Context, tokens: &Tensor, real: &Tensor) -> Result<Tensor> {
        if real.shape() != tokens.shape() || real.dtype() != DType::Bool {
            let message = format!("bert: which tokens are real is bool like {tokens}, this is {real}");
            return Err(cx.error(ErrorKind::Shape, message));
        }
        let mask = real.unsqueeze(1)?.unsqueeze(1)?;
        self.logits(cx, tokens, Attend::new().mask(&mask))
    }

    fn logits(&self, cx: &Context, tokens: &Tensor, attend: Attend) -> Result<Tensor> {
        cx.expect_axes("bert", tokens, &["batch", "tokens"])?;
        let count = tokens.shape()[1];
        if count > self.context {
            let message = format!("bert: {tokens} has {count} tokens, the context is {}", self.context);
            return Err(cx.error(ErrorKind::Shape, message));
        }
        let dropout = Dropout(self.dropout);
        let embedded = cx.layer("tokens", Embedding::new(self.vocab, self.width).init(INIT), tokens)?;
        let positions = cx.scope("positions", |cx| {
            let table = cx.master_parameter("table", &[self.context, self.width], INIT)?;
            table.slice(0, 0..count)?.cast(cx.precision().compute())
        })?;
        let mut x = cx.layer("ln", LayerNorm::new(), &embedded.add(&positions)?)?;
        x = dropout.forward(cx, &x)?;
        for at in 0..self.layers {
            x = cx.scope(&format!("block{at}"), |cx| {
                let attention = MultiHeadAttention::new(self.heads).init(INIT);
                let y = cx.scope("attention", |cx| attention.with(cx, &x, attend.clone()))?;
                let x = cx.layer("ln1", LayerNorm::new(), &x.add(&dropout.forward(cx, &y)?)?)?;
                let up = Dense::new(self.hidden).init(INIT).activation(Activation::Gelu);
                let y = cx.layer("down", Dense::new(self.width).init(INIT), &cx.layer("up", up, &x)?)?;
                cx.layer("ln2", LayerNorm::new(), &x.add(&dropout.forward(cx, &y)?)?)
            })?;
        }
        let table = cx.scope("tokens", |cx| cx.parameter("table", &[self.vocab, self.width], INIT))?;
        cx.scope("head", |cx| {
            let dense = Dense::new(self.width).init(INIT).activation(Activation::Gelu);
            let y = cx.layer("ln", LayerNorm::new(), &cx.layer("dense", dense, &x)?)?;
            y.matmul_transposed(&table)?.add(&cx.parameter("bias", &[self.vocab], Init::Zeros)?)
        })
    }
}

impl Layer for Bert {
    fn forward(&self, cx: &Context, x: &Tensor) -> Result<Tensor> {
        self.logits(cx, x, Attend::new())
    }

    fn kind(&self) -> &'static str {
        "bert"
    }
}
