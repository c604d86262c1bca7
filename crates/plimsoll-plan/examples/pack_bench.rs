//! Packs the problems of the test data and some that are made up, or the CSV files that are named, and prints
//! how well and how fast.
//!
//! `cargo run --release --example pack_bench -- [FILE.csv]...`

#![allow(clippy::print_stdout)]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::time::Instant;

use plimsoll_plan::csv::Table;
use plimsoll_plan::pack::{Effort, pack, pack_quick};
use plimsoll_plan::packing::{Item, Packing, Problem};
use plimsoll_plan::validate;

#[path = "../tests/cut/mod.rs"]
mod cut;

fn main() -> Result<(), Box<dyn Error>> {
    let mut files: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let given = !files.is_empty();
    if !given {
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/packing");
        for entry in std::fs::read_dir(data)? {
            files.push(entry?.path());
        }
        files.retain(|file| file.extension().is_some_and(|extension| extension == "csv"));
        files.sort();
    }
    println!(
        "{:<20} {:>6} {:>14}   {:<36} {:<36}",
        "problem", "items", "lower bound", "portfolio", "with search"
    );
    for file in files {
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let problem = Table::parse(&std::fs::read_to_string(&file)?)?.problem(1)?;
        // The published sets carry the capacity in their names: `A.1048576.csv`.
        let capacity = name.rsplit('.').next().and_then(|digits| digits.parse().ok());
        report(&name, &problem, capacity)?;
    }
    if !given {
        report("nested 50,000", &Problem::new(nested(50_000), 1)?, None)?;
        for (pieces, spare) in [(200, 0), (200, 3), (300, 0), (300, 3)] {
            for seed in 1..=5 {
                let problem = Problem::new(cut::rectangle(pieces, spare, seed), 1)?;
                let name = format!("cut {pieces}, {spare} % off, {seed}");
                report(&name, &problem, Some(cut::HEIGHT))?;
            }
        }
    }
    Ok(())
}

fn report(name: &str, problem: &Problem, capacity: Option<u64>) -> Result<(), Box<dyn Error>> {
    let quick = timed(problem, || pack_quick(problem))?;
    let searched = timed(problem, || pack(problem, capacity, Effort { steps: 400_000_000 }))?;
    println!(
        "{name:<20} {:>6} {:>14}   {quick:<36} {searched:<36}",
        problem.items().len(),
        problem.lower_bound()
    );
    Ok(())
}

fn timed(problem: &Problem, run: impl FnOnce() -> Packing) -> Result<String, Box<dyn Error>> {
    let start = Instant::now();
    let packing = run();
    let time = start.elapsed();
    validate(problem, &packing)?;
    let gap = 100.0 * packing.gap(problem);
    Ok(format!("{} {gap:.3} % {:.1} ms", packing.height, 1e3 * time.as_secs_f64()))
}

/// Lifetimes like those of a training step: activations that wait for the backward pass, one within the other,
/// and short-lived values beside them.
fn nested(count: u64) -> Vec<Item> {
    let pairs = count / 2;
    (0..pairs)
        .flat_map(|i| {
            let saved = Item::new(i, 2 * pairs - i, 256 * (1 + i * 7919 % 61));
            let passing = Item::new(2 * pairs - i, 2 * pairs - i + 2, 256 * (1 + i * 104_729 % 97));
            [saved, passing]
        })
        .collect()
}
