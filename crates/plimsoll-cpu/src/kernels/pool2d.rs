//! Pooling over windows of images, and its gradient.
//!
//! The forward kernel keeps no positions: the gradient finds the largest elements again, which costs one more look
//! at the images and saves a tensor of indices from one pass to the next.

use crate::kernels::memory::*;
use crate::kernels::tasks::{each_range, rows_per_task};
use crate::numbers::{Element, Float, Number, with_float};
use crate::runtime::{Call, Routine};
use crate::simd::{Body, InstructionSet, Isa};
use plimsoll_graph::op::{Pool2d, PoolKind};
use plimsoll_graph::program::Operand;
use std::marker::PhantomData;
use std::ops::Range;

/// Prepares `Op::Pool2d`. The largest of a window with a NaN in it is NaN.
pub(crate) fn prepare(pool: Pool2d, reads: &[Operand], writes: &[Operand]) -> Box<dyn Routine> {
    with_float!(reads[0].dtype, T => Box::new(Pool2dForward::<T>::new(Windows::new(pool, &reads[0], &writes[0]))))
}

/// Prepares `Op::Pool2dGrad`. Of equally large elements the first of a window, row by row, gets the gradient.
pub(crate) fn prepare_grad(pool: Pool2d, reads: &[Operand], _writes: &[Operand]) -> Box<dyn Routine> {
    with_float!(reads[0].dtype, T => Box::new(Pool2dBackward::<T>::new(Windows::new(pool, &reads[0], &reads[1]))))
}

/// The windows of a batch of images.
#[derive(Clone, Copy)]
struct Windows {
    pool: Pool2d,
    batch: usize,
    /// The height and width of the images.
    image: [usize; 2],
    /// The windows down and across.
    count: [usize; 2],
    channels: usize,
}

impl Windows {
    fn new(pool: Pool2d, images: &Operand, pooled: &Operand) -> Self {
        let (images, pooled) = (images.view.shape, pooled.view.shape);
        Self {
            pool,
            batch: images[0],
            image: [images[1], images[2]],
            count: [pooled[1], pooled[2]],
            channels: images[3],
        }
    }

    /// The rows (for axis 0) or columns (for axis 1) of the image that a window covers.
    #[inline(always)]
    fn covered(&self, axis: usize, window: usize) -> Range<usize> {
        let (start, before) = (window * self.pool.stride[axis], self.pool.padding[2 * axis]);
        let end = (start + self.pool.window[axis]).saturating_sub(before).min(self.image[axis]);
        start.saturating_sub(before).min(end)..end
    }

    /// The windows down the image that cover any of these rows.
    #[inline(always)]
    fn covering(&self, rows: &Range<usize>) -> Range<usize> {
        let (stride, before) = (self.pool.stride[0], self.pool.padding[0]);
        let end = (rows.end + before).div_ceil(stride).min(self.count[0]);
        let first = (rows.start + before + 1).saturating_sub(self.pool.window[0]).div_ceil(stride);
        first.min(end)..end
    }

    /// Where the channels of an image's element begin.
    #[inline(always)]
    fn element(&self, image: usize, row: usize, column: usize) -> usize {
        ((image * self.image[0] + row) * self.image[1] + column) * self.channels
    }

    /// Where the channels of a window's result begin.
    #[inline(always)]
    fn result(&self, image: usize, row: usize, column: usize) -> usize {
        ((image * self.count[0] + row) * self.count[1] + column) * self.channels
    }
}

/// A window within the image.
#[derive(Clone)]
struct Window {
    rows: Range<usize>,
    columns: Range<usize>,
}

impl Window {
    /// Its elements, row by row.
    #[inline(always)]
    fn elements(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let Window { rows, columns } = self.clone();
        rows.flat_map(move |row| columns.clone().map(move |column| (row, column)))
    }

    /// The number of its elements.
    #[inline(always)]
    fn len<A: Float>(&self) -> A {
        A::of((self.rows.len() * self.columns.len()) as f64)
    }
}

struct Pool2dForward<T> {
    isa: Isa,
    windows: Windows,
    element: PhantomData<T>,
}

impl<T: Element<Acc: Float>> Pool2dForward<T> {
    fn new(windows: Windows) -> Self {
        Self { isa: Isa::detect(), windows, element: PhantomData }
    }
}

