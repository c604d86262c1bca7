//! Convolutions in which every channel has a filter of its own.
//!
//! Their sums are as short as the filter has taps, so there is nothing to block or pack: a vector of neighbouring
//! channels is summed over the taps in a register.

use super::ConvShape;
use crate::gemm::WORKSPACE_ALIGN;
use crate::numbers::{Element, Float};
use crate::runtime::{Address, Pool};
use crate::simd::{Body, InstructionSet, Isa, Vector, VectorOf};
use std::ops::Range;

/// The most taps down or across that are kept track of.
const MAX_TAPS: usize = 32;

/// Whether every channel is a group of its own, and the filter is not too large.
pub(super) fn fits(shape: &ConvShape) -> bool {
    let depthwise = shape.groups == shape.channels && shape.groups == shape.out_channels;
    depthwise && shape.groups > 1 && shape.filter.iter().all(|&taps| taps <= MAX_TAPS)
}

/// Computes the convolution.
///
/// # Safety
///
/// As for [`conv_forward`](super::conv_forward), and the shape [`fits`].
pub(super) unsafe fn forward<T: Element<Acc: Float>>(
    isa: Isa,
    pool: &Pool,
    shape: &ConvShape,
    input: *const T,
    filter: *const T,
    output: *mut T,
) {
    // SAFETY: the caller vouches for the pointers.
    unsafe { sums(isa, pool, shape, shape.output, shape.input, input, filter, output, input_of) }
}

/// Computes the gradient with respect to the input.
///
/// # Safety
///
/// As for [`conv_grad_input`](super::conv_grad_input), and the shape [`fits`].
pub(super) unsafe fn grad_input<T: Element<Acc: Float>>(
    isa: Isa,
    pool: &Pool,
    shape: &ConvShape,
    output_grad: *const T,
    filter: *const T,
    input_grad: *mut T,
) {
    // SAFETY: the caller vouches for the pointers.
    unsafe { sums(isa, pool, shape, shape.input, shape.output, output_grad, filter, input_grad, output_of) }
}

/// The input pixel that a tap of an output pixel reads, along one axis.
fn input_of(shape: &ConvShape, axis: usize, output: usize, tap: usize) -> Option<usize> {
    let padded = output * shape.stride[axis] + tap * shape.dilation[axis];
    padded.checked_sub(shape.padding[axis][0]).filter(|&input| input < shape.input[axis])
}

/// The output pixel that reads an input pixel by a tap, along one axis.
fn output_of(shape: &ConvShape, axis: usize, input: usize, tap: usize) -> Option<usize> {
    let padded = (input + shape.padding[axis][0]).checked_sub(tap * shape.dilation[axis])?;
    let output = padded / shape.stride[axis];
    (padded % shape.stride[axis] == 0 && output < shape.output[axis]).then_some(output)
}

/// Sets every pixel of `to` to the sum over the taps of the pixel of `from` that `source` gives, times the filter.
///
/// # Safety
///
/// The pointers are valid for images of the sizes, and for the filter.
#[expect(clippy::too_many_arguments, reason = "two images with their sizes")]
unsafe fn sums<T: Element<Acc: Float>>(
    isa: Isa,
    pool: &Pool,
    shape: &ConvShape,
    to_size: [usize; 2],
    from_size: [usize; 2],
    from: *const T,
    filter: *const T,
    to: *mut T,
    source: fn(&ConvShape, usize, usize, usize) -> Option<usize>,
) {
    let (from, filter, to) =
        (Address::new(from.cast_mut()), Address::new(filter.cast_mut()), Address::new(to));
    pool.run(shape.batch * to_size[0], &|_, row| {
        let (image, y) = (row / to_size[0], row % to_size[0]);
        let row = Row {
            shape,
            to: to.pointer().wrapping_add(row * to_size[1] * shape.channels),
            width: to_size[1],
            from: from.pointer().wrapping_add(image * from_size[0] * from_size[1] * shape.channels),
            from_width: from_size[1],
            filter: filter.pointer(),
            y,
            source,
        };
        isa.run(row);
    });
}

