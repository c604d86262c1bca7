//! How far a run has come, and what it holds if that is asked for: a bar where somebody is watching, a line now and
//! then where a file is.

use crate::show::columns_of;
use console::Term;
use indicatif::{ProgressBar, ProgressStyle};
use plimsoll::{Control, Observer, Progress, Result, RunMemory, Saved, Started, TrainingReport, Validation};
use plimsoll_memory::{cut_end, format_bytes, quoted, resident_bytes};
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
    Bar { bar: ProgressBar, drawn: Option<Instant> },
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
                if let Ok(style) = ProgressStyle::with_template("{msg}") {
                    bar.set_style(style);
                }
                Form::Bar { bar, drawn: None }
            }
            (false, false) => Form::Lines { tenths: 0, written: Instant::now() },
        };
        Watcher { form, memory }
    }

    /// A line that stays: above the bar, or among the others.
    fn tell(&self, line: &str) {
        match &self.form {
            Form::Nothing => {}
            Form::Bar { bar, .. } => bar.println(cut_end(line, columns())),
            // Training goes on even if nobody can be told.
            Form::Lines { .. } => _ = io::stderr().write_all(format!("{line}\n").as_bytes()),
        }
    }
}

impl Observer for Watcher {
    fn started(&mut self, started: &Started<'_>) -> Result<()> {
        if let Form::Lines { tenths, .. } = &mut self.form {
            *tenths = 10 * started.step / started.steps.max(1);
        }
        started.notes.iter().for_each(|note| self.tell(&format!("note: {note}")));
        if started.step > 0 {
            self.tell(&format!("going on after step {} of {}", started.step, started.steps));
        }
        Ok(())
    }

    fn step(&mut self, progress: &Progress<'_>, _: &mut Control) -> Result<()> {
        let is_last = progress.step == progress.steps;
        match &mut self.form {
            Form::Nothing => {}
            Form::Bar { bar, drawn } => {
                if is_last || drawn.is_none_or(|drawn| drawn.elapsed() > FRESH) {
                    *drawn = Some(Instant::now());
                    let memory =
                        if self.memory { format!("\n{}", table(&progress.memory)) } else { String::new() };
                    bar.set_message(status(progress, columns()) + &memory);
                    bar.tick();
                }
            }
            Form::Lines { tenths, written } => {
                let passed = 10 * progress.step / progress.steps.max(1);
                if passed > *tenths || written.elapsed() > OLD {
                    (*tenths, *written) = (passed, Instant::now());
                    let memory =
                        if self.memory { format!("  {}", line(&progress.memory)) } else { String::new() };
                    let Progress { step, steps, .. } = progress;
                    self.tell(&format!("step {step}/{steps}  {}{memory}", describe(progress)));
                }
            }
        }
        Ok(())
    }

    fn validated(&mut self, validation: &Validation<'_>, _: &mut Control) -> Result<()> {
        let Validation { epoch, step, metrics } = validation;
        self.tell(&format!("held out after epoch {epoch}, step {step}: {}", in_words(metrics)));
        Ok(())
    }

    fn saved(&mut self, saved: &Saved<'_>) -> Result<()> {
        let best = if saved.best { ", the best so far" } else { "" };
        let (path, bytes) = (saved.path.to_string_lossy(), format_bytes(saved.bytes));
        self.tell(&format!("saved step {}: {} ({bytes}){best}", saved.step, quoted(&path)));
        Ok(())
    }

    fn ended(&mut self, _: &TrainingReport) -> Result<()> {
        if let Form::Bar { bar, .. } = &self.form {
            bar.finish_and_clear();
        }
        Ok(())
    }
}

impl Drop for Watcher {
    /// An error leaves no bar behind.
    fn drop(&mut self) {
        if let Form::Bar { bar, .. } = &self.form {
            bar.finish_and_clear();
        }
    }
}

/// The columns of the terminal that is drawn on.
fn columns() -> usize {
    columns_of(&Term::stderr()).unwrap_or(80)
}

