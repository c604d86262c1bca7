//! `plimsoll predict`: what a trained model makes of data, as a file.

use crate::Result;
use crate::show;
use crate::trained::{Opened, TrainedModel};
use plimsoll::exchange::PredictionFile;
use std::io::Write;
use std::path::PathBuf;

/// Write what a trained model makes of data: .npy, .csv or .safetensors
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    model: TrainedModel,
    /// The file to write, whose name says how: FILE.npy, FILE.csv or FILE.safetensors
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result {
    let Opened { spec, trainer, data, weights } = args.model.open(false)?;
    let file = PredictionFile::create(&args.out, data.samples(), spec.predicts_classes())?;
    let mut file = file.sample_names(&data);
    if let Some(names) = spec.class_names() {
        file = file.class_names(names);
    }
    let mut model = trainer.inference(&data)?;
    model.load(&weights)?;
    model.predict(&mut |predictions| file.write(predictions))?;
    file.publish()?;
    if args.json {
        let data = serde_json::json!({ "samples": data.samples(), "written": args.out });
        return show::json(&data, out);
    }
    Ok(writeln!(out, "{:<10} {} ({} samples)", "written", args.out.display(), data.samples())?)
}
