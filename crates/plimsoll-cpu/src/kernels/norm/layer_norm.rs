//! Normalisation of rows, and its gradient.
//!
//! The variance is that of the deviations from the mean, which a second look at the row finds while it is still
//! in the cache; a mean of squares would lose the variance of rows far from zero.

use crate::kernels::memory::*;
use crate::kernels::summation::columns::{Blocks, add_blocks};
use crate::kernels::summation::{RowFold, Sum};
use crate::kernels::tasks::{each_range, rows_per_task};
use crate::numbers::{Element, Float, FloatElement, with_float};
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

struct LayerNorm<T: FloatElement> {
    isa: Isa,
    rows: usize,
    width: usize,
    epsilon: T::Acc,
}

impl<T: FloatElement> LayerNorm<T> {
    fn new(epsilon: f64, reads: &[Operand]) -> Self {
        let (rows, width) = extents(&reads[0]);
        Self { isa: Isa::detect(), rows, width, epsilon: T::Acc::of(epsilon) }
    }
}

impl<T: FloatElement> Routine for LayerNorm<T> {
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
struct Forward<T: FloatElement> {
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

impl<T: FloatElement> Body for Forward<T> {
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

impl<T: FloatElement> LayerNormGrad<T> {
    fn new(reads: &[Operand]) -> Self {
        let (rows, width) = extents(&reads[0]);
        let (isa, blocks, adds) = (Isa::detect(), Blocks::new(rows), reads.len() > 5);
        Self { isa, width, blocks, adds, element: PhantomData }
    }
}

impl<T: FloatElement> Routine for LayerNormGrad<T> {
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
struct Backward<T: FloatElement> {
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

impl<T: FloatElement> Body for Backward<T> {
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
    use super::*;
    use crate::kernels::testing::*;
    use plimsoll_graph::DType;

    const EPSILON: f64 = 1e-5;
    const SHAPES: [(usize, usize); 6] = [(0, 3), (1, 1), (3, 5), (67, 33), (10, 256), (130, 300)];

    /// Rows far from zero, with the mean and reciprocal deviation of each.
    fn case(random: &mut Random, dtype: DType, rows: usize, width: usize) -> (Tensor, Vec<f64>, Vec<f64>) {
        let x = (0..rows * width).map(|at| random.float() + (at / width % 7) as f64).collect();
        let x = Tensor::new(dtype, &[rows, width], x);
        let values = x.values();
        let (mut means, mut reciprocals) = (Vec::new(), Vec::new());
        for row in values.chunks(width) {
            let mean = row.iter().sum::<f64>() / width as f64;
            let variance = row.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / width as f64;
            means.push(mean);
            reciprocals.push(1.0 / (variance + EPSILON).sqrt());
        }
        (x, means, reciprocals)
    }

    #[test]
    fn rows_are_normalised_in_place_or_not() {
        for dtype in FLOATS {
            for (rows, width) in SHAPES {
                let mut random = Random::new(width as u64);
                let (x, means, reciprocals) = case(&mut random, dtype, rows, width);
                let (gamma, beta) = (random.tensor(dtype, &[width]), random.tensor(dtype, &[width]));
                let expected: Vec<f64> = (0..rows * width)
                    .map(|at| {
                        let (row, column) = (at / width, at % width);
                        let normal = (x.at(&[row, column]) - means[row]) * reciprocals[row];
                        normal * gamma.at(&[column]) + beta.at(&[column])
                    })
                    .collect();
                let accumulator = dtype.accumulator();
                let results = [(dtype, &[rows, width][..]), (accumulator, &[rows]), (accumulator, &[rows])];
                for in_place in [&[][..], &[(0, 0)]] {
                    let prepare = |reads: &[_], writes: &[_]| prepare(EPSILON, reads, writes);
                    let actual = run(prepare, &[&x, &gamma, &beta], &results, in_place);
                    assert_close(&actual[0], &expected, 2.0 * unit(dtype) + 400.0 * unit(accumulator), "y");
                    assert_close(&actual[1], &means, 16.0 * unit(accumulator), "mean");
                    assert_close(&actual[2], &reciprocals, 400.0 * unit(accumulator), "reciprocal");
                }
            }
        }
    }

    #[test]
    fn gradients_follow_the_formula_in_place_or_not() {
        for dtype in FLOATS {
            for (rows, width) in SHAPES {
                let mut random = Random::new(width as u64);
                let (x, means, reciprocals) = case(&mut random, dtype, rows, width);
                let accumulator = dtype.accumulator();
                let (means, reciprocals) = (
                    Tensor::new(accumulator, &[rows], means),
                    Tensor::new(accumulator, &[rows], reciprocals),
                );
                let (gamma, dy) = (random.tensor(dtype, &[width]), random.tensor(dtype, &[rows, width]));
                let normal = |row: usize, column: usize| {
                    (x.at(&[row, column]) - means.at(&[row])) * reciprocals.at(&[row])
                };
                let slope = |row: usize, column: usize| dy.at(&[row, column]) * gamma.at(&[column]);
                let mut dx = Vec::new();
                for row in 0..rows {
                    let sum: f64 = (0..width).map(|column| slope(row, column)).sum();
                    let product: f64 =
                        (0..width).map(|column| slope(row, column) * normal(row, column)).sum();
                    dx.extend((0..width).map(|column| {
                        let along = (sum + normal(row, column) * product) / width as f64;
                        (slope(row, column) - along) * reciprocals.at(&[row])
                    }));
                }
                let column_sum = |of: &dyn Fn(usize, usize) -> f64| -> Vec<f64> {
                    (0..width).map(|column| (0..rows).map(|row| of(row, column)).sum()).collect()
                };
                let dgamma = column_sum(&|row, column| dy.at(&[row, column]) * normal(row, column));
                let dbeta = column_sum(&|row, column| dy.at(&[row, column]));
                let results = [(dtype, &[rows, width][..]), (dtype, &[width]), (dtype, &[width])];
                let past = random.tensor(dtype, &[rows, width]);
                for in_place in [&[][..], &[(0, 0)], &[(0, 4)], &[(0, 5)]] {
                    let reads = [&x, &gamma, &means, &reciprocals, &dy, &past];
                    // A row of one element is divided by the square root of epsilon.
                    let tolerance = 2.0 * unit(dtype) + 2000.0 * unit(accumulator);
                    let gradients = |reads: &[&Tensor], in_place| {
                        let actual = run(prepare_grad, reads, &results, in_place);
                        assert_close(&actual[1], &dgamma, tolerance, "dgamma");
                        assert_close(&actual[2], &dbeta, tolerance, "dbeta");
                        actual[0].clone()
                    };
                    let alone = gradients(&reads[..5], if in_place == [(0, 5)] { &[] } else { in_place });
                    assert_close(&alone, &dx, tolerance, "dx");
                    let sums: Vec<f64> = alone.iter().zip(past.values()).map(|(a, b)| a + b).collect();
                    let sums = Tensor::new(dtype, &[rows, width], sums);
                    assert_eq!(gradients(&reads, in_place), sums.values(), "both are rounded");
                }
            }
        }
    }
}
