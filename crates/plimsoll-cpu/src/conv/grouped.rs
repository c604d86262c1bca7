//! Convolutions in small groups, which have as many channels out as in: one, as in depthwise convolutions, or a few.
//!
//! Their sums are too short, and their products too narrow, to be worth blocking and packing: vectors would not be full. Here a
//! vector holds neighbouring output channels of several groups, whose filters lie side by side too, and is summed over the taps
//! in a register. What a lane multiplies with is a channel of its own group, picked from the vector of the same channels of the
//! input.

use super::ConvShape;
use crate::gemm::WORKSPACE_ALIGN;
use crate::numbers::{Element, Float};
use crate::runtime::{Address, Pool};
use crate::simd::{Body, InstructionSet, Isa, MAX_LANES, Vector, VectorOf};
use std::any::TypeId;
use std::ops::Range;

/// The most taps down or across that are kept track of.
const MAX_TAPS: usize = 32;

/// Whether there are groups, of one channel or, of `f32`, of a few; and the filter is not too large.
pub(super) fn fits<T: Element<Acc: Float>>(shape: &ConvShape) -> bool {
    let few = TypeId::of::<T>() == TypeId::of::<f32>() && matches!(shape.group_channels(), 2 | 4 | 8);
    shape.groups > 1
        && shape.channels == shape.out_channels
        && (shape.group_channels() == 1 || few)
        && shape.filter.iter().all(|&taps| taps <= MAX_TAPS)
}

/// Calls a function for the channels of a group; with pointers to `f32`, where there are several.
macro_rules! of_group {
    ($function:ident, $T:ty, $shape:ident, $operands:expr, $result:expr, $($rest:expr),*) => {
        match $shape.group_channels() {
            2 => $function::<f32, 2>($shape, $operands.map(<*const $T>::cast), $result.cast(), $($rest),*),
            4 => $function::<f32, 4>($shape, $operands.map(<*const $T>::cast), $result.cast(), $($rest),*),
            8 => $function::<f32, 8>($shape, $operands.map(<*const $T>::cast), $result.cast(), $($rest),*),
            _ => $function::<$T, 1>($shape, $operands, $result, $($rest),*),
        }
    };
}

/// Computes the convolution.
///
/// # Safety
///
/// As for [`convolve`](super::convolve), and the shape [`fits`].
pub(super) unsafe fn forward<T: Element<Acc: Float>>(
    isa: Isa,
    pool: &Pool,
    shape: &ConvShape,
    operands: [*const T; 2],
    output: *mut T,
) {
    let way = Way { sizes: [shape.output, shape.input], steps: [1, shape.stride[1]], source: input_of };
    // SAFETY: the caller vouches for the pointers, which are to `f32` where groups have several channels.
    unsafe { of_group!(sums, T, shape, operands, output, isa, pool, way) }
}

/// The bytes of workspace of [`grad_input`].
pub(super) fn grad_input_workspace(shape: &ConvShape) -> usize {
    if shape.group_channels() == 1 { 0 } else { shape.filter_len() * size_of::<f32>() }
}

/// Computes the gradient with respect to the input.
///
/// # Safety
///
/// As for [`convolve`](super::convolve), and the shape [`fits`].
pub(super) unsafe fn grad_input<T: Element<Acc: Float>>(
    isa: Isa,
    pool: &Pool,
    shape: &ConvShape,
    [output_grad, filter]: [*const T; 2],
    input_grad: *mut T,
    workspace: &mut [u8],
) {
    check(workspace, grad_input_workspace(shape));
    let way = Way { sizes: [shape.input, shape.output], steps: [shape.stride[1], 1], source: output_of };
    let turned = workspace.as_mut_ptr().cast::<T>();
    // SAFETY: the caller vouches for the pointers, which are to `f32` where groups have several channels; the workspace has
    // room for the filter, and is aligned.
    unsafe {
        let filter = if shape.group_channels() == 1 {
            filter
        } else {
            turn(shape, filter, turned);
            turned.cast_const()
        };
        of_group!(sums, T, shape, [output_grad, filter], input_grad, isa, pool, way)
    }
}

