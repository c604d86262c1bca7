//! What training leaves for people and their tools to look at, while it runs and afterwards.
//!
//! Everything here that watches training is an [`Observer`](crate::Observer): [`TensorBoard`] writes event files,
//! [`JsonLog`] lines of JSON, [`RunPage`] keeps what a page in a browser shows. None of them is known to the loop. They hold
//! a bounded amount of memory however long training is, and take next to nothing of its time: unless a person asks for
//! every so many steps, a [`Pace`] thins what they write by what it costs.
//!
//! ```no_run
//! use plimsoll::logs::{JsonLog, TensorBoard};
//! use plimsoll::{Observers, Spec};
//!
//! let spec = Spec::find("digits")?;
//! let (data, held_out) = spec.datasets()?;
//! let mut logs = Observers::new().with(TensorBoard::new("runs/digits")).with(JsonLog::new("runs/digits"));
//! spec.trainer().fit(&data, held_out.as_ref(), &mut logs)?;
//! # Ok::<(), plimsoll::Error>(())
//! ```

mod event;
mod json_log;
mod pace;
mod pages;
mod run_page;
mod series;
mod step_trace;
mod tensorboard;
mod tf_record;
mod until_failure;

pub use json_log::JsonLog;
pub use pace::Pace;
pub(crate) use pages::write_plan_page;
pub use run_page::{PageReader, RunPage};
pub use step_trace::StepTrace;
pub use tensorboard::TensorBoard;
pub use until_failure::UntilFailure;

use crate::Result;
use crate::save::io_error;
use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds since 1970, as logs tell the time.
fn unix_seconds() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

/// Writes a file that is whole or absent: beside its place first, under a name that a later run removes, then renamed.
fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let draft = path.with_file_name(format!(".{name}.{}.draft", std::process::id()));
    fs::write(&draft, bytes).and_then(|()| fs::rename(&draft, path)).map_err(|error| {
        let _ = fs::remove_file(&draft);
        io_error("cannot write", path, error)
    })
}