impl<T: Element<Acc: Float>> Routine for Pool2dForward<T> {
    fn workspace(&self, _threads: usize) -> usize {
        0
    }

    unsafe fn run(&self, call: &Call<'_>) {
        let (images, pooled) = (Address::<T>::read(call, 0), Address::write(call, 0));
        let Windows { batch, count, channels, pool, .. } = self.windows;
        let step = rows_per_task(count[1] * channels * pool.window[0] * pool.window[1]);
        each_range(call.pool, batch * count[0], step, &|_, rows| {
            self.isa.run(Forward { windows: self.windows, images, pooled, rows });
        });
    }
}

/// Some rows of the result, counted over all images.
struct Forward<T> {
    windows: Windows,
    images: Address<T>,
    pooled: Address<T>,
    rows: Range<usize>,
}

impl<T: Element<Acc: Float>> Body for Forward<T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<I: InstructionSet>(self) {
        let windows = self.windows;
        let mut pooled = [T::Acc::ZERO; CHUNK];
        for row in self.rows {
            let (image, row) = (row / windows.count[0], row % windows.count[0]);
            for column in 0..windows.count[1] {
                let window = Window { rows: windows.covered(0, row), columns: windows.covered(1, column) };
                for (at, count) in chunks(windows.channels) {
                    let element = |(row, column)| self.images.at(windows.element(image, row, column) + at);
                    let to = self.pooled.at(windows.result(image, row, column) + at);
                    // SAFETY: the window is within the image, and no other task writes to this row.
                    unsafe {
                        match windows.pool.kind {
                            PoolKind::Max => largest(&window, element, &mut pooled[..count]),
                            PoolKind::Mean => mean(&window, element, &mut pooled[..count]),
                        }
                        store(&pooled, to, count);
                    }
                }
            }
        }
    }
}

/// Finds the largest elements of a window in as many channels as `largest` has.
#[inline(always)]
unsafe fn largest<T: Element<Acc: Float>>(
    window: &Window,
    element: impl Fn((usize, usize)) -> Address<T>,
    largest: &mut [T::Acc],
) {
    largest.fill(-T::Acc::INFINITY);
    for place in window.elements() {
        // SAFETY: the caller vouches for the elements of the window.
        let elements = unsafe { element(place).slice(largest.len()) };
        for (largest, element) in largest.iter_mut().zip(elements) {
            let element = element.widen();
            *largest = if element.exceeds(*largest) { element } else { *largest };
        }
    }
}

/// Finds the largest elements of a window and which they are, counted row by row.
#[inline(always)]
unsafe fn which_is_largest<T: Element<Acc: Float>>(
    window: &Window,
    element: impl Fn((usize, usize)) -> Address<T>,
    largest: &mut [T::Acc],
    which: &mut [T::Acc],
) {
    let mut position = T::Acc::ZERO;
    largest.fill(-T::Acc::INFINITY);
    which[..largest.len()].fill(position);
    for place in window.elements() {
        // SAFETY: the caller vouches for the elements of the window.
        let elements = unsafe { element(place).slice(largest.len()) };
        for ((largest, which), element) in largest.iter_mut().zip(&mut *which).zip(elements) {
            let element = element.widen();
            let replaces = element.exceeds(*largest);
            *largest = if replaces { element } else { *largest };
            *which = if replaces { position } else { *which };
        }
        position += T::Acc::ONE;
    }
}

/// Finds the means of a window's elements in as many channels as `mean` has.
#[inline(always)]
unsafe fn mean<T: Element<Acc: Float>>(
    window: &Window,
    element: impl Fn((usize, usize)) -> Address<T>,
    mean: &mut [T::Acc],
) {
    mean.fill(T::Acc::ZERO);
    for place in window.elements() {
        // SAFETY: the caller vouches for the elements of the window.
        let elements = unsafe { element(place).slice(mean.len()) };
        for (sum, element) in mean.iter_mut().zip(elements) {
            *sum += element.widen();
        }
    }
    for sum in mean {
        *sum = *sum / window.len();
    }
}

struct Pool2dBackward<T> {
    isa: Isa,
    windows: Windows,
    /// The rows of an image whose gradients one task adds up.
    band: usize,
    element: PhantomData<T>,
}

