//! Convolutions of images.

use super::{Activation, Layer};
use crate::{Context, ErrorKind, Init, Result, Tensor};
use plimsoll_graph::op;

/// What is around an image where a window reaches over its edge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Padding {
    /// Nothing: windows stay inside.
    Valid,
    /// As much as keeps the extent, divided by the stride and rounded up; if that is odd, more at the end.
    Same,
    /// This many rows and columns (top, bottom, left, right).
    Explicit([usize; 4]),
}

impl Padding {
    /// Rows and columns around images of `extent` for windows that reach over `reach` elements.
    pub(super) fn resolve(self, extent: [usize; 2], reach: [usize; 2], stride: [usize; 2]) -> [usize; 4] {
        match self {
            Padding::Valid => [0; 4],
            Padding::Explicit(border) => border,
            Padding::Same => {
                let total = |axis: usize| {
                    let stride = stride[axis].max(1);
                    let last_start = extent[axis].div_ceil(stride).saturating_sub(1).saturating_mul(stride);
                    last_start.saturating_add(reach[axis]).saturating_sub(extent[axis])
                };
                let [rows, columns] = [total(0), total(1)];
                [rows / 2, rows - rows / 2, columns / 2, columns - columns / 2]
            }
        }
    }
}

/// A two-dimensional convolution: images `[batch, height, width, channels]` to `[.., filters]`.
///
/// ```
/// use plimsoll::layers::{Conv2d, Layer, Padding};
/// use plimsoll::{Context, DType, Precision};
/// let cx = Context::trace(true, Precision::F32);
/// let x = cx.input("images", &[8, 32, 32, 3], DType::F32)?;
/// let y = Conv2d::new(16, [3, 3]).stride([2, 2]).padding(Padding::Same).forward(&cx, &x)?;
/// assert_eq!(y.shape()[..], [8, 16, 16, 16]);
/// # Ok::<(), plimsoll::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Conv2d {
    filters: usize,
    window: [usize; 2],
    stride: [usize; 2],
    padding: Padding,
    dilation: [usize; 2],
    groups: usize,
    bias: bool,
    init: Init,
    activation: Option<Activation>,
}

impl Conv2d {
    /// A convolution with this many filters of this height and width: stride 1, [`Padding::Valid`], with a
    /// bias, its filter initialised by [`Init::HeNormal`].
    pub fn new(filters: usize, window: [usize; 2]) -> Self {
        Conv2d {
            filters,
            window,
            stride: [1, 1],
            padding: Padding::Valid,
            dilation: [1, 1],
            groups: 1,
            bias: true,
            init: Init::HeNormal,
            activation: None,
        }
    }

    /// Moves the window in these steps (down, across).
    pub fn stride(mut self, stride: [usize; 2]) -> Self {
        self.stride = stride;
        self
    }

    /// Surrounds images so.
    pub fn padding(mut self, padding: Padding) -> Self {
        self.padding = padding;
        self
    }

    /// Spreads the filter's taps to these distances (down, across).
    pub fn dilation(mut self, dilation: [usize; 2]) -> Self {
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

impl Layer for Conv2d {
    fn forward(&self, cx: &Context, x: &Tensor) -> Result<Tensor> {
        cx.expect_axes("conv", x, &["batch", "height", "width", "channels"])?;
        let [_, height, width, channels] = [0, 1, 2, 3].map(|axis| x.shape()[axis]);
        let split = |count: usize| self.groups > 0 && count.is_multiple_of(self.groups);
        if !split(channels) || !split(self.filters) {
            let message = format!(
                "conv: the {channels} channels of {x} and {} filters do not split into {} groups",
                self.filters, self.groups
            );
            return Err(cx.error(ErrorKind::Shape, message));
        }
        let shape = [self.window[0], self.window[1], channels / self.groups, self.filters];
        let filter = cx.parameter("filter", &shape, self.init)?;
        let mut geometry =
            op::Conv2d { stride: self.stride, padding: [0; 4], dilation: self.dilation, groups: self.groups };
        let reach = [geometry.reach(0, self.window[0])?, geometry.reach(1, self.window[1])?];
        geometry.padding = self.padding.resolve([height, width], reach, self.stride);
        let mut y = x.conv2d(&filter, geometry)?;
        if self.bias {
            y = y.add(&cx.parameter("bias", &[self.filters], Init::Zeros)?)?;
        }
        Activation::apply_if(self.activation, y)
    }

    fn kind(&self) -> &'static str {
        "conv"
    }
}
