//! Convolutions and their two gradients, as products of matrices.
//!
//! A matrix of all windows of all images would be nine times the images for a filter of 3 × 3. So windows are cut
//! for a tile of pixels at a time, into memory that stays in the second-level cache, and each tile is one product:
//!
//! - forward, windows of images times the filter;
//! - for the images, windows of the output's gradient times the filter with its channels exchanged. With strides,
//!   only some taps of the filter reach a given pixel, and which depends on its position modulo the stride:
//!   pixels are taken together by that *phase*, so that no zeros are multiplied;
//! - for the filter, tap by tap, windows transposed times the output's gradient, added up tile by tile.
//!
//! Tiles depend on the shapes alone, so results do not depend on the thread count.

use super::common::*;
use super::matrix::{Matrix, Multiply, Size, alone};
use crate::element::{Element, Real};
use crate::routine::{Call, Routine};
use crate::simd::Isa;
use plimsoll_graph::Shape;
use plimsoll_graph::op::Conv2d;
use plimsoll_graph::program::Operand;
use std::marker::PhantomData;
use std::ops::Range;

/// How many elements of windows are cut at a time: half a megabyte of `f32`.
const TILE: usize = 128 * 1024;
/// The fewest and the most pixels of a tile.
const PIXELS: [usize; 2] = [32, 512];
/// How many channels of the result of a filter's gradient are one task.
const CHANNELS: usize = 64;

/// Prepares [`Op::Conv2d`](plimsoll_graph::Op::Conv2d).
pub(crate) fn prepare(conv: Conv2d, reads: &[Operand], writes: &[Operand]) -> Box<dyn Routine> {
    let geometry = Geometry::new(conv, &reads[0].view.shape, &reads[1].view.shape, &writes[0].view.shape);
    for_float!(reads[0].dtype, Forward::new(geometry))
}

/// Prepares [`Op::Conv2dInputGrad`](plimsoll_graph::Op::Conv2dInputGrad).
pub(crate) fn prepare_input_grad(conv: Conv2d, reads: &[Operand], writes: &[Operand]) -> Box<dyn Routine> {
    let geometry = Geometry::new(conv, &writes[0].view.shape, &reads[0].view.shape, &reads[1].view.shape);
    for_float!(reads[0].dtype, InputGrad::new(geometry))
}

/// Prepares [`Op::Conv2dFilterGrad`](plimsoll_graph::Op::Conv2dFilterGrad).
pub(crate) fn prepare_filter_grad(conv: Conv2d, reads: &[Operand], writes: &[Operand]) -> Box<dyn Routine> {
    let geometry = Geometry::new(conv, &reads[0].view.shape, &writes[0].view.shape, &reads[1].view.shape);
    for_float!(reads[0].dtype, FilterGrad::new(geometry))
}

/// The extents of a convolution.
#[derive(Clone, Copy)]
struct Geometry {
    conv: Conv2d,
    isa: Isa,
    /// Rows and columns of an image, of the filter and of an output.
    image: [usize; 2],
    filter: [usize; 2],
    output: [usize; 2],
    batch: usize,
    /// Channels of a group, in and out.
    channels_in: usize,
    channels_out: usize,
}

/// A pixel: image, row, column.
#[derive(Clone, Copy)]
struct Pixel(usize, usize, usize);

impl Geometry {
    fn new(conv: Conv2d, images: &Shape, filter: &Shape, outputs: &Shape) -> Geometry {
        Geometry {
            conv,
            isa: Isa::detect(),
            image: [images[1], images[2]],
            filter: [filter[0], filter[1]],
            output: [outputs[1], outputs[2]],
            batch: images[0],
            channels_in: filter[2],
            channels_out: filter[3] / conv.groups,
        }
    }

    fn taps(&self) -> usize {
        self.filter[0] * self.filter[1]
    }

    /// All channels of an image and of an output.
    fn all_in(&self) -> usize {
        self.channels_in * self.conv.groups
    }

    fn all_out(&self) -> usize {
        self.channels_out * self.conv.groups
    }

    /// Output pixels of all images.
    fn outputs(&self) -> usize {
        self.batch * self.output[0] * self.output[1]
    }

    fn output_pixel(&self, index: usize) -> Pixel {
        let [rows, columns] = self.output;
        Pixel(index / (rows * columns), index / columns % rows, index % columns)
    }

