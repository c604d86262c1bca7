//! Statistics of channels over all other axes, and the gradient of normalising by them. Normalising itself is
//! arithmetic on elements, which fused loops do.
//!
//! Channels are the last axis, so a row of them can be shorter than a vector. Several rows are therefore taken
//! together as one *line* of about [`CHUNK`] elements, each with statistics of its own; those of one channel are
//! merged at the end. Statistics of a few lines are taken in two passes while they are in the cache and merged by
//! the parallel formula of Chan, Golub and LeVeque, so that x is read from memory once and no variance is the
//! difference of two large numbers. All elements of a channel are measured from its first: a mean that is large beside
//! the deviation could not be kept exactly enough, the distance from an element can.

use crate::kernels::memory::*;
use crate::kernels::summation::columns::add_blocks;
use crate::kernels::tasks::each_range;
use crate::numbers::{Element, Float, with_float};
use crate::runtime::{Call, Routine};
use crate::simd::{Body, InstructionSet, Isa};
use plimsoll_graph::program::Operand;
use std::ops::Range;

/// Prepares `Op::BatchMoments`.
pub(crate) fn prepare_moments(epsilon: f64, reads: &[Operand], _writes: &[Operand]) -> Box<dyn Routine> {
    with_float!(reads[0].dtype, T => Box::new(BatchMoments::<T>::new(epsilon, reads)))
}

/// Prepares `Op::BatchNormGrad`. The gradient of x may overwrite x or the gradient of y.
pub(crate) fn prepare_grad(epsilon: f64, reads: &[Operand], _writes: &[Operand]) -> Box<dyn Routine> {
    with_float!(reads[0].dtype, T => Box::new(BatchNormGrad::<T>::new(epsilon, reads)))
}

/// How x is cut: into lines of some rows, blocks of lines, and across into parts of at most [`CHUNK`] elements.
#[derive(Clone, Copy)]
struct Lines {
    isa: Isa,
    rows: usize,
    channels: usize,
    /// The rows of a line.
    fold: usize,
    /// The lines of a block.
    block: usize,
}

/// The most blocks that statistics are kept apart for.
const MOST_BLOCKS: usize = 64;

/// How many lines are looked at twice while they are in the cache.
const SPAN: usize = 32;

impl Lines {
    fn new(x: &Operand) -> Self {
        let shape = x.view.shape;
        let channels = shape[shape.rank() - 1];
        let rows = shape[..shape.rank() - 1].iter().product();
        let fold = (CHUNK / channels.max(1)).clamp(1, CHUNK);
        let block = usize::div_ceil(rows, fold).div_ceil(MOST_BLOCKS).next_multiple_of(SPAN).max(SPAN);
        Self { isa: Isa::detect(), rows, channels, fold, block }
    }

    fn lines(&self) -> usize {
        self.rows.div_ceil(self.fold)
    }

    fn blocks(&self) -> usize {
        self.lines().div_ceil(self.block)
    }

    /// The parts that a line is cut into; only one if it is of several rows.
    fn parts(&self) -> usize {
        self.channels.div_ceil(CHUNK)
    }

    /// Where a part of a line begins and how many elements it has.
    #[inline(always)]
    fn span(&self, line: usize, part: usize) -> (usize, usize) {
        let row = line * self.fold;
        let width = self.fold.min(self.rows - row) * self.channels;
        (row * self.channels + part * CHUNK, (width - part * CHUNK).min(CHUNK))
    }

    /// The channels of a part.
    #[inline(always)]
    fn channels(&self, part: usize) -> Range<usize> {
        part * CHUNK..self.channels.min((part + 1) * CHUNK)
    }

    /// Repeats what `of` gives for each channel of a part for every row of a line.
    #[inline(always)]
    fn repeat<A: Float>(&self, part: usize, of: impl Fn(usize) -> A) -> Chunk<A> {
        let mut chunk = [A::ZERO; CHUNK];
        let channels = self.channels(part);
        let width = channels.len();
        for (to, channel) in chunk.iter_mut().zip(channels) {
            *to = of(channel);
        }
        for row in 1..self.fold {
            chunk.copy_within(..width, row * width);
        }
        chunk
    }

    /// Calls `task` for every block of lines and every part.
    fn each(&self, call: &Call<'_>, task: &(dyn Fn(usize, LineBlock) + Sync)) {
        let parts = self.parts();
        call.pool.run(self.blocks() * parts, &|_, index| {
            let (block, part) = (index / parts, index % parts);
            let (first, end) = (block * self.block, self.lines().min((block + 1) * self.block));
            task(block, LineBlock { part, first, end });
        });
    }
}

