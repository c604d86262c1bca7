//! `plimsoll bench`: how long a step takes here.

use crate::Result;
use crate::show;
use crate::target::{Fitting, Place, Target, count};
use std::io::Write;

/// Measure how long a training step takes on this machine
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    fitting: Fitting,
    #[command(flatten)]
    place: Place,
    /// Steps to measure
    #[arg(long, value_name = "N", default_value = "30", value_parser = count)]
    steps: usize,
    /// Time every kernel of the step instead
    #[arg(long, conflicts_with = "steps")]
    kernels: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result {
    let spec = args.place.of(args.target.spec()?);
    let (data, _) = spec.datasets()?;
    let trainer = args.fitting.trainer(spec.clone());
    if args.kernels {
        let times = trainer.kernel_times(&data)?;
        return match args.json {
            true => show::json(&times.to_json(), out),
            false => Ok(write!(out, "{}", times.to_text(show::width()))?),
        };
    }
    let report = trainer.bench(&data, args.steps)?;
    if args.json {
        return show::json(&report.to_json(), out);
    }
    show::title(&spec, out)?;
    show::lines(&report.to_string(), 12, out)
}