    /// Where tap `tap` of the window of an output pixel lies in the images, in pixels; nothing if it is outside.
    #[inline(always)]
    fn source(&self, Pixel(image, row, column): Pixel, tap: usize) -> Option<usize> {
        let Conv2d { stride, padding, dilation, .. } = self.conv;
        let row = row * stride[0] + tap / self.filter[1] * dilation[0];
        let column = column * stride[1] + tap % self.filter[1] * dilation[1];
        let (row, column) = (row.wrapping_sub(padding[0]), column.wrapping_sub(padding[2]));
        (row < self.image[0] && column < self.image[1])
            .then(|| (image * self.image[0] + row) * self.image[1] + column)
    }

    /// Which output pixel tap `tap` of whose window is this pixel of an image, if there is one.
    #[inline(always)]
    fn sink(&self, Pixel(image, row, column): Pixel, tap: usize) -> Option<usize> {
        let Conv2d { stride, padding, dilation, .. } = self.conv;
        let row = (row + padding[0]).wrapping_sub(tap / self.filter[1] * dilation[0]);
        let column = (column + padding[2]).wrapping_sub(tap % self.filter[1] * dilation[1]);
        // Below zero has wrapped to a large number, and stays one after the division.
        let (row, column) = (row / stride[0], column / stride[1]);
        (row < self.output[0] && column < self.output[1])
            .then(|| (image * self.output[0] + row) * self.output[1] + column)
    }

    /// Whether windows are the pixels themselves, so that none need be cut.
    fn is_pointwise(&self) -> bool {
        self.taps() == 1 && self.conv.stride == [1, 1] && self.conv.padding == [0; 4] && self.conv.groups == 1
    }
}

/// Pixels of a tile whose windows have `width` elements.
fn pixels_per_tile(width: usize) -> usize {
    (TILE / width.max(1)).clamp(PIXELS[0], PIXELS[1])
}

/// Copies `count` elements, or writes zeros where there is nothing to copy.
///
/// # Safety
/// Source and target must be valid for them.
#[inline(always)]
unsafe fn copy_or_clear<T: Element>(from: Option<Address<T>>, to: Address<T>, count: usize) {
    // SAFETY: the caller vouches for both.
    unsafe {
        match from {
            Some(from) => std::ptr::copy_nonoverlapping(from.pointer().cast_const(), to.pointer(), count),
            None => to.slice_mut(count).fill(T::default()),
        }
    }
}

/// The convolution itself.
struct Forward<T> {
    geometry: Geometry,
    element: PhantomData<T>,
}

impl<T: Element> Forward<T> {
    fn new(geometry: Geometry) -> Self {
        Self { geometry, element: PhantomData }
    }

    fn width(&self) -> usize {
        self.geometry.taps() * self.geometry.channels_in
    }

    fn pixels(&self) -> usize {
        pixels_per_tile(self.width()).min(self.geometry.outputs().max(1))
    }

    fn size(&self, pixels: usize) -> Size {
        Size { m: pixels, n: self.geometry.channels_out, k: self.width() }
    }

    /// The parts of a worker's workspace: windows, and the product's own.
    fn parts(&self) -> [usize; 2] {
        let pixels = self.pixels();
        // The last tile is smaller and may need more than a whole one does.
        let product = [pixels, self.geometry.outputs() % pixels].map(|m| self.size(m).workspace::<T>(1));
        [bytes_of::<T>(pixels * self.width()), product[0].max(product[1])]
    }
}

impl<T: Number> Routine for Forward<T> {
    fn workspace(&self, threads: usize) -> usize {
        if self.geometry.is_pointwise() {
            return self.size(self.geometry.outputs()).workspace::<T>(threads);
        }
        threads * self.parts().iter().sum::<usize>()
    }

    unsafe fn run(&self, call: &Call<'_>) {
        let geometry = &self.geometry;
        let [images, filter] = [0, 1].map(|index| Address::<T>::read(call, index));
        let outputs = Address::<T>::write(call, 0);
        let (one, isa) = (T::Acc::ONE, geometry.isa);
        let workspace = Address::<u8>::workspace(call, 0);
        let (all_in, all_out) = (geometry.all_in(), geometry.all_out());
        if geometry.is_pointwise() {
            let (a, b) = (Matrix::new(images, all_in), Matrix::new(filter, all_out));
            let multiply = Multiply { pool: call.pool, isa, workspace };
            let size = self.size(geometry.outputs());
            // SAFETY: the caller vouches for the operands and the workspace.
            return unsafe { multiply.run(size, one, a, b, Matrix::new(outputs, all_out), false) };
        }
        let parts = self.parts();
        each_range(call.pool, geometry.outputs(), self.pixels(), &|worker, pixels| {
            let own = workspace.at(worker * parts.iter().sum::<usize>());
            let windows = own.cast::<T>();
            let multiply = Multiply { pool: alone(), isa, workspace: own.at(parts[0]) };
            for group in 0..geometry.conv.groups {
                let first = group * geometry.channels_in;
                // SAFETY: the pixels are within the images, and the caller vouches for the operands.
                unsafe {
                    self.cut(images.at(first), pixels.clone(), windows);
                    let column = group * geometry.channels_out;
                    let target = Matrix::new(outputs.at(pixels.start * all_out + column), all_out);
                    let filter = Matrix::new(filter.at(column), all_out);
                    let size = self.size(pixels.len());
                    multiply.run(size, one, Matrix::new(windows, self.width()), filter, target, false);
                }
            }
        });
    }
}

