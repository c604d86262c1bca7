//! Networks that read one token after another.

use crate::layers::{Activation, Dense, Embedding, Gru, Layer, Lstm};
use crate::{Attend, Context, DType, ErrorKind, Init, Result, Tensor};

/// What a recurrent network is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cell {
    /// [`Lstm`]
    Lstm,
    /// [`Gru`]
    Gru,
}

/// A recurrent language model: integer tokens `[batch, tokens]` to logits `[batch, tokens, vocab]`.
///
/// Parameters are `tokens/table`, `layer0/..` and so on, and `head`.
#[derive(Debug, Clone, PartialEq)]
pub struct RecurrentLm {
    /// What its layers are.
    pub cell: Cell,
    /// How many there are.
    pub layers: usize,
    /// How wide tokens and states are.
    pub width: usize,
    /// How many tokens there are.
    pub vocab: usize,
}

impl Layer for RecurrentLm {
    fn forward(&self, cx: &Context, x: &Tensor) -> Result<Tensor> {
        cx.expect_axes("recurrent", x, &["batch", "tokens"])?;
        let mut x = cx.layer("tokens", Embedding::new(self.vocab, self.width), x)?;
        for at in 0..self.layers {
            let name = format!("layer{at}");
            x = match self.cell {
                Cell::Lstm => cx.layer(&name, Lstm::new(self.width).sequences(), &x)?,
                Cell::Gru => cx.layer(&name, Gru::new(self.width).sequences(), &x)?,
            };
        }
        cx.layer("head", Dense::new(self.vocab), &x)
    }

    fn kind(&self) -> &'static str {
        "recurrent"
    }
}

/// Recurrent translation with attention: a GRU reads the source, another the target, and looks at all states of the first
/// that are there.
///
/// Parameters are `source/table`, `target/table`, `encoder/..`, `decoder/..`, `mix` and `head`.
#[derive(Debug, Clone, PartialEq)]
pub struct Seq2Seq {
    /// How wide tokens and states are.
    pub width: usize,
    /// How many tokens the source's language has.
    pub source_vocab: usize,
    /// How many tokens the target's language has.
    pub target_vocab: usize,
}

impl Seq2Seq {
    /// Logits `[batch, target tokens, vocab]` of what follows each token of the target, given the source, both
    /// `[batch, tokens]`, of which the first `lengths` `[batch]` tokens are there. The decoder begins with the mean of the
    /// encoder's states that are.
    ///
    /// # Errors
    /// If shapes do not go together.
    pub fn logits(&self, cx: &Context, source: &Tensor, lengths: &Tensor, target: &Tensor) -> Result<Tensor> {
        cx.expect_axes("seq2seq", source, &["batch", "tokens"])?;
        cx.expect_axes("seq2seq", target, &["batch", "tokens"])?;
        let [batch, tokens] = [0, 1].map(|axis| source.shape()[axis]);
        if lengths.shape()[..] != [batch] || lengths.dtype() != DType::I32 {
            let message = format!("seq2seq: the lengths of {source} are i32[{batch}], these are {lengths}");
            return Err(cx.error(ErrorKind::Shape, message));
        }
        let read = cx.layer("source", Embedding::new(self.source_vocab, self.width), source)?;
        let states = cx.layer("encoder", Gru::new(self.width).sequences(), &read)?;
        let there = cx.iota(&[batch, tokens], 1, DType::I32)?.lt(&lengths.unsqueeze(1)?)?;
        let counted = there.unsqueeze(2)?.cast(states.dtype())?;
        let count = counted.sum(&[1])?.maximum(&cx.constant(1.0, &[1], states.dtype())?)?;
        let first = states.mul(&counted)?.sum(&[1])?.div(&count)?;

        let written = cx.layer("target", Embedding::new(self.target_vocab, self.width), target)?;
        let decoded = cx.scope("decoder", |cx| {
            let init = Init::Uniform(1.0 / (self.width.max(1) as f64).sqrt());
            let gates = self.width.saturating_mul(3);
            let weight = |name| cx.parameter(name, &[self.width, gates], init);
            let bias = |name| cx.parameter(name, &[gates], Init::Zeros);
            let (input, hidden) = (weight("input_weight")?, weight("hidden_weight")?);
            written.gru(&input, &hidden, &bias("input_bias")?, &bias("hidden_bias")?, &first)
        })?;
        let one_head = |x: &Tensor| x.unsqueeze(2);
        let attend = Attend::new().scale(1.0).mask(&there.unsqueeze(1)?.unsqueeze(1)?);
        let found = attend.of(&one_head(&decoded)?, &one_head(&states)?, &one_head(&states)?)?.squeeze(2)?;
        let mix = Dense::new(self.width).activation(Activation::Tanh);
        let mixed = cx.layer("mix", mix, &Tensor::concat(&[&decoded, &found], 2)?)?;
        cx.layer("head", Dense::new(self.target_vocab), &mixed)
    }
}
