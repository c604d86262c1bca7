//! `plimsoll train`: from a workload to trained weights.

use crate::Result;
use crate::progress::Watcher;
use crate::show;
use crate::target::{Fitting, Place, Target, count};
use plimsoll::{RunFolder, TrainingReport};
use plimsoll_memory::format_bytes;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Train a workload and write its weights and a report
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
    /// The folder to write into; runs/NAME if not given
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// How often to see all samples
    #[arg(long, value_name = "N", value_parser = count, conflicts_with = "steps")]
    epochs: Option<usize>,
    /// How many steps to train
    #[arg(long, value_name = "N", value_parser = count)]
    steps: Option<usize>,
    /// What first weights, order and dropout are drawn from
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    #[command(flatten)]
    fitting: Fitting,
    #[command(flatten)]
    place: Place,
    /// Show what holds memory while training
    #[arg(long, conflicts_with = "quiet")]
    watch: bool,
    /// Print nothing but errors
    #[arg(long)]
    quiet: bool,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result {
    let mut spec = args.place.of(args.target.spec()?);
    if let Some(epochs) = args.epochs {
        spec = spec.epochs(epochs);
    }
    if let Some(steps) = args.steps {
        spec = spec.steps(steps);
    }
    if let Some(seed) = args.seed {
        spec = spec.seed(seed);
    }
    let folder = args.out.clone().unwrap_or_else(|| Path::new("runs").join(spec.name()));
    // A folder that cannot be had is better known before the training than after.
    let mut folder = RunFolder::open(folder)?;
    let trainer = args.fitting.trainer(spec.clone());
    let (data, held_out) = spec.datasets()?;
    let mut training = trainer.compile(&data, held_out.as_ref())?;
    if !args.quiet {
        show::title(&spec, out)?;
        writeln!(out, "{}", training.forecast())?;
        out.flush()?;
    }

    let mut watcher = Watcher::new(args.quiet, args.watch);
    let report = training.fit(&mut |progress| watcher.show(progress));
    watcher.finish();
    let report = report?;
    training.save(&report, &mut folder)?;
    if args.quiet { Ok(()) } else { summarise(&report, folder.path(), out) }
}

fn summarise(report: &TrainingReport, folder: &Path, out: &mut dyn Write) -> Result {
    for (name, value) in &report.final_metrics {
        writeln!(out, "{name:<10} {value:.4}")?;
    }
    writeln!(out, "{:<10} {:.1} steps a second", "speed", report.steps_per_second)?;
    if let Some(scale) = report.loss_scale {
        writeln!(out, "{:<10} {}, {} steps skipped", "loss scale", scale.last, scale.skipped_steps)?;
    }
    writeln!(
        out,
        "{:<10} {} predicted, {} reserved, {} allocations after the first step",
        "memory",
        format_bytes(report.predicted_peak_bytes),
        format_bytes(report.arena_bytes),
        report.allocations_after_first_step
    )?;
    if let Some(foretold) = &report.device_use {
        writeln!(out, "{:<10} {foretold}", "device")?;
    }
    if let Some(foretold) = &report.process_use {
        writeln!(out, "{:<10} {foretold}", "process")?;
    }
    for file in ["weights.safetensors", "run.json", "memory.jsonl"] {
        writeln!(out, "{:<10} {}", "written", folder.join(file).display())?;
    }
    Ok(())
}
