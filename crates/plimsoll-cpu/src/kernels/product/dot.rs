//! Matrix products of views.
//!
//! Of the axes of a batch ([`Products`]) two are those that a batch of products here has, and any others are loops.

use crate::gemm::{
    Epilogue, Gemm, Matrix, MatrixMut, NARROW, gemm, gemm_epilogue_workspace, gemm_with_epilogue,
    gemm_workspace,
};
use crate::kernels::memory::*;
use crate::kernels::product::epilogue::CanFuseEpilogue;
use crate::numbers::{Element, Float, with_float};
use crate::runtime::{Call, Routine};
use plimsoll_graph::products::{BatchAxis, Products};
use plimsoll_graph::program::Operand;
use std::marker::PhantomData;

/// Prepares `Op::Dot`. Operands may be strided views.
pub(crate) fn prepare(
    transpose_a: bool,
    transpose_b: bool,
    reads: &[Operand],
    _writes: &[Operand],
) -> Box<dyn Routine> {
    let products = Products::new(transpose_a, transpose_b, &reads[0], &reads[1]);
    with_float!(reads[0].dtype, T => Box::new(Dot::<T>::new(products)))
}

/// Prepares `Op::Dot` with an epilogue, if it is one product that is worth it.
pub(crate) fn prepare_with_epilogue(
    transpose_a: bool,
    transpose_b: bool,
    reads: &[Operand],
) -> Option<Box<dyn CanFuseEpilogue>> {
    let products = Products::new(transpose_a, transpose_b, &reads[0], &reads[1]);
    let routine: Box<dyn CanFuseEpilogue> =
        with_float!(reads[0].dtype, T => Box::new(Dot::<T>::new(products)));
    routine.can_fuse().then_some(routine)
}

/// The axes that are batched, outer and inner, and those that are looped over.
fn split(products: &Products) -> ([BatchAxis; 2], &[BatchAxis]) {
    let one = BatchAxis { count: 1, steps: [0; 3] };
    let axis = |index: usize| products.axes.get(index).copied().unwrap_or(one);
    ([axis(1), axis(0)], products.axes.get(2..).unwrap_or_default())
}

struct Dot<T> {
    products: Products,
    element: PhantomData<T>,
}

impl<T> Dot<T> {
    fn new(products: Products) -> Self {
        Self { products, element: PhantomData }
    }
}

impl<T: Element<Acc: Float>> Routine for Dot<T> {
    fn workspace(&self, threads: usize) -> usize {
        let ([outer, inner], _) = split(&self.products);
        let Products { m, n, k, .. } = self.products;
        gemm_workspace::<T>(outer.count * inner.count, m, n, k, threads)
    }

    unsafe fn run(&self, call: &Call<'_>) {
        let &Products { m, n, k, a: [a_offset, a_row, a_column], b: [b_offset, b_row, b_column], .. } =
            &self.products;
        let ([outer, inner], looped) = split(&self.products);
        let (a, b, c) =
            (Address::<T>::read(call, 0), Address::<T>::read(call, 1), Address::<T>::write(call, 0));
        // SAFETY: the workspace is as large as was asked for.
        let workspace = unsafe { Address::workspace(call, 0).slice_mut(self.workspace(call.pool.threads())) };
        let batch_strides = |operand: usize| [outer, inner].map(|axis| axis.steps[operand] as isize);
        for repeat in 0..looped.iter().map(|axis| axis.count).product() {
            let mut offsets = [a_offset, b_offset, 0];
            let mut rest: usize = repeat;
            for axis in looped {
                let index = rest % axis.count;
                rest /= axis.count;
                for (offset, step) in offsets.iter_mut().zip(axis.steps) {
                    *offset += index * step;
                }
            }
            let args = Gemm {
                batch: [outer.count, inner.count],
                m,
                n,
                k,
                alpha: T::Acc::ONE,
                a: Matrix {
                    start: a.at(offsets[0]).pointer().cast_const(),
                    row_stride: a_row as isize,
                    column_stride: a_column as isize,
                    batch_strides: batch_strides(0),
                },
                b: Matrix {
                    start: b.at(offsets[1]).pointer().cast_const(),
                    row_stride: b_row as isize,
                    column_stride: b_column as isize,
                    batch_strides: batch_strides(1),
                },
                c: MatrixMut {
                    start: c.at(offsets[2]).pointer(),
                    row_stride: n as isize,
                    batch_strides: batch_strides(2),
                },
                accumulate: false,
            };
            // SAFETY: the views are within their buffers, and the result is dense in its own.
            unsafe { gemm(call.pool, &args, workspace) };
        }
    }
}

