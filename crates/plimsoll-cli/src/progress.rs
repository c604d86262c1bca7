//! How far a run has come: a bar where somebody is watching, a line now and then where a file is.

use indicatif::{ProgressBar, ProgressStyle};
use plimsoll::Progress;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// Shows the progress of a run on the standard error stream.
pub(crate) enum Watcher {
    /// Shows nothing.
    Nobody,
    /// Draws a bar.
    Bar(ProgressBar),
    /// Writes a line at each tenth of the run, and when the last one is old.
    Lines { tenths: usize, written: Instant },
}

const OLD: Duration = Duration::from_secs(30);

impl Watcher {
    pub(crate) fn new(quiet: bool) -> Watcher {
        match (quiet, io::stderr().is_terminal()) {
            (true, _) => Watcher::Nobody,
            (false, true) => {
                let bar = ProgressBar::new(0);
                let template = "{bar:32} {pos}/{len} steps  {msg}  {eta} left";
                if let Ok(style) = ProgressStyle::with_template(template) {
                    bar.set_style(style.progress_chars("█▉▊▋▌▍▎▏ "));
                }
                Watcher::Bar(bar)
            }
            (false, false) => Watcher::Lines { tenths: 0, written: Instant::now() },
        }
    }

    pub(crate) fn show(&mut self, progress: &Progress) {
        match self {
            Watcher::Nobody => {}
            Watcher::Bar(bar) => {
                bar.set_length(progress.steps as u64);
                bar.set_position(progress.step as u64);
                bar.set_message(describe(progress));
            }
            Watcher::Lines { tenths, written } => {
                let passed = 10 * progress.step / progress.steps.max(1);
                if passed > *tenths || written.elapsed() > OLD {
                    (*tenths, *written) = (passed, Instant::now());
                    let line = format!("step {}/{}  {}\n", progress.step, progress.steps, describe(progress));
                    // Training goes on even if nobody can be told.
                    let _ = io::stderr().write_all(line.as_bytes());
                }
            }
        }
    }

    pub(crate) fn finish(self) {
        if let Watcher::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}

fn describe(progress: &Progress) -> String {
    let Progress { epoch, epochs, loss, steps_per_second, .. } = progress;
    format!("epoch {epoch}/{epochs}  loss {loss:.4}  {steps_per_second:.1} steps/s")
}