/// One row of sums.
struct Row<'a, T> {
    shape: &'a ConvShape,
    to: *mut T,
    width: usize,
    from: *const T,
    from_width: usize,
    filter: *const T,
    y: usize,
    source: fn(&ConvShape, usize, usize, usize) -> Option<usize>,
}

impl<T: Element<Acc: Float>> Body for Row<'_, T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<I: InstructionSet>(self) {
        // SAFETY: the contract is the same.
        unsafe { self.compute::<VectorOf<I, T::Acc>>() }
    }
}

impl<T: Element<Acc: Float>> Row<'_, T> {
    #[inline(always)]
    unsafe fn compute<V: Vector<Scalar = T::Acc>>(self) {
        let Self { shape, to, width, from, from_width, filter, y, source } = self;
        let channels = shape.channels;
        let rows = Sources::new(shape.filter[0], |tap| source(shape, 0, y, tap));
        for x in 0..width {
            let columns = Sources::new(shape.filter[1], |tap| source(shape, 1, x, tap));
            for first in (0..channels).step_by(V::LANES) {
                let lanes = 0..V::LANES.min(channels - first);
                // SAFETY: `source` gives pixels within the image.
                unsafe {
                    let mut sum = V::splat(T::Acc::ZERO);
                    for &(tap_y, from_y) in rows.as_slice() {
                        for &(tap_x, from_x) in columns.as_slice() {
                            let pixel = (from_y * from_width + from_x) * channels + first;
                            let tap = (tap_y * shape.filter[1] + tap_x) * channels + first;
                            let value = T::load_some::<V>(from.add(pixel), lanes.clone());
                            sum = value.mul_add(T::load_some(filter.add(tap), lanes.clone()), sum);
                        }
                    }
                    write::<V, T>(sum, to.add(x * channels + first), lanes.len());
                }
            }
        }
    }
}

/// The taps that read a pixel along one axis, each with its pixel.
struct Sources {
    pairs: [(usize, usize); MAX_TAPS],
    len: usize,
}

impl Sources {
    fn new(taps: usize, source: impl Fn(usize) -> Option<usize>) -> Self {
        let mut sources = Self { pairs: [(0, 0); MAX_TAPS], len: 0 };
        for (tap, pixel) in (0..taps).filter_map(|tap| Some((tap, source(tap)?))) {
            sources.pairs[sources.len] = (tap, pixel);
            sources.len += 1;
        }
        sources
    }

    fn as_slice(&self) -> &[(usize, usize)] {
        &self.pairs[..self.len]
    }
}

/// Writes the first `count` lanes, rounded.
#[inline(always)]
unsafe fn write<V: Vector<Scalar = T::Acc>, T: Element<Acc: Float>>(vector: V, to: *mut T, count: usize) {
    // SAFETY: the caller vouches for `count` elements; no vector has more than `MAX_LANES` lanes.
    unsafe {
        if T::IS_ACC {
            vector.store_first(to.cast(), count);
            return;
        }
        let mut lanes = [T::Acc::ZERO; crate::simd::MAX_LANES];
        vector.store(lanes.as_mut_ptr());
        for (lane, &value) in lanes[..count].iter().enumerate() {
            *to.add(lane) = T::narrow(value);
        }
    }
}

/// The most parts that the sums over pixels are split into. It must not depend on the number of threads.
const MAX_PARTS: usize = 32;

/// The rows of output pixels of one part of the sums, and the number of parts.
fn parts(shape: &ConvShape) -> (usize, usize) {
    let rows = shape.batch * shape.output[0];
    let rows_per_part = rows.div_ceil(MAX_PARTS).max(1);
    (rows_per_part, rows.div_ceil(rows_per_part))
}

/// The bytes of workspace of [`grad_filter`].
pub(super) fn grad_filter_workspace<T: Element<Acc: Float>>(shape: &ConvShape) -> usize {
    parts(shape).1 * shape.filter_len() * size_of::<T::Acc>()
}

