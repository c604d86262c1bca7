//! Transposed convolutions, which make images larger.

use super::{Activation, Layer, Padding};
use crate::{Context, ErrorKind, Init, Result, Tensor};
use plimsoll_graph::op;

/// A transposed convolution: images `[batch, height, width, channels]` to `[.., filters]`, larger by the stride. It is the
/// gradient for the images of a [`Conv2d`](super::Conv2d) of the same geometry, and runs by the same kernel.
///
/// The extent becomes (extent − 1) · stride − padding + dilation · (window − 1) + 1 + output padding, as in PyTorch.
///
/// ```
/// use plimsoll::layers::{ConvTranspose2d, Layer, Padding};
/// use plimsoll::{Context, DType, Precision};
/// let cx = Context::trace(true, Precision::F32);
/// let x = cx.input("x", &[8, 4, 4, 64], DType::F32)?;
/// let up = ConvTranspose2d::new(32, [4, 4]).stride([2, 2]).padding(Padding::Explicit([1; 4]));
/// assert_eq!(up.forward(&cx, &x)?.shape()[..], [8, 8, 8, 32]);
/// # Ok::<(), plimsoll::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct ConvTranspose2d {
    filters: usize,
    window: [usize; 2],
    stride: [usize; 2],
    padding: Padding,
    output_padding: [usize; 2],
    dilation: [usize; 2],
    groups: usize,
    bias: bool,
    init: Init,
    activation: Option<Activation>,
}

impl ConvTranspose2d {
    /// With this many filters of this height and width: stride 1, [`Padding::Valid`], with a bias, its filter initialised by
    /// [`Init::HeNormal`].
    pub fn new(filters: usize, window: [usize; 2]) -> Self {
        ConvTranspose2d {
            filters,
            window,
            stride: [1, 1],
            padding: Padding::Valid,
            output_padding: [0, 0],
            dilation: [1, 1],
            groups: 1,
            bias: true,
            init: Init::HeNormal,
            activation: None,
        }
    }

    /// Puts pixels these distances apart (down, across).
    pub fn stride(mut self, stride: [usize; 2]) -> Self {
        self.stride = stride;
        self
    }

    /// Cuts off so many rows and columns of the result; [`Padding::Same`] as many as make it the stride times as large.
    pub fn padding(mut self, padding: Padding) -> Self {
        self.padding = padding;
        self
    }

    /// Adds so many rows and columns at the end, fewer than the stride: of the sizes that a convolution would make the same
    /// of, another than the smallest.
    pub fn output_padding(mut self, output_padding: [usize; 2]) -> Self {
        self.output_padding = output_padding;
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

    /// The border that is cut off, and the extents of the result, for images of these extents.
    fn geometry(&self, extents: [usize; 2]) -> Result<Option<(op::Conv2d, [usize; 2])>> {
        let (stride, dilation, groups) = (self.stride, self.dilation, self.groups);
        let mut conv = op::Conv2d { stride, padding: [0; 4], dilation, groups };
        let mut result = [0; 2];
        for axis in 0..2 {
            let reach = conv.reach(axis, self.window[axis])?;
            let [before, after] = match self.padding {
                Padding::Valid => [0, 0],
                Padding::Explicit(border) => [border[2 * axis], border[2 * axis + 1]],
                Padding::Same => {
                    let total = reach.saturating_sub(stride[axis]);
                    [total / 2, total - total / 2]
                }
            };
            let spread = extents[axis].checked_sub(1).and_then(|gaps| gaps.checked_mul(stride[axis]));
            let whole = spread.and_then(|n| n.checked_add(reach)?.checked_add(self.output_padding[axis]));
            let cut = before.checked_add(after);
            let (Some(whole), Some(cut)) = (whole, cut) else { return Ok(None) };
            if self.output_padding[axis] >= stride[axis].max(1) || whole <= cut {
                return Ok(None);
            }
            (conv.padding[2 * axis], conv.padding[2 * axis + 1]) = (before, after);
            result[axis] = whole - cut;
        }
        Ok(Some((conv, result)))
    }
}

impl Layer for ConvTranspose2d {
    fn forward(&self, cx: &Context, x: &Tensor) -> Result<Tensor> {
        cx.expect_axes("conv_transpose", x, &["batch", "height", "width", "channels"])?;
        let [batch, height, width, channels] = [0, 1, 2, 3].map(|axis| x.shape()[axis]);
        let split = |count: usize| self.groups > 0 && count.is_multiple_of(self.groups);
        if !split(channels) || !split(self.filters) {
            let message = format!(
                "conv_transpose: the {channels} channels of {x} and {} filters do not split into {} groups",
                self.filters, self.groups
            );
            return Err(cx.error(ErrorKind::Shape, message));
        }
        let Some((conv, [tall, wide])) = self.geometry([height, width])? else {
            let message = format!(
                "conv_transpose: of {x}, nothing is left by windows {:?}, stride {:?}, padding {:?} and output \
                 padding {:?}, which is less than the stride",
                self.window, self.stride, self.padding, self.output_padding
            );
            return Err(cx.error(ErrorKind::Shape, message));
        };
        let shape = [self.window[0], self.window[1], self.filters / self.groups, channels];
        let filter = cx.parameter("filter", &shape, self.init)?;
        let mut y = x.conv_transpose2d(&filter, conv, [batch, tall, wide, self.filters])?;
        if self.bias {
            y = y.add(&cx.parameter("bias", &[self.filters], Init::Zeros)?)?;
        }
        Activation::apply_if(self.activation, y)
    }

    fn kind(&self) -> &'static str {
        "conv_transpose"
    }
}
