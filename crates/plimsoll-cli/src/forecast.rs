//! `plimsoll forecast`: what training will take, before anything runs.

use crate::Result;
use crate::show;
use crate::target::Target;
use std::io::Write;

/// Say what training will take, to the byte, before anything runs
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result {
    let spec = args.target.spec()?;
    let (data, _) = spec.datasets()?;
    let forecast = spec.trainer().forecast(&data)?;
    if args.json {
        return show::json(&forecast.to_json(), out);
    }
    show::title(&spec, out)?;
    Ok(write!(out, "{forecast}")?)
}