/// Panics where there is too little workspace.
fn check(workspace: &[u8], bytes: usize) {
    assert!(workspace.len() >= bytes, "a gradient needs {bytes} bytes of workspace, not {}", workspace.len());
    let aligned = workspace.as_ptr().addr().is_multiple_of(WORKSPACE_ALIGN);
    assert!(bytes == 0 || aligned, "workspace is not aligned");
}

/// Writes the filter with the input and output channels of each group exchanged.
unsafe fn turn<T: Copy>(shape: &ConvShape, filter: *const T, turned: *mut T) {
    let (group, channels) = (shape.group_channels(), shape.channels);
    for tap in 0..shape.filter[0] * shape.filter[1] {
        let at = |from: usize, channel: usize| (tap * group + from) * channels + channel;
        for channel in 0..channels {
            let (first, own) = (channel / group * group, channel % group);
            for other in 0..group {
                // SAFETY: the caller vouches for the filter and for as much room.
                unsafe { *turned.add(at(other, channel)) = *filter.add(at(own, first + other)) };
            }
        }
    }
}

/// Where the input pixel is, or would be, that a tap of an output pixel reads, along one axis.
fn input_of(shape: &ConvShape, axis: usize, output: usize, tap: usize) -> Option<isize> {
    Some(
        (output * shape.stride[axis] + tap * shape.dilation[axis]) as isize - shape.padding[axis][0] as isize,
    )
}

/// Where the output pixel is, or would be, that reads an input pixel by a tap, along one axis, if its windows do.
fn output_of(shape: &ConvShape, axis: usize, input: usize, tap: usize) -> Option<isize> {
    let padded = (input + shape.padding[axis][0]) as isize - (tap * shape.dilation[axis]) as isize;
    let stride = shape.stride[axis] as isize;
    (padded % stride == 0).then_some(padded / stride)
}

/// How sums are made of pixels.
#[derive(Clone, Copy)]
struct Way {
    /// The height and width of the images that are written, and of those that are read.
    sizes: [[usize; 2]; 2],
    /// The distance of pixels in a row that are read by the same taps, and of the pixels that they read.
    steps: [usize; 2],
    /// Where along an axis the pixel is that a pixel reads by a tap, if there were one outside of the image too.
    source: fn(&ConvShape, usize, usize, usize) -> Option<isize>,
}

/// Sets every pixel of `to` to the sum over the taps of the pixel of `from` that the way gives, times the filter.
///
/// # Safety
///
/// The pointers are valid for images of the sizes, and for the filter, whose groups have `GROUP` channels.
unsafe fn sums<T: Element<Acc: Float>, const GROUP: usize>(
    shape: &ConvShape,
    [from, filter]: [*const T; 2],
    to: *mut T,
    isa: Isa,
    pool: &Pool,
    way: Way,
) {
    let (from, filter, to) =
        (Address::new(from.cast_mut()), Address::new(filter.cast_mut()), Address::new(to));
    let [to_size, from_size] = way.sizes;
    pool.run(shape.batch * to_size[0], &|_, row| {
        let (image, y) = (row / to_size[0], row % to_size[0]);
        isa.run(Row::<T, GROUP> {
            shape,
            to: to.pointer().wrapping_add(row * to_size[1] * shape.channels),
            from: from.pointer().wrapping_add(image * from_size[0] * from_size[1] * shape.channels),
            filter: filter.pointer(),
            y,
            way,
        });
    });
}

/// One row of sums.
struct Row<'a, T, const GROUP: usize> {
    shape: &'a ConvShape,
    to: *mut T,
    from: *const T,
    filter: *const T,
    y: usize,
    way: Way,
}

/// The pixels that are summed side by side, so that a tap is read once for all.
const TILE: usize = 4;

impl<T: Element<Acc: Float>, const GROUP: usize> Body for Row<'_, T, GROUP> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<I: InstructionSet>(self) {
        // SAFETY: the contract is the same.
        unsafe { self.compute::<VectorOf<I, T::Acc>>() }
    }
}

