//! Rows of a table, and sums into rows of a table.
//!
//! Gathering copies bytes. Adding sorts the updates by their row first, stably, so that each row of the table is
//! written once, by one task: nothing is zeroed beforehand, a row's updates are added in their order whatever the
//! thread count, and halves are added in single precision and rounded once. An epilogue takes in some rows at a time.

use crate::gemm::{EPILOGUE_COLUMNS, EPILOGUE_ELEMENTS, Epilogue};
use crate::kernels::memory::*;
use crate::kernels::product::epilogue::CanFuseEpilogue;
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

/// Prepares `Op::ScatterAdd` with an epilogue, which takes in a few rows at a time: of a large table most are zeros, which are
/// never in memory.
pub(crate) fn prepare_scatter_add_with_epilogue(
    rows: usize,
    reads: &[Operand],
) -> Option<Box<dyn CanFuseEpilogue>> {
    let routine: Box<dyn CanFuseEpilogue> = match reads[1].dtype {
        DType::Bool => return None,
        dtype => {
            with_element!(dtype, T => Box::new(ScatterAdd::<Sum<<T as Element>::Acc>, T>::new(rows, reads)))
        }
    };
    routine.can_fuse().then_some(routine)
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

impl<F: Fold, T: Element<Acc = F::Number>> ScatterAdd<F, T> {
    /// Whether there are so few updates that comparing them takes less than counting those of every row.
    fn is_sparse(&self) -> bool {
        self.count.saturating_mul(SPARSE) < self.rows
    }

    /// The bytes of the sorted updates, and of the rows' counts where they are counted.
    fn sorted_bytes(&self) -> usize {
        let counts = if self.is_sparse() { 0 } else { bytes_of::<usize>(self.rows + 1) };
        bytes_of::<Update>(self.count) + counts
    }

    /// The sums of no row yet, with the updates sorted in the workspace.
    ///
    /// # Safety
    /// As for [`Routine::run`]; nobody else uses the workspace yet.
    unsafe fn sums(&self, call: &Call<'_>) -> RowSums<F, T> {
        let sorted = Address::<Update>::workspace(call, 0);
        let counts = Address::<usize>::workspace(call, bytes_of::<Update>(self.count));
        let indices = Indices::read(call, 0, self.index);
        // SAFETY: both are within the workspace, the counts where it has some.
        unsafe {
            match self.is_sparse() {
                true => self.compare(indices, sorted.slice_mut(self.count)),
                false => self.sort(indices, counts.slice_mut(self.rows + 1), sorted.slice_mut(self.count)),
            }
        }
        RowSums {
            fold: PhantomData,
            updates: Address::read(call, 1),
            sorted,
            count: self.count,
            result: Address::workspace(call, 0),
            width: self.width,
            rows: 0..0,
        }
    }

    /// How many rows an epilogue takes at once.
    fn held(&self) -> usize {
        (EPILOGUE_ELEMENTS / self.width.max(1)).max(1)
    }

    fn held_bytes(&self) -> usize {
        bytes_of::<T>(self.held() * self.width)
    }
}

impl<F: Fold, T: Element<Acc = F::Number>> Routine for ScatterAdd<F, T> {
    fn workspace(&self, _threads: usize) -> usize {
        self.sorted_bytes()
    }

    unsafe fn run(&self, call: &Call<'_>) {
        let result = Address::<T>::write(call, 0);
        // SAFETY: as the caller vouches for.
        let sums = unsafe { self.sums(call) };
        each_range(call.pool, self.rows, rows_per_task(self.width), &|_, rows| {
            let result = result.at(rows.start * self.width);
            self.isa.run(RowSums { result, rows, ..sums });
        });
    }
}

impl<F: Fold, T: Element<Acc = F::Number>> CanFuseEpilogue for ScatterAdd<F, T> {
    fn can_fuse(&self) -> bool {
        (1..=EPILOGUE_COLUMNS).contains(&self.width)
    }

    fn sum_bytes(&self) -> usize {
        size_of::<T>()
    }

    fn epilogue_workspace(&self, threads: usize) -> usize {
        self.sorted_bytes() + threads * self.held_bytes()
    }

    unsafe fn run_with_epilogue(&self, call: &Call<'_>, epilogue: &dyn Epilogue, _workspace: &mut [u8]) {
        // SAFETY: as the caller vouches for.
        let sums = unsafe { self.sums(call) };
        each_range(call.pool, self.rows, rows_per_task(self.width), &|worker, rows| {
            let held = Address::<T>::workspace(call, self.sorted_bytes() + worker * self.held_bytes());
            for first in rows.clone().step_by(self.held()) {
                let rows = first..rows.end.min(first + self.held());
                self.isa.run(RowSums { result: held, rows: rows.clone(), ..sums });
                // SAFETY: these rows have just been summed, by this task alone, and no others have this worker's memory.
                unsafe { epilogue.take(worker, rows, 0..self.width, held.pointer().cast_const().cast()) };
            }
        });
    }
}

/// Some rows of the table.
struct RowSums<F, T> {
    fold: PhantomData<F>,
    updates: Address<T>,
    sorted: Address<Update>,
    count: usize,
    /// Where the first of them goes.
    result: Address<T>,
    width: usize,
    rows: Range<usize>,
}

impl<F: Fold, T: Element<Acc = F::Number>> Body for RowSums<F, T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<I: InstructionSet>(self) {
        let mut sums = [F::identity(); CHUNK];
        // SAFETY: the updates are sorted and only read now, each is named by its position among the indices, and no other
        // task writes these rows of the result.
        unsafe {
            let sorted = self.sorted.slice(self.count);
            let mut own = &sorted[sorted.partition_point(|update| update.row < self.rows.start)..];
            let result = self.result.slice_mut(self.rows.len() * self.width);
            result.fill(T::narrow(F::identity()));
            while let Some(&Update { row, .. }) = own.first().filter(|update| update.row < self.rows.end) {
                let (of_row, rest) = own.split_at(own.partition_point(|update| update.row == row));
                own = rest;
                let place = (row - self.rows.start) * self.width;
                for (at, count) in chunks(self.width) {
                    sums[..count].fill(F::identity());
                    for update in of_row {
                        let update = self.updates.at(update.position * self.width + at).slice(count);
                        for (sum, element) in sums.iter_mut().zip(update) {
                            *sum = F::combine(*sum, element.widen());
                        }
                    }
                    store(&sums, self.result.at(place + at), count);
                }
            }
        }
    }
}

