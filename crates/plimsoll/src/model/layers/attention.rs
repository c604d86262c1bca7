//! Attention.

use super::{Dense, Layer};
use crate::{Context, ErrorKind, Init, Result, Tensor};

/// Self-attention of several heads: `[batch, tokens, width]` to the same shape.
///
/// Queries, keys and values come from one product: the columns of `qkv/weight` `[width, 3 width]` are those
/// of all queries, then all keys, then all values, head after head. Weights start normal with deviation 0.02.
#[derive(Debug, Clone)]
pub struct MultiHeadAttention {
    heads: usize,
    causal: bool,
    init: Init,
    out_init: Init,
}

impl MultiHeadAttention {
    /// This many heads, in which every token sees all tokens.
    pub fn new(heads: usize) -> Self {
        let init = Init::Normal(0.02);
        MultiHeadAttention { heads, causal: false, init, out_init: init }
    }

    /// Lets a token see only itself and those before.
    pub fn causal(mut self) -> Self {
        self.causal = true;
        self
    }

    /// Initialises both weights so.
    pub fn init(mut self, init: Init) -> Self {
        (self.init, self.out_init) = (init, init);
        self
    }

    /// Initialises the weight of the output so.
    pub fn out_init(mut self, init: Init) -> Self {
        self.out_init = init;
        self
    }
}

impl Layer for MultiHeadAttention {
    fn forward(&self, cx: &Context, x: &Tensor) -> Result<Tensor> {
        cx.expect_axes("attention", x, &["batch", "tokens", "width"])?;
        let [batch, tokens, width] = [0, 1, 2].map(|axis| x.shape()[axis]);
        if self.heads == 0 || !width.is_multiple_of(self.heads) {
            let message =
                format!("attention: the width {width} of {x} does not split into {} heads", self.heads);
            return Err(cx.error(ErrorKind::Shape, message));
        }
        let qkv = cx.layer("qkv", Dense::new(width.saturating_mul(3)).init(self.init), x)?;
        let part = |i: usize| {
            let part = qkv.slice(2, i * width..(i + 1) * width)?;
            part.reshape(&[batch, tokens, self.heads, width / self.heads])
        };
        let mixed = part(0)?.attention(&part(1)?, &part(2)?, self.causal)?;
        let joined = mixed.reshape(&[batch, tokens, width])?;
        cx.layer("out", Dense::new(width).init(self.out_init), &joined)
    }

    fn kind(&self) -> &'static str {
        "attention"
    }
}