impl<T: Element<Acc: Float>> Pool2dBackward<T> {
    fn new(windows: Windows) -> Self {
        let [height, width] = windows.image;
        let stride = windows.pool.stride[0];
        // A window that reaches into two bands is looked at for both, so a band is several windows high. Where windows
        // are disjoint none does: a band's elements have been read when it is written, and may be replaced.
        let band = rows_per_task(width * windows.channels).max(4 * stride).next_multiple_of(stride);
        Self { isa: Isa::detect(), windows, band: band.min(height.max(1)), element: PhantomData }
    }

    fn band_bytes(&self) -> usize {
        bytes_of::<T::Acc>(self.band * self.windows.image[1] * self.windows.channels)
    }
}

impl<T: Element<Acc: Float>> Routine for Pool2dBackward<T> {
    fn workspace(&self, threads: usize) -> usize {
        threads * self.band_bytes()
    }

    unsafe fn run(&self, call: &Call<'_>) {
        let Windows { batch, image, .. } = self.windows;
        let backward = Backward::<T> {
            windows: self.windows,
            images: Address::read(call, 0),
            dy: Address::read(call, 1),
            dx: Address::write(call, 0),
            sums: Address::workspace(call, 0),
            image: 0,
            rows: 0..0,
        };
        let bands = image[0].div_ceil(self.band);
        let workspace = Address::<u8>::workspace(call, 0);
        call.pool.run(batch * bands, &|worker, task| {
            let first = task % bands * self.band;
            let rows = first..image[0].min(first + self.band);
            let sums = workspace.at(worker * self.band_bytes()).cast();
            self.isa.run(Backward { image: task / bands, rows, sums, ..backward });
        });
    }
}

/// The gradients of some rows of an image.
struct Backward<T: Element<Acc: Float>> {
    windows: Windows,
    images: Address<T>,
    dy: Address<T>,
    dx: Address<T>,
    /// Where the rows' gradients are added up.
    sums: Address<T::Acc>,
    image: usize,
    rows: Range<usize>,
}

impl<T: Element<Acc: Float>> Body for Backward<T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<I: InstructionSet>(self) {
        let (windows, image) = (self.windows, self.image);
        let len = self.rows.len() * windows.image[1] * windows.channels;
        // SAFETY: the worker's sums have room for the rows of a band, which no other task writes.
        unsafe { self.sums.slice_mut(len) }.fill(T::Acc::ZERO);
        let mut staged = [[T::Acc::ZERO; CHUNK]; 3];
        for row in windows.covering(&self.rows) {
            for column in 0..windows.count[1] {
                let window = Window { rows: windows.covered(0, row), columns: windows.covered(1, column) };
                for (at, count) in chunks(windows.channels) {
                    // SAFETY: the window is within the images, its result within dy.
                    unsafe {
                        load(self.dy.at(windows.result(image, row, column) + at), count, &mut staged[0]);
                        let [dy, values, which] = &mut staged;
                        match windows.pool.kind {
                            PoolKind::Max => self.give_to_largest(&window, at, &dy[..count], values, which),
                            PoolKind::Mean => self.give_to_all(&window, at, &mut dy[..count]),
                        }
                    }
                }
            }
        }
        // SAFETY: no other task writes to these rows.
        unsafe {
            let to = self.dx.at(windows.element(image, self.rows.start, 0)).slice_mut(len);
            round(self.sums.slice(len), to);
        }
    }
}