impl<T: Element> Forward<T> {
    /// Cuts the windows of some output pixels.
    unsafe fn cut(&self, images: Address<T>, pixels: Range<usize>, windows: Address<T>) {
        let geometry = &self.geometry;
        let (channels, all) = (geometry.channels_in, geometry.all_in());
        for (row, index) in pixels.enumerate() {
            let pixel = geometry.output_pixel(index);
            for tap in 0..geometry.taps() {
                let from = geometry.source(pixel, tap).map(|source| images.at(source * all));
                // SAFETY: the source is within the images, and the windows have room for all taps of the pixels.
                unsafe { copy_or_clear(from, windows.at((row * geometry.taps() + tap) * channels), channels) };
            }
        }
    }
}

/// The gradient for the images.
struct InputGrad<T> {
    geometry: Geometry,
    phases: Vec<Phase>,
    element: PhantomData<T>,
}

/// The pixels of all images at one position modulo the stride.
struct Phase {
    /// The first row and column.
    start: [usize; 2],
    /// Rows and columns of an image.
    count: [usize; 2],
    /// The taps of the filter that reach them.
    taps: Vec<usize>,
    /// Where the phase's part of the exchanged filter begins, in taps.
    first_tap: usize,
    /// Where the phase's tiles begin, counted over all phases.
    first_tile: usize,
    /// The pixels of one tile.
    pixels: usize,
}

impl Phase {
    fn pixel(&self, geometry: &Geometry, index: usize) -> Pixel {
        let [rows, columns] = self.count;
        let [down, across] = geometry.conv.stride;
        let (row, column) = (index / columns % rows, index % columns);
        Pixel(index / (rows * columns), self.start[0] + row * down, self.start[1] + column * across)
    }

    fn all_pixels(&self, geometry: &Geometry) -> usize {
        geometry.batch * self.count[0] * self.count[1]
    }
}

impl<T: Element> InputGrad<T> {
    fn new(geometry: Geometry) -> Self {
        let Conv2d { stride, padding, dilation, .. } = geometry.conv;
        let mut phases: Vec<Phase> = vec![];
        let (mut first_tap, mut first_tile) = (0, 0);
        for row in 0..stride[0].min(geometry.image[0]) {
            for column in 0..stride[1].min(geometry.image[1]) {
                // Row and column of the tap, one by one, since each tap reaches exactly one phase.
                let reaches = |position: usize, axis: usize, tap: usize| {
                    (position + padding[2 * axis] + stride[axis] * tap * dilation[axis] - tap * dilation[axis])
                        .is_multiple_of(stride[axis])
                };
                let width = geometry.filter[1];
                let taps: Vec<usize> = (0..geometry.taps())
                    .filter(|tap| reaches(row, 0, tap / width) && reaches(column, 1, tap % width))
                    .collect();
                let count = [
                    (geometry.image[0] - row).div_ceil(stride[0]),
                    (geometry.image[1] - column).div_ceil(stride[1]),
                ];
                let pixels = pixels_per_tile(taps.len() * geometry.channels_out);
                let phase = Phase { start: [row, column], count, taps, first_tap, first_tile, pixels };
                first_tap += phase.taps.len();
                first_tile += phase.all_pixels(&geometry).div_ceil(pixels);
                phases.push(phase);
            }
        }
        Self { geometry, phases, element: PhantomData }
    }

    fn size(&self, phase: &Phase, pixels: usize) -> Size {
        let Geometry { channels_in, channels_out, .. } = self.geometry;
        Size { m: pixels, n: channels_in, k: phase.taps.len() * channels_out }
    }

