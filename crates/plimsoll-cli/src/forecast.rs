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
    /// Find the largest batch that fits the budget
    #[arg(long, requires = "budget", conflicts_with = "frontier")]
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
        return args.answer(&spec, &frontier.to_json(), &frontier.to_text(show::width()), out);
    }
    if let (Some(budget), true) = (args.fitting.budget, args.max_batch) {
        let batch = trainer.max_batch(&data, held_out, budget)?;
        return args.answer(&spec, &batch.to_json(), &batch.to_string(), out);
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
    fn answer(&self, spec: &Spec, json: &Value, text: &str, out: &mut dyn Write) -> Result {
        if self.json {
            return show::json(json, out);
        }
        show::title(spec, out)?;
        Ok(write!(out, "{text}")?)
    }
}
