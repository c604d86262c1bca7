//! How long it takes to trace, differentiate, lower and plan a graph of five thousand dense layers.
//!
//! `cargo bench -p plimsoll --bench depth`
#![allow(clippy::print_stdout)]

use plimsoll::layers::{Activation, Dense, Layer};
use plimsoll::{DType, Input, Optimizer, Result, Run};
use std::time::Instant;

fn main() -> Result<()> {
    for (name, optimizer) in [("sgd", Optimizer::sgd(1e-3)), ("adam", Optimizer::adam(1e-3))] {
        let start = Instant::now();
        let run = Run::builder()
            .step("train", [Input::new("x", &[1000, 100], DType::F32)], move |cx, inputs| {
                let layer = Dense::new(100).activation(Activation::Relu);
                let mut x = inputs.get("x")?.clone();
                for i in 0..5000 {
                    x = cx.scope(&format!("layer{i}"), |cx| layer.forward(cx, &x))?;
                }
                let loss = x.square()?.mean_all()?;
                cx.minimise(&loss, &optimizer)?;
                Ok([("loss", loss)])
            })
            .compile()?;
        let forecast = run.forecast();
        println!(
            "{name}: {} kernels; compiled in {:.2} s, of which planning {:.2} s; peak {} bytes, lower bound {}",
            forecast.kernels,
            start.elapsed().as_secs_f64(),
            forecast.plan_seconds,
            forecast.peak_bytes,
            forecast.lower_bound_bytes
        );
    }
    Ok(())
}