    /// The exchanged filter of all groups; then for each worker windows, results, and the product's own.
    fn parts(&self) -> [usize; 4] {
        let geometry = &self.geometry;
        let filter = geometry.taps() * geometry.channels_in * geometry.all_out();
        let mut parts = [bytes_of::<T>(filter), 0, 0, 0];
        for phase in &self.phases {
            let all = phase.all_pixels(geometry);
            for pixels in [phase.pixels.min(all), all % phase.pixels] {
                let Size { m, n, k } = self.size(phase, pixels);
                parts[1] = parts[1].max(bytes_of::<T>(m * k));
                parts[2] = parts[2].max(bytes_of::<T>(m * n));
                parts[3] = parts[3].max(Size { m, n, k }.workspace::<T>(1));
            }
        }
        parts
    }

    /// Where a group's part of the exchanged filter of a phase lies.
    fn exchanged(&self, phase: &Phase, group: usize) -> usize {
        let Geometry { channels_in, channels_out, .. } = self.geometry;
        (group * self.geometry.taps() + phase.first_tap) * channels_out * channels_in
    }

    /// Writes the filter's taps of a phase with its channels exchanged: out by in.
    unsafe fn exchange(&self, filter: Address<T>, phase: &Phase, group: usize, to: Address<T>) {
        let Geometry { channels_in, channels_out, .. } = self.geometry;
        let all_out = self.geometry.all_out();
        for (index, tap) in phase.taps.iter().enumerate() {
            for output in 0..channels_out {
                for input in 0..channels_in {
                    let from = (tap * channels_in + input) * all_out + group * channels_out + output;
                    // SAFETY: all indices are within the filter, and its copy is as large.
                    unsafe { to.at((index * channels_out + output) * channels_in + input).set(filter.at(from).get()) };
                }
            }
        }
    }
}

impl<T: Number> Routine for InputGrad<T> {
    fn workspace(&self, threads: usize) -> usize {
        let [filter, windows, results, product] = self.parts();
        filter + threads * (windows + results + product)
    }

    unsafe fn run(&self, call: &Call<'_>) {
        let geometry = &self.geometry;
        let [filter, dy] = [0, 1].map(|index| Address::<T>::read(call, index));
        let images = Address::<T>::write(call, 0);
        let parts = self.parts();
        let exchanged = Address::<T>::workspace(call, 0);
        let workers = Address::<u8>::workspace(call, parts[0]);
        let groups = geometry.conv.groups;
        call.pool.run(groups * self.phases.len(), &|_, task| {
            let (group, phase) = (task % groups, &self.phases[task / groups]);
            // SAFETY: the caller vouches for the filter; every task writes its own part.
            unsafe { self.exchange(filter, phase, group, exchanged.at(self.exchanged(phase, group))) };
        });
        let tiles = self.phases.last().map_or(0, |p| p.first_tile + p.all_pixels(geometry).div_ceil(p.pixels));
        let (channels_in, channels_out) = (geometry.channels_in, geometry.channels_out);
        let (all_in, all_out) = (geometry.all_in(), geometry.all_out());
        call.pool.run(tiles, &|worker, tile| {
            let own = workers.at(worker * parts[1..].iter().sum::<usize>());
            let (windows, results) = (own.cast::<T>(), own.at(parts[1]).cast::<T>());
            let multiply =
                Multiply { pool: alone(), isa: geometry.isa, workspace: own.at(parts[1] + parts[2]) };
            let phase = &self.phases[self.phases.partition_point(|p| p.first_tile <= tile) - 1];
            let first = (tile - phase.first_tile) * phase.pixels;
            let pixels = first..phase.all_pixels(geometry).min(first + phase.pixels);
            let size = self.size(phase, pixels.len());
            for group in 0..groups {
                // SAFETY: pixels, taps and channels are within the operands, and the workspace has room for a tile.
                unsafe {
                    for (row, index) in pixels.clone().enumerate() {
                        let pixel = phase.pixel(geometry, index);
                        for (at, &tap) in phase.taps.iter().enumerate() {
                            let sink = geometry.sink(pixel, tap);
                            let from = sink.map(|sink| dy.at(sink * all_out + group * channels_out));
                            copy_or_clear(from, windows.at(row * size.k + at * channels_out), channels_out);
                        }
                    }
                    let filter = Matrix::new(exchanged.at(self.exchanged(phase, group)), channels_in);
                    let target = Matrix::new(results, channels_in);
                    multiply.run(size, T::Acc::ONE, Matrix::new(windows, size.k), filter, target, false);
                    for (row, index) in pixels.clone().enumerate() {
                        let Pixel(image, down, across) = phase.pixel(geometry, index);
                        let pixel = (image * geometry.image[0] + down) * geometry.image[1] + across;
                        let to = images.at(pixel * all_in + group * channels_in);
                        copy_or_clear(Some(results.at(row * channels_in)), to, channels_in);
                    }
                }
            }
        });
    }
}

