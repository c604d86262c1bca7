//! Limits on gradients, as graph code.

use crate::op::Reduction;
use crate::{DType, Error, Graph, Result, ValueId};
use serde::{Deserialize, Serialize};

/// How gradients are limited before they are applied.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Clip {
    /// Each element to `[-limit, limit]`.
    Value(f64),
    /// All gradients together, scaled down if their norm is larger.
    GlobalNorm(f64),
}

impl Clip {
    pub(super) fn check(self) -> Result<()> {
        match self {
            Clip::Value(limit) | Clip::GlobalNorm(limit) if limit.is_nan() || limit <= 0.0 => {
                Err(Error::argument(format!("gradients cannot be clipped at {limit}: it must be above 0")))
            }
            _ => Ok(()),
        }
    }

    /// The gradients after clipping.
    pub(super) fn apply(self, g: &mut Graph, gradients: Vec<ValueId>) -> Result<Vec<ValueId>> {
        match self {
            Clip::Value(limit) => gradients
                .into_iter()
                .map(|x| {
                    let (low, high) = (g.full_like(-limit, x)?, g.full_like(limit, x)?);
                    let bounded = g.max(x, low)?;
                    g.min(bounded, high)
                })
                .collect(),
            Clip::GlobalNorm(limit) => {
                let mut total = g.constant(0.0, DType::F32)?;
                for &x in &gradients {
                    let square = g.square(x)?;
                    let axes: Vec<usize> = (0..g.shape(x).rank()).collect();
                    let sum = g.reduce(Reduction::Sum, square, &axes)?;
                    let sum = g.cast(sum, DType::F32)?;
                    total = g.add(total, sum)?;
                }
                let norm = g.sqrt(total)?;
                let norm = g.add_scalar(norm, 1e-6)?;
                let limit = g.constant(limit, DType::F32)?;
                let factor = g.div(limit, norm)?;
                let one = g.constant(1.0, DType::F32)?;
                let factor = g.min(factor, one)?;
                gradients
                    .into_iter()
                    .map(|x| {
                        let factor = g.cast(factor, g.dtype(x))?;
                        g.mul(x, factor)
                    })
                    .collect()
            }
        }
    }
}
