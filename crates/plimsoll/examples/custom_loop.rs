//! A training loop of one's own, op by op, with a gradient tape.
//!
//! `cargo run --release -p plimsoll --example custom_loop`
#![allow(clippy::print_stdout)]

use plimsoll::layers::{Activation, Dense, Layer, Sequential};
use plimsoll::{Eager, Optimizer, Result, Tensor, loss};

fn main() -> Result<()> {
    let eager = Eager::new()?;
    let model = Sequential::new().then(Dense::new(16).activation(Activation::Tanh)).then(Dense::new(1));
    let adam = Optimizer::adam(1e-2);
    let xs: Vec<f32> = (0..64).map(|i| i as f32 / 32.0 - 1.0).collect();
    let ys: Vec<f32> = xs.iter().map(|x| (3.0 * x).sin()).collect();
    let (x, y) = (eager.tensor(&[64, 1], &xs)?, eager.tensor(&[64, 1], &ys)?);
    for step in 0..=400 {
        let mut tape = eager.tape();
        let loss = loss::mse(&model.forward(&eager.context(true), &x)?, &y)?;
        let parameters = eager.parameters();
        let gradients = tape.gradient(&loss, &parameters.values().collect::<Vec<_>>())?;
        let named: Vec<(&str, &Tensor)> = parameters.keys().map(String::as_str).zip(&gradients).collect();
        eager.apply_gradients(&adam, &named)?;
        if step % 100 == 0 {
            println!("step {step:>3}  loss {:.5}", loss.to_vec()?[0]);
        }
    }
    println!("{} bytes of tensors at the peak", eager.memory().peak_bytes);
    Ok(())
}
