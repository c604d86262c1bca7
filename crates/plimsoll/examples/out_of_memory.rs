//! Reading an out-of-memory error, and going on: the error says who holds what, and what would fit.
//!
//! `cargo run --release -p plimsoll --example out_of_memory`
#![allow(clippy::print_stdout)]

use plimsoll::layers::{Activation, Dense, Layer, Sequential};
use plimsoll::{DType, Eager, ErrorKind, Input, Optimizer, Result, Run, RunBuilder, loss};

fn described(budget: u64) -> RunBuilder {
    let model = Sequential::new().then(Dense::new(512).activation(Activation::Gelu)).then(Dense::new(8));
    let adam = Optimizer::adam(1e-3);
    let inputs = [Input::new("x", &[256, 64], DType::F32), Input::new("y", &[256, 8], DType::F32)];
    Run::builder()
        .step("train", inputs, move |cx, inputs| {
            let [x, y] = inputs.all()?;
            cx.minimise(&loss::mse(&model.forward(cx, x)?, y)?, &adam)
        })
        .may_split("train")
        .budget(budget)
}

fn main() -> Result<()> {
    // Compiled: known before the first step. The error carries the least budget that would do.
    let refused = described(100 << 10).compile().err();
    let least = refused.as_ref().and_then(|error| error.least_bytes()).unwrap_or(u64::MAX);
    if let Some(error) = refused {
        println!("{error}\n");
    }
    let forecast = described(least).compile()?.forecast();
    println!(
        "within the {least} bytes that it names: {} bytes, by {:?}\n",
        forecast.peak_bytes, forecast.remedies
    );

    // Eager: found out when it happens, and the program goes on.
    let eager = Eager::builder().limit(1 << 20).build()?;
    let kept = eager.tensor(&[200, 1000], &vec![0.5; 200_000])?;
    match kept.exp() {
        Err(error) if error.kind() == ErrorKind::Budget => println!("{error}"),
        other => println!("{:?}", other.map(|tensor| tensor.to_string())),
    }
    drop(kept);
    println!("{} bytes are live now, and there is room again", eager.memory().live_bytes);
    Ok(())
}
