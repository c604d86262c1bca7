//! The gradient of a convolution with respect to its input, as convolutions of the output's gradient.
//!
//! With a stride, the taps that reach an input pixel depend on the pixel's position modulo the stride. The pixels
//! of one such phase all see the same taps, at distances of whole output pixels, so that each phase is an ordinary
//! product without the zeros that a dilated output would bring.

use super::ConvShape;
use super::window::Windows;
use crate::gemm::{PackRight, Shape, Target, pack_transposed};
use crate::numbers::{Element, Float};
use crate::simd::Vector;
use std::ops::Range;

/// The pixels of one phase along one axis and the taps that reach them.
#[derive(Clone, Copy, Debug)]
struct Phase {
    /// The first pixel, the distance between pixels and their number.
    first: usize,
    stride: usize,
    pixels: usize,
    /// The last tap, the distance between taps and their number. Taps are counted from the last, so that the
    /// output pixels they lead to ascend.
    last_tap: usize,
    tap_step: usize,
    taps: usize,
    /// The output pixel that the last tap leads to from the first pixel, and the distance to the next tap's.
    offset: isize,
    dilation: usize,
}

impl Phase {
    fn new(shape: &ConvShape, axis: usize, first: usize) -> Self {
        let (stride, dilation) = (shape.stride[axis], shape.dilation[axis]);
        let padded = first + shape.padding[axis][0];
        // Tap `t` leads from the padded pixel to output `(padded - t * dilation) / stride`, if that is whole.
        let reaches = |&tap: &usize| (padded as isize - (tap * dilation) as isize) % stride as isize == 0;
        let taps = || (0..shape.filter[axis]).filter(reaches);
        let last_tap = taps().next_back().unwrap_or(0);
        let tap_step = stride / gcd(stride, dilation);
        Self {
            first,
            stride,
            pixels: shape.input[axis].saturating_sub(first).div_ceil(stride),
            last_tap,
            tap_step,
            taps: taps().count(),
            offset: (padded as isize - (last_tap * dilation) as isize) / stride as isize,
            dilation: tap_step * dilation / stride,
        }
    }

    /// The filter's tap that is `index` from the last.
    fn tap(&self, index: usize) -> usize {
        self.last_tap - index * self.tap_step
    }

    fn pixel(&self, index: usize) -> usize {
        self.first + index * self.stride
    }
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The products that make up the gradient, one for every phase.
pub(crate) fn phases(shape: &ConvShape) -> impl Iterator<Item = Phases> {
    let [down, across] = shape.stride;
    (0..down)
        .flat_map(move |y| (0..across).map(move |x| (y, x)))
        .map(|(y, x)| Phases { shape: *shape, axes: [Phase::new(shape, 0, y), Phase::new(shape, 1, x)] })
}

/// The pixels of one phase along both axes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Phases {
    shape: ConvShape,
    axes: [Phase; 2],
}

impl Phases {
    /// The size of the product.
    pub(crate) fn product(&self) -> Shape {
        let [down, across] = self.axes;
        Shape {
            batch: self.shape.groups,
            m: self.shape.batch * down.pixels * across.pixels,
            n: self.shape.group_channels(),
            k: down.taps * across.taps * self.shape.group_out_channels(),
        }
    }

    /// Whether the phase is all of the input.
    pub(crate) fn is_whole(&self) -> bool {
        self.shape.stride == [1, 1]
    }

    /// The left operand: the output's gradient around every pixel.
    pub(crate) fn windows<T>(&self, output_grad: *const T) -> Windows<T> {
        let axes = &self.axes;
        Windows {
            images: output_grad,
            size: self.shape.output,
            channels: self.shape.out_channels,
            group_channels: self.shape.group_out_channels(),
            grid: axes.map(|phase| phase.pixels),
            taps: axes.map(|phase| phase.taps),
            stride: [1, 1],
            dilation: axes.map(|phase| phase.dilation),
            offset: axes.map(|phase| phase.offset),
        }
    }
}

/// The right operand: the filter's taps of a phase, from the last to the first. Its columns are input
/// channels, over taps and output channels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlippedFilter<T> {
    pub(crate) phases: Phases,
    pub(crate) filter: *const T,
}

// SAFETY: the filter is only read, inside a product whose caller vouches for it.
unsafe impl<T: Element<Acc: Float>> Sync for FlippedFilter<T> {}

impl<T: Element<Acc: Float>> PackRight<T::Acc> for FlippedFilter<T> {
    #[inline(always)]
    unsafe fn pack<V: Vector<Scalar = T::Acc>>(
        &self,
        batch: usize,
        columns: Range<usize>,
        depth: Range<usize>,
        mut out: *mut T::Acc,
        width: usize,
    ) {
        let Phases { shape, axes: [down, across] } = &self.phases;
        let (channels, out_channels) = (shape.group_channels(), shape.group_out_channels());
        for first in columns.clone().step_by(width) {
            let count = width.min(columns.end - first);
            for tap in depth.start / out_channels..depth.end.div_ceil(out_channels) {
                let start = tap * out_channels;
                let part = depth.start.max(start) - start..depth.end.min(start + out_channels) - start;
                let (y, x) = (down.tap(tap / across.taps), across.tap(tap % across.taps));
                let row = (y * shape.filter[1] + x) * channels + first;
                let column = |j: usize| {
                    let element = (row + j) * shape.out_channels + batch * out_channels + part.start;
                    self.filter.wrapping_add(element)
                };
                // SAFETY: the taps and channels are within the filter; the caller vouches for `out`.
                unsafe { pack_transposed::<V, T>(count, column, part.len(), out, width) };
                out = out.wrapping_add(part.len() * width);
            }
        }
    }
}

/// The target: the input's gradient at the pixels of a phase.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PhasePixels<T> {
    pub(crate) phases: Phases,
    pub(crate) input_grad: *mut T,
}

// SAFETY: tasks write disjoint elements, inside a product whose caller vouches for them.
unsafe impl<T: Element<Acc: Float>> Sync for PhasePixels<T> {}

impl<T: Element<Acc: Float>> Target<T> for PhasePixels<T> {
    fn row(&self, batch: usize, row: usize) -> (*mut T, isize) {
        let Phases { shape, axes: [down, across] } = &self.phases;
        let (rest, x) = (row / across.pixels, row % across.pixels);
        let (image, y) = (rest / down.pixels, rest % down.pixels);
        let pixel = (image * shape.input[0] + down.pixel(y)) * shape.input[1] + across.pixel(x);
        let element = pixel * shape.channels + batch * shape.group_channels();
        (self.input_grad.wrapping_add(element), 1)
    }

    fn row_stride(&self) -> Option<isize> {
        self.phases.is_whole().then_some(self.phases.shape.channels as isize)
    }
}
