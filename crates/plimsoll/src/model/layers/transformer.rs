//! Transformer blocks.

use super::{Activation, Dense, Dropout, Layer, LayerNorm, MultiHeadAttention};
use crate::{Context, Init, Result, Tensor};

/// A pre-norm transformer block: attention, then a multi-layer perceptron of four times the width with exact
/// gelu, each on a normalised input and added to it. `[batch, tokens, width]` to the same shape.
#[derive(Debug, Clone)]
pub struct TransformerBlock {
    heads: usize,
    causal: bool,
    dropout: f64,
    out_init: Init,
}

impl TransformerBlock {
    /// A block of this many heads, in which every token sees all tokens, without dropout. Weights start
    /// normal with deviation 0.02.
    pub fn new(heads: usize) -> Self {
        TransformerBlock { heads, causal: false, dropout: 0.0, out_init: INIT }
    }

    /// Lets a token see only itself and those before.
    pub fn causal(mut self) -> Self {
        self.causal = true;
        self
    }

    /// Drops this fraction of what attention and perceptron add.
    pub fn dropout(mut self, rate: f64) -> Self {
        self.dropout = rate;
        self
    }

    /// Initialises the two weights whose products are added to the input so. Deep stacks start smaller here.
    pub fn out_init(mut self, init: Init) -> Self {
        self.out_init = init;
        self
    }
}

const INIT: Init = Init::Normal(0.02);

impl Layer for TransformerBlock {
    fn forward(&self, cx: &Context, x: &Tensor) -> Result<Tensor> {
        let mut attention = MultiHeadAttention::new(self.heads).init(INIT).out_init(self.out_init);
        if self.causal {
            attention = attention.causal();
        }
        let dropout = Dropout(self.dropout);
        let y = cx.layer("ln1", LayerNorm::new(), x)?;
        let y = cx.layer("attention", attention, &y)?;
        let x = x.add(&dropout.forward(cx, &y)?)?;

        let width = x.shape()[2];
        let up = Dense::new(width.saturating_mul(4)).init(INIT).activation(Activation::Gelu);
        let y = cx.layer("ln2", LayerNorm::new(), &x)?;
        let y = cx.layer("mlp/up", up, &y)?;
        let y = cx.layer("mlp/down", Dense::new(width).init(self.out_init), &y)?;
        x.add(&dropout.forward(cx, &y)?)
    }

    fn kind(&self) -> &'static str {
        "block"
    }
}