/// Where training stands, in one line of at most so many columns: what matters most is said in any case, the rest where there
/// is room for it, and a bar takes what is left.
fn status(progress: &Progress<'_>, width: usize) -> String {
    /// The narrowest and the widest bar.
    const BAR: [usize; 2] = [6, 40];
    let Progress { epoch, epochs, step, steps, loss, steps_per_second, samples_per_second, .. } = *progress;
    let left = (steps.saturating_sub(step)) as f64 / steps_per_second.max(1e-9);
    let metrics = progress.metrics.iter().map(|(name, value)| format!("{name} {value:.3}"));
    let mut parts = vec![format!("{step}/{steps}"), format!("loss {loss:.4}")];
    let mut optional = vec![];
    if steps_per_second > 0.0 {
        optional.push(format!("{} left", clock(left)));
    }
    optional.extend(metrics);
    if samples_per_second > 0.0 {
        optional.push(format!("{samples_per_second:.0}/s"));
    }
    optional.push(held(&progress.memory));
    optional.push(format!("epoch {epoch}/{epochs}"));
    // A column is left free: a full line would make some terminals begin another.
    let room = width.saturating_sub(1);
    let length = |parts: &[String]| parts.iter().map(|part| part.chars().count() + 2).sum::<usize>();
    for part in optional {
        if BAR[0] + length(&parts) + part.chars().count() + 2 <= room {
            parts.push(part);
        }
    }
    let bar = room.saturating_sub(length(&parts)).min(BAR[1]);
    let eighths = (8 * bar * step).checked_div(steps).unwrap_or(0);
    let mut drawn = "█".repeat(eighths / 8);
    drawn.extend("▏▎▍▌▋▊▉".chars().nth((eighths % 8).wrapping_sub(1)));
    cut_end(&format!("{drawn:<bar$}  {}", parts.join("  ")), room)
}

/// A time as people read it: `1:02:03`, `12:34`, `56 s`.
fn clock(seconds: f64) -> String {
    let seconds = seconds.min(1e9) as u64;
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes}:{seconds:02}"),
        (hours, minutes, seconds) => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

/// The arena, of the budget if there is one.
fn held(memory: &RunMemory) -> String {
    let arena = format_bytes(memory.arena_bytes);
    let Some(budget) = memory.budget_bytes.map(format_bytes) else { return arena };
    match (arena.split_once(' '), budget.split_once(' ')) {
        (Some((number, unit)), Some((_, of))) if unit == of => format!("{number} of {budget}"),
        _ => format!("{arena} of {budget}"),
    }
}

fn describe(progress: &Progress<'_>) -> String {
    let Progress { epoch, epochs, loss, metrics, steps_per_second, samples_per_second, .. } = progress;
    let metrics: String = metrics.iter().map(|(name, value)| format!("  {name} {value:.4}")).collect();
    format!(
        "epoch {epoch}/{epochs}  loss {loss:.4}{metrics}  {steps_per_second:.1} steps/s  {samples_per_second:.0} samples/s"
    )
}

fn in_words(metrics: &[(String, f64)]) -> String {
    metrics.iter().map(|(name, value)| format!("{name} {value:.4}")).collect::<Vec<_>>().join("  ")
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
    let &RunMemory { arena_bytes, host_bytes, budget_bytes, host_budget_bytes, grown_bytes, .. } = memory;
    let mut text = format!("arena {}", format_bytes(arena_bytes));
    if let Some(budget) = budget_bytes {
        text += &format!(" of {} budget", format_bytes(budget));
    }
    if host_bytes > 0 {
        text += &format!(", host {}", format_bytes(host_bytes));
    }
    if let Some(budget) = host_budget_bytes {
        text += &format!(" of {} host budget", format_bytes(budget));
    }
    if let Some(resident) = resident_bytes() {
        text += &format!(", process {}", format_bytes(resident));
    }
    text + &format!(", grown since the first step {}", format_bytes(grown_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_memory::Ledger;

    fn progress(step: usize, metrics: &[(String, f64)]) -> Progress<'_> {
        let (peak, mean) = (Ledger::default(), Ledger::default());
        let memory = RunMemory {
            peak,
            mean,
            arena_bytes: 3 << 20,
            host_bytes: 0,
            budget_bytes: Some(4 << 20),
            host_budget_bytes: None,
            grown_bytes: 0,
        };
        Progress {
            epoch: 2,
            epochs: 15,
            step,
            steps: 675,
            loss: 0.1234,
            metrics,
            steps_per_second: 100.0,
            samples_per_second: 3200.0,
            memory,
        }
    }

    #[test]
    fn the_bar_fits_any_width_and_says_what_matters() {
        let metrics = [("accuracy".to_string(), 0.9712), ("top_five".to_string(), 0.99)];
        for width in 60..260 {
            for step in [0, 1, 300, 674, 675] {
                let line = status(&progress(step, &metrics), width);
                assert!(line.chars().count() < width, "{width}: {line}");
                assert!(line.contains(&format!("{step}/675")) && line.contains("loss 0.1234"), "{line}");
                assert!(line.contains(" left"), "{width}: {line}");
            }
        }
        let wide = status(&progress(675, &metrics), 200);
        for part in ["█", "accuracy 0.971", "3200/s", "3.00 of 4.00 MiB", "epoch 2/15", "0 s left"] {
            assert!(wide.contains(part), "no `{part}` in {wide}");
        }
        assert_eq!(wide.matches('█').count(), 40, "all of it is done: {wide}");
    }

    #[test]
    fn times_are_as_long_as_they_must_be() {
        assert_eq!([5.9, 65.0, 3723.0].map(clock), ["5 s", "1:05", "1:02:03"]);
    }
}
