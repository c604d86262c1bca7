//! Methods with kernels of their own: products, convolutions, norms, attention, recurrence.

use super::{Tensor, apply, apply_one};
use crate::{DType, ErrorKind, Result, Shape};
use plimsoll_graph::Op;
use plimsoll_graph::op::{Attention, Conv2d, Pool2d};

impl Tensor {
    /// The matrix product. `[.., k] · [k, n]` is `[.., n]`; with more than two axes on the right, the
    /// products are over the last two axes, batched over leading ones, which must be equal.
    ///
    /// # Errors
    /// If the inner extents, the leading axes or the element types differ.
    pub fn matmul(&self, other: &Tensor) -> Result<Tensor> {
        self.product(other, false)
    }

    /// The matrix product with the last two axes of `other` swapped: `[.., k] · [n, k]ᵀ` is `[.., n]`.
    ///
    /// # Errors
    /// If the inner extents, the leading axes or the element types differ.
    pub fn matmul_transposed(&self, other: &Tensor) -> Result<Tensor> {
        self.product(other, true)
    }

    fn product(&self, other: &Tensor, transpose: bool) -> Result<Tensor> {
        let (shape, rank) = (self.shape(), self.rank());
        if other.rank() != 2 || rank == 2 || rank == 0 {
            return apply_one(&[self, other], |g, v| g.dot_general(v[0], v[1], false, transpose));
        }
        let (lead, inner) = (&shape[..rank - 1], shape[rank - 1]);
        let outer = other.shape()[if transpose { 0 } else { 1 }];
        let rows: usize = lead.iter().product();
        let result = [lead, &[outer]].concat();
        apply_one(&[self, other], |g, v| {
            let rows = g.reshape(v[0], &[rows, inner])?;
            let product = g.dot_general(rows, v[1], false, transpose)?;
            g.reshape(product, &result)
        })
    }

    /// Exponentials over the last axis, normalised to sum to one.
    ///
    /// # Errors
    /// If this is a scalar or not a float.
    pub fn softmax(&self) -> Result<Tensor> {
        apply_one(&[self], |g, v| g.apply(Op::Softmax, v))
    }

    /// The logarithm of [`Tensor::softmax`].
    ///
    /// # Errors
    /// If this is a scalar or not a float.
    pub fn log_softmax(&self) -> Result<Tensor> {
        apply_one(&[self], |g, v| g.apply(Op::LogSoftmax, v))
    }

    /// The cross-entropy of each position: logits `[.., classes]` against integer labels `[..]`, as losses
    /// `[..]` in at least `f32`. A negative label has a loss of 0; one past the classes gives NaN.
    ///
    /// # Errors
    /// If the leading axes differ from the labels' or the labels are not integers.
    pub fn cross_entropy(&self, labels: &Tensor) -> Result<Tensor> {
        let (shape, rank) = (self.shape(), self.rank());
        if rank == 0 || shape[..rank - 1] != labels.shape()[..] {
            let message = format!(
                "cross_entropy: logits are [.., classes] and labels [..], these are {self} and {labels}"
            );
            return Err(self.error(ErrorKind::Shape, message));
        }
        let (positions, classes) = (labels.shape().elements(), shape[rank - 1]);
        let labels = labels.as_indices()?;
        apply_one(&[self, &labels], |g, v| {
            let lead = g.shape(v[1]);
            let logits = g.reshape(v[0], &[positions, classes])?;
            let labels = g.reshape(v[1], &[positions])?;
            let [loss, _] = g.apply_n(Op::CrossEntropy, &[logits, labels])?;
            g.reshape(loss, &lead)
        })
    }

    /// The loss of each of the integer `labels` as its part of the mean over those that are not negative. Each is scaled, and
    /// not their sum, so that no gradient waits for the sum.
    pub(crate) fn shares_of_mean(&self, labels: &Tensor) -> Result<Tensor> {
        let counted = labels.counted()?;
        self.cast(DType::F32)?.mul(&counted.full_like(1.0)?.div(&counted)?)
    }

    /// A two-dimensional convolution of images `[batch, height, width, channels]` with a filter
    /// `[height, width, channels / groups, channels out]`.
    ///
    /// # Errors
    /// If the channels do not match or the filter does not fit.
    pub fn conv2d(&self, filter: &Tensor, geometry: Conv2d) -> Result<Tensor> {
        apply_one(&[self, filter], |g, v| g.apply(Op::Conv2d(geometry), v))
    }

    /// A transposed convolution: images of this shape, of which a convolution of this geometry with a filter
    /// `[height, width, channels / groups, channels of this]` would make ones as large as these. It is that convolution's
    /// gradient for its images.
    ///
    /// # Errors
    /// If the convolution would make something else of such images.
    pub fn conv_transpose2d(&self, filter: &Tensor, geometry: Conv2d, shape: [usize; 4]) -> Result<Tensor> {
        let input = Shape::new(&shape)?;
        let op = Op::Conv2dInputGrad { conv: geometry, input };
        apply_one(&[filter, self], |g, v| g.apply(op.clone(), v))
    }

