//! `plimsoll summary`: a model layer by layer.

use crate::Result;
use crate::show;
use crate::target::{Fitting, Place, Target, count};
use std::io::Write;

/// Say what each layer makes, and what it takes of memory
///
/// Weights, optimizer slots, gradients that have a place in memory, and activations that are saved for gradients, as they are
/// planned.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    fitting: Fitting,
    #[command(flatten)]
    place: Place,
    /// How many levels of layers within layers to show
    #[arg(long, value_name = "N", default_value = "1", value_parser = count)]
    depth: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result {
    let spec = args.place.of(args.target.spec()?);
    let (data, _) = spec.datasets()?;
    let summary = args.fitting.trainer(spec.clone()).summary(&data, args.depth)?;
    if args.json {
        return show::json(&summary.to_json(), out);
    }
    show::title(&spec, out)?;
    Ok(write!(out, "{}", summary.to_text(show::width()))?)
}
