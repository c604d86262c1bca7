//! Attention with all that scores may be changed by, and rotary positions.

use super::{Tensor, apply, wide};
use crate::{DType, ErrorKind, Result};
use plimsoll_graph::Op;
use plimsoll_graph::op::Attention;

/// How queries attend to keys: PyTorch's `scaled_dot_product_attention`.
///
/// Queries are `[batch, queries, heads, width]`, keys and values `[batch, keys, heads, width]`. Keys and values may have
/// fewer heads, each of which then serves as many heads of queries that follow each other (grouped-query attention).
///
/// Without a mask, bias, window and cap this is one kernel that never has all scores in memory. With one of them it is two
/// products around a softmax of scores `[batch, heads, queries, keys]`, which exist whole: memory grows with the product of
/// both lengths. Samples that are packed into one sequence are kept apart by a mask of which segments are equal.
///
/// ```
/// use plimsoll::{Attend, Context, DType, Precision};
/// let cx = Context::trace(true, Precision::F32);
/// let q = cx.input("q", &[2, 10, 8, 16], DType::F32)?;
/// let k = cx.input("k", &[2, 12, 2, 16], DType::F32)?;
/// let v = cx.input("v", &[2, 12, 2, 16], DType::F32)?;
/// let real = cx.input("real", &[2, 12], DType::Bool)?;
/// let y = Attend::new().mask(&real.reshape(&[2, 1, 1, 12])?).of(&q, &k, &v)?;
/// assert_eq!(y.shape()[..], [2, 10, 8, 16]);
/// # Ok::<(), plimsoll::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Attend {
    causal: bool,
    scale: Option<f64>,
    mask: Option<Tensor>,
    bias: Option<Tensor>,
    window: Option<usize>,
    soft_cap: Option<f64>,
}

impl Attend {
    /// Every query sees all keys; scores are multiplied with 1 / √width.
    pub fn new() -> Attend {
        Attend::default()
    }

    /// Lets query i see only keys up to i, aligned at the end if there are more keys than queries.
    pub fn causal(mut self) -> Attend {
        self.causal = true;
        self
    }

    /// Multiplies scores with this number.
    pub fn scale(mut self, scale: f64) -> Attend {
        self.scale = Some(scale);
        self
    }

    /// Lets queries see only keys for which this bool holds; it broadcasts to `[batch, heads, queries, keys]`. A query
    /// that sees nothing gets zeros.
    pub fn mask(mut self, mask: &Tensor) -> Attend {
        self.mask = Some(mask.clone());
        self
    }

    /// Adds this to scores, after they are scaled; it broadcasts to `[batch, heads, queries, keys]`.
    pub fn bias(mut self, bias: &Tensor) -> Attend {
        self.bias = Some(bias.clone());
        self
    }

    /// Lets queries see only keys that are fewer than so many positions away, aligned at the end as with
    /// [`Attend::causal`]: a sliding window.
    pub fn window(mut self, positions: usize) -> Attend {
        self.window = Some(positions);
        self
    }

    /// Bends scores, after they are scaled, to stay within ± this number: cap · tanh(score / cap).
    pub fn soft_cap(mut self, cap: f64) -> Attend {
        self.soft_cap = Some(cap);
        self
    }

    /// What the queries find, shaped like them.
    ///
    /// # Errors
    /// If shapes or element types do not go together.
    pub fn of(&self, queries: &Tensor, keys: &Tensor, values: &Tensor) -> Result<Tensor> {
        let fits = [queries, keys, values].iter().all(|x| x.rank() == 4)
            && keys.shape() == values.shape()
            && keys.shape()[2] > 0
            && queries.shape()[2].is_multiple_of(keys.shape()[2]);
        if !fits {
            let message = format!(
                "attention: queries are [batch, queries, heads, width], keys and values [batch, keys, heads or a \
                 divisor of them, width], these are {queries}, {keys} and {values}"
            );
            return Err(queries.error(ErrorKind::Shape, message));
        }
        let times = queries.shape()[2] / keys.shape()[2];
        let [keys, values] =
            [keys, values].map(|x| if times == 1 { Ok(x.clone()) } else { x.repeat_interleave(2, times) });
        let (keys, values) = (keys?, values?);
        let scale = self.scale.unwrap_or(1.0 / (queries.shape()[3].max(1) as f64).sqrt());
        if self.mask.is_some() || self.bias.is_some() || self.window.is_some() || self.soft_cap.is_some() {
            return self.composed(queries, &keys, &values, scale);
        }
        let op = Op::Attention(Attention { causal: self.causal, scale });
        let [output, _] = apply::<2>(&[queries, &keys, &values], |g, v| g.apply_n(op.clone(), v))?;
        Ok(output)
    }