    /// Pooling over windows of images `[batch, height, width, channels]`.
    ///
    /// # Errors
    /// If the window does not fit.
    pub fn pool2d(&self, geometry: Pool2d) -> Result<Tensor> {
        apply_one(&[self], |g, v| g.apply(Op::Pool2d(geometry), v))
    }

    /// Normalises over the last axis, then scales by `gamma` and shifts by `beta`, both `[last extent]`.
    ///
    /// # Errors
    /// If `gamma` or `beta` has another shape or element type.
    pub fn layer_norm(&self, gamma: &Tensor, beta: &Tensor, epsilon: f64) -> Result<Tensor> {
        let [y, ..] = apply::<3>(&[self, gamma, beta], |g, v| g.apply_n(Op::LayerNorm { epsilon }, v))?;
        Ok(y)
    }

    /// Normalises each channel (last axis) over all other axes, then scales by `gamma` and shifts by `beta`,
    /// both `[channels]`. Returns the result, and the mean and biased variance of each channel in at least
    /// `f32`; no gradient flows through these two.
    ///
    /// # Errors
    /// If `gamma` or `beta` has another shape or element type.
    pub fn batch_norm(&self, gamma: &Tensor, beta: &Tensor, epsilon: f64) -> Result<[Tensor; 3]> {
        apply(&[self, gamma, beta], |g, v| {
            let [y, mean, variance] = g.apply_n(Op::BatchNorm { epsilon }, v)?;
            let mean = g.apply(Op::StopGradient, &[mean])?;
            let variance = g.apply(Op::StopGradient, &[variance])?;
            Ok([y, mean, variance])
        })
    }

    /// Scaled dot-product attention of these queries `[batch, queries, heads, width]` over keys and values
    /// `[batch, keys, heads, width]`. With `causal`, query i sees only keys up to i. Scores are multiplied
    /// with 1 / √width. [`Attend`](crate::Attend) has masks, biases and fewer heads of keys.
    ///
    /// # Errors
    /// If the shapes or element types do not go together.
    pub fn attention(&self, keys: &Tensor, values: &Tensor, causal: bool) -> Result<Tensor> {
        let width = self.shape().last().copied().unwrap_or(1).max(1);
        let attention = Attention { causal, scale: 1.0 / (width as f64).sqrt() };
        let [output, _] = apply::<2>(&[self, keys, values], |g, v| g.apply_n(Op::Attention(attention), v))?;
        Ok(output)
    }

    /// A long short-term memory layer over this `[batch, time, in]`; weights `[in, 4 hidden]` and
    /// `[hidden, 4 hidden]`, bias `[4 hidden]` (gates input, forget, cell, output), first hidden and cell
    /// states `[batch, hidden]`. Returns hidden and cell states `[batch, time, hidden]`; no gradient flows
    /// through the returned cell states.
    ///
    /// # Errors
    /// If the shapes or element types do not go together.
    pub fn lstm(
        &self,
        input_weight: &Tensor,
        hidden_weight: &Tensor,
        bias: &Tensor,
        hidden: &Tensor,
        cell: &Tensor,
    ) -> Result<[Tensor; 2]> {
        apply(&[self, input_weight, hidden_weight, bias, hidden, cell], |g, v| {
            let [states, _, cells] = g.apply_n(Op::Lstm, v)?;
            Ok([states, g.apply(Op::StopGradient, &[cells])?])
        })
    }

    /// A gated recurrent layer over this `[batch, time, in]`; weights `[in, 3 hidden]` and
    /// `[hidden, 3 hidden]`, biases `[3 hidden]` (gates reset, update, new), first hidden state
    /// `[batch, hidden]`. Returns hidden states `[batch, time, hidden]`.
    ///
    /// # Errors
    /// If the shapes or element types do not go together.
    pub fn gru(
        &self,
        input_weight: &Tensor,
        hidden_weight: &Tensor,
        input_bias: &Tensor,
        hidden_bias: &Tensor,
        hidden: &Tensor,
    ) -> Result<Tensor> {
        let operands = [self, input_weight, hidden_weight, input_bias, hidden_bias, hidden];
        let [states, _] = apply::<2>(&operands, |g, v| g.apply_n(Op::Gru, v))?;
        Ok(states)
    }

    /// Labels and indices as ops take them: bytes (pixels' classes, characters) become `i32`.
    pub(crate) fn as_indices(&self) -> Result<Tensor> {
        if self.dtype() == DType::U8 { self.cast(DType::I32) } else { Ok(self.clone()) }
    }
}
