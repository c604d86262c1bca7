//! `plimsoll workloads`: what is built in.

use crate::Result;
use plimsoll::Spec;
use plimsoll::spec::workloads;
use std::io::Write;

/// List the workloads that are built in, or print one of them to copy and edit
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The workload to print
    name: Option<String>,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result {
    if let Some(name) = &args.name {
        let workload = plimsoll::spec::workload(name)?;
        return Ok(out.write_all(workload.text.as_bytes())?);
    }
    let width = workloads().iter().map(|workload| workload.name.len()).max().unwrap_or(0);
    for workload in workloads() {
        writeln!(out, "{:<width$}  {}", workload.name, Spec::find(workload.name)?.about())?;
    }
    Ok(writeln!(
        out,
        "\nto make one of your own: plimsoll workloads digits > mine.toml; plimsoll train mine.toml"
    )?)
}
