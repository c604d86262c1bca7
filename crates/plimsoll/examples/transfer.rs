//! Transfer: the features that one run has learned begin another, whose head is new and trained alone.
//!
//! `cargo run --release -p plimsoll --example transfer`
#![allow(clippy::print_stdout)]

use plimsoll::layers::{Activation, Dense};
use plimsoll::{Array, DType, Input, Optimizer, Result, Run, RunBuilder, loss};

const BATCH: usize = 64;

/// A run that learns to tell `classes` apart, and trains the parameters of `optimizer`'s group.
fn run(classes: usize, optimizer: Optimizer) -> RunBuilder {
    let inputs = [Input::new("x", &[BATCH, 8], DType::F32), Input::new("y", &[BATCH], DType::I32)];
    Run::builder().step("train", inputs, move |cx, inputs| {
        let [x, y] = inputs.all()?;
        let features = cx.layer("features", Dense::new(64).activation(Activation::Tanh), x)?;
        let loss = loss::sparse_cross_entropy(&cx.layer("head", Dense::new(classes), &features)?, y)?;
        cx.minimise(&loss, &optimizer)?;
        Ok([("loss", loss)])
    })
}

fn train(run: &mut Run, classes: usize, steps: usize) -> Result<f32> {
    let mut last = f32::NAN;
    for step in 0..steps {
        let x: Vec<f32> = (0..BATCH * 8).map(|i| ((i * 13 + step * 7) as f32 * 0.37).sin()).collect();
        let class = |row: &[f32]| ((row[0] + row[1] * row[2] + 2.0) / 4.0 * classes as f32) as i32;
        let y: Vec<i32> = x.chunks(8).map(|row| class(row).clamp(0, classes as i32 - 1)).collect();
        let (x, y) = (Array::new(&[BATCH, 8], &x)?, Array::new(&[BATCH], &y)?);
        last = run.step("train", &[("x", &x), ("y", &y)])?["loss"].item()?;
    }
    Ok(last)
}

fn main() -> Result<()> {
    let mut teacher = run(2, Optimizer::adam(3e-3)).compile()?;
    println!("two classes: loss {:.4}", train(&mut teacher, 2, 400)?);

    // Only the head has gradients and slots: the forecast is smaller, and the features stay as they are.
    let mut student = run(4, Optimizer::adam(3e-3).only(["head"])).compile()?;
    for state in teacher.states().iter().filter(|state| state.of_model && state.name.starts_with("features/"))
    {
        student.set_state(&state.name, &teacher.state(&state.name)?)?;
    }
    println!("four classes, a new head on old features: loss {:.4}", train(&mut student, 4, 400)?);
    let [all, head] =
        [teacher, student].map(|run| run.forecast().ledger.get(plimsoll::memory::Category::Optimizer));
    println!("optimizer state: {all} bytes for all layers, {head} for the head alone");
    Ok(())
}