/// Computes the gradient with respect to the filter.
///
/// # Safety
///
/// As for [`conv_grad_filter`](super::conv_grad_filter), and the shape [`fits`].
pub(super) unsafe fn grad_filter<T: Element<Acc: Float>>(
    isa: Isa,
    pool: &Pool,
    shape: &ConvShape,
    input: *const T,
    output_grad: *const T,
    filter_grad: *mut T,
    workspace: &mut [u8],
) {
    let bytes = grad_filter_workspace::<T>(shape);
    let partial = Address::new(workspace.as_mut_ptr().cast::<T::Acc>());
    assert!(workspace.len() >= bytes, "a gradient needs {bytes} bytes of workspace, not {}", workspace.len());
    assert!(
        bytes == 0 || partial.pointer().addr().is_multiple_of(WORKSPACE_ALIGN),
        "workspace is not aligned"
    );
    let (rows_per_part, parts) = parts(shape);
    let rows = shape.batch * shape.output[0];
    let len = shape.filter_len();
    let (input, output_grad) = (Address::new(input.cast_mut()), Address::new(output_grad.cast_mut()));
    pool.run(parts, &|_, part| {
        isa.run(SumOfRows {
            shape,
            input: input.pointer(),
            output_grad: output_grad.pointer(),
            rows: part * rows_per_part..rows.min((part + 1) * rows_per_part),
            sums: partial.pointer().wrapping_add(part * len),
        });
    });
    for element in 0..len {
        // SAFETY: every part has been summed, and the gradient is the caller's to write.
        unsafe {
            let total = (0..parts)
                .fold(T::Acc::ZERO, |total, part| total + *partial.pointer().add(part * len + element));
            *filter_grad.add(element) = T::narrow(total);
        }
    }
}

/// The vectors of channels that are summed side by side.
const VECTORS: usize = 4;

/// The part of a filter's gradient that some rows of output pixels give.
struct SumOfRows<'a, T: Element<Acc: Float>> {
    shape: &'a ConvShape,
    input: *const T,
    output_grad: *const T,
    rows: Range<usize>,
    sums: *mut T::Acc,
}

impl<T: Element<Acc: Float>> Body for SumOfRows<'_, T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<I: InstructionSet>(self) {
        // SAFETY: the contract is the same.
        unsafe { self.compute::<VectorOf<I, T::Acc>>() }
    }
}

impl<T: Element<Acc: Float>> SumOfRows<'_, T> {
    #[inline(always)]
    unsafe fn compute<V: Vector<Scalar = T::Acc>>(self) {
        let Self { shape, input, output_grad, rows, sums } = self;
        let channels = shape.channels;
        for tap in 0..shape.filter[0] * shape.filter[1] {
            let (tap_y, tap_x) = (tap / shape.filter[1], tap % shape.filter[1]);
            // The output pixels whose tap is within the image are neighbours.
            let inside = |x: &usize| input_of(shape, 1, *x, tap_x).is_some();
            let across = (0..shape.output[1]).find(inside).unwrap_or(0)
                ..(0..shape.output[1]).rfind(inside).map_or(0, |last| last + 1);
            for first in (0..channels).step_by(VECTORS * V::LANES) {
                let lanes = |j: usize| 0..V::LANES.min(channels.saturating_sub(first + j * V::LANES));
                // SAFETY: `input_of` gives pixels within the image; the part's sums are its own.
                unsafe {
                    let mut totals = [V::splat(T::Acc::ZERO); VECTORS];
                    for row in rows.clone() {
                        let (image, y) = (row / shape.output[0], row % shape.output[0]);
                        let Some(input_y) = input_of(shape, 0, y, tap_y) else { continue };
                        let input_row = (image * shape.input[0] + input_y) * shape.input[1];
                        for x in across.clone() {
                            let input_x =
                                x * shape.stride[1] + tap_x * shape.dilation[1] - shape.padding[1][0];
                            let pixel = input.add((input_row + input_x) * channels + first);
                            let output = output_grad.add((row * shape.output[1] + x) * channels + first);
                            for (j, total) in totals.iter_mut().enumerate() {
                                let value = T::load_some::<V>(pixel.wrapping_add(j * V::LANES), lanes(j));
                                let grad = T::load_some(output.wrapping_add(j * V::LANES), lanes(j));
                                *total = value.mul_add(grad, *total);
                            }
                        }
                    }
                    for (j, total) in totals.into_iter().enumerate() {
                        let to = sums.wrapping_add(tap * channels + first + j * V::LANES);
                        total.store_first(to, lanes(j).len());
                    }
                }
            }
        }
    }
}
