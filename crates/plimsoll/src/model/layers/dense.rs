//! Dense layers.

use super::{Activation, Layer};
use crate::{Context, ErrorKind, Init, Result, Tensor};

/// `x · weight + bias` over the last axis: `[.., in]` becomes `[.., units]`.
///
/// ```
/// use plimsoll::layers::{Activation, Dense, Layer};
/// use plimsoll::{Context, DType, Precision};
/// let cx = Context::trace(true, Precision::F32);
/// let x = cx.input("x", &[32, 784], DType::F32)?;
/// let y = Dense::new(100).activation(Activation::Relu).forward(&cx, &x)?;
/// assert_eq!(y.shape()[..], [32, 100]);
/// # Ok::<(), plimsoll::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Dense {
    units: usize,
    bias: bool,
    init: Init,
    activation: Option<Activation>,
}

impl Dense {
    /// A layer of this many units, with a bias, its weight initialised by [`Init::GlorotUniform`].
    pub fn new(units: usize) -> Self {
        Dense { units, bias: true, init: Init::GlorotUniform, activation: None }
    }

    /// Applies a function to the result.
    pub fn activation(mut self, activation: Activation) -> Self {
        self.activation = Some(activation);
        self
    }

    /// Initialises the weight so; the bias always starts at zero.
    pub fn init(mut self, init: Init) -> Self {
        self.init = init;
        self
    }

    /// Leaves out the bias.
    pub fn no_bias(mut self) -> Self {
        self.bias = false;
        self
    }
}

impl Layer for Dense {
    fn forward(&self, cx: &Context, x: &Tensor) -> Result<Tensor> {
        let Some(&inputs) = x.shape().last() else {
            return Err(cx.error(ErrorKind::Shape, format!("dense: the input is [.., in], this is {x}")));
        };
        let weight = cx.parameter("weight", &[inputs, self.units], self.init)?;
        let mut y = x.matmul(&weight)?;
        if self.bias {
            y = y.add(&cx.parameter("bias", &[self.units], Init::Zeros)?)?;
        }
        Activation::apply_if(self.activation, y)
    }

    fn kind(&self) -> &'static str {
        "dense"
    }
}
