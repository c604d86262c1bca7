//! How far a run has come, and what it holds if that is asked for: a bar where somebody is watching, a line now and
//! then where a file is.

use indicatif::{ProgressBar, ProgressStyle};
use plimsoll::{Progress, RunMemory};
use plimsoll_memory::{format_bytes, resident_bytes};
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// Shows the progress of a run on the standard error stream.
pub(crate) struct Watcher {
    form: Form,
    /// Whether to show the ledger.
    memory: bool,
}

enum Form {
    /// Shows nothing.
    Nothing,
    /// Draws a bar, and the ledger below it, which is renewed when the last one is no longer fresh.
    Bar { bar: ProgressBar, told: Option<Instant> },
    /// Writes a line at each tenth of the run, and when the last one is old.
    Lines { tenths: usize, written: Instant },
}

const OLD: Duration = Duration::from_secs(30);
const FRESH: Duration = Duration::from_millis(100);

impl Watcher {
    pub(crate) fn new(quiet: bool, memory: bool) -> Watcher {
        let form = match (quiet, io::stderr().is_terminal()) {
            (true, _) => Form::Nothing,
            (false, true) => {
                let bar = ProgressBar::new(0);
                let template = "{bar:32} {pos}/{len} steps  {prefix}  {eta} left{msg}";
                if let Ok(style) = ProgressStyle::with_template(template) {
                    bar.set_style(style.progress_chars("█▉▊▋▌▍▎▏ "));
                }
                Form::Bar { bar, told: None }
            }
            (false, false) => Form::Lines { tenths: 0, written: Instant::now() },
        };
        Watcher { form, memory }
    }

    pub(crate) fn show(&mut self, progress: &Progress) {
        match &mut self.form {
            Form::Nothing => {}
            Form::Bar { bar, told } => {
                bar.set_length(progress.steps as u64);
                bar.set_position(progress.step as u64);
                bar.set_prefix(describe(progress));
                if self.memory && told.is_none_or(|told| told.elapsed() > FRESH) {
                    *told = Some(Instant::now());
                    bar.set_message(format!("\n{}", table(&progress.memory)));
                }
            }
            Form::Lines { tenths, written } => {
                let passed = 10 * progress.step / progress.steps.max(1);
                if passed > *tenths || written.elapsed() > OLD {
                    (*tenths, *written) = (passed, Instant::now());
                    let memory =
                        if self.memory { format!("  {}", line(&progress.memory)) } else { String::new() };
                    let Progress { step, steps, .. } = progress;
                    let line = format!("step {step}/{steps}  {}{memory}\n", describe(progress));
                    // Training goes on even if nobody can be told.
                    let _ = io::stderr().write_all(line.as_bytes());
                }
            }
        }
    }

    pub(crate) fn finish(self) {
        if let Form::Bar { bar, .. } = self.form {
            bar.finish_and_clear();
        }
    }
}

fn describe(progress: &Progress) -> String {
    let Progress { epoch, epochs, loss, steps_per_second, .. } = progress;
    format!("epoch {epoch}/{epochs}  loss {loss:.4}  {steps_per_second:.1} steps/s")
}

/// What a run holds, in one line.
fn line(memory: &RunMemory) -> String {
    let held = memory.peak.lines().filter(|&(_, bytes)| bytes > 0);
    let held: Vec<String> =
        held.map(|(category, bytes)| format!("{} {}", category.name(), format_bytes(bytes))).collect();
    format!("{}: {}", totals(memory), held.join(", "))
}

/// What a run holds, category by category.
fn table(memory: &RunMemory) -> String {
    let mut text = format!("  {:<12}{:>10}{:>10}\n", "", "peak", "mean");
    for ((category, peak), (_, mean)) in memory.peak.lines().zip(memory.mean.lines()) {
        if peak > 0 || mean > 0 {
            let bar = "█".repeat((30 * peak / memory.arena_bytes.max(1)) as usize);
            let (peak, mean) = (format_bytes(peak), format_bytes(mean));
            text += &format!("  {:<12}{peak:>10}{mean:>10}  {bar}\n", category.name());
        }
    }
    text + "  " + &totals(memory)
}

/// What a run holds in all.
fn totals(memory: &RunMemory) -> String {
    let &RunMemory { arena_bytes, host_bytes, budget_bytes, grown_bytes, .. } = memory;
    let mut text = format!("arena {}", format_bytes(arena_bytes));
    if let Some(budget) = budget_bytes {
        text += &format!(" of {} budget", format_bytes(budget));
    }
    if host_bytes > 0 {
        text += &format!(", host {}", format_bytes(host_bytes));
    }
    if let Some(resident) = resident_bytes() {
        text += &format!(", process {}", format_bytes(resident));
    }
    text + &format!(", grown since the first step {}", format_bytes(grown_bytes))
}
