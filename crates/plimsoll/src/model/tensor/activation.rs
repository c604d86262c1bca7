//! Functions of each element that are made of others.
//!
//! They are arithmetic that fuses into one loop, computed in the type of sums and rounded once, so that a half-precision
//! type loses no more digits to them than to a function of one instruction. NaN gives NaN, in gradients too; where a
//! function has a corner, its gradient there is PyTorch's.

use super::Tensor;
use crate::{DType, ErrorKind, Result};

impl Tensor {
    /// x / (1 + e⁻ˣ), also called swish.
    ///
    /// # Errors
    /// If this is not a float.
    pub fn silu(&self) -> Result<Tensor> {
        self.precisely("silu", |x| x.mul(&x.sigmoid()?))
    }

    /// x · tanh(ln(1 + eˣ))
    ///
    /// # Errors
    /// If this is not a float.
    pub fn mish(&self) -> Result<Tensor> {
        self.precisely("mish", |x| x.mul(&x.softplus()?.tanh()?))
    }

    /// `x` where it is above 0, else `alpha` · (eˣ − 1). The difference is computed as tanh(x / 2) (eˣ + 1), which is as
    /// exact next to 0.
    ///
    /// # Errors
    /// If this is not a float.
    pub fn elu(&self, alpha: f64) -> Result<Tensor> {
        self.precisely("elu", |x| {
            let zero = x.full_like(0.0)?;
            let above = x.gt(&zero)?;
            // What is not chosen must not be infinite: nothing times infinity is NaN in the gradient.
            let below = above.select(&zero, x)?;
            let difference = below.mul_scalar(0.5)?.tanh()?.mul(&below.exp()?.add_scalar(1.0)?)?;
            above.select(x, &difference.mul_scalar(alpha)?)
        })
    }

    /// `x` where it is above 0, else `slope` · x.
    ///
    /// # Errors
    /// If this is not a float.
    pub fn leaky_relu(&self, slope: f64) -> Result<Tensor> {
        self.precisely("leaky_relu", |x| x.gt(&x.full_like(0.0)?)?.select(x, &x.mul_scalar(slope)?))
    }

    /// min(max(x, 0), 6)
    ///
    /// # Errors
    /// If this is bool.
    pub fn relu6(&self) -> Result<Tensor> {
        let (positive, six) = (self.relu()?, self.full_like(6.0)?);
        positive.ge(&six)?.select(&six, &positive)
    }

    /// min(max(x + 3, 0), 6) / 6: straight lines in place of [`Tensor::sigmoid`].
    ///
    /// # Errors
    /// If this is not a float.
    pub fn hard_sigmoid(&self) -> Result<Tensor> {
        self.precisely("hard_sigmoid", |x| x.add_scalar(3.0)?.relu6()?.mul_scalar(1.0 / 6.0))
    }

    /// x · [`hard_sigmoid`](Tensor::hard_sigmoid)(x)
    ///
    /// # Errors
    /// If this is not a float.
    pub fn hard_swish(&self) -> Result<Tensor> {
        self.precisely("hard_swish", |x| x.mul(&x.hard_sigmoid()?))
    }

    /// `x`, but not below `least` and not above `most`. Where it is, no gradient flows.
    ///
    /// ```
    /// use plimsoll::Eager;
    /// let x = Eager::new()?.tensor(&[4], &[-2.0, 0.5, 7.0, f32::NAN])?;
    /// let y = x.clamp(-1.0, 1.0)?.to_vec()?;
    /// assert_eq!(y[..3], [-1.0, 0.5, 1.0]);
    /// assert!(y[3].is_nan());
    /// # Ok::<(), plimsoll::Error>(())
    /// ```
    ///
    /// # Errors
    /// If this is bool, or `least` is above `most`.
    pub fn clamp(&self, least: f64, most: f64) -> Result<Tensor> {
        if least.is_nan() || most.is_nan() || least > most {
            let message = format!("clamp: there is no number from {least} to {most}");
            return Err(self.error(ErrorKind::Argument, message));
        }
        let [low, high] = [self.full_like(least)?, self.full_like(most)?];
        self.lt(&low)?.select(&low, &self.gt(&high)?.select(&high, self)?)
    }

    /// `formula` of this in the type of sums, rounded once.
    pub(crate) fn precisely(
        &self,
        name: &str,
        formula: impl FnOnce(&Tensor) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let dtype = self.dtype();
        if !dtype.is_float() {
            return Err(self.error(ErrorKind::DType, format!("{name}: takes floats, this is {self}")));
        }
        formula(&self.cast(wide(dtype))?)?.cast(dtype)
    }
}

/// The type that sums of a type's numbers are in.
pub(crate) fn wide(dtype: DType) -> DType {
    if dtype == DType::F64 { DType::F64 } else { DType::F32 }
}
