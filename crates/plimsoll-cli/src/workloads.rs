//! `plimsoll workloads`: what is built in.

use crate::Result;
use crate::show;
use plimsoll::Spec;
use plimsoll::spec::{Workload, workloads};
use serde_json::{Value, json};
use std::io::Write;

/// List the workloads that are built in, or print one of them to copy and edit
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The workload to print
    name: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result {
    if let Some(name) = &args.name {
        let workload = plimsoll::spec::workload(name)?;
        if args.json {
            return show::json(&describe(workload)?, out);
        }
        return Ok(out.write_all(workload.text.as_bytes())?);
    }
    if args.json {
        let all: Result<Vec<Value>> = workloads().iter().map(describe).collect();
        return show::json(&json!(all?), out);
    }
    let width = workloads().iter().map(|workload| workload.name.len()).max().unwrap_or(0);
    for workload in workloads() {
        let line = format!("{:<width$}  {}", workload.name, Spec::find(workload.name)?.about());
        show::lines(&line, width + 2, out)?;
    }
    writeln!(out)?;
    show::lines("to make one of your own: plimsoll new mine; plimsoll train mine.toml", 0, out)
}

fn describe(workload: &Workload) -> Result<Value> {
    let about = Spec::find(workload.name)?.about().to_string();
    Ok(json!({ "name": workload.name, "about": about, "text": workload.text }))
}
