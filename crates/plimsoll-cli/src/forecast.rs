//! `plimsoll forecast`: what training will take, before anything runs.

use crate::Result;
use crate::files::tell_of_waiting;
use crate::show;
use crate::target::{Fitting, Target};
use plimsoll::{DeviceName, devices};
use std::io::Write;
use std::path::Path;

/// Say what training will take, to the byte, before anything runs
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    fitting: Fitting,
    /// The device to forecast for: one that `plimsoll devices` lists, the path of a TOML file, or a CUDA device of this
    /// machine, such as cuda:0, which is asked what its kernels need; the workload's if not given
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// Show what less memory costs in time
    #[arg(long)]
    frontier: bool,
    /// Find the largest batch that fits the budget
    #[arg(long, requires = "budget", conflicts_with = "frontier")]
    max_batch: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result {
    let spec = args.target.spec()?;
    let (data, held_out) = spec.datasets()?;
    let held_out = held_out.as_ref();
    let mut trainer = args.fitting.trainer(spec.clone());
    if let Some(name) = &args.device {
        // What is no device of this machine is the profile of another.
        trainer = match name.parse() {
            Ok(device) => trainer.on(device),
            // Whatever device the workload names.
            Err(_) => {
                tell_of_waiting(Path::new(name));
                trainer.on(DeviceName::default()).profile(devices::find(name)?)
            }
        };
    }
    let (text, data) = match args.fitting.budget {
        _ if args.frontier => {
            let frontier = trainer.frontier(&data, held_out)?;
            (frontier.to_string(), frontier.to_json())
        }
        Some(budget) if args.max_batch => {
            let batch = trainer.max_batch(&data, held_out, budget)?;
            (batch.to_string(), batch.to_json())
        }
        _ => {
            let forecast = trainer.forecast(&data, held_out)?;
            (forecast.to_string(), forecast.to_json())
        }
    };
    if args.json {
        return show::json(&data, out);
    }
    show::title(&spec, out)?;
    Ok(write!(out, "{text}")?)
}
