//! Layers in which one part of the input decides how much of another passes.

use super::{Activation, Dense, Layer};
use crate::{Context, Init, Result, Tensor};

/// The perceptron of Llama: silu(x · gate) ⊙ (x · up) · down, without biases. `[.., width]` to the same shape.
///
/// ```
/// use plimsoll::layers::{Layer, SwiGlu};
/// use plimsoll::{Context, DType, Precision};
/// let cx = Context::trace(true, Precision::F32);
/// let x = cx.input("x", &[8, 128, 64], DType::F32)?;
/// assert_eq!(SwiGlu::new(172).forward(&cx, &x)?.shape()[..], [8, 128, 64]);
/// # Ok::<(), plimsoll::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct SwiGlu {
    hidden: usize,
    init: Init,
}

impl SwiGlu {
    /// A perceptron of this hidden width. Weights start normal with deviation 0.02.
    pub fn new(hidden: usize) -> Self {
        SwiGlu { hidden, init: Init::Normal(0.02) }
    }

    /// Initialises the weights so.
    pub fn init(mut self, init: Init) -> Self {
        self.init = init;
        self
    }
}

impl Layer for SwiGlu {
    fn forward(&self, cx: &Context, x: &Tensor) -> Result<Tensor> {
        let dense = |units| Dense::new(units).no_bias().init(self.init);
        let gate = cx.layer("gate", dense(self.hidden), x)?.silu()?;
        let up = cx.layer("up", dense(self.hidden), x)?;
        let width = x.shape().last().copied().unwrap_or(0);
        cx.layer("down", dense(width), &gate.mul(&up)?)
    }

    fn kind(&self) -> &'static str {
        "swiglu"
    }
}

/// Scales the channels of images `[batch, height, width, channels]` by what their means say: two dense layers, of which
/// the first is narrow, and a gate from 0 to 1.
#[derive(Debug, Clone)]
pub struct SqueezeExcite {
    reduced: usize,
    activation: Activation,
    gate: Activation,
}

impl SqueezeExcite {
    /// Squeezes the channels to so many, with relu, and gates by a sigmoid.
    pub fn new(reduced: usize) -> Self {
        SqueezeExcite { reduced, activation: Activation::Relu, gate: Activation::Sigmoid }
    }

    /// Applies this function to what is squeezed.
    pub fn activation(mut self, activation: Activation) -> Self {
        self.activation = activation;
        self
    }

    /// Gates by this function.
    pub fn gate(mut self, gate: Activation) -> Self {
        self.gate = gate;
        self
    }
}

impl Layer for SqueezeExcite {
    fn forward(&self, cx: &Context, x: &Tensor) -> Result<Tensor> {
        cx.expect_axes("squeeze_excite", x, &["batch", "height", "width", "channels"])?;
        let (batch, channels) = (x.shape()[0], x.shape()[3]);
        let means = x.mean(&[1, 2])?;
        let squeezed = cx.layer("squeeze", Dense::new(self.reduced).activation(self.activation), &means)?;
        let gates = cx.layer("excite", Dense::new(channels).activation(self.gate), &squeezed)?;
        x.mul(&gates.reshape(&[batch, 1, 1, channels])?)
    }

    fn kind(&self) -> &'static str {
        "squeeze_excite"
    }
}
