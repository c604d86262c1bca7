//! Attention.

use super::{Dense, Layer};
use crate::{Attend, Context, ErrorKind, Init, Result, Tensor};

/// Attention of several heads: `[batch, tokens, width]` to the same shape.
///
/// As a layer it is self-attention. Queries, keys and values come from one product: the columns of `qkv/weight`
/// `[width, 3 width]` are those of all queries, then all keys, then all values, head after head; with fewer heads of keys
/// and values there are fewer columns of these. [`MultiHeadAttention::cross`] attends to something else. Weights start
/// normal with deviation 0.02.
///
/// ```
/// use plimsoll::layers::MultiHeadAttention;
/// use plimsoll::{Attend, Context, DType, Precision};
/// let cx = Context::trace(true, Precision::F32);
/// let x = cx.input("x", &[2, 10, 64], DType::F32)?;
/// let real = cx.input("real", &[2, 10], DType::Bool)?;
/// let mask = real.reshape(&[2, 1, 1, 10])?;
/// let y = MultiHeadAttention::new(4).with(&cx, &x, Attend::new().mask(&mask))?;
/// assert_eq!(y.shape()[..], [2, 10, 64]);
/// # Ok::<(), plimsoll::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct MultiHeadAttention {
    heads: usize,
    key_value_heads: Option<usize>,
    rotary: Option<f64>,
    causal: bool,
    bias: bool,
    init: Init,
    out_init: Init,
}

impl MultiHeadAttention {
    /// This many heads, in which every token sees all tokens.
    pub fn new(heads: usize) -> Self {
        let init = Init::Normal(0.02);
        MultiHeadAttention {
            heads,
            key_value_heads: None,
            rotary: None,
            causal: false,
            bias: true,
            init,
            out_init: init,
        }
    }

    /// Gives keys and values so many heads, each of which serves several of the queries' (grouped-query attention).
    pub fn key_value_heads(mut self, heads: usize) -> Self {
        self.key_value_heads = Some(heads);
        self
    }

    /// Turns queries and keys by their positions ([`Tensor::rotary`]), by powers of this base; 10000 is usual.
    pub fn rotary(mut self, base: f64) -> Self {
        self.rotary = Some(base);
        self
    }

    /// Lets a token see only itself and those before.
    pub fn causal(mut self) -> Self {
        self.causal = true;
        self
    }

    /// Leaves out the biases.
    pub fn no_bias(mut self) -> Self {
        self.bias = false;
        self
    }

    /// Initialises all weights so.
    pub fn init(mut self, init: Init) -> Self {
        (self.init, self.out_init) = (init, init);
        self
    }

    /// Initialises the weight of the output so.
    pub fn out_init(mut self, init: Init) -> Self {
        self.out_init = init;
        self
    }

    /// Self-attention with a mask, a bias or a scale.
    ///
    /// # Errors
    /// If the heads do not divide the width, or shapes do not go together.
    pub fn with(&self, cx: &Context, x: &Tensor, attend: Attend) -> Result<Tensor> {
        let heads = self.check(cx, x, x)?;
        let (width, few) = (x.shape()[2], heads.few_width());
        let qkv = cx.layer("qkv", self.dense(width.saturating_add(few.saturating_mul(2)), self.init), x)?;
        let queries = heads.split(&qkv.slice(2, 0..width)?, heads.many)?;
        let keys = heads.split(&qkv.slice(2, width..width + few)?, heads.few)?;
        let values = heads.split(&qkv.slice(2, width + few..width + 2 * few)?, heads.few)?;
        self.join(cx, [queries, keys, values], attend)
    }

    /// Attention of `x` to `memory`, both `[batch, tokens, width]` with lengths of their own. Queries are by `q/weight`,
    /// keys and values by `kv/weight`.
    ///
    /// # Errors
    /// If the heads do not divide the width, or shapes do not go together.
    pub fn cross(&self, cx: &Context, x: &Tensor, memory: &Tensor, attend: Attend) -> Result<Tensor> {
        let heads = self.check(cx, x, memory)?;
        let (width, few) = (x.shape()[2], heads.few_width());
        let q = cx.layer("q", self.dense(width, self.init), x)?;
        let kv = cx.layer("kv", self.dense(few.saturating_mul(2), self.init), memory)?;
        let queries = heads.split(&q, heads.many)?;
        let keys = heads.split(&kv.slice(2, 0..few)?, heads.few)?;
        let values = heads.split(&kv.slice(2, few..2 * few)?, heads.few)?;
        self.join(cx, [queries, keys, values], attend)
    }

    fn dense(&self, units: usize, init: Init) -> Dense {
        let dense = Dense::new(units).init(init);
        if self.bias { dense } else { dense.no_bias() }
    }

    /// What queries find, with the heads side by side again.
    fn join(&self, cx: &Context, [queries, keys, values]: [Tensor; 3], attend: Attend) -> Result<Tensor> {
        let turned = |x: Tensor| self.rotary.map_or(Ok(x.clone()), |base| x.rotary(base));
        let attend = if self.causal { attend.causal() } else { attend };
        let mixed = attend.of(&turned(queries)?, &turned(keys)?, &values)?;
        let [batch, tokens, heads, each] = [0, 1, 2, 3].map(|axis| mixed.shape()[axis]);
        let joined = mixed.reshape(&[batch, tokens, heads * each])?;
        cx.layer("out", self.dense(heads * each, self.out_init), &joined)
    }

