//! `plimsoll summary`: a model layer by layer.

use crate::Result;
use crate::show::{self, AnswerIsNo};
use crate::target::{Fitting, PlannedFor, Target, count};
use std::io::Write;

/// Say what each layer makes, and what it takes of memory
///
/// Weights, optimizer slots, gradients that have a place in memory, and activations that are saved for gradients, as they are
/// planned. The first line says whether training fits, as that of `plimsoll forecast` does; where it does not, the exit status
/// is 1.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    fitting: Fitting,
    #[command(flatten)]
    place: PlannedFor,
    /// How many levels of layers within layers to show
    #[arg(long, value_name = "N", default_value = "1", value_parser = count)]
    depth: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result {
    let spec = args.target.spec()?;
    let (data, _) = spec.datasets()?;
    let summary = args.place.of(args.fitting.trainer(spec.clone()))?.summary(&data, args.depth)?;
    if args.json {
        show::json(&summary.to_json(), out)?;
    } else {
        show::title(&spec, out)?;
        show::answer(&summary.answer, out)?;
        write!(out, "\n{}", summary.to_text(show::width()))?;
    }
    if summary.fits == Some(false) { Err(AnswerIsNo.into()) } else { Ok(()) }
}