/// A part of the lines of a block.
#[derive(Clone, Copy)]
struct LineBlock {
    part: usize,
    first: usize,
    end: usize,
}

impl LineBlock {
    const NONE: Self = Self { part: 0, first: 0, end: 0 };
}

/// For each element of a part of a line, how many were seen, their mean, and the squares of their deviations.
struct Moments<A> {
    count: Chunk<A>,
    mean: Chunk<A>,
    squares: Chunk<A>,
}

impl<A: Float> Moments<A> {
    #[inline(always)]
    fn none() -> Self {
        Self { count: [A::ZERO; CHUNK], mean: [A::ZERO; CHUNK], squares: [A::ZERO; CHUNK] }
    }

    /// Merges in `count` elements of this mean and these squares at `position`.
    #[inline(always)]
    fn merge(&mut self, position: usize, count: A, mean: A, squares: A) {
        let seen = self.count[position];
        let total = seen + count;
        let share = count / total;
        let distance = mean - self.mean[position];
        self.count[position] = total;
        self.mean[position] += distance * share;
        self.squares[position] += squares + distance * distance * seen * share;
    }
}

struct BatchMoments<T: Element<Acc: Float>> {
    lines: Lines,
    epsilon: T::Acc,
}

impl<T: Element<Acc: Float>> BatchMoments<T> {
    fn new(epsilon: f64, reads: &[Operand]) -> Self {
        Self { lines: Lines::new(&reads[0]), epsilon: T::Acc::of(epsilon) }
    }
}

impl<T: Element<Acc: Float>> Routine for BatchMoments<T> {
    fn workspace(&self, _threads: usize) -> usize {
        bytes_of::<T::Acc>(self.lines.blocks() * 3 * self.lines.channels)
    }

    unsafe fn run(&self, call: &Call<'_>) {
        let Lines { isa, channels, .. } = self.lines;
        let (x, moments) = (Address::<T>::read(call, 0), Address::<T::Acc>::workspace(call, 0));
        self.lines.each(call, &|block, lines| {
            isa.run(Measure::<T> {
                cut: self.lines,
                x,
                moments: moments.at(block * 3 * channels),
                block: lines,
            });
        });
        let settle = Settle {
            moments,
            blocks: self.lines.blocks(),
            channels,
            epsilon: self.epsilon,
            mean: Address::write(call, 0),
            variance: Address::write(call, 1),
            reciprocal: Address::write(call, 2),
            x,
            range: 0..0,
        };
        each_range(call.pool, channels, CHUNK, &|_, range| isa.run(Settle { range, ..settle }));
    }
}

/// What the elements of a channel are measured from: the first of them, unless nothing can be measured from that.
///
/// # Safety
/// There is a row, and nobody writes to it meanwhile.
#[inline(always)]
unsafe fn origin<T: Element<Acc: Float>>(x: Address<T>, channel: usize) -> T::Acc {
    // SAFETY: the caller vouches for the first row.
    let first = unsafe { x.at(channel).get().widen() };
    if T::Acc::is_finite(first) { first } else { T::Acc::ZERO }
}

/// The moments of a block, with means from the channels' [`origin`]s.
struct Measure<T: Element<Acc: Float>> {
    cut: Lines,
    x: Address<T>,
    /// Where the block's counts, means and squares of all channels go.
    moments: Address<T::Acc>,
    block: LineBlock,
}

impl<T: Element<Acc: Float>> Body for Measure<T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<I: InstructionSet>(self) {
        let LineBlock { part, first, end } = self.block;
        let mut moments = Moments::none();
        // SAFETY: where there are lines, there is a row.
        let origins = self.cut.repeat(part, |channel| unsafe { origin(self.x, channel) });
        let mut line = first;
        while line < end {
            let (_, width) = self.cut.span(line, part);
            // The last line may be shorter; it is then taken alone.
            let same = |&other: &usize| self.cut.span(other, part).1 == width;
            let next = (line + 1..end.min(line + SPAN)).take_while(same).last().unwrap_or(line) + 1;
            // SAFETY: the lines are within x, which nobody writes to before all is measured.
            unsafe { self.merge(line..next, width, &origins, &mut moments) };
            line = next;
        }
        let channels = self.cut.channels(part);
        let across = channels.len();
        for position in across..across * self.cut.fold {
            let Moments { count, mean, squares } = &moments;
            let (count, mean, squares) = (count[position], mean[position], squares[position]);
            if count > T::Acc::ZERO {
                moments.merge(position % across, count, mean, squares);
            }
        }
        for (which, values) in [moments.count, moments.mean, moments.squares].iter().enumerate() {
            // SAFETY: no other task writes to these channels of this block.
            unsafe { store(values, self.moments.at(which * self.cut.channels + channels.start), across) };
        }
    }
}

