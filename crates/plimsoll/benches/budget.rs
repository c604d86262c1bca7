//! What budgets cost: modelled for an H200, measured on this machine's CPU, and how long planning takes.
//!
//! `cargo bench -p plimsoll --bench budget`
#![allow(clippy::print_stdout)]

use plimsoll::data::Dataset;
use plimsoll::{Profile, Remedy, Result, Spec, Trainer, devices};
use std::time::Instant;

fn main() -> Result<()> {
    modelled()?;
    planning()?;
    let profile = devices::calibrate(None)?;
    measured(&profile)
}

fn workload(name: &str) -> Result<(Trainer, Dataset)> {
    let spec = Spec::find(name)?;
    let (data, _) = spec.datasets()?;
    Ok((spec.trainer().exact(true), data))
}

/// Exact remedies alone on the H200's profile, against the same workload without a budget.
fn modelled() -> Result<()> {
    println!("modelled on h200, exact remedies alone");
    for (name, share, goal) in
        [("resnet50", 1.0 / 3.0, 12.0), ("unet", 0.4, 5.0), ("vgg16", 0.4, 5.0), ("gpt2-124m", 0.42, 15.0)]
    {
        let (trainer, data) = workload(name)?;
        let trainer = trainer.profile(devices::find("h200")?);
        let free = trainer.forecast(&data, None)?;
        let budget = (free.peak_bytes as f64 * share) as u64;
        match trainer.budget(budget).forecast(&data, None) {
            Ok(tight) => println!(
                "  {name:<10} {:>6.1} % of {:>6.0} MiB  {:>8.3} -> {:>8.3} ms  {:>+6.2} % (goal {goal} %)  {}",
                100.0 * tight.peak_bytes as f64 / free.peak_bytes as f64,
                mib(free.peak_bytes),
                1e3 * free.step_seconds,
                1e3 * tight.step_seconds,
                100.0 * (tight.step_seconds / free.step_seconds - 1.0),
                words(&tight.remedies)
            ),
            Err(error) => println!("  {name:<10} {:>6.1} %: {error}", 100.0 * share),
        }
    }
    Ok(())
}

/// From a workload to a plan for a device within half of what it takes without a budget.
fn planning() -> Result<()> {
    println!("\nplanning for h200 within 60 %, tracing and lowering included");
    for name in ["gpt2-124m", "gpt2-1.5b", "resnet50", "unet"] {
        let (trainer, data) = workload(name)?;
        let trainer = trainer.profile(devices::find("h200")?);
        let free = trainer.forecast(&data, None)?;
        let start = Instant::now();
        let tight = trainer.budget(free.peak_bytes * 6 / 10).forecast(&data, None)?;
        println!("  {name:<10} {:>5} kernels  {:.2} s", tight.kernels, start.elapsed().as_secs_f64());
    }
    Ok(())
}

/// Steps at half the memory and along the frontier, one after another in this run.
fn measured(profile: &Profile) -> Result<()> {
    println!("\nmeasured on the CPU, rounds of free and tight in turn");
    for (name, steps) in [("gpt-small", 5), ("cnn-small", 5)] {
        let spec = Spec::find(name)?;
        let (data, _) = spec.datasets()?;
        let trainer = spec.trainer().profile(profile.clone());
        let free = spec.trainer().forecast(&data, None)?.peak_bytes;
        let tight = trainer.clone().budget(free / 2);
        let mut times = [vec![], vec![]];
        for _ in 0..5 {
            times[0].push(trainer.bench(&data, steps)?.median_seconds);
            times[1].push(tight.bench(&data, steps)?.median_seconds);
        }
        let [free_seconds, tight_seconds] = times.map(median);
        println!(
            "  {name:<10} {:>6.1} -> {:>6.1} MiB  {:>7.1} -> {:>7.1} ms  {:>+6.1} % (goal 15 %)  {}",
            mib(free),
            mib(tight.bench(&data, 1)?.arena_bytes),
            1e3 * free_seconds,
            1e3 * tight_seconds,
            100.0 * (tight_seconds / free_seconds - 1.0),
            words(&tight.forecast(&data, None)?.remedies)
        );
    }
    println!("\nmodelled and measured along the frontier");
    let mut errors = vec![];
    for name in ["mlp-wide", "gpt-small", "cnn-small"] {
        let spec = Spec::find(name)?;
        let (data, _) = spec.datasets()?;
        let trainer = spec.trainer().profile(profile.clone());
        for point in trainer.frontier(&data, None)?.points.iter().step_by(2) {
            let seconds = trainer.clone().budget(point.budget_bytes).bench(&data, 5)?.median_seconds;
            let error = point.step_seconds / seconds - 1.0;
            println!(
                "  {name:<10} {:>6.1} MiB  modelled {:>7.1} ms  measured {:>7.1} ms  {:>+6.1} %",
                mib(point.peak_bytes),
                1e3 * point.step_seconds,
                1e3 * seconds,
                100.0 * error
            );
            errors.push(error.abs());
        }
    }
    println!("  mean error {:.1} %", 100.0 * errors.iter().sum::<f64>() / errors.len() as f64);
    Ok(())
}

fn words(remedies: &[Remedy]) -> String {
    remedies.iter().map(Remedy::to_string).collect::<Vec<_>>().join(", ")
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
