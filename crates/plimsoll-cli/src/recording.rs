//! Reading recordings, with a bar where somebody is waiting.

use crate::Result;
use crate::files::tell_of_waiting;
use indicatif::{ProgressBar, ProgressStyle};
use plimsoll_explain::{Limits, Progress, Recording, read_files_within};
use std::fs;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

/// Files smaller than this are read before a bar would be seen.
const WORTH_A_BAR: u64 = 32 << 20;

/// Reads the files of one run within limits, showing how far that is on the standard error stream unless it is to be quiet.
pub(crate) fn read(files: &[PathBuf], limits: Limits, quiet: bool) -> Result<Recording> {
    files.iter().for_each(|file| tell_of_waiting(file));
    let progress = Progress::default();
    let sizes = files.iter().filter_map(|file| fs::metadata(file).ok()).map(|found| found.len());
    let total = sizes.fold(0, u64::saturating_add);
    if quiet || total < WORTH_A_BAR || !io::stderr().is_terminal() {
        return Ok(read_files_within(files, &progress, limits)?);
    }
    let bar = ProgressBar::new(total);
    if let Ok(style) = ProgressStyle::with_template("{bar:32} {bytes} of {total_bytes} read, {eta} left") {
        bar.set_style(style.progress_chars("█▉▊▋▌▍▎▏ "));
    }
    let recording = thread::scope(|scope| {
        let reading = scope.spawn(|| read_files_within(files, &progress, limits));
        while !reading.is_finished() {
            bar.set_position(progress.read_bytes());
            thread::sleep(Duration::from_millis(50));
        }
        reading.join()
    });
    bar.finish_and_clear();
    // A reader that panics is a fault here, not in the file: it goes on as it would have without a bar.
    Ok(recording.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?)
}