impl<T: Element<Acc: Float>> Measure<T> {
    /// Merges in lines that are all `width` wide.
    #[inline(always)]
    unsafe fn merge(
        &self,
        lines: Range<usize>,
        width: usize,
        origins: &Chunk<T::Acc>,
        moments: &mut Moments<T::Acc>,
    ) {
        let zero = T::Acc::ZERO;
        let count = T::Acc::of(lines.len() as f64);
        let (mut mean, mut squares) = ([zero; CHUNK], [zero; CHUNK]);
        for line in lines.clone() {
            // SAFETY: the caller vouches for the lines.
            let x = unsafe { self.x.at(self.cut.span(line, self.block.part).0).slice(width) };
            for ((sum, origin), x) in mean.iter_mut().zip(origins).zip(x) {
                *sum += x.widen() - *origin;
            }
        }
        for mean in &mut mean {
            *mean = *mean / count;
        }
        for line in lines {
            // SAFETY: the caller vouches for the lines.
            let x = unsafe { self.x.at(self.cut.span(line, self.block.part).0).slice(width) };
            for (((sum, mean), origin), x) in squares.iter_mut().zip(&mean).zip(origins).zip(x) {
                let deviation = x.widen() - *origin - *mean;
                *sum += deviation * deviation;
            }
        }
        for position in 0..width {
            moments.merge(position, count, mean[position], squares[position]);
        }
    }
}

/// The mean, variance and reciprocal deviation of some channels, from the moments of all blocks.
struct Settle<T: Element<Acc: Float>> {
    moments: Address<T::Acc>,
    blocks: usize,
    channels: usize,
    epsilon: T::Acc,
    mean: Address<T::Acc>,
    variance: Address<T::Acc>,
    reciprocal: Address<T::Acc>,
    x: Address<T>,
    range: Range<usize>,
}

impl<T: Element<Acc: Float>> Body for Settle<T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<I: InstructionSet>(self) {
        let width = self.range.len();
        let mut moments = Moments::none();
        for block in 0..self.blocks {
            let at = |which| self.moments.at((block * 3 + which) * self.channels + self.range.start);
            // SAFETY: all blocks have been measured.
            let [count, mean, squares] =
                unsafe { [at(0).slice(width), at(1).slice(width), at(2).slice(width)] };
            for position in 0..width {
                moments.merge(position, count[position], mean[position], squares[position]);
            }
        }
        let mut reciprocal = [T::Acc::ZERO; CHUNK];
        let Moments { count, mean, squares } = &mut moments;
        if self.blocks > 0 {
            for (mean, channel) in mean.iter_mut().zip(self.range.clone()) {
                // SAFETY: where there are blocks, there is a row.
                *mean += unsafe { origin(self.x, channel) };
            }
        }
        for ((squares, count), reciprocal) in squares.iter_mut().zip(count).zip(&mut reciprocal) {
            *squares = *squares / *count;
            *reciprocal = T::Acc::recip(T::Acc::sqrt(*squares + self.epsilon));
        }
        // SAFETY: no other task writes to these channels.
        unsafe {
            store(mean, self.mean.at(self.range.start), width);
            store(squares, self.variance.at(self.range.start), width);
            store(&reciprocal, self.reciprocal.at(self.range.start), width);
        }
    }
}

struct BatchNormGrad<T: Element<Acc: Float>> {
    lines: Lines,
    epsilon: T::Acc,
}

impl<T: Element<Acc: Float>> BatchNormGrad<T> {
    fn new(epsilon: f64, reads: &[Operand]) -> Self {
        Self { lines: Lines::new(&reads[0]), epsilon: T::Acc::of(epsilon) }
    }
}

impl<T: Element<Acc: Float>> Routine for BatchNormGrad<T> {
    fn workspace(&self, _threads: usize) -> usize {
        bytes_of::<T::Acc>(self.lines.blocks().max(1) * 2 * self.lines.channels)
    }

