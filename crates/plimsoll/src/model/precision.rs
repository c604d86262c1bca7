//! The element type that a model computes in.

use crate::{DType, Error, Result, name};
use std::fmt;
use std::str::FromStr;

/// The element type of activations. Parameters, statistics, losses and optimizer states are `f32` in every
/// precision; a parameter is converted where it is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Precision {
    /// Single precision throughout.
    #[default]
    F32,
    /// As [`Precision::F32`], but that matrix products may round their operands to the 10 bits of TF32's fraction, where
    /// the device has tensor cores for it: several times as fast, and other numbers than in `f32`, so that this is only
    /// done on a user's word. Convolutions are as in `f32`. On the CPU, and in what profiles model, all is as in `f32`.
    Tf32,
    /// Activations in `bf16`: half the bytes, the range of `f32`.
    Bf16,
    /// Activations in `f16`: half the bytes, more digits and far less range than `bf16`. Training scales the loss so
    /// that gradients of activations do not vanish: by 2¹⁵ at first, half of that after a step with a gradient that is
    /// not finite, twice that after 2,000 steps without one, never less than one. A step with such a gradient changes
    /// nothing else, and the optimizer does not count it. The loss that is reported and clipping see nothing of the scale.
    F16,
}

const NAMES: [(&str, Precision); 4] =
    [("f32", Precision::F32), ("tf32", Precision::Tf32), ("bf16", Precision::Bf16), ("f16", Precision::F16)];

impl Precision {
    /// The element type of activations.
    pub fn compute(self) -> DType {
        match self {
            Precision::F32 | Precision::Tf32 => DType::F32,
            Precision::Bf16 => DType::BF16,
            Precision::F16 => DType::F16,
        }
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Precision::Tf32 => f.write_str("tf32"),
            _ => f.write_str(self.compute().name()),
        }
    }
}

impl FromStr for Precision {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        name::find("precision", &NAMES, name)
    }
}
