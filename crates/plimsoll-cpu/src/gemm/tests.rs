//! Matrix products against a triple loop in `f64`, for every element type and instruction set.

use super::{Gemm, Matrix, MatrixMut, gemm, gemm_workspace};
use crate::numbers::Float;
use crate::runtime::Pool;
use crate::simd::Isa;
use crate::testing::{Bounded, Guarded, assert_same_bits, bound, isas, on_isa, values};
use half::{bf16, f16};
use proptest::prelude::*;

/// How an operand lies in memory.
#[derive(Clone, Copy, Debug)]
enum Layout {
    RowMajor,
    ColumnMajor,
    /// Neither rows nor columns are contiguous.
    Scattered,
}

/// A product and the memory it works on.
#[derive(Clone, Debug)]
struct Case {
    batch: [usize; 2],
    m: usize,
    n: usize,
    k: usize,
    a: Layout,
    b: Layout,
    /// Elements between the rows of the result.
    gap: usize,
    alpha: f64,
    accumulate: bool,
}

/// The row, column and batch strides of a layout, and the elements that they reach.
fn strides(
    layout: Layout,
    batch: [usize; 2],
    rows: usize,
    columns: usize,
) -> ([isize; 2], [isize; 2], usize) {
    let (row, column, size) = match layout {
        Layout::RowMajor => (columns, 1, rows * columns),
        Layout::ColumnMajor => (1, rows, rows * columns),
        Layout::Scattered => (2 * columns + 1, 2, rows * (2 * columns + 1)),
    };
    // The inner batch dimension is the outer one in memory.
    let outer = size + 3;
    let strides = [outer as isize, (outer * batch[0]) as isize];
    ([row as isize, column as isize], strides, outer * batch[0] * batch[1])
}

fn element<T: Bounded>(values: &[T], rows: [isize; 2], batches: [isize; 2], at: [usize; 4]) -> f64 {
    let strides = [batches[0], batches[1], rows[0], rows[1]];
    let offset: isize = at.iter().zip(strides).map(|(&at, stride)| at as isize * stride).sum();
    values[offset as usize].to_f64()
}

/// Runs the product on memory whose content depends on the case alone, and returns all of the result's memory.
fn compute<T: Bounded>(case: &Case, isa: Isa, pool: &Pool) -> Vec<T> {
    let Case { batch, m, n, k, alpha, accumulate, .. } = *case;
    let (a_strides, a_batch, a_len) = strides(case.a, batch, m, k);
    let (b_strides, b_batch, b_len) = strides(case.b, batch, k, n);
    let (_, c_batch, c_len) = strides(Layout::RowMajor, batch, m, n + case.gap);
    let (a, b) = (values::<T>(a_len, 1), values::<T>(b_len, 2));
    let mut c = values::<T>(c_len, 3);
    let args = Gemm {
        batch,
        m,
        n,
        k,
        alpha: T::Acc::of(alpha),
        a: Matrix {
            start: a.as_ptr(),
            row_stride: a_strides[0],
            column_stride: a_strides[1],
            batch_strides: a_batch,
        },
        b: Matrix {
            start: b.as_ptr(),
            row_stride: b_strides[0],
            column_stride: b_strides[1],
            batch_strides: b_batch,
        },
        c: MatrixMut { start: c.as_mut_ptr(), row_stride: (n + case.gap) as isize, batch_strides: c_batch },
        accumulate,
    };
    let mut workspace = Guarded::new(gemm_workspace::<T>(batch[0] * batch[1], m, n, k, pool.threads()));
    // SAFETY: the vectors have the lengths that the strides reach.
    on_isa(isa, || unsafe { gemm(pool, &args, workspace.bytes_mut()) });
    c
}