    unsafe fn run(&self, call: &Call<'_>) {
        let Lines { isa, channels, .. } = self.lines;
        let sums = Address::<T::Acc>::workspace(call, 0);
        let backward = Backward::<T> {
            cut: self.lines,
            x: Address::read(call, 0),
            gamma: Address::read(call, 1),
            mean: Address::read(call, 2),
            variance: Address::read(call, 3),
            dy: Address::read(call, 4),
            dx: Address::write(call, 0),
            sums,
            epsilon: self.epsilon,
            block: LineBlock::NONE,
        };
        self.lines.each(call, &|block, lines| {
            isa.run(ParameterSums(Backward {
                sums: sums.at(block * 2 * channels),
                block: lines,
                ..backward
            }));
        });
        // SAFETY: every block has written its sums, for gamma before those for beta.
        unsafe {
            add_blocks(call.pool, isa, sums, self.lines.blocks(), 2 * channels);
            round(sums.slice(channels), Address::<T>::write(call, 1).slice_mut(channels));
            round(sums.at(channels).slice(channels), Address::<T>::write(call, 2).slice_mut(channels));
        }
        self.lines.each(call, &|_, block| isa.run(Backward { block, ..backward }));
    }
}

/// The gradient of x in a block, from the gradients of gamma and beta.
struct Backward<T: Element<Acc: Float>> {
    cut: Lines,
    x: Address<T>,
    gamma: Address<T>,
    mean: Address<T::Acc>,
    variance: Address<T::Acc>,
    dy: Address<T>,
    dx: Address<T>,
    /// The gradients of gamma and beta.
    sums: Address<T::Acc>,
    epsilon: T::Acc,
    block: LineBlock,
}

impl<T: Element<Acc: Float>> Backward<T> {
    /// The reciprocal of a channel's standard deviation.
    #[inline(always)]
    unsafe fn reciprocal(&self, channel: usize) -> T::Acc {
        // SAFETY: the caller vouches for the channel.
        let variance = unsafe { self.variance.at(channel).get() };
        T::Acc::recip(T::Acc::sqrt(variance + self.epsilon))
    }
}

impl<T: Element<Acc: Float>> Body for Backward<T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<I: InstructionSet>(self) {
        let LineBlock { part, first, end } = self.block;
        let (cut, rows) = (self.cut, T::Acc::of(self.cut.rows as f64));
        // SAFETY: channels and lines are within the operands, no other task writes to the lines, and a part of x and
        // dy is read before it is overwritten.
        unsafe {
            let mean = cut.repeat(part, |channel| self.mean.at(channel).get());
            let scale =
                cut.repeat(part, |channel| self.gamma.at(channel).get().widen() * self.reciprocal(channel));
            // The gradients of gamma and beta for one row, the former for x itself and not for x normalised.
            let slope = cut.repeat(part, |channel| {
                let reciprocal = self.reciprocal(channel);
                self.sums.at(channel).get() * reciprocal / rows
            });
            let shift = cut.repeat(part, |channel| self.sums.at(cut.channels + channel).get() / rows);
            let (mut x, mut dy) = ([T::Acc::ZERO; CHUNK], [T::Acc::ZERO; CHUNK]);
            for line in first..end {
                let (start, count) = cut.span(line, part);
                load(self.x.at(start), count, &mut x);
                load(self.dy.at(start), count, &mut dy);
                for position in 0..count {
                    let along = (x[position] - mean[position]) * slope[position];
                    dy[position] = (dy[position] - shift[position] - along) * scale[position];
                }
                store(&dy, self.dx.at(start), count);
            }
        }
    }
}

/// A block's part of the gradients of gamma and beta.
struct ParameterSums<T: Element<Acc: Float>>(Backward<T>);

impl<T: Element<Acc: Float>> Body for ParameterSums<T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<I: InstructionSet>(self) {
        let Backward { cut, x, dy, mean, sums, .. } = self.0;
        let LineBlock { part, first, end } = self.0.block;
        let zero = T::Acc::ZERO;
        let (mut gamma, mut beta) = ([zero; CHUNK], [zero; CHUNK]);
        // SAFETY: channels and lines are within the operands, and no other task writes to these channels of this
        // block's sums.
        unsafe {
            let mean = cut.repeat(part, |channel| mean.at(channel).get());
            for line in first..end {
                let (start, count) = cut.span(line, part);
                let (x, dy) = (x.at(start).slice(count), dy.at(start).slice(count));
                for position in 0..count {
                    let slope = dy[position].widen();
                    gamma[position] += (x[position].widen() - mean[position]) * slope;
                    beta[position] += slope;
                }
            }
            let channels = cut.channels(part);
            let across = channels.len();
            for position in across..across * cut.fold {
                gamma[position % across] += gamma[position];
                beta[position % across] += beta[position];
            }
            for (gamma, channel) in gamma.iter_mut().zip(channels.clone()) {
                *gamma = *gamma * self.0.reciprocal(channel);
            }
            store(&gamma, sums.at(channels.start), across);
            store(&beta, sums.at(cut.channels + channels.start), across);
        }
    }
}

#[cfg(test)]
mod tests;
