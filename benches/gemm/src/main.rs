//! Compares the speed of matrix products with the `gemm` crate's, in one process, shape by shape.
//!
//! Run with `cargo run --release --manifest-path benches/gemm/Cargo.toml`. Figures are GFLOP/s, medians over interleaved repeats.
#![allow(clippy::print_stdout)]

use plimsoll_cpu::gemm::{Gemm, Matrix, MatrixMut, WORKSPACE_ALIGN, gemm, gemm_workspace};
use plimsoll_cpu::pool::Pool;
use std::time::{Duration, Instant};

/// A product to time: its sizes and which operands are stored transposed.
struct Case {
    name: &'static str,
    batch: usize,
    m: usize,
    n: usize,
    k: usize,
    transpose_a: bool,
    transpose_b: bool,
}

const fn case(name: &'static str, batch: usize, [m, k, n]: [usize; 3], a: bool, b: bool) -> Case {
    Case { name, batch, m, n, k, transpose_a: a, transpose_b: b }
}

const CASES: [Case; 18] = [
    case("square 256", 1, [256, 256, 256], false, false),
    case("square 512", 1, [512, 512, 512], false, false),
    case("square 1024", 1, [1024, 1024, 1024], false, false),
    case("square 2048", 1, [2048, 2048, 2048], false, false),
    case("square 1024, a transposed", 1, [1024, 1024, 1024], true, false),
    case("square 1024, b transposed", 1, [1024, 1024, 1024], false, true),
    case("dense 512x4096x4096", 1, [512, 4096, 4096], false, false),
    case("its weights' gradient", 1, [4096, 512, 4096], true, false),
    case("dense 256x784x100", 1, [256, 784, 100], false, false),
    case("its weights' gradient", 1, [784, 256, 100], true, false),
    case("dense 256x100x10", 1, [256, 100, 10], false, false),
    case("recurrent 16x256x1024", 1, [16, 256, 1024], false, false),
    case("its input's gradient", 1, [16, 1024, 256], false, true),
    case("scores 64 of 128x64x128", 64, [128, 64, 128], false, true),
    case("mixing 64 of 128x128x64", 64, [128, 128, 64], false, false),
    case("vocabulary 2048x256x4096", 1, [2048, 256, 4096], false, true),
    case("row by matrix, 1024", 1, [1, 1024, 1024], false, false),
    case("matrix by column, 1024", 1, [1024, 1024, 1], false, false),
];

fn main() {
    println!("{:28} {:>9} {:>9} {:>9} {:>9}", "GFLOP/s", "ours, 1", "crate, 1", "ours, 2", "crate, 2");
    let pools = [1, 2].map(|threads| Pool::new(threads).expect("threads start"));
    for case in &CASES {
        let mut rates = Vec::new();
        for pool in &pools {
            rates.extend(compare(case, pool));
        }
        let cells: String = rates.iter().map(|rate| format!(" {rate:9.1}")).collect();
        println!("{:28}{cells}", case.name);
    }
}

/// The medians of this crate's and the other's rates.
fn compare(case: &Case, pool: &Pool) -> [f64; 2] {
    let &Case { batch, m, n, k, .. } = case;
    let a = values(batch * m * k);
    let b = values(batch * k * n);
    let mut c = vec![0f32; batch * m * n];
    let strides = |transposed, rows: usize, columns: usize| {
        if transposed { (1, rows as isize) } else { (columns as isize, 1) }
    };
    let (a_rows, a_columns) = strides(case.transpose_a, m, k);
    let (b_rows, b_columns) = strides(case.transpose_b, k, n);
    let sizes = [m * k, k * n, m * n].map(|size| size as isize);
    let mut workspace = Workspace::new(gemm_workspace::<f32>(batch, m, n, k, pool.threads()));
    let args = Gemm {
        batch: [1, batch],
        m,
        n,
        k,
        alpha: 1.0,
        a: matrix(&a, a_rows, a_columns, sizes[0]),
        b: matrix(&b, b_rows, b_columns, sizes[1]),
        c: MatrixMut { start: c.as_mut_ptr(), row_stride: n as isize, batch_strides: [0, sizes[2]] },
        accumulate: false,
    };
    // SAFETY: the vectors have the sizes that the strides reach.
    let ours = || unsafe { gemm(pool, &args, workspace.bytes()) };
    let parallelism = match pool.threads() {
        1 => gemm::Parallelism::None,
        threads => gemm::Parallelism::Rayon(threads),
    };
    let theirs = || {
        for i in 0..batch as isize {
            // SAFETY: the vectors have the sizes that the strides reach.
            unsafe {
                gemm::gemm(
                    m,
                    n,
                    k,
                    args.c.start.offset(i * sizes[2]),
                    1,
                    n as isize,
                    false,
                    a.as_ptr().offset(i * sizes[0]),
                    a_columns,
                    a_rows,
                    b.as_ptr().offset(i * sizes[1]),
                    b_columns,
                    b_rows,
                    0.0,
                    1.0,
                    false,
                    false,
                    false,
                    parallelism,
                );
            }
        }
    };
    let flops = 2.0 * (batch * m * n * k) as f64;
    median_times(ours, theirs).map(|time| flops / time / 1e9)
}

/// The median seconds of a call of each, taken in turns so that both see the same disturbances.
fn median_times(mut one: impl FnMut(), mut other: impl FnMut()) -> [f64; 2] {
    let seconds = |call: &mut dyn FnMut(), calls: u32| {
        let start = Instant::now();
        (0..calls).for_each(|_| call());
        start.elapsed().as_secs_f64() / f64::from(calls)
    };
    let once = seconds(&mut one, 1).min(seconds(&mut one, 1)).max(1e-7);
    let calls = (1e-3 / once).ceil() as u32;
    let (mut times, start) = ([Vec::new(), Vec::new()], Instant::now());
    while start.elapsed() < Duration::from_millis(1500) || times[0].len() < 5 {
        times[0].push(seconds(&mut one, calls));
        times[1].push(seconds(&mut other, calls));
    }
    times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    })
}

fn matrix(values: &[f32], row_stride: isize, column_stride: isize, size: isize) -> Matrix<f32> {
    Matrix { start: values.as_ptr(), row_stride, column_stride, batch_strides: [0, size] }
}

/// Values from -1 to 1 without a pattern.
fn values(len: usize) -> Vec<f32> {
    (0..len as u32).map(|i| (i.wrapping_mul(0x9e37_79b9) >> 8) as f32 / (1 << 23) as f32 - 1.0).collect()
}

/// Aligned workspace.
struct Workspace(Vec<u8>);

impl Workspace {
    fn new(len: usize) -> Self {
        Self(vec![0; len + WORKSPACE_ALIGN])
    }

    fn bytes(&mut self) -> &mut [u8] {
        let skip = self.0.as_ptr().align_offset(WORKSPACE_ALIGN);
        &mut self.0[skip..]
    }
}
