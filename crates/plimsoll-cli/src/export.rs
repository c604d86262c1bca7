//! `plimsoll export`: what a training saved, for other programs.

use crate::Result;
use crate::show;
use crate::weights::NamesOfFile;
use plimsoll::exchange::{TensorFile, convert_weights, write_onnx};
use plimsoll::{Precision, Spec};
use plimsoll_memory::format_bytes;
use serde_json::json;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Write the weights of a training for other programs, or its model as ONNX
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The folder that `plimsoll train` wrote
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// The file to write: FILE.safetensors for weights, FILE.onnx for a model that can be run
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    #[command(flatten)]
    names: NamesOfFile,
    /// The workload that was trained, for ONNX; that of the folder's workload.toml if not given
    #[arg(long, value_name = "WORKLOAD")]
    workload: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result {
    let weights = TensorFile::open(args.folder.join("weights.safetensors"))?;
    match args.out.extension().and_then(|extension| extension.to_str()) {
        Some("safetensors") => {
            let report = convert_weights(&weights, &args.out, &args.names.find()?)?;
            if args.json {
                let data = json!({ "written": args.out, "tensors": report.tensors, "bytes": report.bytes });
                return show::json(&data, out);
            }
            let (count, bytes) = (report.tensors, format_bytes(report.bytes));
            writeln!(out, "{:<10} {} ({count} tensors, {bytes})", "written", args.out.display())?;
            Ok(())
        }
        Some("onnx") => export_onnx(args, &weights, out),
        _ => Err(format!(
            "{} is to be FILE.safetensors, for weights, or FILE.onnx, for a model that can be run",
            args.out.display()
        )
        .into()),
    }
}

fn export_onnx(args: &Args, weights: &TensorFile, out: &mut dyn Write) -> Result {
    if args.names.is_given() {
        return Err(
            "--names and --rename are for FILE.safetensors: an ONNX file has the model's own names".into()
        );
    }
    let spec = args.spec()?;
    let (data, _) = spec.datasets()?;
    let trainer = spec.trainer().precision(Precision::F32);
    let report = write_onnx(&|samples| trainer.prediction_step(&data, samples), weights, &args.out)?;
    if args.json {
        let data = json!({
            "written": args.out,
            "nodes": report.nodes,
            "bytes": report.bytes,
            "bytes_beside": report.bytes_beside,
            "one_sample_at_a_time": report.fixed_samples.map(|reason| reason.to_string()),
        });
        return show::json(&data, out);
    }
    let (nodes, bytes) = (report.nodes, format_bytes(report.bytes));
    writeln!(out, "{:<10} {} ({nodes} nodes, {bytes})", "written", args.out.display())?;
    if report.bytes_beside > 0 {
        let bytes = format_bytes(report.bytes_beside);
        writeln!(out, "{:<10} {}.data ({bytes})", "written", args.out.display())?;
    }
    match report.fixed_samples {
        None => writeln!(out, "{:<10} any number", "samples")?,
        Some(reason) => writeln!(out, "{:<10} one at a time: {reason}", "samples")?,
    }
    Ok(())
}

impl Args {
    fn spec(&self) -> Result<Spec> {
        if let Some(workload) = &self.workload {
            return Ok(Spec::find(workload)?);
        }
        let path = self.folder.join("workload.toml");
        if !Path::new(&path).exists() {
            return Err(format!(
                "{} is not there: say which workload was trained with --workload",
                path.display()
            )
            .into());
        }
        Ok(Spec::find(&path.to_string_lossy())?)
    }
}
