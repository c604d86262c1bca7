//! Reading what a program left behind, without being told what it is.
//!
//! A reader is chosen by content: each says from the first bytes whether they look like its format. Input is
//! untrusted: readers take memory and time from one [`budget`], recurse to a fixed depth only, and say in
//! [`Origin::gaps`](crate::Origin::gaps) what they had to leave out of a broken file.

mod budget;
mod chrome_trace;
mod documents;
mod folder;
mod input;
mod join;
mod log;
mod match_frees;
mod memory_profile;
mod pickle;
mod places;
mod plimsoll;
mod pool_trace;
mod pprof;
mod protobuf;
mod torch_snapshot;
mod xplane;

pub use budget::Limits;
pub use input::{Input, Progress};

use crate::error::{Error, ErrorKind, Result};
use crate::recording::Recording;
use budget::Budget;
use join::join;
use std::path::PathBuf;

/// A reader of one kind of file. It says in the recording's origin what format it found.
struct Reader {
    /// Whether a stream that begins so (up to 64 KiB of it) looks like the format.
    looks: fn(&[u8]) -> bool,
    /// Reads a stream to its end.
    read: fn(&mut Input<'_>) -> Result<Recording>,
}

/// All readers, those of the strictest looks first.
const READERS: &[Reader] = &[
    Reader { looks: plimsoll::looks, read: plimsoll::read },
    Reader { looks: torch_snapshot::looks, read: torch_snapshot::read },
    Reader { looks: chrome_trace::looks, read: chrome_trace::read },
    Reader { looks: xplane::looks, read: xplane::read },
    Reader { looks: pprof::looks, read: pprof::read },
    Reader { looks: memory_profile::looks, read: memory_profile::read },
    // Last: they take any text.
    Reader { looks: log::looks, read: log::read },
    Reader { looks: documents::looks, read: documents::read },
];

/// What is said of files that no reader knows.
const UNKNOWN: &str = "is none of the formats that can be read: a PyTorch memory snapshot, an error message or a log of any \
                       framework, a notebook, a TensorFlow or JAX log with an allocator dump, an xplane.pb or memory_profile \
                       JSON, a JAX device memory profile (pprof), a Chrome trace with [memory] events, a Plimsoll run";

/// Reads one stream, whatever it holds. `name` is what the recording calls it.
///
/// # Errors
/// If no reader knows it, or it is broken beyond use.
pub fn read_input(mut input: Input<'_>, name: &str) -> Result<Recording> {
    let start = input.peek().map_err(|e| e.in_file(name))?;
    let empty = start.is_empty();
    let Some(reader) = READERS.iter().find(|reader| (reader.looks)(start)) else {
        let message = if empty { format!("{name}: is empty") } else { format!("{name}: {UNKNOWN}") };
        return Err(Error::new(ErrorKind::UnknownFormat, message));
    };
    let recording = (reader.read)(&mut input);
    let budget = input.budget();
    let mut recording = recording.map_err(|error| match budget.is_spent() {
        true => {
            let message = format!("out of all proportion: {budget} before anything could be told ({error})");
            Error::new(ErrorKind::Hostile, message).in_file(name)
        }
        false => error.in_file(name),
    })?;
    if budget.is_spent() {
        recording.origin.partial = true;
        recording.origin.gaps.insert(0, format!("{budget}: what comes after is not read"));
    }
    recording.origin.files = vec![name.to_string()];
    Ok(recording)
}

/// The file in the directory of a Plimsoll run that says what it did with memory.
const RUN_TRACE: &str = "memory.jsonl";

/// Reads the files of one run and joins what they say, device by device. The directory of a Plimsoll run stands for
/// the trace in it, any other for the logs in it: that of the process that failed first is explained.
///
/// # Errors
/// If a file cannot be read, or the files are of different runs.
pub fn read_files(paths: &[PathBuf], progress: &Progress) -> Result<Recording> {
    read_files_within(paths, progress, Limits::default())
}

/// The same within other limits, which count for all files together. What was read within them is the answer:
/// [`Origin::partial`](crate::Origin::partial) says that it is a part.
///
/// # Errors
/// If a file cannot be read, or the files are of different runs.
pub fn read_files_within(paths: &[PathBuf], progress: &Progress, limits: Limits) -> Result<Recording> {
    let budget = Budget::new(limits);
    let mut recordings = Vec::new();
    for path in paths {
        let trace = path.join(RUN_TRACE);
        if path.is_dir() && !trace.is_file() {
            recordings.push(folder::read(path, progress, &budget)?);
            continue;
        }
        let path = if trace.is_file() { &trace } else { path };
        let name = path.display().to_string();
        let input = Input::open_within(path, progress, budget.clone()).map_err(|e| e.in_file(&name))?;
        recordings.push(read_input(input, &name)?);
    }
    join(recordings)
}