/// Every element of the result's memory and its bound: what the product gives, and what lies between untouched.
fn expected<T: Bounded>(case: &Case) -> Vec<(f64, f64)> {
    let Case { batch, m, n, k, alpha, accumulate, gap, .. } = *case;
    let (a_strides, a_batch, a_len) = strides(case.a, batch, m, k);
    let (b_strides, b_batch, b_len) = strides(case.b, batch, k, n);
    let (c_strides, c_batch, c_len) = strides(Layout::RowMajor, batch, m, n + gap);
    let (a, b, before) = (values::<T>(a_len, 1), values::<T>(b_len, 2), values::<T>(c_len, 3));
    let mut expected: Vec<(f64, f64)> = before.iter().map(|value| (value.to_f64(), 0.0)).collect();
    for (x, y) in (0..batch[0]).flat_map(|x| (0..batch[1]).map(move |y| (x, y))) {
        for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
            let (mut sum, mut magnitude) = (0.0, 0.0);
            for p in 0..k {
                let product = element(&a, a_strides, a_batch, [x, y, i, p])
                    * element(&b, b_strides, b_batch, [x, y, p, j]);
                sum += product;
                magnitude += product.abs();
            }
            let at =
                x as isize * c_batch[0] + y as isize * c_batch[1] + i as isize * c_strides[0] + j as isize;
            let old = if accumulate { before[at as usize].to_f64() } else { 0.0 };
            let value = old + f64::from(alpha as f32) * sum;
            let magnitude = old.abs() + alpha.abs() * magnitude;
            expected[at as usize] = (value, bound::<T>(k, magnitude, value));
        }
    }
    expected
}

fn check_everywhere<T: Bounded>(case: &Case) {
    let pool = Pool::new(2).unwrap();
    let expected = expected::<T>(case);
    for isa in isas() {
        for (i, (value, &(expected, bound))) in
            compute::<T>(case, isa, &pool).iter().zip(&expected).enumerate()
        {
            let error = (value.to_f64() - expected).abs();
            assert!(
                error <= bound,
                "element {i} of {case:?} on {isa:?} is {value:?}, not {expected}: off by {error}"
            );
        }
    }
}

fn layout() -> impl Strategy<Value = Layout> {
    prop_oneof![Just(Layout::RowMajor), Just(Layout::ColumnMajor), Just(Layout::Scattered)]
}

