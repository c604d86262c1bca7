//! The largest error of each single-precision function, over every `f32` there is.
//!
//! The tests sample; this takes minutes and leaves nothing out. What it prints is what the functions state:
//!
//! ```text
//! cargo run --release -p plimsoll-cpu --example ulps
//! cargo run --release -p plimsoll-cpu --example ulps -- exp gelu
//! ```
//!
//! Each result is compared with that of double precision, which the tests hold against a table of correctly
//! rounded results.

// Printing is what it is for, and it uses only part of what it includes.
#![allow(clippy::print_stdout, dead_code)]

#[path = "../src/math/double.rs"]
mod double;
#[path = "../src/math/single.rs"]
mod single;
#[path = "../src/math/ulps.rs"]
mod ulps;

use std::ops::Range;
use ulps::ulps;

/// A function, what it should be, and where it crosses zero and is held to an absolute error instead.
struct Function {
    name: &'static str,
    single: fn(f32) -> f32,
    double: fn(f64) -> f64,
    crossing: Range<f32>,
}

/// The largest errors over some operands, each with the operand: in ulps, and in 2⁻²³ near a zero crossing.
#[derive(Clone, Copy, Default)]
struct Errors {
    ulps: (f64, f32),
    absolute: (f64, f32),
}

impl Errors {
    fn of(function: &Function, bits: impl Iterator<Item = u32>) -> Errors {
        let mut errors = Errors::default();
        for x in bits.map(f32::from_bits) {
            let (got, expected) = ((function.single)(x), (function.double)(f64::from(x)));
            if function.crossing.contains(&x) {
                let error = (f64::from(got) - expected).abs() / f64::from(f32::EPSILON);
                errors.absolute = larger(errors.absolute, (error, x));
            } else {
                errors.ulps = larger(errors.ulps, (ulps(got, expected), x));
            }
        }
        errors
    }
}

fn larger(a: (f64, f32), b: (f64, f32)) -> (f64, f32) {
    if b.0 > a.0 { b } else { a }
}

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    macro_rules! function {
        ($name:ident) => {
            function!($name, 0.0..0.0)
        };
        ($name:ident, $crossing:expr) => {
            Function {
                name: stringify!($name),
                single: single::$name,
                double: double::$name,
                crossing: $crossing,
            }
        };
    }
    let functions = [
        function!(exp),
        function!(ln),
        function!(softplus),
        function!(tanh),
        function!(sigmoid),
        function!(erf),
        function!(gelu),
        function!(gelu_slope, -1.3..-0.4),
        function!(sin),
        function!(cos),
        function!(floor),
    ];
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    for function in functions {
        if !wanted.is_empty() && !wanted.iter().any(|name| name == function.name) {
            continue;
        }
        let parts: Vec<Errors> = std::thread::scope(|scope| {
            let part = |first| {
                let function = &function;
                scope.spawn(move || Errors::of(function, (first..=u32::MAX).step_by(threads)))
            };
            let running: Vec<_> = (0..threads as u32).map(part).collect();
            running.into_iter().map(|thread| thread.join().expect("arithmetic does not panic")).collect()
        });
        let most = |of: fn(&Errors) -> (f64, f32)| parts.iter().map(of).fold((0.0, 0.0), larger);
        let (error, at) = most(|errors| errors.ulps);
        print!("{:12}{error:8.3} ulp at {at:e}", function.name);
        let Range { start, end } = function.crossing;
        if start < end {
            let (error, at) = most(|errors| errors.absolute);
            print!("; from {start} to {end} {error:.3} of 2^-23, at {at:e}");
        }
        println!();
    }
}
