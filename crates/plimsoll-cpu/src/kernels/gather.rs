//! Rows of a table, and sums into rows of a table.
//!
//! Gathering copies bytes. Adding sorts the updates by their row first, stably, so that each row of the table is
//! written once, by one task: nothing is zeroed beforehand, a row's updates are added in their order whatever the
//! thread count, and halves are added in single precision and rounded once.

use crate::kernels::memory::*;
use crate::kernels::summation::{Fold, Max, Sum};
use crate::kernels::tasks::{each_range, rows_per_task};
use crate::numbers::{Element, with_element};
use crate::runtime::{Call, Routine};
use crate::simd::{Body, InstructionSet, Isa};
use plimsoll_graph::DType;
use plimsoll_graph::program::Operand;
use std::marker::PhantomData;
use std::ops::Range;

/// Prepares `Op::Gather`.
pub(crate) fn prepare(reads: &[Operand], _writes: &[Operand]) -> Box<dyn Routine> {
    // Bits are copied whatever they mean; of a row that is not there, floats are NaN, which is zero for integers.
    with_element!(reads[0].dtype, T => Box::new(Gather::<T>::new(reads, T::from_f64(f64::NAN))))
}

/// Prepares `Op::ScatterAdd`. Integers wrap around; the sum of bools is whether any holds.
pub(crate) fn prepare_scatter_add(rows: usize, reads: &[Operand], _writes: &[Operand]) -> Box<dyn Routine> {
    match reads[1].dtype {
        DType::Bool => Box::new(ScatterAdd::<Max<u8>, u8>::new(rows, reads)),
        dtype => {
            with_element!(dtype, T => Box::new(ScatterAdd::<Sum<<T as Element>::Acc>, T>::new(rows, reads)))
        }
    }
}

struct Gather<T> {
    index: DType,
    /// The rows of the table, and the elements of one.
    rows: usize,
    width: usize,
    /// The rows that are gathered.
    count: usize,
    /// What the elements of a row outside the table are.
    missing: T,
}

impl<T> Gather<T> {
    fn new(reads: &[Operand], missing: T) -> Self {
        let (table, indices) = (reads[0].view.shape, reads[1].view.shape);
        let width = table[1..].iter().product();
        Self { index: reads[1].dtype, rows: table[0], width, count: indices.elements(), missing }
    }
}

impl<T: Copy + Send + Sync> Routine for Gather<T> {
    fn workspace(&self, _threads: usize) -> usize {
        0
    }

    unsafe fn run(&self, call: &Call<'_>) {
        let (table, result) = (Address::<T>::read(call, 0), Address::<T>::write(call, 0));
        let indices = Indices::read(call, 1, self.index);
        each_range(call.pool, self.count, rows_per_task(self.width), &|_, range| {
            for position in range {
                // SAFETY: the position is one of the indices', the row one of the table's, and no other task
                // writes this row of the result.
                unsafe {
                    let to = result.at(position * self.width).slice_mut(self.width);
                    match indices.below(position, self.rows) {
                        Some(row) => to.copy_from_slice(table.at(row * self.width).slice(self.width)),
                        None => to.fill(self.missing),
                    }
                }
            }
        });
    }
}

struct ScatterAdd<F, T> {
    isa: Isa,
    index: DType,
    /// The rows of the table, and the elements of one.
    rows: usize,
    width: usize,
    /// The updates.
    count: usize,
    element: PhantomData<(F, T)>,
}

impl<F, T> ScatterAdd<F, T> {
    fn new(rows: usize, reads: &[Operand]) -> Self {
        let (indices, updates) = (reads[0].view.shape, reads[1].view.shape);
        let width = updates[indices.rank()..].iter().product();
        let (index, count) = (reads[0].dtype, indices.elements());
        Self { isa: Isa::detect(), index, rows, width, count, element: PhantomData }
    }
}

impl<F: Fold, T: Element<Acc = F::Number>> Routine for ScatterAdd<F, T> {
    fn workspace(&self, _threads: usize) -> usize {
        bytes_of::<usize>(self.rows + 1) + bytes_of::<usize>(self.count)
    }

    unsafe fn run(&self, call: &Call<'_>) {
        let indices = Indices::read(call, 0, self.index);
        let (updates, result) = (Address::<T>::read(call, 1), Address::<T>::write(call, 0));
        let bounds = Address::<usize>::workspace(call, 0);
        let sorted = Address::<usize>::workspace(call, bytes_of::<usize>(self.rows + 1));
        // SAFETY: both are within the workspace, which nobody else uses yet.
        unsafe { self.sort(indices, bounds.slice_mut(self.rows + 1), sorted.slice_mut(self.count)) };
        each_range(call.pool, self.rows, rows_per_task(self.width), &|_, rows| {
            self.isa.run(RowSums {
                fold: PhantomData::<F>,
                updates,
                bounds,
                sorted,
                result,
                width: self.width,
                rows,
            });
        });
    }
}

