//! `plimsoll explain`: why a program's memory was full.

use crate::Result;
use crate::recording::read;
use crate::show;
use plimsoll::WholeFile;
use plimsoll_explain::{Limits, explain, write_html};
use plimsoll_memory::{parse_bytes, quoted};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Say why memory was full, from what a program left behind
///
/// Reads error messages and logs of PyTorch, TensorFlow, JAX, vLLM, llama.cpp, drivers and the operating system
/// (as text, JSON lines or a notebook; a folder stands for the logs in it), PyTorch memory snapshots and Chrome
/// traces, xplane.pb and memory_profile files, JAX device memory profiles, and Plimsoll's own runs. The format is
/// seen by content; gzip is fine, and - is standard input.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What the program left behind, - for standard input; several files of one run are joined
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Show no bar while files are read
    #[arg(long)]
    quiet: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// The memory that reading may take; what was read within it is explained, and said to be a part
    #[arg(long, value_name = "BYTES", default_value = "1GiB", value_parser = parse_bytes)]
    max_memory: u64,
    /// Also write a page to explore in a browser
    #[arg(long, value_name = "OUT")]
    html: Option<PathBuf>,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result {
    if let Some(page) = &args.html {
        refuse_to_overwrite(page, &args.files)?;
    }
    let limits = Limits { memory_bytes: args.max_memory, ..Limits::default() };
    let recording = read(&args.files, limits, args.quiet)?;
    let explanation = explain(&recording);
    if let Some(path) = &args.html {
        let mut page = Vec::new();
        write_html(&recording, &explanation, &mut page)?;
        WholeFile::save(path, &page)?;
    }
    if args.json {
        return show::json(&explanation.to_json(), out);
    }
    plimsoll_explain::show(&explanation, show::style(), out)?;
    if let Some(path) = &args.html {
        writeln!(out, "\nwritten to {}", name(path))?;
    }
    Ok(())
}

/// A path as it is printed.
fn name(path: &Path) -> String {
    quoted(&path.to_string_lossy()).into_owned()
}

/// Refuses a page in the place of a file that it is made of, by whatever name or link.
fn refuse_to_overwrite(page: &Path, files: &[PathBuf]) -> Result {
    // The folder of a Plimsoll run stands for the trace in it.
    let traces: Vec<PathBuf> = files.iter().map(|file| file.join("memory.jsonl")).collect();
    match files.iter().chain(&traces).find(|file| is_same_file(page, file)) {
        Some(file) => Err(format!(
            "the page would overwrite {}, which it is to be made of: give --html another name",
            name(file)
        )
        .into()),
        None => Ok(()),
    }
}

#[cfg(unix)]
fn is_same_file(a: &Path, b: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let identity = |path: &Path| fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    identity(a).is_some_and(|a| identity(b) == Some(a))
}

#[cfg(not(unix))]
fn is_same_file(a: &Path, b: &Path) -> bool {
    fs::canonicalize(a).is_ok_and(|a| fs::canonicalize(b).is_ok_and(|b| a == b))
}
