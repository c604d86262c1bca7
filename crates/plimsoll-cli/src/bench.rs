//! `plimsoll bench`: how long a step takes here.

use crate::Result;
use crate::show;
use crate::target::{Fitting, Target, count};
use std::io::Write;

/// Measure how long a training step takes on this machine
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    fitting: Fitting,
    /// Steps to measure
    #[arg(long, value_name = "N", default_value = "30", value_parser = count)]
    steps: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result {
    let spec = args.target.spec()?;
    let (data, _) = spec.datasets()?;
    let report = args.fitting.trainer(spec.clone()).bench(&data, args.steps)?;
    if args.json {
        return show::json(&report.to_json(), out);
    }
    show::title(&spec, out)?;
    Ok(write!(out, "{report}")?)
}
