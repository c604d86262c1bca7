//! Normalisation of rows, and its gradient.
//!
//! The variance is that of the deviations from the mean, which a second look at the row finds while it is still
//! in the cache; a mean of squares would lose the variance of rows far from zero.

use crate::kernels::memory::*;
use crate::kernels::summation::columns::{Blocks, add_blocks};
use crate::kernels::summation::{RowFold, Sum};
use crate::kernels::tasks::{each_range, rows_per_task};
use crate::numbers::{Element, Float, with_float};
use crate::runtime::{Call, Routine};
use crate::simd::{Body, InstructionSet, Isa};
use plimsoll_graph::program::Operand;
use std::marker::PhantomData;
use std::ops::Range;

/// Prepares `Op::LayerNorm`. The result may overwrite x.
pub(crate) fn prepare(epsilon: f64, reads: &[Operand], _writes: &[Operand]) -> Box<dyn Routine> {
    with_float!(reads[0].dtype, T => Box::new(LayerNorm::<T>::new(epsilon, reads)))
}

/// Prepares `Op::LayerNormGrad`, or `Op::ResidualLayerNormGrad` where there is something to add. The gradient of x may
/// overwrite x, the gradient of y or what is added.
pub(crate) fn prepare_grad(reads: &[Operand], _writes: &[Operand]) -> Box<dyn Routine> {
    with_float!(reads[0].dtype, T => Box::new(LayerNormGrad::<T>::new(reads)))
}

/// The running sum of a row.
type RowSum<T> = RowFold<Sum<<T as Element>::Acc>>;

/// The rows that are normalised and their width.
fn extents(x: &Operand) -> (usize, usize) {
    let shape = x.view.shape;
    let rank = shape.rank();
    (shape[..rank - 1].iter().product(), shape[rank - 1])
}

struct LayerNorm<T: Element<Acc: Float>> {
    isa: Isa,
    rows: usize,
    width: usize,
    epsilon: T::Acc,
}

impl<T: Element<Acc: Float>> LayerNorm<T> {
    fn new(epsilon: f64, reads: &[Operand]) -> Self {
        let (rows, width) = extents(&reads[0]);
        Self { isa: Isa::detect(), rows, width, epsilon: T::Acc::of(epsilon) }
    }
}

impl<T: Element<Acc: Float>> Routine for LayerNorm<T> {
    fn workspace(&self, _threads: usize) -> usize {
        0
    }

    unsafe fn run(&self, call: &Call<'_>) {
        let forward = Forward::<T> {
            x: Address::read(call, 0),
            gamma: Address::read(call, 1),
            beta: Address::read(call, 2),
            y: Address::write(call, 0),
            mean: Address::write(call, 1),
            reciprocal: Address::write(call, 2),
            width: self.width,
            epsilon: self.epsilon,
            rows: 0..0,
        };
        each_range(call.pool, self.rows, rows_per_task(self.width), &|_, rows| {
            self.isa.run(Forward { rows, ..forward });
        });
    }
}

/// Some rows, normalised.
struct Forward<T: Element<Acc: Float>> {
    x: Address<T>,
    gamma: Address<T>,
    beta: Address<T>,
    y: Address<T>,
    mean: Address<T::Acc>,
    reciprocal: Address<T::Acc>,
    width: usize,
    epsilon: T::Acc,
    rows: Range<usize>,
}

impl<T: Element<Acc: Float>> Body for Forward<T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<I: InstructionSet>(self) {
        let zero = T::Acc::ZERO;
        let (mut x, mut gamma, mut beta) = ([zero; CHUNK], [zero; CHUNK], [zero; CHUNK]);
        let count = T::Acc::of(self.width as f64);
        for row in self.rows {
            let start = row * self.width;
            // SAFETY: the row is within the operands, no other task writes to it, and a chunk of x is read before
            // it is overwritten.
            unsafe {
                let mut sum = RowSum::<T>::new();
                for (at, count) in chunks(self.width) {
                    load(self.x.at(start + at), count, &mut x);
                    sum.add(&x[..count]);
                }
                let mean = sum.total() / count;
                let mut squares = RowSum::<T>::new();
                for (at, count) in chunks(self.width) {
                    load(self.x.at(start + at), count, &mut x);
                    for x in &mut x[..count] {
                        let deviation = *x - mean;
                        *x = deviation * deviation;
                    }
                    squares.add(&x[..count]);
                }
                let reciprocal = T::Acc::recip(T::Acc::sqrt(squares.total() / count + self.epsilon));
                for (at, count) in chunks(self.width) {
                    load(self.x.at(start + at), count, &mut x);
                    load(self.gamma.at(at), count, &mut gamma);
                    load(self.beta.at(at), count, &mut beta);
                    for ((x, gamma), beta) in x[..count].iter_mut().zip(&gamma).zip(&beta) {
                        *x = (*x - mean) * reciprocal * *gamma + *beta;
                    }
                    store(&x, self.y.at(start + at), count);
                }
                self.mean.at(row).set(mean);
                self.reciprocal.at(row).set(reciprocal);
            }
        }
    }
}

