//! A batch size chosen from a forecast, before anything runs.
//!
//! `cargo run --release -p plimsoll --example choose_batch`
#![allow(clippy::print_stdout)]

use plimsoll::data::{Dataset, digits};
use plimsoll::layers::{Activation, Conv2d, Dense, Flatten, Sequential};
use plimsoll::{Optimizer, Trainer, loss::Loss};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let data = Dataset::new(digits())?.split(0.8, 1)?;
    let model = Sequential::new()
        .then(Conv2d::new(16, [3, 3]).activation(Activation::Relu))
        .then(Flatten)
        .then(Dense::new(10));
    let trainer = Trainer::new(model, Loss::SparseCrossEntropy, Optimizer::adam(2e-3)).epochs(1);
    let budget = 2 << 20;
    for batch in [16, 32, 64, 128, 256] {
        let forecast = trainer.clone().batch(batch).forecast(&data.train, Some(&data.held_out))?;
        println!(
            "batch {batch:>3}: {:>9} bytes, {:.3} ms a step",
            forecast.peak_bytes,
            1e3 * forecast.step_seconds
        );
    }
    let largest = trainer.max_batch(&data.train, Some(&data.held_out), budget)?;
    println!("{largest}");
    let trained = trainer.batch(largest.without_remedies.max(1)).budget(budget).fit(
        &data.train,
        Some(&data.held_out),
        &mut (),
    )?;
    println!("trained in {} bytes: {:?}", trained.report.arena_bytes, trained.report.final_metrics);
    Ok(())
}