impl<T: Element<Acc: Float>, const GROUP: usize> Row<'_, T, GROUP> {
    #[inline(always)]
    unsafe fn compute<V: Vector<Scalar = T::Acc>>(self) {
        let Way { sizes: [[_, width], _], steps: [step, _], .. } = self.way;
        let rows = Sources::new(self.shape, self.way, 0, self.y);
        for first in 0..step.min(width) {
            let mut x = first;
            while x < width {
                let columns = Sources::new(self.shape, self.way, 1, x);
                let end = width.min(x.saturating_add(columns.alike.saturating_mul(step)));
                let mut done = 0;
                while x < end {
                    // SAFETY: sources are pixels within the image.
                    unsafe {
                        if end - x > (TILE - 1) * step {
                            self.pixels::<V, TILE>(x, &rows, &columns, done);
                            (x, done) = (x + TILE * step, done + TILE);
                        } else {
                            self.pixels::<V, 1>(x, &rows, &columns, done);
                            (x, done) = (x + step, done + 1);
                        }
                    }
                }
            }
        }
    }

    /// So many pixels from `x` on, a step apart, all channels; `done` steps after the pixel that the columns are of.
    #[inline(always)]
    unsafe fn pixels<V: Vector<Scalar = T::Acc>, const PIXELS: usize>(
        &self,
        x: usize,
        rows: &Sources,
        columns: &Sources,
        done: usize,
    ) {
        let (channels, whole) = (self.shape.channels, self.shape.channels / V::LANES * V::LANES);
        // SAFETY: the contract is the same.
        unsafe {
            for first in (0..whole).step_by(V::LANES) {
                self.vectors::<V, PIXELS>([x, done], rows, columns, first, V::LANES);
            }
            if whole < channels {
                self.vectors::<V, PIXELS>([x, done], rows, columns, whole, channels - whole);
            }
        }
    }

    /// The same, of so many channels from `first` on.
    #[inline(always)]
    unsafe fn vectors<V: Vector<Scalar = T::Acc>, const PIXELS: usize>(
        &self,
        [x, done]: [usize; 2],
        rows: &Sources,
        columns: &Sources,
        first: usize,
        count: usize,
    ) {
        let Self { shape, to, from, filter, way: Way { sizes, steps: [to_step, from_step], .. }, .. } = *self;
        let channels = shape.channels;
        // SAFETY: the caller vouches for the pixels.
        unsafe {
            let mut sums = [V::splat(T::Acc::ZERO); PIXELS];
            for &(tap_y, from_y) in rows.as_slice() {
                for &(tap_x, from_x) in columns.as_slice() {
                    let pixel = from_y * sizes[1][1] + from_x + done * from_step;
                    let pixel = from.add(pixel * channels + first);
                    let taps = filter.add((tap_y * shape.filter[1] + tap_x) * GROUP * channels + first);
                    let mut of_tap = [V::splat(T::Acc::ZERO); GROUP];
                    for (channel, tap) in of_tap.iter_mut().enumerate() {
                        *tap = T::load_some::<V>(taps.add(channel * channels), 0..count);
                    }
                    for (i, sum) in sums.iter_mut().enumerate() {
                        let values = pick::<V, T, GROUP>(pixel.add(i * from_step * channels), count, first);
                        for channel in 0..GROUP {
                            *sum = values[channel].mul_add(of_tap[channel], *sum);
                        }
                    }
                }
            }
            for (i, sum) in sums.into_iter().enumerate() {
                write::<V, T>(sum, to.add((x + i * to_step) * channels + first), count);
            }
        }
    }
}

/// Each channel of a group in turn: in every lane that of its own group, of `count` channels from `first` on, the first of
/// which is at `pixel`. Where vectors are narrower than groups, all of the group is there.
#[inline(always)]
unsafe fn pick<V: Vector<Scalar = T::Acc>, T: Element<Acc: Float>, const GROUP: usize>(
    pixel: *const T,
    count: usize,
    first: usize,
) -> [V; GROUP] {
    // SAFETY: the caller vouches for the channels.
    unsafe {
        if V::LANES < GROUP {
            let mut picked = [V::splat(T::Acc::ZERO); GROUP];
            for (channel, picked) in picked.iter_mut().enumerate() {
                *picked = V::splat((*pixel.sub(first % GROUP).add(channel)).widen());
            }
            return picked;
        }
        let vector = T::load_some::<V>(pixel, 0..count);
        let mut picked = [vector; GROUP];
        if GROUP > 1 {
            for (picked, lanes) in picked.iter_mut().zip(&Picks::<GROUP>::LANES) {
                *picked = vector.pick(lanes);
            }
        }
        picked
    }
}