struct LayerNormGrad<T> {
    isa: Isa,
    width: usize,
    blocks: Blocks,
    adds: bool,
    element: PhantomData<T>,
}

impl<T: Element<Acc: Float>> LayerNormGrad<T> {
    fn new(reads: &[Operand]) -> Self {
        let (rows, width) = extents(&reads[0]);
        let (isa, blocks, adds) = (Isa::detect(), Blocks::new(rows), reads.len() > 5);
        Self { isa, width, blocks, adds, element: PhantomData }
    }
}

impl<T: Element<Acc: Float>> Routine for LayerNormGrad<T> {
    fn workspace(&self, _threads: usize) -> usize {
        self.blocks.parts_bytes::<T::Acc>(2 * self.width)
    }

    unsafe fn run(&self, call: &Call<'_>) {
        let (isa, width) = (self.isa, self.width);
        let parts = Address::<T::Acc>::workspace(call, 0);
        let backward = Backward::<T> {
            x: Address::read(call, 0),
            gamma: Address::read(call, 1),
            mean: Address::read(call, 2),
            reciprocal: Address::read(call, 3),
            dy: Address::read(call, 4),
            past: self.adds.then(|| Address::read(call, 5)),
            dx: Address::write(call, 0),
            parts,
            width,
            rows: 0..0,
        };
        self.blocks.each(call.pool, &|block, rows| {
            isa.run(Backward { parts: parts.at(block * 2 * width), rows, ..backward });
        });
        // SAFETY: every block has written its parts, for gamma before those for beta.
        unsafe {
            add_blocks(call.pool, isa, parts, self.blocks.count(), 2 * width);
            round(parts.slice(width), Address::<T>::write(call, 1).slice_mut(width));
            round(parts.at(width).slice(width), Address::<T>::write(call, 2).slice_mut(width));
        }
    }
}

/// The gradients of some rows, added to what comes past the norm if anything does, and their parts of the gradients of
/// gamma and beta.
struct Backward<T: Element<Acc: Float>> {
    x: Address<T>,
    gamma: Address<T>,
    mean: Address<T::Acc>,
    reciprocal: Address<T::Acc>,
    dy: Address<T>,
    past: Option<Address<T>>,
    dx: Address<T>,
    parts: Address<T::Acc>,
    width: usize,
    rows: Range<usize>,
}

