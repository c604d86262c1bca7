//! Dropout.

use super::Layer;
use crate::{Context, DType, ErrorKind, Result, Tensor};

/// In training, zeroes this fraction of the elements, chosen anew for every step, and scales up the others
/// so that the expected sum stays; in inference, does nothing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dropout(pub f64);

impl Layer for Dropout {
    fn forward(&self, cx: &Context, x: &Tensor) -> Result<Tensor> {
        let rate = self.0;
        if !(0.0..1.0).contains(&rate) {
            let message = format!("dropout: the rate is at least 0 and below 1, this is {rate}");
            return Err(cx.error(ErrorKind::Argument, message));
        }
        if rate == 0.0 || !cx.training() {
            return Ok(x.clone());
        }
        // Drawn in `f32` whatever the type of x: in `bf16` the rate would be off.
        let chance = cx.uniform(&x.shape())?;
        let kept = chance.ge(&chance.full_like(rate)?)?;
        // So is the factor, which is rounded once with its product.
        let scaled = x.cast(DType::F32)?.mul_scalar(1.0 / (1.0 - rate))?.cast(x.dtype())?;
        kept.select(&scaled, &x.full_like(0.0)?)
    }

    fn kind(&self) -> &'static str {
        "dropout"
    }
}
