//! `plimsoll evaluate`: how well a trained model does on data.

use crate::Result;
use crate::show;
use crate::trained::{Opened, TrainedModel};
use std::io::Write;

/// Measure a trained model on data
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    model: TrainedModel,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result {
    let Opened { spec, trainer, data, weights } = args.model.open(true)?;
    let mut model = trainer.inference(&data)?;
    model.load(&weights)?;
    let metrics = model.evaluate()?;
    if args.json {
        let data = serde_json::json!({
            "workload": spec.name(),
            "samples": data.samples(),
            "metrics": metrics,
            "arena_bytes": model.forecast().peak_bytes,
        });
        return show::json(&data, out);
    }
    for (name, value) in &metrics {
        writeln!(out, "{name:<10} {value:.4}")?;
    }
    Ok(writeln!(out, "{:<10} {}", "samples", data.samples())?)
}
