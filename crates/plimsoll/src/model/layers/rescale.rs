//! The units of a model's results.

use super::Layer;
use crate::{Context, DType, ErrorKind, Result, Tensor};

/// Multiplies by `factor` and adds `offset`, which are not trained: what a model whose numbers are near one says of prices
/// or temperatures, in their own units. Losses, metrics and predictions are then in these too.
///
/// Computed in `f32` at least: half precision has no room for large offsets.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rescale {
    /// What is multiplied by, mostly the standard deviation of the targets.
    pub factor: f64,
    /// What is added then, mostly the mean of the targets.
    pub offset: f64,
}

impl Layer for Rescale {
    fn forward(&self, cx: &Context, x: &Tensor) -> Result<Tensor> {
        let Rescale { factor, offset } = *self;
        if !factor.is_finite() || !offset.is_finite() || factor == 0.0 {
            let message = format!(
                "rescale: factor and offset are finite and the factor not 0; these are {factor} and {offset}"
            );
            return Err(cx.error(ErrorKind::Argument, message));
        }
        let x = if matches!(x.dtype(), DType::BF16 | DType::F16) { x.cast(DType::F32)? } else { x.clone() };
        x.mul_scalar(factor)?.add_scalar(offset)
    }

    fn kind(&self) -> &'static str {
        "rescale"
    }
}
