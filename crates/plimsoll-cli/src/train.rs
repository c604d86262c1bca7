//! `plimsoll train`: from a workload to trained weights.

use crate::Result;
use crate::logging::Logging;
use crate::progress::Watcher;
use crate::show;
use crate::signals::{Interrupted, Signals};
use crate::target::{Fitting, Place, Target, count};
use crate::weights::Weights;
use plimsoll::{Ended, Every, RunFolder, Start, Trainer, TrainingReport};
use plimsoll_memory::{format_bytes, quoted, use_two_heaps};
use std::io::Write;
use std::path::{Path, PathBuf};

/// What the workload is called in a run's folder.
pub(crate) const WORKLOAD: &str = "workload.toml";

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
    /// Go on from the last checkpoint in the folder; without one, begin
    #[arg(long, conflicts_with = "restart")]
    resume: bool,
    /// Begin anew, and lose the checkpoints of unfinished training in the folder
    #[arg(long)]
    restart: bool,
    /// How often to save a checkpoint: a number of steps, epoch, a time such as 60s, or never; every minute if not given
    #[arg(long, value_name = "EVERY")]
    checkpoint_every: Option<Every>,
    /// How many checkpoints to keep; the last 2 if not given
    #[arg(long, value_name = "N", value_parser = count)]
    keep: Option<usize>,
    /// How often to measure held-out data: a number of steps, epoch, or never; every epoch if not given
    #[arg(long, value_name = "EVERY")]
    validate_every: Option<Every>,
    #[command(flatten)]
    logging: Logging,
    #[command(flatten)]
    weights: Weights,
    /// Show what holds memory while training
    #[arg(long, conflicts_with = "quiet")]
    watch: bool,
    /// Print what is placed where: each state and large buffer, and where each kernel runs
    #[arg(long, conflicts_with_all = ["quiet", "json"])]
    placement: bool,
    /// Print all of the forecast: every figure, the ledger and the largest values
    #[arg(short, long, conflicts_with = "quiet")]
    verbose: bool,
    /// Print nothing but errors
    #[arg(long)]
    quiet: bool,
    /// Print the report as JSON at the end, and nothing else
    #[arg(long)]
    json: bool,
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
    folder.beside(WORKLOAD, spec.text_with_absolute_paths());
    let trainer = args.settle(args.fitting.trainer(spec.clone()));
    if trainer.has_ram_budget() {
        use_two_heaps();
    }
    let (data, held_out) = spec.datasets()?;
    let mut training = trainer.compile(&data, held_out.as_ref())?;
    training.must_fit()?;
    if !args.quiet && !args.json {
        show::title(&spec, out)?;
        show::forecast(&training.forecast(), &[], args.verbose, out)?;
        writeln!(out)?;
        if args.placement {
            writeln!(out, "{}", training.placement(show::width()))?;
        }
        out.flush()?;
    }
    let loaded = args.weights.load(&mut training)?;
    if let (Some(report), false) = (loaded, args.quiet || args.json) {
        writeln!(out, "{report}")?;
        out.flush()?;
    }

    let logs = args.logging.logs(spec.name(), &trainer.settings(), &training, folder.path())?;
    if let Some(address) = logs.address() {
        // Whoever asked for the page has to know where it is, however quiet all else is.
        let line = format!("{:<10} {address}\n", "page");
        match args.json {
            true => _ = std::io::stderr().write_all(line.as_bytes()),
            false => out.write_all(line.as_bytes()).and_then(|()| out.flush())?,
        }
    }
    let signals = Signals::listen()?;
    let start = match (args.resume, args.restart) {
        (true, _) => Start::Resume,
        (_, true) => Start::Over,
        _ => Start::Anew,
    };
    let watcher = Watcher::new(args.quiet || args.json, args.watch);
    let mut observers = logs.observers.with(signals.clone()).with(watcher);
    let report = training.fit_into(&mut folder, start, &mut observers)?;
    drop(observers);
    if let (Ended::Interrupted(why), Some(status)) = (&report.ended, signals.status()) {
        let message = format!(
            "{why} after step {} of {}: a checkpoint is saved; to go on, add --resume to the same command",
            report.losses.len(),
            report.steps
        );
        return Err(Interrupted { status, message }.into());
    }
    if args.json {
        show::json(&report.to_json(), out)?;
    } else if !args.quiet {
        let mut summary = vec![];
        summarise(&report, folder.path(), &mut summary)?;
        show::lines(&String::from_utf8_lossy(&summary), 11, out)?;
    }
    args.logging.trace(&mut training, args.quiet || args.json, out)
}

impl Args {
    /// The trainer, made to save and measure as often as was asked for.
    fn settle(&self, mut trainer: Trainer) -> Trainer {
        if let Some(every) = self.checkpoint_every {
            trainer = trainer.checkpoint(every);
        }
        if let Some(checkpoints) = self.keep {
            trainer = trainer.keep(checkpoints);
        }
        if let Some(every) = self.validate_every {
            trainer = trainer.validate(every);
        }
        trainer
    }
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
    if let Some(host) = &report.host_use {
        writeln!(out, "{:<10} {host}", "host")?;
    }
    if let Some(foretold) = &report.process_use {
        writeln!(out, "{:<10} {foretold}", "process")?;
    }
    if let Some(data) = &report.data_wait {
        let held = format_bytes(data.most_bytes);
        let slowest = quoted(&data.slowest_stage);
        writeln!(
            out,
            "{:<10} steps waited {:.1} s for it, {held} held at most; the slowest stage: {slowest}",
            "data", data.seconds
        )?;
    }
    if let Ended::Stopped(why) = &report.ended {
        writeln!(out, "{:<10} after step {} of {}: {why}", "stopped", report.losses.len(), report.steps)?;
    }
    if let Some(step) = report.best_step {
        writeln!(out, "{:<10} the weights of step {step}, the best", "kept")?;
    }
    for note in &report.notes {
        writeln!(out, "{:<10} {note}", "note")?;
    }
    for file in ["weights.safetensors", "run.json", "memory.jsonl", "log.jsonl", "page.html"] {
        writeln!(out, "{:<10} {}", "written", folder.join(file).display())?;
    }
    Ok(())
}