/// An update: the row that it is added to, beyond all rows if that is not there, and its position among the indices.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Update {
    row: usize,
    position: usize,
}

impl Update {
    const NOWHERE: Self = Self { row: usize::MAX, position: usize::MAX };
}

/// How many times more rows than updates there are where these are compared.
const SPARSE: usize = 16;

impl<F, T> ScatterAdd<F, T> {
    /// The row of an update.
    unsafe fn row(&self, indices: Indices, update: usize) -> Option<usize> {
        // SAFETY: there are `count` indices.
        unsafe { indices.below(update, self.rows) }
    }

    /// Lists the updates row by row, each row's in their order, by comparing them.
    unsafe fn compare(&self, indices: Indices, sorted: &mut [Update]) {
        for (position, update) in sorted.iter_mut().enumerate() {
            // SAFETY: there are as many indices.
            let row = unsafe { self.row(indices, position) };
            *update = row.map_or(Update::NOWHERE, |row| Update { row, position });
        }
        sorted.sort_unstable();
    }

    /// Lists them by counting those of each row.
    unsafe fn sort(&self, indices: Indices, bounds: &mut [usize], sorted: &mut [Update]) {
        // SAFETY: there are `count` indices.
        let row = |update: usize| unsafe { self.row(indices, update) };
        bounds.fill(0);
        sorted.fill(Update::NOWHERE);
        for row in (0..self.count).filter_map(row) {
            bounds[row] += 1;
        }
        let mut end = 0;
        for bound in &mut *bounds {
            end += *bound;
            *bound = end;
        }
        for position in (0..self.count).rev() {
            if let Some(row) = row(position) {
                bounds[row] -= 1;
                sorted[bounds[row]] = Update { row, position };
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
                [(1, 1, 1), (5, 3, 40), (300, 1, 1000), (40, 700, 90), (900, 3, 41), (0, 3, 5), (3, 2, 0)]
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