/// Which lane each lane picks.
struct Picks<const GROUP: usize>;

impl<const GROUP: usize> Picks<GROUP> {
    /// Of each channel of a group.
    const LANES: [[u32; MAX_LANES]; GROUP] = {
        let mut lanes = [[0; MAX_LANES]; GROUP];
        let mut at = 0;
        while at < GROUP * MAX_LANES {
            let (channel, lane) = (at / MAX_LANES, at % MAX_LANES);
            lanes[channel][lane] = (lane / GROUP * GROUP + channel) as u32;
            at += 1;
        }
        lanes
    };
}

/// The taps that read a pixel along one axis, each with its pixel.
struct Sources {
    pairs: [(usize, usize); MAX_TAPS],
    len: usize,
    /// How many pixels from here on, a step apart, the same taps read, each a step further.
    alike: usize,
}

impl Sources {
    fn new(shape: &ConvShape, way: Way, axis: usize, at: usize) -> Self {
        let mut sources = Self { pairs: [(0, 0); MAX_TAPS], len: 0, alike: usize::MAX };
        let size = way.sizes[1][axis];
        for tap in 0..shape.filter[axis] {
            let Some(source) = (way.source)(shape, axis, at, tap) else { continue };
            // Where it is before the image, it comes in; where it is inside, it goes out; and then it is out.
            let steps = match usize::try_from(source) {
                Err(_) => source.unsigned_abs(),
                Ok(inside) if inside < size => {
                    sources.pairs[sources.len] = (tap, inside);
                    sources.len += 1;
                    size - inside
                }
                Ok(_) => continue,
            };
            sources.alike = sources.alike.min(steps.div_ceil(way.steps[1]));
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
        if T::IS_ACC && count == V::LANES {
            vector.store(to.cast());
            return;
        }
        if T::IS_ACC {
            vector.store_first(to.cast(), count);
            return;
        }
        let mut lanes = [T::Acc::ZERO; MAX_LANES];
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
/// As for [`convolve`](super::convolve), and the shape [`fits`].
pub(super) unsafe fn grad_filter<T: Element<Acc: Float>>(
    isa: Isa,
    pool: &Pool,
    shape: &ConvShape,
    operands: [*const T; 2],
    filter_grad: *mut T,
    workspace: &mut [u8],
) {
    check(workspace, grad_filter_workspace::<T>(shape));
    // SAFETY: the caller vouches for the pointers, which are to `f32` where groups have several channels.
    unsafe { of_group!(filter_sums, T, shape, operands, filter_grad, isa, pool, workspace) }
}

unsafe fn filter_sums<T: Element<Acc: Float>, const GROUP: usize>(
    shape: &ConvShape,
    [input, output_grad]: [*const T; 2],
    filter_grad: *mut T,
    isa: Isa,
    pool: &Pool,
    workspace: &mut [u8],
) {
    let partial = Address::new(workspace.as_mut_ptr().cast::<T::Acc>());
    let (rows_per_part, parts) = parts(shape);
    let rows = shape.batch * shape.output[0];
    let len = shape.filter_len();
    let (input, output_grad) = (Address::new(input.cast_mut()), Address::new(output_grad.cast_mut()));
    pool.run(parts, &|_, part| {
        isa.run(SumOfRows::<T, GROUP> {
            shape,
            input: input.pointer(),
            output_grad: output_grad.pointer(),
            rows: part * rows_per_part..rows.min((part + 1) * rows_per_part),
            sums: partial.pointer().wrapping_add(part * len),
        });
    });
    let filter_grad = Address::new(filter_grad);
    pool.run(len.div_ceil(TOTALS), &|_, task| {
        let (first, count) = (task * TOTALS, TOTALS.min(len - task * TOTALS));
        let mut totals = [T::Acc::ZERO; TOTALS];
        // SAFETY: every part has been summed, and the gradient is the caller's to write; each task has elements of its own.
        unsafe {
            for part in 0..parts {
                let sums = partial.at(part * len + first).slice(count);
                totals.iter_mut().zip(sums).for_each(|(total, &sum)| *total += sum);
            }
            let to = filter_grad.at(first).slice_mut(count);
            to.iter_mut().zip(totals).for_each(|(to, total)| *to = T::narrow(total));
        }
    });
}

/// The elements of the gradient that the parts' sums are added up for at a time.
const TOTALS: usize = 256;

/// The part of a filter's gradient that some rows of output pixels give.
struct SumOfRows<'a, T: Element<Acc: Float>, const GROUP: usize> {
    shape: &'a ConvShape,
    input: *const T,
    output_grad: *const T,
    rows: Range<usize>,
    sums: *mut T::Acc,
}

impl<T: Element<Acc: Float>, const GROUP: usize> Body for SumOfRows<'_, T, GROUP> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<I: InstructionSet>(self) {
        // SAFETY: the contract is the same.
        unsafe { self.compute::<VectorOf<I, T::Acc>>() }
    }
}

