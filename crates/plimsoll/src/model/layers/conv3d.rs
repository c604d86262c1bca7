//! Convolutions and pools of volumes.

use super::{Activation, Layer};
use crate::model::tensor::wide;
use crate::{Context, ErrorKind, Init, Result, Tensor};
use plimsoll_graph::op::{Conv2d, Pool2d, PoolKind};

/// Up to how many filters of all steps of the depth are one convolution: wider ones fill a device each for itself.
const AT_ONCE: usize = 512;

/// A three-dimensional convolution: volumes `[batch, depth, height, width, channels]` to `[.., filters]`.
///
/// It is a sum of two-dimensional ones, one for each step of the filter's depth, over slices as a batch. Narrow ones of
/// stride 1 along the depth are one convolution, which sees each slice once; the others are as many kernels. Results exist
/// once for each step of the filter's depth until they are added.
///
/// ```
/// use plimsoll::layers::{Conv3d, Layer};
/// use plimsoll::{Context, DType, Precision};
/// let cx = Context::trace(true, Precision::F32);
/// let x = cx.input("volumes", &[2, 8, 16, 16, 1], DType::F32)?;
/// let y = Conv3d::new(4, [3, 3, 3]).stride([2, 2, 2]).padding([1, 1, 1]).forward(&cx, &x)?;
/// assert_eq!(y.shape()[..], [2, 4, 8, 8, 4]);
/// # Ok::<(), plimsoll::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Conv3d {
    filters: usize,
    window: [usize; 3],
    stride: [usize; 3],
    padding: [usize; 3],
    dilation: [usize; 3],
    groups: usize,
    bias: bool,
    init: Init,
    activation: Option<Activation>,
}

impl Conv3d {
    /// A convolution with this many filters of this depth, height and width: stride 1, no padding, with a bias, its filter
    /// initialised by [`Init::HeNormal`].
    pub fn new(filters: usize, window: [usize; 3]) -> Self {
        Conv3d {
            filters,
            window,
            stride: [1; 3],
            padding: [0; 3],
            dilation: [1; 3],
            groups: 1,
            bias: true,
            init: Init::HeNormal,
            activation: None,
        }
    }

    /// Moves the window in these steps.
    pub fn stride(mut self, stride: [usize; 3]) -> Self {
        self.stride = stride;
        self
    }

    /// Surrounds volumes with so many zeros, on both sides of each axis.
    pub fn padding(mut self, padding: [usize; 3]) -> Self {
        self.padding = padding;
        self
    }