fn case() -> impl Strategy<Value = Case> {
    let size = || prop_oneof![0..4usize, 1..40usize, 1..100usize];
    let sizes = (size(), size(), prop_oneof![0..4usize, 1..40usize, 200..600usize]);
    let batch = prop_oneof![3 => Just([1, 1]), 1 => [0..3usize, 0..3usize]];
    let alpha = prop_oneof![Just(1.0), Just(-0.5)];
    (batch, sizes, layout(), layout(), 0..3usize, alpha, any::<bool>()).prop_map(
        |(batch, (m, n, k), a, b, gap, alpha, accumulate)| Case {
            batch,
            m,
            n,
            k,
            a,
            b,
            gap,
            alpha,
            accumulate,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn products_of_f32_are_as_exact_as_their_sums_can_be(case in case()) {
        check_everywhere::<f32>(&case);
    }

    #[test]
    fn products_of_f64_are_as_exact_as_their_sums_can_be(case in case()) {
        check_everywhere::<f64>(&case);
    }

    #[test]
    fn products_of_f16_are_summed_in_f32_and_rounded_once(case in case()) {
        check_everywhere::<f16>(&case);
    }

    #[test]
    fn products_of_bf16_are_summed_in_f32_and_rounded_once(case in case()) {
        check_everywhere::<bf16>(&case);
    }

    #[test]
    fn the_number_of_threads_does_not_change_a_bit(case in case()) {
        let results = [1, 2, 3].map(|threads| compute::<f32>(&case, Isa::detect(), &Pool::new(threads).unwrap()));
        assert_same_bits(&results[0], &results[1]);
        assert_same_bits(&results[0], &results[2]);
    }
}

fn plain(m: usize, k: usize, n: usize) -> Case {
    let (a, b) = (Layout::RowMajor, Layout::RowMajor);
    Case { batch: [1, 1], m, n, k, a, b, gap: 0, alpha: 1.0, accumulate: false }
}

/// Shapes that take every way through the code: many tiles, many blocks, split sums, columns read in place.
fn telling_cases() -> Vec<Case> {
    vec![
        plain(150, 1100, 650),
        plain(16, 300, 1100),
        plain(1, 520, 600),
        plain(600, 520, 1),
        plain(27, 9000, 33),
        plain(600, 40, 1500),
        Case { a: Layout::ColumnMajor, accumulate: true, ..plain(40, 20000, 10) },
        Case { b: Layout::ColumnMajor, alpha: 0.125, ..plain(256, 784, 100) },
        Case { batch: [2, 4], b: Layout::ColumnMajor, ..plain(128, 64, 128) },
        Case { batch: [40, 50], ..plain(3, 5, 4) },
        Case { batch: [2, 1], accumulate: true, gap: 5, ..plain(70, 5000, 90) },
    ]
}

#[test]
fn every_way_through_the_code_gives_the_product() {
    for case in telling_cases() {
        check_everywhere::<f32>(&case);
        check_everywhere::<bf16>(&case);
    }
}

#[test]
fn large_products_have_the_same_bits_on_any_number_of_threads() {
    let pools = [1, 2, 3, 8].map(|threads| Pool::new(threads).unwrap());
    for case in telling_cases() {
        let first = compute::<f32>(&case, Isa::detect(), &pools[0]);
        let first_half = compute::<f16>(&case, Isa::detect(), &pools[0]);
        for pool in &pools[1..] {
            assert_same_bits(&first, &compute::<f32>(&case, Isa::detect(), pool));
            assert_same_bits(&first_half, &compute::<f16>(&case, Isa::detect(), pool));
        }
    }
}

#[test]
fn instruction_sets_that_fuse_give_the_same_bits() {
    let pool = Pool::new(2).unwrap();
    // A product with one row sums along its vectors, so their width matters.
    for case in telling_cases().into_iter().filter(|case| case.m > 1 && case.n > 1) {
        let results: Vec<Vec<f32>> =
            isas().filter(|&isa| isa != Isa::Portable).map(|isa| compute::<f32>(&case, isa, &pool)).collect();
        results.windows(2).for_each(|pair| assert_same_bits(&pair[0], &pair[1]));
    }
}

#[test]
fn a_product_over_nothing_is_zero() {
    let pool = Pool::new(2).unwrap();
    assert_eq!(compute::<f32>(&plain(2, 0, 2), Isa::detect(), &pool)[..4], [0.0; 4]);
    let case = Case { accumulate: true, ..plain(2, 0, 2) };
    assert_eq!(compute::<f32>(&case, Isa::detect(), &pool), values::<f32>(7, 3));
}

#[test]
fn workspace_is_bounded_for_any_size_of_matrix() {
    for size in [1 << 10, 1 << 14, 1 << 18] {
        assert!(gemm_workspace::<f32>(1, size, size, size, 2) <= 8 << 20);
        assert!(gemm_workspace::<bf16>(1, size, size, size, 2) <= 8 << 20);
    }
}

#[test]
#[should_panic(expected = "bytes of workspace")]
fn too_little_workspace_is_refused() {
    let (a, b, mut c) = ([0f32; 4], [0f32; 4], [0f32; 4]);
    let matrix = |start| Matrix { start, row_stride: 2, column_stride: 1, batch_strides: [0, 0] };
    let c = MatrixMut { start: c.as_mut_ptr(), row_stride: 2, batch_strides: [0, 0] };
    let (a, b) = (matrix(a.as_ptr()), matrix(b.as_ptr()));
    let args = Gemm { batch: [1, 1], m: 2, n: 2, k: 2, alpha: 1.0, a, b, c, accumulate: false };
    // SAFETY: the arrays have the sizes that the strides reach.
    unsafe { gemm(&Pool::new(1).unwrap(), &args, &mut []) };
}