impl<T: Element<Acc: Float>, const GROUP: usize> SumOfRows<'_, T, GROUP> {
    /// Row by row, so that what many taps read is read from near: of the row's sums, those of some neighbouring taps and
    /// channels are in registers at a time.
    #[inline(always)]
    unsafe fn compute<V: Vector<Scalar = T::Acc>>(self) {
        let shape = self.shape;
        let [tall, wide] = shape.filter;
        // SAFETY: the sums are this part's own.
        unsafe { std::slice::from_raw_parts_mut(self.sums, shape.filter_len()).fill(T::Acc::ZERO) };
        for row in self.rows.clone() {
            let (image, y) = (row / shape.output[0], row % shape.output[0]);
            for tap_y in 0..tall {
                let input_y =
                    (y * shape.stride[0] + tap_y * shape.dilation[0]).wrapping_sub(shape.padding[0][0]);
                if input_y >= shape.input[0] {
                    continue;
                }
                let of_row = RowOfTaps::<T, GROUP> {
                    input: self
                        .input
                        .wrapping_add((image * shape.input[0] + input_y) * shape.input[1] * shape.channels),
                    output_grad: self.output_grad.wrapping_add(row * shape.output[1] * shape.channels),
                    sums: self.sums.wrapping_add(tap_y * wide * GROUP * shape.channels),
                    shape,
                };
                let mut tap = 0;
                while tap < wide {
                    // SAFETY: the rows are within their images, the taps within the filter.
                    tap += unsafe {
                        match (GROUP, wide - tap) {
                            (1, 7..) => of_row.add::<V, 7, 2>(tap),
                            (1, 5..) => of_row.add::<V, 5, 2>(tap),
                            (1, 3..) => of_row.add::<V, 3, 4>(tap),
                            (1, _) => of_row.add::<V, 1, 8>(tap),
                            (_, 3..) => of_row.add::<V, 3, 1>(tap),
                            _ => of_row.add::<V, 1, 1>(tap),
                        }
                    };
                }
            }
        }
    }
}

/// What one row of output pixels adds to the sums of one row of taps.
struct RowOfTaps<'a, T: Element<Acc: Float>, const GROUP: usize> {
    shape: &'a ConvShape,
    /// The row of the input that those taps see.
    input: *const T,
    output_grad: *const T,
    sums: *mut T::Acc,
}