impl<T: Element<Acc: Float>> CanFuseEpilogue for Dot<T> {
    fn can_fuse(&self) -> bool {
        let Products { m, k, axes, .. } = &self.products;
        // Products of few rows may be computed as their transposes.
        axes.is_empty() && *k > 0 && *m > NARROW
    }

    fn sum_bytes(&self) -> usize {
        size_of::<T::Acc>()
    }

    fn epilogue_workspace(&self, threads: usize) -> usize {
        let Products { m, n, k, .. } = self.products;
        gemm_epilogue_workspace::<T>(m, n, k, threads)
    }

    unsafe fn run_with_epilogue(&self, call: &Call<'_>, epilogue: &dyn Epilogue, workspace: &mut [u8]) {
        let Products { m, n, k, a, b, .. } = self.products;
        let matrix = |read: usize, [offset, row, column]: [usize; 3]| Matrix {
            start: Address::<T>::read(call, read).at(offset).pointer().cast_const(),
            row_stride: row as isize,
            column_stride: column as isize,
            batch_strides: [0; 2],
        };
        // SAFETY: the views are within their buffers.
        unsafe { gemm_with_epilogue(call.pool, [m, n, k], matrix(0, a), matrix(1, b), epilogue, workspace) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{FLOATS, Numbers, Tensor, unit};
    use plimsoll_graph::{DType, Op};

    fn check(dtype: DType, [transpose_a, transpose_b]: [bool; 2], a: &Tensor, b: &Tensor) {
        let shape = a.operand().view.shape;
        let depth = shape[shape.rank() - if transpose_a { 2 } else { 1 }];
        let tolerance = unit(dtype) + depth as f64 * unit(dtype.accumulator());
        crate::testing::check(&Op::Dot { transpose_a, transpose_b }, &[a, b], &[], &[tolerance]);
    }

    #[test]
    fn products_of_views_in_any_order_of_memory_are_those_of_their_elements() {
        for dtype in FLOATS {
            for (lead, m, n, k) in [
                (&[][..], 1, 1, 1),
                (&[2, 3], 5, 7, 9),
                (&[2, 1, 3, 2], 4, 3, 33),
                (&[3], 4, 2, 0),
                (&[2], 0, 3, 4),
            ] {
                for transposes in [[false, false], [true, false], [false, true], [true, true]] {
                    let mut numbers = Numbers::new(k as u64);
                    let dims = |rows, columns, swap| {
                        [lead, &if swap { [columns, rows] } else { [rows, columns] }].concat()
                    };
                    let (a, b) = (dims(m, k, transposes[0]), dims(k, n, transposes[1]));
                    let straight: Vec<usize> = (0..a.len()).collect();
                    let reversed: Vec<usize> = (0..a.len()).rev().collect();
                    for order in [straight, reversed] {
                        let (a, b) = (numbers.strided(dtype, &a, &order), numbers.strided(dtype, &b, &order));
                        check(dtype, transposes, &a, &b);
                    }
                    check(dtype, transposes, &numbers.tensor(dtype, &a), &numbers.tensor(dtype, &b));
                }
            }
        }
    }

    #[test]
    fn a_matrix_repeated_over_the_batch_multiplies_every_row() {
        let mut numbers = Numbers::new(7);
        for rows_dense in [true, false] {
            let dims = [4, 5, 6, 7];
            let a = if rows_dense {
                numbers.tensor(DType::F32, &dims)
            } else {
                numbers.strided(DType::F32, &dims, &[1, 2, 0, 3])
            };
            let b = numbers.tensor(DType::F32, &[7, 3]).broadcast(&[4, 5, 7, 3]);
            let products = Products::new(false, false, &a.operand(), &b.operand());
            assert_eq!(products.axes.is_empty(), rows_dense, "rows that follow each other are one matrix");
            check(DType::F32, [false, false], &a, &b);
        }
    }
}
