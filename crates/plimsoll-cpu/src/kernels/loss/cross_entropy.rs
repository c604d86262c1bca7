//! Cross-entropy of logits against class indices, and its gradient.
//!
//! The probabilities are never written: the forward kernel keeps two numbers for each row, its largest logit and the log
//! of the sum of exponentials relative to it, from which the gradient recomputes them, in the memory of the logits if
//! it may.

use crate::kernels::memory::*;
use crate::kernels::summation::{MaxNumber, RowFold, Sum, fold_row};
use crate::kernels::tasks::{each_range, rows_per_task};
use crate::numbers::{Element, Float, with_float};
use crate::runtime::{Call, Routine};
use crate::simd::{Body, InstructionSet, Isa};
use plimsoll_graph::DType;
use plimsoll_graph::program::Operand;
use std::marker::PhantomData;
use std::ops::Range;

/// Prepares `Op::CrossEntropy`.
///
/// A negative label gives a loss of zero, one past the classes gives NaN; the sums are those of the logits in either
/// case.
pub(crate) fn prepare(reads: &[Operand], _writes: &[Operand]) -> Box<dyn Routine> {
    with_float!(reads[0].dtype, T => Box::new(CrossEntropy::<T>::new(reads)))
}

/// Prepares `Op::CrossEntropyGrad`, which may overwrite the logits.
///
/// The gradient of a row with a negative label is zero, with one past the classes NaN.
pub(crate) fn prepare_grad(reads: &[Operand], _writes: &[Operand]) -> Box<dyn Routine> {
    with_float!(reads[0].dtype, T => Box::new(CrossEntropyGrad::<T>::new(reads)))
}

/// The extents of the logits, the type of the labels.
#[derive(Clone, Copy)]
struct Geometry {
    isa: Isa,
    rows: usize,
    classes: usize,
    labels: DType,
}

impl Geometry {
    fn new(reads: &[Operand]) -> Self {
        let logits = reads[0].view.shape;
        Self { isa: Isa::detect(), rows: logits[0], classes: logits[1], labels: reads[1].dtype }
    }
}

struct CrossEntropy<T> {
    geometry: Geometry,
    element: PhantomData<T>,
}

impl<T: Element<Acc: Float>> CrossEntropy<T> {
    fn new(reads: &[Operand]) -> Self {
        Self { geometry: Geometry::new(reads), element: PhantomData }
    }
}

impl<T: Element<Acc: Float>> Routine for CrossEntropy<T> {
    fn workspace(&self, _threads: usize) -> usize {
        0
    }

    unsafe fn run(&self, call: &Call<'_>) {
        let Geometry { isa, rows, classes, labels } = self.geometry;
        let losses = Losses::<T> {
            logits: Address::read(call, 0),
            labels: Indices::read(call, 1, labels),
            loss: Address::write(call, 0),
            sums: Address::write(call, 1),
            classes,
            rows: 0..0,
        };
        each_range(call.pool, rows, rows_per_task(classes), &|_, rows| isa.run(Losses { rows, ..losses }));
    }
}

/// The losses of some rows.
struct Losses<T: Element<Acc: Float>> {
    logits: Address<T>,
    labels: Indices,
    loss: Address<T::Acc>,
    sums: Address<[T::Acc; 2]>,
    classes: usize,
    rows: Range<usize>,
}

impl<T: Element<Acc: Float>> Body for Losses<T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<I: InstructionSet>(self) {
        for row in self.rows {
            // SAFETY: the row is within the operands, and no other task writes to its results.
            unsafe {
                let logits = self.logits.at(row * self.classes);
                let (loss, sums) = loss_of_row(logits, self.classes, self.labels.get(row));
                self.sums.at(row).set(sums);
                self.loss.at(row).set(loss);
            }
        }
    }
}

/// The loss of one row of logits, and its [sums](log_sum).
///
/// # Safety
/// The logits must be initialised and not be written meanwhile.
#[inline(always)]
pub(super) unsafe fn loss_of_row<T: Element<Acc: Float>>(
    logits: Address<T>,
    classes: usize,
    label: i64,
) -> (T::Acc, [T::Acc; 2]) {
    // SAFETY: the caller vouches for the logits, of which the label is one.
    unsafe {
        let [largest, log] = log_sum(logits, classes);
        let loss = match class_of(label, classes) {
            Some(label) => log - (logits.at(label).get().widen() - largest),
            None if label < 0 => T::Acc::ZERO,
            None => T::Acc::NAN,
        };
        (loss, [largest, log])
    }
}