impl<T: Element<Acc: Float>> Body for Backward<T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<I: InstructionSet>(self) {
        let zero = T::Acc::ZERO;
        let (mut x, mut dy, mut gamma) = ([zero; CHUNK], [zero; CHUNK], [zero; CHUNK]);
        let count = T::Acc::of(self.width as f64);
        // SAFETY: the rows are within the operands, no other task writes to them or to these parts, and a chunk of
        // x, dy and what comes past is read before it is overwritten.
        unsafe {
            self.parts.slice_mut(2 * self.width).fill(zero);
            for row in self.rows {
                let start = row * self.width;
                let (mean, reciprocal) = (self.mean.at(row).get(), self.reciprocal.at(row).get());
                let (mut sum, mut product) = (RowSum::<T>::new(), RowSum::<T>::new());
                for (at, count) in chunks(self.width) {
                    load(self.x.at(start + at), count, &mut x);
                    load(self.dy.at(start + at), count, &mut dy);
                    load(self.gamma.at(at), count, &mut gamma);
                    let dgamma = self.parts.at(at).slice_mut(count);
                    let dbeta = self.parts.at(self.width + at).slice_mut(count);
                    for (((x, dy), dgamma), dbeta) in x[..count].iter_mut().zip(&dy).zip(dgamma).zip(dbeta) {
                        *x = (*x - mean) * reciprocal;
                        *dgamma += *dy * *x;
                        *dbeta += *dy;
                    }
                    for ((x, dy), gamma) in x[..count].iter_mut().zip(&mut dy).zip(&gamma) {
                        *dy = *dy * *gamma;
                        *x = *x * *dy;
                    }
                    sum.add(&dy[..count]);
                    product.add(&x[..count]);
                }
                let (sum, product) = (sum.total() / count, product.total() / count);
                for (at, count) in chunks(self.width) {
                    load(self.x.at(start + at), count, &mut x);
                    load(self.dy.at(start + at), count, &mut dy);
                    load(self.gamma.at(at), count, &mut gamma);
                    for ((x, dy), gamma) in x[..count].iter_mut().zip(&dy).zip(&gamma) {
                        let normal = (*x - mean) * reciprocal;
                        *x = (*dy * *gamma - sum - normal * product) * reciprocal;
                    }
                    let dx = self.dx.at(start + at);
                    if let Some(past) = self.past {
                        load(past.at(start + at), count, &mut dy);
                        // The gradient is rounded by itself.
                        store(&x, dx, count);
                        load(dx, count, &mut x);
                        for (x, past) in x[..count].iter_mut().zip(&dy) {
                            *x += *past;
                        }
                    }
                    store(&x, dx, count);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::*;
    use plimsoll_graph::{DType, Op};

    const NORM: Op = Op::LayerNorm { epsilon: 1e-5 };
    const SHAPES: [(usize, usize); 7] = [(0, 3), (1, 1), (3, 5), (67, 33), (10, 256), (130, 300), (2, 4099)];

    /// Rows far from zero.
    fn rows(numbers: &mut Numbers, dtype: DType, rows: usize, width: usize) -> Tensor {
        let x = (0..rows * width).map(|at| numbers.float() + (at / width % 7) as f64).collect();
        Tensor::new(dtype, &[rows, width], x)
    }

    #[test]
    fn rows_are_normalised_in_place_or_not() {
        for dtype in FLOATS {
            for (count, width) in SHAPES {
                let mut numbers = Numbers::new(width as u64);
                let x = rows(&mut numbers, dtype, count, width);
                let (gamma, beta) = (numbers.tensor(dtype, &[width]), numbers.tensor(dtype, &[width]));
                let sum = unit(dtype.accumulator());
                for in_place in [&[][..], &[(0, 0)]] {
                    let tolerances = [2.0 * unit(dtype) + 400.0 * sum, 16.0 * sum, 400.0 * sum];
                    check(&NORM, &[&x, &gamma, &beta], in_place, &tolerances);
                }
            }
        }
    }

    #[test]
    fn gradients_follow_the_formula_in_place_or_not() {
        for dtype in FLOATS {
            for (count, width) in SHAPES {
                let mut numbers = Numbers::new(width as u64);
                let (accumulator, dims) = (dtype.accumulator(), [count, width]);
                let x = rows(&mut numbers, dtype, count, width);
                let (gamma, beta) = (numbers.tensor(dtype, &[width]), numbers.tensor(dtype, &[width]));
                let [_, means, reciprocals] = reference(&NORM, &[&x, &gamma, &beta]).try_into().unwrap();
                let [means, reciprocals] =
                    [means, reciprocals].map(|values| Tensor::new(accumulator, &[count], values));
                let (dy, past) = (numbers.tensor(dtype, &dims), numbers.tensor(dtype, &dims));
                let reads = [&x, &gamma, &means, &reciprocals, &dy, &past];
                // A row of one element is divided by the square root of epsilon.
                let tolerance = 2.0 * unit(dtype) + 2000.0 * unit(accumulator);
                for in_place in [&[][..], &[(0, 0)], &[(0, 4)]] {
                    check(&Op::LayerNormGrad, &reads[..5], in_place, &[tolerance; 3]);
                }
                let alone = run_op(&Op::LayerNormGrad, &reads[..5], &[]);
                let sums = alone[0].iter().zip(past.values()).map(|(a, b)| a + b).collect();
                let sums = Tensor::new(dtype, &dims, sums).values();
                for in_place in [&[][..], &[(0, 0)], &[(0, 4)], &[(0, 5)]] {
                    let joint = run_op(&Op::ResidualLayerNormGrad, &reads, in_place);
                    assert_eq!(joint[0], sums, "both are rounded");
                    assert_eq!(joint[1..], alone[1..]);
                }
            }
        }
    }
}
