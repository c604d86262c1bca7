//! A classifier within a budget, in twenty lines.
//!
//! `cargo run --release -p plimsoll --example classifier`
#![allow(clippy::print_stdout)]

use plimsoll::data::{Dataset, digits};
use plimsoll::layers::{Activation, Dense, Flatten, Sequential};
use plimsoll::{Optimizer, Trainer, loss::Loss};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let data = Dataset::new(digits())?.split(0.8, 1)?;
    let model = Sequential::new()
        .then(Flatten)
        .then(Dense::new(64).activation(Activation::Relu))
        .then(Dense::new(10));
    let trainer =
        Trainer::new(model, Loss::SparseCrossEntropy, Optimizer::adam(3e-3)).budget(1 << 20).epochs(5);
    let mut training = trainer.compile(&data.train, Some(&data.held_out))?;
    println!("{}", training.forecast());
    let report = training.fit(&mut ())?;
    println!("accuracy {:.3}", report.final_metrics["accuracy"]);
    Ok(())
}
