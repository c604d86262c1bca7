//! `plimsoll pack`: offsets for buffers whose lifetimes and sizes are known.

use crate::Result;
use crate::files::tell_of_waiting;
use crate::show::{self, AnswerIsNo};
use crate::target::seconds;
use plimsoll::WholeFile;
use plimsoll_memory::{parse_bytes, read_text};
use plimsoll_plan::csv::Table;
use plimsoll_plan::pack::{Effort, pack_while};
use plimsoll_plan::validate;
use serde_json::json;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// More than problems of ten million buffers have.
const MOST_BYTES: u64 = 1 << 30;

/// Place buffers of known sizes and lifetimes so that they need the fewest bytes
///
/// The file has the columns id, lower, upper and size: a buffer lives from lower to before upper.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// A csv file with the columns id, lower, upper, size
    file: PathBuf,
    /// The bytes to stay within: good enough when reached, a failure when not
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    capacity: Option<u64>,
    /// The csv file to write, with a column offset
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// How long to search at most
    #[arg(long, value_name = "S", default_value = "2", value_parser = seconds)]
    seconds: Duration,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result {
    let file = args.file.display();
    tell_of_waiting(&args.file);
    let text = read_text(&args.file, MOST_BYTES).map_err(|error| format!("cannot read {file}: {error}"))?;
    let start = Instant::now();
    let mut table = Table::parse(&text).map_err(|error| format!("{file}: {error}"))?;
    let problem = table.problem(1).map_err(|error| format!("{file}: {error}"))?;
    let packing = pack_while(&problem, args.capacity, Effort::UNLIMITED, &|| start.elapsed() < args.seconds);
    let time = start.elapsed().as_secs_f64();
    validate(&problem, &packing)?;

    let (height, bound, gap) = (packing.height, problem.lower_bound(), 100.0 * packing.gap(&problem));
    table.offsets = Some(packing.offsets);
    if let Some(path) = &args.out {
        WholeFile::save(path, table.to_string().as_bytes())?;
    }
    if args.json {
        let fits = args.capacity.map(|capacity| height <= capacity);
        let report = json!({
            "buffers": table.items.len(),
            "height_bytes": height,
            "lower_bound_bytes": bound,
            "gap_percent": gap,
            "seconds": time,
            "capacity_bytes": args.capacity,
            "fits": fits,
            "written": args.out.as_ref().map(|path| path.display().to_string()),
        });
        show::json(&report, out)?;
        return if fits == Some(false) { Err(AnswerIsNo.into()) } else { Ok(()) };
    }
    writeln!(out, "{:<12} {}", "buffers", table.items.len())?;
    writeln!(out, "{:<12} {height} bytes", "height")?;
    writeln!(out, "{:<12} {bound} bytes", "lower bound")?;
    writeln!(out, "{:<12} {gap:.4} %", "gap")?;
    writeln!(out, "{:<12} {time:.3} s", "time")?;
    if let Some(path) = &args.out {
        writeln!(out, "{:<12} {}", "written", path.display())?;
    }
    match args.capacity {
        Some(capacity) if capacity < bound => {
            let message =
                format!("nothing packs these into {capacity} bytes: {bound} are alive at one moment");
            Err(message.into())
        }
        Some(capacity) if capacity < height => {
            let message = format!(
                "the capacity of {capacity} bytes was not reached, {height} are needed; with more --seconds a \
                 lower packing may be found"
            );
            Err(message.into())
        }
        _ => Ok(()),
    }
}
