//! Mixtures of experts.

use crate::layers::{Dense, Layer};
use crate::{Context, DType, ErrorKind, Init, Result, Tensor};

/// Perceptrons of which each token is sent to a few: `[.., width]` to the same shape. A router scores all experts for each
/// token; those of the highest scores are mixed by the softmax of these.
///
/// All experts are computed for all tokens, as one batched product: time grows with their number, which suits few and
/// small ones.
///
/// Parameters are `router/weight`, `up` `[experts, width, hidden]` and `down` `[experts, hidden, width]`.
///
/// ```
/// use plimsoll::layers::Layer;
/// use plimsoll::models::MixtureOfExperts;
/// use plimsoll::{Context, DType, Precision};
/// let cx = Context::trace(true, Precision::F32);
/// let x = cx.input("x", &[2, 10, 16], DType::F32)?;
/// let model = MixtureOfExperts { experts: 4, chosen: 2, hidden: 32 };
/// assert_eq!(model.forward(&cx, &x)?.shape()[..], [2, 10, 16]);
/// # Ok::<(), plimsoll::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MixtureOfExperts {
    /// How many there are.
    pub experts: usize,
    /// How many of them each token has.
    pub chosen: usize,
    /// How wide each is.
    pub hidden: usize,
}

impl MixtureOfExperts {
    /// The weight of each expert `[tokens, experts]` for scores like it.
    fn weights(&self, scores: &Tensor) -> Result<Tensor> {
        let low = scores.full_like(-1e30)?;
        let mut left = scores.stop_gradient()?;
        let mut chosen = scores.full_like(0.0)?;
        for _ in 0..self.chosen {
            let best = left.argmax(1)?.one_hot(self.experts, DType::F32)?;
            left = best.cast(DType::Bool)?.select(&low, &left)?;
            chosen = chosen.add(&best)?;
        }
        chosen.cast(DType::Bool)?.select(scores, &low)?.softmax()
    }
}

impl Layer for MixtureOfExperts {
    fn forward(&self, cx: &Context, x: &Tensor) -> Result<Tensor> {
        let shape = x.shape();
        let (Some(&width), true) = (shape.last(), (1..=self.experts).contains(&self.chosen)) else {
            let message = format!(
                "mixture_of_experts: the input is [.., width], and 1 to {} experts are chosen; this is {x} and {}",
                self.experts, self.chosen
            );
            return Err(cx.error(ErrorKind::Shape, message));
        };
        let tokens = x.reshape(&[shape[..shape.len() - 1].iter().product(), width])?;
        let scores = cx.layer("router", Dense::new(self.experts).no_bias(), &tokens)?.cast(DType::F32)?;
        let weights = self.weights(&scores)?.cast(x.dtype())?;
        let up = cx.parameter("up", &[self.experts, width, self.hidden], Init::GlorotUniform)?;
        let down = cx.parameter("down", &[self.experts, self.hidden, width], Init::GlorotUniform)?;
        let hidden = Tensor::einsum("tw,ewh->teh", &[&tokens, &up])?.silu()?;
        let given = Tensor::einsum("teh,ehw->tew", &[&hidden, &down])?;
        Tensor::einsum("tew,te->tw", &[&given, &weights])?.reshape(&shape)
    }

    fn kind(&self) -> &'static str {
        "mixture_of_experts"
    }
}
