//! `plimsoll explain`: why a program's memory was full.

use crate::Result;
use crate::files::write_whole;
use crate::recording::read;
use crate::show;
use plimsoll_explain::{explain, write_html};
use std::io::Write;
use std::path::PathBuf;

/// Say why memory was full, from what a program left behind
///
/// Reads PyTorch memory snapshots, out-of-memory messages and Chrome traces, the allocator's dump in a
/// TensorFlow or JAX log, xplane.pb and memory_profile files, JAX device memory profiles, and Plimsoll's own
/// runs. The format is seen by content; gzip is fine.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What the program left behind; several files of one run are joined
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Also write a page to explore in a browser
    #[arg(long, value_name = "OUT")]
    html: Option<PathBuf>,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result {
    let recording = read(&args.files)?;
    let explanation = explain(&recording);
    if let Some(path) = &args.html {
        let mut page = Vec::new();
        write_html(&recording, &explanation, &mut page)?;
        write_whole(path, &page).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    }
    if args.json {
        return show::json(&explanation.to_json(), out);
    }
    plimsoll_explain::show(&explanation, show::style(), out)?;
    if let Some(path) = &args.html {
        writeln!(out, "\nwritten to {}", path.display())?;
    }
    Ok(())
}
