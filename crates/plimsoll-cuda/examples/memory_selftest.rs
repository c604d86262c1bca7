//! Tries what a CUDA device's memory is relied on for, without the rest of Plimsoll: `memory_selftest [cuda:0]`.

use plimsoll_cuda::{CudaDevice, Result, selftest};
use std::env;
use std::io::{self, Write};
use std::process::ExitCode;

fn main() -> ExitCode {
    let name = env::args().nth(1).unwrap_or_else(|| "cuda:0".into());
    match run(&name) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            _ = writeln!(io::stderr(), "error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the checks, prints what they saw and returns how many failed.
fn run(name: &str) -> Result<usize> {
    let checks = selftest(&CudaDevice::open(name.parse()?)?);
    let mut out = io::stdout().lock();
    for check in &checks {
        let mark = if check.passed { "ok  " } else { "FAIL" };
        _ = writeln!(out, "{mark} {:6.2} s  {}\n               {}", check.seconds, check.name, check.detail);
    }
    let failed = checks.iter().filter(|check| !check.passed).count();
    _ = writeln!(out, "{} of {} checks passed", checks.len() - failed, checks.len());
    Ok(failed)
}
