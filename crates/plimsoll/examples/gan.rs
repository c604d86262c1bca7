//! A GAN: two training steps and an inference step over one set of states in one arena, within a budget.
//!
//! `cargo run --release -p plimsoll --example gan`
#![allow(clippy::print_stdout)]

use plimsoll::layers::{Activation, Dense, Layer, Sequential};
use plimsoll::{Array, Context, DType, Input, Optimizer, Result, Run, Tensor, loss};

const BATCH: usize = 64;

/// A perceptron in a scope, so that an optimizer can have its parameters alone.
fn network(cx: &Context, scope: &str, x: &Tensor, outputs: usize) -> Result<Tensor> {
    let layers =
        Sequential::new().then(Dense::new(32).activation(Activation::Relu)).then(Dense::new(outputs));
    cx.scope(scope, |cx| layers.forward(cx, x))
}

/// Samples from the generator: noise is drawn in the step, anew each time.
fn fake(cx: &Context) -> Result<Tensor> {
    network(cx, "generator", &cx.normal(&[BATCH, 4])?, 2)
}

/// How well the discriminator tells that these are real, or not.
fn judged(cx: &Context, x: &Tensor, real: f64) -> Result<Tensor> {
    let logits = network(cx, "discriminator", x, 1)?;
    loss::bce_from_logits(&logits, &cx.constant(real, &[BATCH, 1], DType::F32)?)
}

fn main() -> Result<()> {
    let judge = Optimizer::adam_with(2e-3, 0.5, 0.999, 1e-8).named("judge").only(["discriminator"]);
    let forge = Optimizer::adam_with(1e-3, 0.5, 0.999, 1e-8).named("forge").only(["generator"]);
    let mut run = Run::builder()
        .step("discriminate", [Input::new("real", &[BATCH, 2], DType::F32)], move |cx, inputs| {
            let loss = judged(cx, inputs.get("real")?, 1.0)?.add(&judged(cx, &fake(cx)?, 0.0)?)?;
            cx.minimise(&loss, &judge)?;
            Ok([("loss", loss)])
        })
        .step("generate", [], move |cx, _| {
            let loss = judged(cx, &fake(cx)?, 1.0)?;
            cx.minimise(&loss, &forge)?;
            Ok([("loss", loss)])
        })
        .inference("sample", [], |cx, _| Ok([("samples", fake(cx)?)]))
        .budget(128 << 10)
        .compile()?;
    println!("{}", run.forecast());
    for step in 0..600 {
        // Points on a circle of radius 2.
        let angle = |i: usize| (step * 37 + i * 101) as f32 * 0.1;
        let points: Vec<f32> =
            (0..BATCH).flat_map(|i| [2.0 * angle(i).cos(), 2.0 * angle(i).sin()]).collect();
        run.step("discriminate", &[("real", &Array::new(&[BATCH, 2], &points)?)])?;
        run.step("generate", &[])?;
    }
    let samples = run.step("sample", &[])?["samples"].to_vec::<f32>()?;
    let radius: f32 = samples.chunks(2).map(|p| p[0].hypot(p[1])).sum::<f32>() / BATCH as f32;
    println!("mean radius of what is generated: {radius:.2}; the data's is 2");
    Ok(())
}
