//! Reading what a program left behind, without being told what it is.
//!
//! A reader is chosen by content: each says from the first bytes whether they look like its format. Input is
//! untrusted: readers hold bounded memory for what they have not understood, recurse to a fixed depth only, and
//! say in [`Origin::gaps`](crate::Origin::gaps) what they had to leave out of a broken file.

mod chrome_trace;
mod input;
mod join;
mod log;
mod match_frees;
mod memory_profile;
mod pickle;
mod plimsoll;
mod pool_trace;
mod pprof;
mod protobuf;
mod torch_snapshot;
mod xplane;

pub use input::{Input, Progress};

use crate::error::{Error, ErrorKind, Result};
use crate::recording::Recording;
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
    // Last: it takes any text.
    Reader { looks: log::looks, read: log::read },
];

/// Refuses to give each of so many devices its copy of so many owners or marks.
fn check_owners(owners: usize, devices: usize) -> Result<()> {
    const MOST: usize = 8 << 20;
    if owners.saturating_mul(devices) <= MOST || devices <= 1 {
        return Ok(());
    }
    let message =
        format!("out of all proportion: {owners} places in a program and marks, on {devices} devices");
    Err(Error::new(ErrorKind::Hostile, message))
}

/// Reads one stream, whatever it holds. `name` is what the recording calls it.
///
/// # Errors
/// If no reader knows it, or it is broken beyond use.
pub fn read_input(mut input: Input<'_>, name: &str) -> Result<Recording> {
    let start = input.peek().map_err(|e| e.in_file(name))?;
    let empty = start.is_empty();
    let Some(reader) = READERS.iter().find(|reader| (reader.looks)(start)) else {
        let message = if empty {
            format!("{name}: is empty")
        } else {
            format!(
                "{name}: is none of the formats that can be read: a PyTorch memory snapshot or out-of-memory \
                 message, a TensorFlow or JAX log with an allocator dump, an xplane.pb or memory_profile JSON, a \
                 JAX device memory profile (pprof), a Chrome trace with [memory] events, a Plimsoll run"
            )
        };
        return Err(Error::new(ErrorKind::UnknownFormat, message));
    };
    let mut recording = (reader.read)(&mut input).map_err(|e| e.in_file(name))?;
    recording.origin.files = vec![name.to_string()];
    Ok(recording)
}

/// The file in the directory of a Plimsoll run that says what it did with memory.
const RUN_TRACE: &str = "memory.jsonl";

/// Reads the files of one run and joins what they say, device by device. The directory of a Plimsoll run stands for
/// the trace in it.
///
/// # Errors
/// If a file cannot be read, or the files are of different runs.
pub fn read_files(paths: &[PathBuf], progress: &Progress) -> Result<Recording> {
    let mut recordings = Vec::new();
    for path in paths {
        let trace = path.join(RUN_TRACE);
        let path = if trace.is_file() { &trace } else { path };
        let name = path.display().to_string();
        let input = Input::open(path, progress).map_err(|e| e.in_file(&name))?;
        recordings.push(read_input(input, &name)?);
    }
    join(recordings)
}
