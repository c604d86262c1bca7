//! `plimsoll plan`: a picture of what lies where in the arena while which kernel runs.

use crate::Result;
use crate::show;
use crate::target::{Fitting, PlannedFor, Target};
use plimsoll::WholeFile;
use plimsoll_memory::format_bytes;
use std::io::Write;
use std::path::PathBuf;

/// Show what takes the memory: a picture of the plan, before anything runs
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    fitting: Fitting,
    #[command(flatten)]
    place: PlannedFor,
    /// Write a page to look into: addresses against kernels, and what is live at each
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// How many of the largest buffers at the peak are named.
const LARGEST: usize = 10;

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result {
    let spec = args.target.spec()?;
    let (data, held_out) = spec.datasets()?;
    let trainer = args.place.of(args.fitting.trainer(spec.clone()))?;
    let picture = trainer.compile(&data, held_out.as_ref())?.plan_picture();
    if let Some(path) = &args.html {
        let mut page = vec![];
        picture.write_html(spec.name(), &mut page)?;
        WholeFile::save(path, &page)?;
    }
    if args.json {
        return show::json(&picture.to_json(), out);
    }
    show::title(&spec, out)?;
    writeln!(out, "{}\n{}\n\n{}", picture.headline(), picture.fitting(), picture.ledger)?;
    let now = picture.peak_position;
    let mut live: Vec<_> =
        picture.buffers.iter().filter(|buffer| (buffer.lower..buffer.upper).contains(&now)).collect();
    live.sort_by_key(|buffer| std::cmp::Reverse(buffer.bytes));
    writeln!(out, "  {:>10}  {:<12} {:<14} what", "bytes", "for", "kernels")?;
    for buffer in live.into_iter().take(LARGEST) {
        let (bytes, category) = (format_bytes(buffer.bytes), buffer.category.name());
        let (name, shape) = (&buffer.name, &buffer.shape);
        let (first, last) = (buffer.lower + 1, buffer.upper);
        writeln!(out, "  {bytes:>10}  {category:<12} {first:>5} to {last:<5} {name} {shape}")?;
    }
    if let Some(path) = &args.html {
        writeln!(out, "\n{:<10} {}", "written", path.display())?;
    }
    Ok(())
}
