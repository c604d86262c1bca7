//! How long it takes to trace, differentiate, lower and plan a graph of five thousand dense layers.
//!
//! `cargo run --release -p plimsoll --example depth`
#![allow(clippy::print_stdout)]

use plimsoll::layers::{Activation, Dense, Layer};
use plimsoll::{Compiled, Context, CpuDevice, DType, Optimizer, Precision, Result};
use std::time::Instant;

fn main() -> Result<()> {
    let device = CpuDevice::new(None)?;
    for (name, optimizer) in [("sgd", Optimizer::sgd(1e-3)), ("adam", Optimizer::adam(1e-3))] {
        let start = Instant::now();
        let cx = Context::trace(true, Precision::F32);
        let mut x = cx.input("x", &[1000, 100], DType::F32)?;
        let layer = Dense::new(100).activation(Activation::Relu);
        for i in 0..5000 {
            x = cx.scope(&format!("layer{i}"), |cx| layer.forward(cx, &x))?;
        }
        let loss = x.square()?.mean_all()?;
        cx.output("loss", &loss)?;
        let traced = start.elapsed();
        cx.minimise(&loss, &optimizer)?;
        let step = cx.take_step()?;
        let nodes = step.graph.nodes().len();
        let differentiated = start.elapsed();
        let compiled = Compiled::new(step, &device)?;
        let planned = start.elapsed();
        println!(
            "{name}: {nodes} nodes, {} kernels; traced {:.2} s, with gradients and updates {:.2} s, lowered and \
             planned {:.2} s; peak {} bytes, lower bound {}",
            compiled.program.kernels.len(),
            traced.as_secs_f64(),
            differentiated.as_secs_f64(),
            planned.as_secs_f64(),
            compiled.plan.peak_bytes,
            compiled.plan.lower_bound_bytes
        );
    }
    Ok(())
}
