//! Activations: the functions between layers, by value or by name.

use super::Layer;
use crate::{Context, Error, Result, Tensor, name};
use std::str::FromStr;

/// A function of each element (or, for softmax, of each row).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Activation {
    /// max(x, 0)
    Relu,
    /// x Φ(x), Φ the normal distribution function (exact, not the tanh approximation).
    Gelu,
    /// The hyperbolic tangent.
    Tanh,
    /// 1 / (1 + e⁻ˣ)
    Sigmoid,
    /// ln(1 + eˣ)
    Softplus,
    /// x / (1 + e⁻ˣ), also called swish.
    Silu,
    /// `x` where it is above 0, else eˣ − 1.
    Elu,
    /// `x` where it is above 0, else a hundredth of it.
    LeakyRelu,
    /// x · min(max(x + 3, 0), 6) / 6
    HardSwish,
    /// min(max(x + 3, 0), 6) / 6
    HardSigmoid,
    /// min(max(x, 0), 6)
    Relu6,
    /// x · tanh(ln(1 + eˣ))
    Mish,
    /// Exponentials over the last axis, normalised to sum to one.
    Softmax,
}

const NAMES: [(&str, Activation); 13] = [
    ("relu", Activation::Relu),
    ("gelu", Activation::Gelu),
    ("tanh", Activation::Tanh),
    ("sigmoid", Activation::Sigmoid),
    ("softplus", Activation::Softplus),
    ("silu", Activation::Silu),
    ("elu", Activation::Elu),
    ("leaky_relu", Activation::LeakyRelu),
    ("hard_swish", Activation::HardSwish),
    ("hard_sigmoid", Activation::HardSigmoid),
    ("relu6", Activation::Relu6),
    ("mish", Activation::Mish),
    ("softmax", Activation::Softmax),
];

impl Activation {
    /// The function of `x`.
    ///
    /// # Errors
    /// If `x` is not a float.
    pub fn apply(self, x: &Tensor) -> Result<Tensor> {
        match self {
            Activation::Relu => x.relu(),
            Activation::Gelu => x.gelu(),
            Activation::Tanh => x.tanh(),
            Activation::Sigmoid => x.sigmoid(),
            Activation::Softplus => x.softplus(),
            Activation::Silu => x.silu(),
            Activation::Elu => x.elu(1.0),
            Activation::LeakyRelu => x.leaky_relu(0.01),
            Activation::HardSwish => x.hard_swish(),
            Activation::HardSigmoid => x.hard_sigmoid(),
            Activation::Relu6 => x.relu6(),
            Activation::Mish => x.mish(),
            Activation::Softmax => x.softmax(),
        }
    }

    /// The function of `x`, or `x` itself where there is none.
    pub(crate) fn apply_if(activation: Option<Activation>, x: Tensor) -> Result<Tensor> {
        match activation {
            Some(activation) => activation.apply(&x),
            None => Ok(x),
        }
    }
}

impl Layer for Activation {
    fn forward(&self, _: &Context, x: &Tensor) -> Result<Tensor> {
        self.apply(x)
    }

    fn kind(&self) -> &'static str {
        "activation"
    }
}

impl FromStr for Activation {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        name::find("activation", &NAMES, name)
    }
}
