//! A function without any state, compiled once and called a hundred times: nothing is allocated after the first call.
//!
//! `cargo run --release -p plimsoll --example compiled_function`
#![allow(clippy::print_stdout)]

use plimsoll::{Array, DType, Input, Result, Run};

fn main() -> Result<()> {
    let rows = 256;
    let inputs = [Input::new("a", &[rows, 64], DType::F32), Input::new("b", &[rows, 64], DType::F32)];
    let mut run = Run::builder()
        .inference("similarity", inputs, |_, inputs| {
            let [a, b] = inputs.all()?;
            let length = |x: &plimsoll::Tensor| x.square()?.sum(&[1])?.sqrt();
            Ok([("cosine", a.mul(b)?.sum(&[1])?.div(&length(a)?.mul(&length(b)?)?)?)])
        })
        // The last rows of a table are fewer.
        .shapes("similarity", &[&[100, 64], &[100, 64]])
        .compile()?;
    println!("{} bytes are all that it will ever take", run.forecast().peak_bytes);
    let mut total = 0.0;
    for call in 0..100 {
        let rows = if call == 99 { 100 } else { rows };
        let numbers =
            |key: usize| (0..rows * 64).map(|i| ((i * key + call) as f32).sin()).collect::<Vec<f32>>();
        let (a, b) = (Array::new(&[rows, 64], &numbers(3))?, Array::new(&[rows, 64], &numbers(5))?);
        total +=
            run.step("similarity", &[("a", &a), ("b", &b)])?["cosine"].to_vec::<f32>()?.iter().sum::<f32>();
    }
    println!("{} bytes reserved; the cosines sum to {total:.3}", run.reserved_bytes().unwrap_or(0));
    Ok(())
}
