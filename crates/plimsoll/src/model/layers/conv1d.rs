//! Convolutions over time.

use super::{Activation, Layer, Padding};
use crate::{Context, ErrorKind, Init, Result, Tensor};
use plimsoll_graph::op;

/// A convolution over time: `[batch, time, channels]` to `[batch, time, filters]`, as one of images of height 1.
///
/// ```
/// use plimsoll::layers::{Conv1d, Layer};
/// use plimsoll::{Context, DType, Precision};
/// let cx = Context::trace(true, Precision::F32);
/// let x = cx.input("x", &[8, 100, 4], DType::F32)?;
/// let y = Conv1d::new(16, 3).dilation(4).causal().forward(&cx, &x)?;
/// assert_eq!(y.shape()[..], [8, 100, 16]);
/// # Ok::<(), plimsoll::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Conv1d {
    filters: usize,
    window: usize,
    stride: usize,
    padding: Padding,
    causal: bool,
    dilation: usize,
    groups: usize,
    bias: bool,
    init: Init,
    activation: Option<Activation>,
}

impl Conv1d {
    /// A convolution with this many filters over so many steps: stride 1, [`Padding::Valid`], with a bias, its filter
    /// initialised by [`Init::HeNormal`].
    pub fn new(filters: usize, window: usize) -> Self {
        Conv1d {
            filters,
            window,
            stride: 1,
            padding: Padding::Valid,
            causal: false,
            dilation: 1,
            groups: 1,
            bias: true,
            init: Init::HeNormal,
            activation: None,
        }
    }

    /// Moves the window in steps of this.
    pub fn stride(mut self, stride: usize) -> Self {
        self.stride = stride;
        self
    }

    /// Surrounds sequences so; of explicit padding, by that on the left and on the right.
    pub fn padding(mut self, padding: Padding) -> Self {
        self.padding = padding;
        self
    }

    /// Puts all padding before the sequence, as much as keeps its length: no result sees what comes after it.
    pub fn causal(mut self) -> Self {
        self.causal = true;
        self
    }

    /// Spreads the filter's taps to this distance.
    pub fn dilation(mut self, dilation: usize) -> Self {
        self.dilation = dilation;
        self
    }

    /// Splits the channels into groups that do not see each other.
    pub fn groups(mut self, groups: usize) -> Self {
        self.groups = groups;
        self
    }

    /// Applies a function to the result.
    pub fn activation(mut self, activation: Activation) -> Self {
        self.activation = Some(activation);
        self
    }

    /// Initialises the filter so; the bias always starts at zero.
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

impl Layer for Conv1d {
    fn forward(&self, cx: &Context, x: &Tensor) -> Result<Tensor> {
        cx.expect_axes("conv1d", x, &["batch", "time", "channels"])?;
        let [batch, time, channels] = [0, 1, 2].map(|axis| x.shape()[axis]);
        let split = |count: usize| self.groups > 0 && count.is_multiple_of(self.groups);
        if !split(channels) || !split(self.filters) {
            let message = format!(
                "conv1d: the {channels} channels of {x} and {} filters do not split into {} groups",
                self.filters, self.groups
            );
            return Err(cx.error(ErrorKind::Shape, message));
        }
        let mut geometry = op::Conv2d {
            stride: [1, self.stride],
            padding: [0; 4],
            dilation: [1, self.dilation],
            groups: self.groups,
        };
        let reach = geometry.reach(1, self.window)?;
        let [_, _, left, right] = match self.padding {
            _ if self.causal => [0, 0, reach.saturating_sub(1), 0],
            padding => padding.resolve([1, time], [1, reach], [1, self.stride]),
        };
        geometry.padding = [0, 0, left, right];
        let shape = [self.window, channels / self.groups, self.filters];
        let filter = cx.parameter("filter", &shape, self.init)?.unsqueeze(0)?;
        let y = x.reshape(&[batch, 1, time, channels])?.conv2d(&filter, geometry)?;
        let mut y = y.squeeze(1)?;
        if self.bias {
            y = y.add(&cx.parameter("bias", &[self.filters], Init::Zeros)?)?;
        }
        Activation::apply_if(self.activation, y)
    }

    fn kind(&self) -> &'static str {
        "conv1d"
    }
}