impl<T: Element<Acc: Float>> Backward<T> {
    /// The sums of an element's channels from `at` on, if its row is one of this task's.
    #[inline(always)]
    unsafe fn sums<'a>(
        &self,
        (row, column): (usize, usize),
        at: usize,
        count: usize,
    ) -> Option<&'a mut [T::Acc]> {
        let row = row.checked_sub(self.rows.start).filter(|_| self.rows.contains(&row))?;
        let start = (row * self.windows.image[1] + column) * self.windows.channels + at;
        // SAFETY: the row is in the band, and the caller holds no other of its sums.
        Some(unsafe { self.sums.at(start).slice_mut(count) })
    }

    /// Adds `dy` to the sums of the largest elements. `values` and `which` are scratch.
    #[inline(always)]
    unsafe fn give_to_largest(
        &self,
        window: &Window,
        at: usize,
        dy: &[T::Acc],
        values: &mut [T::Acc],
        which: &mut [T::Acc],
    ) {
        let element = |(row, column)| self.images.at(self.windows.element(self.image, row, column) + at);
        // SAFETY: the caller vouches for the window.
        unsafe { which_is_largest(window, element, &mut values[..dy.len()], which) };
        let mut position = T::Acc::ZERO;
        for place in window.elements() {
            // SAFETY: the caller vouches for the window.
            if let Some(sums) = unsafe { self.sums(place, at, dy.len()) } {
                for ((sum, which), dy) in sums.iter_mut().zip(&*which).zip(dy) {
                    *sum += if *which == position { *dy } else { T::Acc::ZERO };
                }
            }
            position += T::Acc::ONE;
        }
    }

    /// Adds an equal share of `dy` to the sums of every element.
    #[inline(always)]
    unsafe fn give_to_all(&self, window: &Window, at: usize, dy: &mut [T::Acc]) {
        for share in &mut *dy {
            *share = *share / window.len();
        }
        for place in window.elements() {
            // SAFETY: the caller vouches for the window.
            if let Some(sums) = unsafe { self.sums(place, at, dy.len()) } {
                for (sum, share) in sums.iter_mut().zip(&*dy) {
                    *sum += *share;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::*;
    use plimsoll_graph::op::{Pool2d, PoolKind};
    use plimsoll_graph::{DType, Op, Shape};

    /// Images and windows: none; one element; no overlap; overlap with padding; gaps between windows; all of an image;
    /// padding on one side only.
    type Case = ([usize; 4], [usize; 2], [usize; 2], [usize; 4]);
    const CASES: [Case; 8] = [
        ([0, 4, 3, 2], [2, 2], [1, 1], [0; 4]),
        ([1, 1, 1, 1], [1, 1], [1, 1], [0; 4]),
        ([2, 8, 6, 5], [2, 2], [2, 2], [0; 4]),
        ([3, 7, 9, 33], [3, 3], [2, 2], [1; 4]),
        ([2, 11, 10, 3], [2, 3], [3, 4], [0, 1, 2, 0]),
        ([4, 5, 4, 270], [5, 4], [1, 1], [0; 4]),
        ([1, 40, 30, 64], [3, 2], [1, 1], [0, 2, 1, 0]),
        ([2, 1, 1, 2], [3, 3], [1, 2], [2; 4]),
    ];

    #[test]
    fn windows_become_their_largest_or_mean_and_give_their_gradient_back() {
        for dtype in FLOATS {
            for (image, window, stride, padding) in CASES {
                for kind in [PoolKind::Max, PoolKind::Mean] {
                    let pool = Pool2d { kind, window, stride, padding };
                    let pooled = pool.output(&Shape::new(&image).unwrap()).unwrap();
                    let mut numbers = Numbers::new(image[1] as u64);
                    // Few different numbers, so that some windows have several largest.
                    let x = (0..image.iter().product()).map(|_| numbers.below(7) as f64 - 3.0).collect();
                    let x = Tensor::new(dtype, &image, x);
                    let dy = numbers.tensor(dtype, &pooled);
                    check(&Op::Pool2d(pool), &[&x], &[], &[3.0 * unit(dtype)]);
                    check(&Op::Pool2dGrad(pool), &[&x, &dy], &[], &[8.0 * unit(dtype)]);
                }
            }
        }
    }

    #[test]
    fn the_first_nan_of_a_window_is_its_largest() {
        let pool = Pool2d { kind: PoolKind::Max, window: [1, 4], stride: [1, 4], padding: [0; 4] };
        let x = vec![1.0, f64::NAN, 2.0, f64::NAN, 3.0, f64::NEG_INFINITY, 3.0, 1.0];
        let x = Tensor::new(DType::F32, &[1, 1, 8, 1], x);
        let dy = Tensor::new(DType::F32, &[1, 1, 2, 1], vec![5.0, 7.0]);
        let actual = run_op(&Op::Pool2d(pool), &[&x], &[]);
        assert_close(&actual[0], &[f64::NAN, 3.0], 0.0, "pooled");
        let actual = run_op(&Op::Pool2dGrad(pool), &[&x, &dy], &[]);
        assert_close(&actual[0], &[0.0, 5.0, 0.0, 0.0, 7.0, 0.0, 0.0, 0.0], 0.0, "gradient");
    }
}