    fn check(&self, cx: &Context, x: &Tensor, memory: &Tensor) -> Result<Heads> {
        cx.expect_axes("attention", x, &["batch", "tokens", "width"])?;
        cx.expect_axes("attention", memory, &["batch", "tokens", "width"])?;
        let (width, few) = (x.shape()[2], self.key_value_heads.unwrap_or(self.heads));
        if self.heads == 0 || !width.is_multiple_of(self.heads) {
            let message =
                format!("attention: the width {width} of {x} does not split into {} heads", self.heads);
            return Err(cx.error(ErrorKind::Shape, message));
        }
        if few == 0 || !self.heads.is_multiple_of(few) {
            let message = format!(
                "attention: {few} heads of keys and values cannot serve {} heads of queries; a divisor can",
                self.heads
            );
            return Err(cx.error(ErrorKind::Argument, message));
        }
        Ok(Heads { many: self.heads, few, width: width / self.heads })
    }
}

/// How many heads there are of queries, and of keys and values, and how wide each is.
struct Heads {
    many: usize,
    few: usize,
    width: usize,
}

impl Heads {
    fn few_width(&self) -> usize {
        self.few * self.width
    }

    fn split(&self, x: &Tensor, heads: usize) -> Result<Tensor> {
        x.reshape(&[x.shape()[0], x.shape()[1], heads, self.width])
    }
}

impl Layer for MultiHeadAttention {
    fn forward(&self, cx: &Context, x: &Tensor) -> Result<Tensor> {
        self.with(cx, x, Attend::new())
    }

    fn kind(&self) -> &'static str {
        "attention"
    }
}

/// A learned bias of scores by how far a key is from a query, in buckets that widen with the distance, as in T5: half of the
/// buckets are for single distances, the other half for ranges up to `farthest`, and beyond is the last.
///
/// The parameter is `table` `[buckets, heads]`.
#[derive(Debug, Clone)]
pub struct RelativeBias {
    heads: usize,
    buckets: usize,
    farthest: usize,
    causal: bool,
}

impl RelativeBias {
    /// For so many heads, with 32 buckets for distances up to 128; keys after the query have half of them.
    pub fn new(heads: usize) -> Self {
        RelativeBias { heads, buckets: 32, farthest: 128, causal: false }
    }

    /// With so many buckets for distances up to `farthest`.
    pub fn buckets(mut self, buckets: usize, farthest: usize) -> Self {
        (self.buckets, self.farthest) = (buckets, farthest);
        self
    }

    /// Gives all buckets to keys before the query: those after it are not seen.
    pub fn causal(mut self) -> Self {
        self.causal = true;
        self
    }

    /// The bias `[1, heads, queries, keys]`, for [`Attend::bias`].
    ///
    /// # Errors
    /// If there are too few buckets, or more than distances.
    pub fn of(&self, cx: &Context, queries: usize, keys: usize) -> Result<Tensor> {
        let table = cx.master_parameter("table", &[self.buckets, self.heads], Init::Normal(0.02))?;
        let each = if self.causal { self.buckets } else { self.buckets / 2 };
        let single = each / 2;
        if single == 0 || self.farthest <= single {
            let message = format!(
                "relative_bias: {} buckets for distances up to {}; there are at least 4, and fewer than distances",
                self.buckets, self.farthest
            );
            return Err(cx.error(ErrorKind::Argument, message));
        }
        let position = |axis| cx.iota(&[queries, keys], axis, crate::DType::I32);
        let ahead = position(1)?.sub(&position(0)?)?;
        let zero = ahead.full_like(0.0)?;
        let distance = if self.causal { ahead.minimum(&zero)?.neg()? } else { ahead.abs()? };
        // The bucket is how many of the distances at which one begins are reached: exact, whatever the logarithm rounds to.
        let mut bucket = zero.clone();
        for begin in (1..each).map(|bucket| self.begin(bucket, single, each)) {
            let reached = distance.ge(&distance.full_like(begin as f64)?)?;
            bucket = bucket.add(&reached.cast(bucket.dtype())?)?;
        }
        if !self.causal {
            let after = ahead.gt(&zero)?.cast(bucket.dtype())?;
            bucket = bucket.add(&after.mul_scalar(each as f64)?)?;
        }
        table.gather(&bucket)?.permute(&[2, 0, 1])?.unsqueeze(0)
    }

    /// The least distance of a bucket: logarithms of distances are spaced evenly from `single` on.
    fn begin(&self, bucket: usize, single: usize, each: usize) -> usize {
        if bucket <= single {
            return bucket;
        }
        let part = (bucket - single) as f64 / (each - single) as f64;
        let begin = single as f64 * (self.farthest as f64 / single as f64).powf(part);
        // A power that should be whole may be just above.
        (begin - 1e-6).ceil() as usize
    }
}
