//! What logs cost: the part of training's time that is spent in them, where steps are shortest.
//!
//! Run with `cargo bench -p plimsoll --bench logs_cost`.

use plimsoll::layers::{Dense, Flatten, Sequential};
use plimsoll::logs::{JsonLog, RunPage, TensorBoard};
use plimsoll::loss::Loss;
use plimsoll::{
    Control, Observer, Observers, Optimizer, Progress, Result, Spec, Started, Trainer, TrainingReport,
};
use std::io::Write;
use std::time::{Duration, Instant};

/// An observer, and the time that it took in steps.
struct Timed<'a> {
    observer: Observers<'a>,
    spent: Duration,
}

impl Observer for Timed<'_> {
    fn started(&mut self, started: &Started<'_>) -> Result<()> {
        self.observer.started(started)
    }

    fn step(&mut self, progress: &Progress<'_>, control: &mut Control) -> Result<()> {
        let begun = Instant::now();
        let done = self.observer.step(progress, control);
        self.spent += begun.elapsed();
        done
    }

    fn ended(&mut self, report: &TrainingReport) -> Result<()> {
        self.observer.ended(report)
    }
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let mut out = std::io::stdout();
    let folder = tempfile::tempdir()?;
    writeln!(
        out,
        "{:<10} {:>8} {:>10} {:>10} {:>12}",
        "workload", "steps", "us a step", "in logs", "event file"
    )?;
    let (digits, mlp) = (Spec::find("digits")?, Spec::find("mlp-small")?);
    let perceptron = Sequential::new().then(Flatten).then(Dense::new(10));
    let perceptron = Trainer::new(perceptron, Loss::SparseCrossEntropy, Optimizer::sgd(0.1)).threads(1);
    for (name, trainer, data, steps) in [
        ("digits", digits.trainer(), digits.datasets()?.0, 675),
        ("digits", digits.trainer(), digits.datasets()?.0, 20_000),
        ("mlp-small", mlp.trainer(), mlp.datasets()?.0, 5_000),
        ("perceptron", perceptron.batch(8), digits.datasets()?.0, 200_000),
    ] {
        let mut training = trainer.steps(steps).compile(&data, None)?;
        let page = RunPage::new(name, &[], &training.plan_picture()).save_to(folder.path());
        let observer = Observers::new()
            .with(TensorBoard::new(folder.path()))
            .with(JsonLog::new(folder.path()))
            .with(page);
        let mut timed = Timed { observer, spent: Duration::ZERO };
        let begun = Instant::now();
        training.fit(&mut timed)?;
        let all = begun.elapsed();
        let bytes: u64 = std::fs::read_dir(folder.path())?
            .flatten()
            .filter(|file| file.file_name().to_string_lossy().contains("tfevents"))
            .filter_map(|file| Some(file.metadata().ok()?.len()))
            .sum();
        writeln!(
            out,
            "{name:<10} {steps:>8} {:>10.1} {:>8.2} % {bytes:>12}",
            1e6 * all.as_secs_f64() / steps as f64,
            100.0 * timed.spent.as_secs_f64() / all.as_secs_f64()
        )?;
    }
    Ok(())
}