/// The class that a label names, if it is one.
#[inline(always)]
fn class_of(label: i64, classes: usize) -> Option<usize> {
    usize::try_from(label).ok().filter(|&label| label < classes)
}

/// The largest logit, and the logarithm of the sum of exponentials relative to it, of which none overflows.
///
/// # Safety
/// The logits must be initialised and not be written meanwhile.
#[inline(always)]
unsafe fn log_sum<T: Element<Acc: Float>>(logits: Address<T>, classes: usize) -> [T::Acc; 2] {
    // SAFETY: the caller vouches for the logits.
    let logits = unsafe { logits.slice(classes) };
    let largest = fold_row::<MaxNumber<T::Acc>, T>(logits);
    let mut sum = RowFold::<Sum<T::Acc>>::new();
    let mut chunk: Chunk<T::Acc> = [T::Acc::ZERO; CHUNK];
    for logits in logits.chunks(CHUNK) {
        for (exponential, logit) in chunk.iter_mut().zip(logits) {
            *exponential = T::Acc::exp(logit.widen() - largest);
        }
        sum.add(&chunk[..logits.len()]);
    }
    [largest, T::Acc::ln(sum.total())]
}

struct CrossEntropyGrad<T> {
    geometry: Geometry,
    element: PhantomData<T>,
}

impl<T: Element<Acc: Float>> CrossEntropyGrad<T> {
    fn new(reads: &[Operand]) -> Self {
        Self { geometry: Geometry::new(reads), element: PhantomData }
    }
}

impl<T: Element<Acc: Float>> Routine for CrossEntropyGrad<T> {
    fn workspace(&self, _threads: usize) -> usize {
        0
    }

    unsafe fn run(&self, call: &Call<'_>) {
        let Geometry { isa, rows, classes, labels } = self.geometry;
        let gradients = Gradients::<T> {
            logits: Address::read(call, 0),
            labels: Indices::read(call, 1, labels),
            sums: Address::read(call, 2),
            loss: Address::read(call, 3),
            result: Address::write(call, 0),
            classes,
            rows: 0..0,
        };
        each_range(call.pool, rows, rows_per_task(classes), &|_, rows| {
            isa.run(Gradients { rows, ..gradients })
        });
    }
}

/// The gradients of some rows of logits.
struct Gradients<T: Element<Acc: Float>> {
    logits: Address<T>,
    labels: Indices,
    sums: Address<[T::Acc; 2]>,
    loss: Address<T::Acc>,
    result: Address<T>,
    classes: usize,
    rows: Range<usize>,
}

impl<T: Element<Acc: Float>> Body for Gradients<T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<I: InstructionSet>(self) {
        let classes = self.classes;
        for row in self.rows {
            // SAFETY: the row is within the operands, and no other task writes to it.
            unsafe {
                let logits = self.logits.at(row * classes);
                let (sums, slope) = (self.sums.at(row).get(), self.loss.at(row).get());
                let label = self.labels.get(row);
                gradient_of_row(logits, classes, label, sums, slope, self.result.at(row * classes));
            }
        }
    }
}