impl<T: Element<Acc: Float>, const GROUP: usize> RowOfTaps<'_, T, GROUP> {
    /// Adds to the sums of `TAPS` taps from `tap` on, so many vectors of channels at a time. Returns how many taps these are.
    #[inline(always)]
    unsafe fn add<V: Vector<Scalar = T::Acc>, const TAPS: usize, const VECTORS: usize>(
        &self,
        tap: usize,
    ) -> usize {
        let shape = self.shape;
        let width = shape.output[1];
        // Of each tap, the output pixels that read the image by it, which are neighbours.
        let across: [Range<usize>; TAPS] = std::array::from_fn(|i| {
            let (at, padding) = ((tap + i) * shape.dilation[1], shape.padding[1][0]);
            let before =
                |edge: usize| (edge + padding).saturating_sub(at).div_ceil(shape.stride[1]).min(width);
            before(0)..before(shape.input[1])
        });
        let all = across.iter().map(|x| x.start).max().unwrap_or(0)
            ..across.iter().map(|x| x.end).min().unwrap_or(0);
        let all = if all.is_empty() { width..width } else { all };
        let step = VECTORS * V::LANES;
        let whole = shape.channels / step * step;
        // SAFETY: the contract is the same.
        unsafe {
            for first in (0..whole).step_by(step) {
                self.add_channels::<V, TAPS, VECTORS>(tap, &across, &all, first, V::LANES);
            }
            for first in (whole..shape.channels).step_by(V::LANES) {
                let count = V::LANES.min(shape.channels - first);
                self.add_channels::<V, TAPS, 1>(tap, &across, &all, first, count);
            }
        }
        TAPS
    }

    /// The same of so many vectors of channels from `first` on, each of `count`.
    #[expect(clippy::needless_range_loop, reason = "taps, channels and vectors are places in memory too")]
    #[inline(always)]
    unsafe fn add_channels<V: Vector<Scalar = T::Acc>, const TAPS: usize, const VECTORS: usize>(
        &self,
        tap: usize,
        across: &[Range<usize>; TAPS],
        all: &Range<usize>,
        first: usize,
        count: usize,
    ) {
        let shape = self.shape;
        let channels = shape.channels;
        // SAFETY: pixels are only read by taps that are within the image there; the sums are the caller's own.
        unsafe {
            let sums = self.sums.add(tap * GROUP * channels + first);
            let of = |i: usize, channel: usize, j: usize| (i * GROUP + channel) * channels + j * V::LANES;
            let mut totals = [[[V::splat(T::Acc::ZERO); VECTORS]; GROUP]; TAPS];
            let some = |x| std::array::from_fn(|i| across[i].contains(&x));
            for x in 0..all.start {
                self.add_pixel::<V, TAPS, VECTORS>(tap, x, some(x), first, count, &mut totals);
            }
            for x in all.clone() {
                self.add_pixel::<V, TAPS, VECTORS>(tap, x, [true; TAPS], first, count, &mut totals);
            }
            for x in all.end..shape.output[1] {
                self.add_pixel::<V, TAPS, VECTORS>(tap, x, some(x), first, count, &mut totals);
            }
            for i in 0..TAPS {
                for channel in 0..GROUP {
                    for j in 0..VECTORS {
                        // A row is summed by itself first: of shorter sums less is rounded away.
                        let sums = sums.add(of(i, channel, j));
                        let before = T::Acc::load_some(sums, 0..count);
                        totals[i][channel][j].mul_add(V::splat(T::Acc::ONE), before).store_first(sums, count);
                    }
                }
            }
        }
    }

    /// What one output pixel adds, by the taps that are inside the image there.
    #[expect(clippy::needless_range_loop, reason = "taps, channels and vectors are places in memory too")]
    #[inline(always)]
    unsafe fn add_pixel<V: Vector<Scalar = T::Acc>, const TAPS: usize, const VECTORS: usize>(
        &self,
        tap: usize,
        x: usize,
        inside: [bool; TAPS],
        first: usize,
        count: usize,
        totals: &mut [[[V; VECTORS]; GROUP]; TAPS],
    ) {
        let shape = self.shape;
        // Where the first tap reads, or would.
        let at = (x * shape.stride[1] + tap * shape.dilation[1]) as isize - shape.padding[1][0] as isize;
        let input = self.input.wrapping_offset(at * shape.channels as isize + first as isize);
        // SAFETY: the caller vouches for the pixel and the taps.
        unsafe {
            let grad = self.output_grad.add(x * shape.channels + first);
            for j in 0..VECTORS {
                let grad = T::load_some::<V>(grad.add(j * V::LANES), 0..count);
                for i in 0..TAPS {
                    if inside[i] {
                        let at = i * shape.dilation[1] * shape.channels + j * V::LANES;
                        let values = pick::<V, T, GROUP>(input.wrapping_add(at), count, first);
                        for channel in 0..GROUP {
                            totals[i][channel][j] = values[channel].mul_add(grad, totals[i][channel][j]);
                        }
                    }
                }
            }
        }
    }
}