    /// Spreads the filter's taps to these distances.
    pub fn dilation(mut self, dilation: [usize; 3]) -> Self {
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

    /// What each tap of the depth adds, of every slice of `padded`: `[batch, slices, height, width, groups, taps, filters of a
    /// group]`, by one convolution with the filters of all taps side by side.
    fn all_parts(&self, padded: &Tensor, filter: &Tensor, geometry: Conv2d) -> Result<Tensor> {
        let [batch, slices, height, width, channels] = [0, 1, 2, 3, 4].map(|axis| padded.shape()[axis]);
        let [deep, tall, wide] = self.window;
        let (inside, outside) = (channels / self.groups, self.filters / self.groups);
        let filter = filter.reshape(&[deep, tall, wide, inside, self.groups, outside])?;
        let filter =
            filter.permute(&[1, 2, 3, 4, 0, 5])?.reshape(&[tall, wide, inside, deep * self.filters])?;
        let all = padded.reshape(&[batch * slices, height, width, channels])?.conv2d(&filter, geometry)?;
        let [tall, wide] = [1, 2].map(|axis| all.shape()[axis]);
        all.reshape(&[batch, slices, tall, wide, self.groups, deep, outside])
    }

    /// How many steps the window takes along the depth.
    fn depth_of(&self, depth: usize) -> Option<usize> {
        let padded = self.padding[0].checked_mul(2)?.checked_add(depth)?;
        let reach = self.dilation[0].checked_mul(self.window[0].checked_sub(1)?)?.checked_add(1)?;
        padded.checked_sub(reach)?.checked_div(self.stride[0]).map(|steps| steps + 1)
    }
}

impl Layer for Conv3d {
    fn forward(&self, cx: &Context, x: &Tensor) -> Result<Tensor> {
        cx.expect_axes("conv3d", x, &["batch", "depth", "height", "width", "channels"])?;
        let [batch, depth, height, width, channels] = [0, 1, 2, 3, 4].map(|axis| x.shape()[axis]);
        let split = |count: usize| self.groups > 0 && count.is_multiple_of(self.groups);
        let (Some(steps), true) = (self.depth_of(depth), split(channels) && split(self.filters)) else {
            let message = format!(
                "conv3d: {} filters of {:?} in {} groups, stride {:?}, dilation {:?} and padding {:?} do not fit {x}",
                self.filters, self.window, self.groups, self.stride, self.dilation, self.padding
            );
            return Err(cx.error(ErrorKind::Shape, message));
        };
        let [deep, tall, wide_] = self.window;
        let shape = [deep, tall, wide_, channels / self.groups, self.filters];
        let filter = cx.parameter("filter", &shape, self.init)?;
        let [_, rows, columns] = self.padding;
        let geometry = Conv2d {
            stride: [self.stride[1], self.stride[2]],
            padding: [rows, rows, columns, columns],
            dilation: [self.dilation[1], self.dilation[2]],
            groups: self.groups,
        };
        let ends = (self.padding[0], self.padding[0]);
        let padded = x.pad(&[(0, 0), ends, (0, 0), (0, 0), (0, 0)], 0.0)?;
        let at_once = self.stride[0] == 1 && deep.saturating_mul(self.filters) <= AT_ONCE;
        let all = if at_once { Some(self.all_parts(&padded, &filter, geometry)?) } else { None };
        let mut sum: Option<Tensor> = None;
        for tap in 0..deep {
            let first = tap * self.dilation[0];
            let seen = first..first + (steps - 1) * self.stride[0] + 1;
            let part = match &all {
                Some(all) => all.slice(5, tap..tap + 1)?.slice(1, seen)?.squeeze(5)?,
                None => {
                    let slices = padded.slice_step(1, seen, self.stride[0])?;
                    let slices = slices.reshape(&[batch * steps, height, width, channels])?;
                    slices.conv2d(&filter.slice(0, tap..tap + 1)?.squeeze(0)?, geometry)?
                }
            };
            let part = part.cast(wide(part.dtype()))?;
            sum = Some(match sum {
                Some(sum) => sum.add(&part)?,
                None => part,
            });
        }
        // There is a first tap, or no window would have fitted.
        let Some(sum) = sum else { return Err(cx.error(ErrorKind::Shape, "conv3d: the filter is empty")) };
        let flat = sum.cast(x.dtype())?;
        let axes = if at_once { [2, 3] } else { [1, 2] };
        let [tall, wide_] = axes.map(|axis| flat.shape()[axis]);
        let mut y = flat.reshape(&[batch, steps, tall, wide_, self.filters])?;
        if self.bias {
            y = y.add(&cx.parameter("bias", &[self.filters], Init::Zeros)?)?;
        }
        Activation::apply_if(self.activation, y)
    }

    fn kind(&self) -> &'static str {
        "conv3d"
    }
}

/// The largest element of each window of volumes `[batch, depth, height, width, channels]`, one window beside the other.
#[derive(Debug, Clone, Copy)]
pub struct MaxPool3d(pub [usize; 3]);

impl Layer for MaxPool3d {
    fn forward(&self, cx: &Context, x: &Tensor) -> Result<Tensor> {
        cx.expect_axes("max_pool3d", x, &["batch", "depth", "height", "width", "channels"])?;
        let [batch, depth, height, width, channels] = [0, 1, 2, 3, 4].map(|axis| x.shape()[axis]);
        let [deep, tall, wide] = self.0;
        let Some(steps) = depth.checked_div(deep).filter(|&steps| steps > 0) else {
            let message = format!("max_pool3d: windows of {:?} do not fit {x}", self.0);
            return Err(cx.error(ErrorKind::Shape, message));
        };
        let whole = x.slice(1, 0..steps * deep)?.reshape(&[batch * steps * deep, height, width, channels])?;
        let window = [tall, wide];
        let pool = Pool2d { kind: PoolKind::Max, window, stride: window, padding: [0; 4] };
        let pooled = whole.pool2d(pool)?;
        let [_, tall, wide, _] = [0, 1, 2, 3].map(|axis| pooled.shape()[axis]);
        pooled.reshape(&[batch, steps, deep, tall, wide, channels])?.max(&[2])
    }

    fn kind(&self) -> &'static str {
        "max_pool3d"
    }
}
