//! `plimsoll forecast`: what training will take, before anything runs.

use crate::Result;
use crate::show::{self, AnswerIsNo};
use crate::target::{Fitting, PlannedFor, Target};
use plimsoll::{Alternative, Spec};
use serde_json::Value;
use std::io::Write;

/// Say what training will take, to the byte, before anything runs
///
/// The first line says whether it fits the device's memory and the budget; where it does not, what would fit follows, and the
/// exit status is 1.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    fitting: Fitting,
    #[command(flatten)]
    place: PlannedFor,
    /// Show what less memory costs in time
    #[arg(long)]
    frontier: bool,
    /// Find the largest batch that fits the budget, or without one the device
    #[arg(long, conflicts_with = "frontier")]
    max_batch: bool,
    /// Print what is placed where: each state and large buffer, and where each kernel runs
    #[arg(long, conflicts_with_all = ["frontier", "max_batch", "json"])]
    placement: bool,
    /// Say all there is to say: every figure, the ledger and the largest values
    #[arg(short, long)]
    verbose: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result {
    let spec = args.target.spec()?;
    let (data, held_out) = spec.datasets()?;
    let held_out = held_out.as_ref();
    let trainer = args.place.of(args.fitting.trainer(spec.clone()))?;
    if args.frontier {
        let frontier = trainer.frontier(&data, held_out)?;
        let text = frontier.to_text(show::width());
        return args.answer(&spec, frontier.fits(), &frontier.to_json(), &text, out);
    }
    if args.max_batch {
        let batch = trainer.max_batch_that_fits(&data, held_out)?;
        return args.answer(&spec, Some(batch.fits()), &batch.to_json(), &batch.to_string(), out);
    }
    let training = trainer.compile(&data, held_out)?;
    let (forecast, alternatives) = (training.forecast(), training.alternatives()?);
    if args.json {
        let mut json = forecast.to_json();
        json["alternatives"] = alternatives.iter().map(Alternative::to_json).collect();
        show::json(&json, out)?;
    } else {
        show::title(&spec, out)?;
        show::forecast(&forecast, &alternatives, args.verbose, out)?;
        if args.placement {
            write!(out, "\n{}", training.placement(show::width()))?;
        }
    }
    if forecast.fits() == Some(false) { Err(AnswerIsNo.into()) } else { Ok(()) }
}

impl Args {
    fn answer(
        &self,
        spec: &Spec,
        fits: Option<bool>,
        json: &Value,
        text: &str,
        out: &mut dyn Write,
    ) -> Result {
        if self.json {
            show::json(json, out)?;
        } else {
            let (answer, rest) = text.split_once('\n').unwrap_or((text, ""));
            show::title(spec, out)?;
            show::answer(answer, out)?;
            write!(out, "{rest}")?;
        }
        if fits == Some(false) { Err(AnswerIsNo.into()) } else { Ok(()) }
    }
}
