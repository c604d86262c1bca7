//! Compares the speed of matrix products with the `gemm` crate's, in one process, shape by shape.
//!
//! Run with `cargo run --release --manifest-path benches/gemm/Cargo.toml`. Figures are GFLOP/s, medians over interleaved repeats.
//!
//! With the argument `turns` it takes turns with a program of another language instead: for each line `SIZE LAYOUT` that
//! it reads it multiplies square matrices for a while on two threads and writes the rate. `benches/peers/gemm` does that.
#![allow(clippy::print_stdout)]

use plimsoll_cpu::gemm::{Gemm, Matrix, MatrixMut, WORKSPACE_ALIGN, gemm, gemm_workspace};
use plimsoll_cpu::pool::Pool;
use std::io::{self, BufRead, Write};
use std::process::ExitCode;
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

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        None => table(),
        Some("turns") => {
            if let Err(error) = turns() {
                eprintln!("{error}");
                return ExitCode::FAILURE;
            }
        }
        Some(other) => {
            eprintln!("`{other}` is not an argument; `turns` is");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// Compares shape by shape.
fn table() {
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

/// The time of a turn, as in `benches/peers/torch_gemm.py`.
const TURN: Duration = Duration::from_millis(400);

/// Multiplies square matrices when told to: answers each line `SIZE LAYOUT` with the median rate in GFLOP/s.
fn turns() -> io::Result<()> {
    let pool = Pool::new(2)?;
    for line in io::stdin().lock().lines() {
        let line = line?;
        let request = line.split_once(' ').and_then(|(size, layout)| {
            let transposed = match layout {
                "nn" => (false, false),
                "nt" => (false, true),
                "tn" => (true, false),
                _ => return None,
            };
            let size = size.parse::<usize>().ok().filter(|size| (1..=1 << 14).contains(size))?;
            Some((size, transposed))
        });
        let Some((size, (a, b))) = request else {
            return Err(io::Error::other(format!("`{line}` is not a size and a layout, such as `1024 nt`")));
        };
        let case = case("square", 1, [size; 3], a, b);
        let mut operands = Operands::new(&case, &pool);
        operands.multiply(&pool);
        let (mut times, start) = (Vec::new(), Instant::now());
        while start.elapsed() < TURN {
            let start = Instant::now();
            operands.multiply(&pool);
            times.push(start.elapsed().as_secs_f64());
        }
        println!("{}", case.flops() / median(times) / 1e9);
        io::stdout().flush()?;
    }
    Ok(())
}

impl Case {
    fn flops(&self) -> f64 {
        2.0 * (self.batch * self.m * self.n * self.k) as f64
    }
}

/// The memory of a product.
struct Operands {
    args: Gemm<f32>,
    workspace: Workspace,
    /// What the addresses in `args` point to.
    _memory: [Vec<f32>; 3],
}

impl Operands {
    fn new(case: &Case, pool: &Pool) -> Self {
        let &Case { batch, m, n, k, .. } = case;
        let (a, b, mut c) = (values(batch * m * k), values(batch * k * n), vec![0f32; batch * m * n]);
        let strides = |transposed, rows: usize, columns: usize| {
            if transposed { (1, rows as isize) } else { (columns as isize, 1) }
        };
        let (a_rows, a_columns) = strides(case.transpose_a, m, k);
        let (b_rows, b_columns) = strides(case.transpose_b, k, n);
        let sizes = [m * k, k * n, m * n].map(|size| size as isize);
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
        let workspace = Workspace::new(gemm_workspace::<f32>(batch, m, n, k, pool.threads()));
        Self { args, workspace, _memory: [a, b, c] }
    }

    fn multiply(&mut self, pool: &Pool) {
        // SAFETY: the vectors have the sizes that the strides reach.
        unsafe { gemm(pool, &self.args, self.workspace.bytes()) }
    }
}

/// The medians of this crate's and the other's rates.
fn compare(case: &Case, pool: &Pool) -> [f64; 2] {
    let mut operands = Operands::new(case, pool);
    let Gemm { m, n, k, a, b, c, .. } = operands.args;
    let ours = || operands.multiply(pool);
    let parallelism = match pool.threads() {
        1 => gemm::Parallelism::None,
        threads => gemm::Parallelism::Rayon(threads),
    };
    let theirs = || {
        for i in 0..case.batch as isize {
            // SAFETY: the vectors have the sizes that the strides reach.
            unsafe {
                gemm::gemm(
                    m,
                    n,
                    k,
                    c.start.offset(i * c.batch_strides[1]),
                    1,
                    n as isize,
                    false,
                    a.start.offset(i * a.batch_strides[1]),
                    a.column_stride,
                    a.row_stride,
                    b.start.offset(i * b.batch_strides[1]),
                    b.column_stride,
                    b.row_stride,
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
    median_times(ours, theirs).map(|time| case.flops() / time / 1e9)
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
    times.map(median)
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
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
