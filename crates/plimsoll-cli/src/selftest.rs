//! `plimsoll selftest`: whether memory on this machine does what is relied on.

use crate::Result;
use crate::show;
use plimsoll_cuda::{CudaDevice, selftest, selftest_host};
use serde_json::json;
use std::io::Write;

/// Try what a device's memory is relied on for, on the device itself
///
/// A GPU is filled for a moment, so nothing else should be using it.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The device: cuda: and its number, or cpu
    #[arg(long, value_name = "DEVICE", default_value = "cuda:0")]
    device: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result {
    let checks = match args.device.as_str() {
        "cpu" => selftest_host(),
        name => {
            let id = name.parse().map_err(|error: plimsoll_cuda::Error| format!("{error}, or cpu"))?;
            selftest(&CudaDevice::open(id)?)
        }
    };
    let failed = checks.iter().filter(|check| !check.passed).count();
    if args.json {
        let checks: Vec<_> = checks
            .iter()
            .map(|check| {
                json!({
                    "name": check.name,
                    "passed": check.passed,
                    "detail": check.detail,
                    "seconds": check.seconds,
                })
            })
            .collect();
        show::json(&json!({ "device": args.device, "passed": failed == 0, "checks": checks }), out)?;
    } else {
        for check in &checks {
            let mark = if check.passed { "ok" } else { "FAILED" };
            writeln!(out, "{mark:<6}  {:>6.2} s  {}", check.seconds, check.name)?;
            writeln!(out, "{:18}{}", "", check.detail)?;
        }
        writeln!(out, "\n{} of {} checks passed on {}", checks.len() - failed, checks.len(), args.device)?;
    }
    match failed {
        0 => Ok(()),
        _ => Err(format!("{failed} of {} checks failed on {}", checks.len(), args.device).into()),
    }
}