/// The gradient of one row of logits, from its [sums](log_sum) and the gradient of its loss.
///
/// # Safety
/// The logits must be initialised, and the result, which may be the logits, be written by nobody else.
#[inline(always)]
pub(super) unsafe fn gradient_of_row<T: Element<Acc: Float>>(
    logits: Address<T>,
    classes: usize,
    label: i64,
    [largest, log]: [T::Acc; 2],
    slope: T::Acc,
    result: Address<T>,
) {
    // SAFETY: the caller vouches for both rows; a chunk of logits, or the one that the label names, is read before
    // it is overwritten.
    unsafe {
        if label < 0 {
            result.slice_mut(classes).fill(T::narrow(T::Acc::ZERO));
            return;
        }
        let label = class_of(label, classes);
        let slope = if label.is_none() { T::Acc::NAN } else { slope };
        let chosen = label.map(|label| logits.at(label).get().widen());
        let mut chunk: Chunk<T::Acc> = [T::Acc::ZERO; CHUNK];
        for (start, count) in chunks(classes) {
            for (gradient, logit) in chunk.iter_mut().zip(logits.at(start).slice(count)) {
                *gradient = T::Acc::exp(logit.widen() - largest - log) * slope;
            }
            store(&chunk, result.at(start), count);
        }
        if let (Some(label), Some(logit)) = (label, chosen) {
            let gradient = (T::Acc::exp(logit - largest - log) - T::Acc::ONE) * slope;
            result.at(label).set(T::narrow(gradient));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::*;
    use plimsoll_graph::{DType, Op};

    const CASES: [(usize, usize, DType); 5] = [
        (0, 3, DType::I32),
        (1, 1, DType::I32),
        (5, 10, DType::I64),
        (70, 777, DType::I32),
        (3, 9001, DType::I64),
    ];

    /// Logits, and labels that include a negative one and one past the classes.
    fn case(dtype: DType, index: DType, rows: usize, classes: usize) -> (Tensor, Tensor) {
        let mut numbers = Numbers::new((rows * classes) as u64);
        let logits = (0..rows * classes).map(|_| numbers.float() * 20.0).collect();
        let label = |row: usize| match row {
            1 => -3.0,
            2 => classes as f64,
            _ => numbers.below(classes) as f64,
        };
        let labels: Vec<f64> = (0..rows).map(label).collect();
        (Tensor::new(dtype, &[rows, classes], logits), Tensor::new(index, &[rows], labels))
    }

    #[test]
    fn the_loss_is_the_log_sum_less_the_chosen_logit() {
        for dtype in FLOATS {
            for (rows, classes, index) in CASES {
                let (logits, labels) = case(dtype, index, rows, classes);
                let unit = unit(dtype.accumulator());
                // The difference of numbers of up to about 30; and the log of a sum in chains of up to 128 additions.
                check(&Op::CrossEntropy, &[&logits, &labels], &[], &[240.0 * unit, 128.0 * unit]);
            }
        }
    }

    #[test]
    fn the_gradient_is_the_probabilities_less_the_chosen_one_in_place_or_not() {
        for dtype in FLOATS {
            for (rows, classes, index) in CASES {
                let (logits, labels) = case(dtype, index, rows, classes);
                let log_sums = reference(&Op::CrossEntropy, &[&logits, &labels]).remove(1);
                let log_sums = Tensor::new(dtype.accumulator(), &[rows, 2], log_sums);
                let slopes = Numbers::new(5).tensor(dtype.accumulator(), &[rows]);
                for in_place in [&[][..], &[(0, 0)]] {
                    let reads = [&logits, &labels, &log_sums, &slopes];
                    check(&Op::CrossEntropyGrad, &reads, in_place, &[60.0 * unit(dtype)]);
                }
            }
        }
    }

    #[test]
    fn large_logits_do_not_overflow() {
        let logits = Tensor::new(DType::F32, &[1, 3], vec![1000.0, 1001.0, -1e30]);
        let labels = Tensor::new(DType::I32, &[1], vec![1.0]);
        let actual = run_op(&Op::CrossEntropy, &[&logits, &labels], &[]);
        assert_close(&actual[0], &[(-1f64).exp().ln_1p()], 1e-7, "loss");
    }

    #[test]
    fn a_common_offset_of_the_logits_changes_nothing() {
        let numbers = [0.25, -1.5, 3.0, 0.0, -7.25, 2.5];
        let labels = Tensor::new(DType::I32, &[2], vec![2.0, 0.0]);
        let slopes = Tensor::new(DType::F32, &[2], vec![1.0, 1.0]);
        let at = |offset: f64| {
            let logits = Tensor::new(DType::F32, &[2, 3], numbers.map(|x| x + offset).to_vec());
            let [loss, sums] = run_op(&Op::CrossEntropy, &[&logits, &labels], &[]).try_into().unwrap();
            let sums = Tensor::new(DType::F32, &[2, 2], sums);
            let reads = [&logits, &labels, &sums, &slopes];
            [loss, run_op(&Op::CrossEntropyGrad, &reads, &[]).remove(0)]
        };
        for offset in [128.0, 1024.0, -16384.0] {
            assert_eq!(at(offset), at(0.0), "{offset}");
        }
    }
}