/// Some rows of the table.
struct RowSums<F, T> {
    fold: PhantomData<F>,
    updates: Address<T>,
    bounds: Address<usize>,
    sorted: Address<usize>,
    result: Address<T>,
    width: usize,
    rows: Range<usize>,
}

impl<F: Fold, T: Element<Acc = F::Number>> Body for RowSums<F, T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<I: InstructionSet>(self) {
        let mut sums = [F::identity(); CHUNK];
        for row in self.rows {
            // SAFETY: the updates are sorted and only read now, each is named by its position among the indices, and
            // no other task writes this row of the result.
            unsafe {
                let (first, end) = (self.bounds.at(row).get(), self.bounds.at(row + 1).get());
                let own = self.sorted.at(first).slice(end - first);
                for (at, count) in chunks(self.width) {
                    sums[..count].fill(F::identity());
                    for update in own {
                        let update = self.updates.at(update * self.width + at).slice(count);
                        for (sum, element) in sums.iter_mut().zip(update) {
                            *sum = F::combine(*sum, element.widen());
                        }
                    }
                    store(&sums, self.result.at(row * self.width + at), count);
                }
            }
        }
    }
}

impl<F, T> ScatterAdd<F, T> {
    /// Lists the updates row by row, each row's in their order. Afterwards `bounds[row]` is where the list of a
    /// row begins and `bounds[row + 1]` where it ends.
    unsafe fn sort(&self, indices: Indices, bounds: &mut [usize], sorted: &mut [usize]) {
        // SAFETY: there are `count` indices.
        let row = |update: usize| unsafe { indices.below(update, self.rows) };
        bounds.fill(0);
        for row in (0..self.count).filter_map(row) {
            bounds[row] += 1;
        }
        let mut end = 0;
        for bound in &mut *bounds {
            end += *bound;
            *bound = end;
        }
        for update in (0..self.count).rev() {
            if let Some(row) = row(update) {
                bounds[row] -= 1;
                sorted[bounds[row]] = update;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::*;
    use plimsoll_graph::{DType, Op};

    /// Indices into a table of `rows` rows, some of them outside.
    fn indices(numbers: &mut Numbers, dtype: DType, count: usize, rows: usize) -> Tensor {
        let index = |_| numbers.below(rows + 4) as f64 - 2.0;
        Tensor::new(dtype, &[count], (0..count).map(index).collect())
    }

    fn inside(index: f64, rows: usize) -> Option<usize> {
        (index >= 0.0 && index < rows as f64).then_some(index as usize)
    }

    #[test]
    fn gathered_rows_are_those_of_the_table_or_missing() {
        for dtype in DType::ALL {
            for (rows, width, count) in
                [(1, 1, 1), (5, 3, 40), (300, 1, 1000), (40, 700, 90), (0, 3, 5), (5, 3, 0)]
            {
                let mut numbers = Numbers::new(rows as u64);
                let table = (0..rows * width).map(|_| (numbers.float() * 100.0).max(0.0)).collect();
                let table = Tensor::new(dtype, &[rows, width], table);
                let index = if count % 2 == 0 { DType::I32 } else { DType::I64 };
                let indices = indices(&mut numbers, index, count, rows);
                let missing = if dtype.is_float() { f64::NAN } else { 0.0 };
                let expected: Vec<f64> = (0..count * width)
                    .map(|at| {
                        let row = inside(indices.at(&[at / width]), rows);
                        row.map_or(missing, |row| table.at(&[row, at % width]))
                    })
                    .collect();
                let actual = run_op(&Op::Gather, &[&table, &indices], &[]);
                assert_close(&actual[0], &expected, 0.0, dtype.name());
            }
        }
    }

    #[test]
    fn updates_are_added_in_their_order_and_rows_without_any_are_zero() {
        for dtype in DType::ALL {
            for (rows, width, count) in
                [(1, 1, 1), (5, 3, 40), (300, 1, 1000), (40, 700, 90), (0, 3, 5), (3, 2, 0)]
            {
                let mut numbers = Numbers::new(rows as u64);
                let updates = (0..count * width).map(|_| (numbers.float() * 5.0).max(0.0)).collect();
                let updates = Tensor::new(dtype, &[count, width], updates);
                let index = if count % 2 == 0 { DType::I32 } else { DType::I64 };
                let indices = indices(&mut numbers, index, count, rows);
                let mut expected = vec![0.0; rows * width];
                for at in 0..count * width {
                    if let Some(row) = inside(indices.at(&[at / width]), rows) {
                        let sum = &mut expected[row * width + at % width];
                        *sum = nearest(dtype.accumulator(), *sum + updates.at(&[at / width, at % width]));
                    }
                }
                let expected: Vec<f64> = expected.into_iter().map(|sum| nearest(dtype, sum)).collect();
                let actual = run_op(&Op::ScatterAdd { rows }, &[&indices, &updates], &[]);
                assert_close(&actual[0], &expected, 0.0, dtype.name());
            }
        }
    }
}