    /// As products and a softmax, in the type of sums.
    fn composed(&self, queries: &Tensor, keys: &Tensor, values: &Tensor, scale: f64) -> Result<Tensor> {
        let heads_first = |x: &Tensor| x.permute(&[0, 2, 1, 3]);
        let scores = heads_first(queries)?.matmul_transposed(&heads_first(keys)?)?;
        let mut scores = scores.cast(wide(scores.dtype()))?.mul_scalar(scale)?;
        let shape = scores.shape();
        if let Some(cap) = self.soft_cap {
            scores = scores.mul_scalar(1.0 / cap)?.tanh()?.mul_scalar(cap)?;
        }
        if let Some(bias) = &self.bias {
            scores = scores.add(&bias.cast(scores.dtype())?)?;
        }
        let mut masks = self.mask.clone().into_iter().collect::<Vec<_>>();
        if self.causal {
            let ahead = ahead(&scores)?;
            masks.push(ahead.le(&ahead.full_like(0.0)?)?);
        }
        if let Some(window) = self.window {
            let distance = ahead(&scores)?.abs()?;
            masks.push(distance.lt(&distance.full_like(window as f64)?)?);
        }
        let masks = masks.into_iter().map(Ok);
        let mask = masks.reduce(|a: Result<Tensor>, b| a?.mul(&b?)).transpose()?;
        if scores.shape() != shape || mask.as_ref().is_some_and(|mask| mask.dtype() != DType::Bool) {
            let given = self.mask.iter().chain(&self.bias).map(Tensor::to_string).collect::<Vec<_>>();
            let message = format!(
                "attention: a mask is bool and broadcasts, as a bias does, to scores {shape}; given are {}",
                given.join(" and ")
            );
            return Err(queries.error(ErrorKind::Shape, message));
        }
        let probabilities = match mask {
            None => scores.softmax()?,
            Some(mask) => {
                let mask = mask.broadcast(&shape)?;
                // Finite, so that a row of which nothing is seen has no NaN; what it gives is then left out.
                let hidden = scores.full_like(-1e30)?;
                mask.select(&scores, &hidden)?.softmax()?.mul(&mask.cast(scores.dtype())?)?
            }
        };
        heads_first(&probabilities.cast(values.dtype())?.matmul(&heads_first(values)?)?)
    }
}

/// How far each key is after each query, `[queries, keys]` aligned at the end, for scores `[.., queries, keys]`.
fn ahead(scores: &Tensor) -> Result<Tensor> {
    let (shape, rank) = (scores.shape(), scores.rank());
    let [queries, keys] = [shape[rank - 2], shape[rank - 1]];
    let query = scores.iota(&[queries, keys], 0)?.add_scalar(keys as f64 - queries as f64)?;
    scores.iota(&[queries, keys], 1)?.sub(&query)
}

impl Tensor {
    /// Queries or keys `[batch, tokens, heads, width]` with their positions as rotations: pairs of elements, one from each
    /// half of the width, are turned by the position times `base` to a power from 0 down to −1. So the product of a query
    /// and a key depends on how far they are apart. This is the layout of Llama's and GPT-NeoX's published weights.
    ///
    /// # Errors
    /// If these are not floats of four axes, of an even width.
    pub fn rotary(&self, base: f64) -> Result<Tensor> {
        let even = self.rank() == 4 && self.shape()[3].is_multiple_of(2);
        if !even || !self.dtype().is_float() {
            let message = format!(
                "rotary: takes floats [batch, tokens, heads, width] of an even width, this is {self}"
            );
            return Err(self.error(ErrorKind::Shape, message));
        }
        let (tokens, half) = (self.shape()[1], self.shape()[3] / 2);
        let index = |axis| self.iota(&[tokens, 1, half], axis)?.cast(DType::F32);
        let rate = index(2)?.mul_scalar(-base.ln() / half.max(1) as f64)?.exp()?;
        let angle = index(0)?.mul(&rate)?;
        let (cos, sin) = (angle.cos()?, angle.sin()?);
        self.precisely("rotary", |x| {
            let [cos, sin] = [cos.cast(x.dtype())?, sin.cast(x.dtype())?];
            let (a, b) = (x.slice(3, 0..half)?, x.slice(3, half..2 * half)?);
            let left = a.mul(&cos)?.sub(&b.mul(&sin)?)?;
            let right = b.mul(&cos)?.add(&a.mul(&sin)?)?;
            Tensor::concat(&[&left, &right], 3)
        })
    }
}