/// The gradient for the filter.
struct FilterGrad<T> {
    geometry: Geometry,
    element: PhantomData<T>,
}

impl<T: Element> FilterGrad<T> {
    fn new(geometry: Geometry) -> Self {
        Self { geometry, element: PhantomData }
    }

    /// Channels out of one task.
    fn block(&self) -> usize {
        self.geometry.channels_out.min(CHANNELS)
    }

    fn pixels(&self) -> usize {
        pixels_per_tile(self.geometry.channels_in + self.block()).min(self.geometry.outputs().max(1))
    }

    fn size(&self, pixels: usize, channels: usize) -> Size {
        Size { m: self.geometry.channels_in, n: channels, k: pixels }
    }

    /// A worker's windows, gradients, sums, and the product's own.
    fn parts(&self) -> [usize; 4] {
        let (pixels, block) = (self.pixels(), self.block());
        let mut product = 0;
        for m in [pixels, self.geometry.outputs() % pixels] {
            for n in [block, self.geometry.channels_out % block.max(1)] {
                product = product.max(self.size(m, n).workspace::<T::Acc>(1));
            }
        }
        let channels = self.geometry.channels_in;
        [
            bytes_of::<T::Acc>(pixels * channels),
            bytes_of::<T::Acc>(pixels * block),
            bytes_of::<T::Acc>(channels * block),
            product,
        ]
    }
}

impl<T: Number> Routine for FilterGrad<T> {
    fn workspace(&self, threads: usize) -> usize {
        threads * self.parts().iter().sum::<usize>()
    }

    unsafe fn run(&self, call: &Call<'_>) {
        let geometry = &self.geometry;
        let [images, dy] = [0, 1].map(|index| Address::<T>::read(call, index));
        let gradient = Address::<T>::write(call, 0);
        let parts = self.parts();
        let workspace = Address::<u8>::workspace(call, 0);
        let blocks = geometry.channels_out.div_ceil(self.block().max(1));
        call.pool.run(geometry.taps() * geometry.conv.groups * blocks, &|worker, task| {
            let (tap, rest) = (task % geometry.taps(), task / geometry.taps());
            let (group, first) = (rest % geometry.conv.groups, rest / geometry.conv.groups * self.block());
            let channels = self.block().min(geometry.channels_out - first);
            let own = workspace.at(worker * parts.iter().sum::<usize>());
            let windows = own.cast::<T::Acc>();
            let gradients = own.at(parts[0]).cast::<T::Acc>();
            let sums = own.at(parts[0] + parts[1]).cast::<T::Acc>();
            let multiply = Multiply {
                pool: alone(),
                isa: geometry.isa,
                workspace: own.at(parts[0] + parts[1] + parts[2]),
            };
            let (rows, all_in, all_out) = (geometry.channels_in, geometry.all_in(), geometry.all_out());
            let column = group * geometry.channels_out + first;
            // SAFETY: pixels, taps and channels are within the operands, and the workspace has room for a tile.
            unsafe {
                sums.slice_mut(rows * channels).fill(T::Acc::ZERO);
                for start in (0..geometry.outputs()).step_by(self.pixels()) {
                    let count = self.pixels().min(geometry.outputs() - start);
                    for row in 0..count {
                        let window = windows.at(row * rows).slice_mut(rows);
                        match geometry.source(geometry.output_pixel(start + row), tap) {
                            Some(source) => widen(images.at(source * all_in + group * rows).slice(rows), window),
                            None => window.fill(T::Acc::ZERO),
                        }
                        let from = dy.at((start + row) * all_out + column).slice(channels);
                        widen(from, gradients.at(row * channels).slice_mut(channels));
                    }
                    let (a, b) = (Matrix::new(windows, rows).transposed(), Matrix::new(gradients, channels));
                    let size = self.size(count, channels);
                    multiply.run(size, T::Acc::ONE, a, b, Matrix::new(sums, channels), true);
                }
                for row in 0..rows {
                    let to = gradient.at((tap * rows + row) * all_out + column);
                    round(sums.at(row * channels).slice(channels), to.slice_mut(channels));
                }
            }
        });
    }
}
