//! Event files, as TensorBoard reads them.
//!
//! | tag | what |
//! |---|---|
//! | `loss`, and each metric by its name | of the batch of a step |
//! | `validation/loss`, `validation/…` | of the held-out data |
//! | `speed/steps_per_second`, `speed/samples_per_second` | since training began, the first step left out |
//! | `memory/arena`, `memory/host`, `memory/process` | bytes of the arena, of host memory for offloading, of the process |
//! | `memory/at_peak/parameters`, … | what the arena's bytes are for when the most of them live, as in the ledger |
//! | `parameters/…` | histograms of parameters, where they were asked for |
//!
//! TensorBoard keeps numbers as `f32`: bytes beyond 16 MiB are rounded to a part in 16 million.

use super::event::{EventWriter, Histogram};
use super::{Pace, unix_seconds};
use crate::save::io_error;
use crate::{
    Control, Observer, Parameters, Progress, Result, RunMemory, Started, TrainingReport, Validation,
};
use plimsoll_memory::resident_bytes;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Writes an event file into a folder, for TensorBoard: `tensorboard --logdir FOLDER`.
///
/// A run that begins anew removes the event files that an earlier one has left in the folder. One that goes on from a
/// checkpoint adds a file, which tells readers to drop what they have of steps after that.
#[derive(Debug)]
pub struct TensorBoard {
    folder: PathBuf,
    pace: Pace,
    histograms: Option<usize>,
    histogram: Histogram,
    writer: EventWriter,
    file: Option<(File, PathBuf)>,
    flushed: Instant,
    /// When memory was last told, and what the arena was then.
    memory_told: Option<(Instant, u64)>,
    last_step: u64,
    /// The loss of the last step, if that has not been logged.
    last_loss: Option<f32>,
}

/// What names of our files end with, by which they are known.
const SUFFIX: &str = ".plimsoll";
/// What comes sooner after the last write waits for the next.
const FLUSH_AFTER: Duration = Duration::from_millis(100);
/// Memory changes rarely: it is told when it does, and now and then.
const MEMORY_AFTER: Duration = Duration::from_secs(10);
/// More than this is never held back.
const MOST_PENDING: usize = 16 << 10;

impl TensorBoard {
    /// A log in a folder, which must be there when training begins.
    pub fn new(folder: impl Into<PathBuf>) -> TensorBoard {
        TensorBoard {
            folder: folder.into(),
            pace: Pace::by_time(),
            histograms: None,
            histogram: Histogram::new(),
            writer: EventWriter::new(MOST_PENDING),
            file: None,
            flushed: Instant::now(),
            memory_told: None,
            last_step: 0,
            last_loss: None,
        }
    }

    /// Which steps to log.
    pub fn pace(mut self, pace: Pace) -> TensorBoard {
        self.pace = pace;
        self
    }

    /// Adds histograms of all parameters every so many steps.
    pub fn histograms(mut self, every: usize) -> TensorBoard {
        self.histograms = Some(every.max(1));
        self
    }

    fn memory(&mut self, memory: &RunMemory, now: Instant, always: bool) {
        let is_old = |&(told, arena): &(Instant, u64)| {
            now.saturating_duration_since(told) >= MEMORY_AFTER || arena != memory.arena_bytes
        };
        if !always && !self.memory_told.as_ref().is_none_or(is_old) {
            return;
        }
        self.memory_told = Some((now, memory.arena_bytes));
        let writer = &mut self.writer;
        writer.scalar("memory/", "arena", memory.arena_bytes as f64);
        if memory.host_bytes > 0 {
            writer.scalar("memory/", "host", memory.host_bytes as f64);
        }
        if let Some(bytes) = resident_bytes() {
            writer.scalar("memory/", "process", bytes as f64);
        }
        for (category, bytes) in memory.peak.lines().filter(|&(_, bytes)| bytes > 0) {
            writer.scalar("memory/at_peak/", category.name(), bytes as f64);
        }
    }

    /// Adds the loss of the last step, if training ended where none was due.
    fn last_step_in_any_case(&mut self) {
        if let Some(loss) = self.last_loss.take() {
            self.writer.scalar("", "loss", f64::from(loss));
            self.writer.summary(unix_seconds(), self.last_step);
        }
    }

    /// Writes what is pending to the file, if that is due.
    fn flush(&mut self, now: Instant, always: bool) -> Result<()> {
        let is_due = now.saturating_duration_since(self.flushed) >= FLUSH_AFTER
            || self.writer.pending.len() >= MOST_PENDING;
        if let Some((file, path)) = &mut self.file
            && (always || is_due)
        {
            let written = file.write_all(&self.writer.pending);
            self.writer.pending.clear();
            self.flushed = now;
            written.map_err(|error| io_error("cannot write", path, error))?;
        }
        Ok(())
    }
}

impl Observer for TensorBoard {
    fn started(&mut self, started: &Started<'_>) -> Result<()> {
        if started.step == 0 {
            remove_event_files(&self.folder)?;
        }
        let (time, step) = (unix_seconds(), started.step as u64);
        let name =
            format!("events.out.tfevents.{:010}.{}.{}{SUFFIX}", time as u64, host_name(), std::process::id());
        let path = self.folder.join(name);
        let file = File::options().append(true).create(true).open(&path);
        self.file = Some((file.map_err(|error| io_error("cannot write", &path, error))?, path));
        self.writer.version(time);
        if step > 0 {
            self.writer.restart(time, step + 1);
        }
        self.last_step = step;
        self.flush(Instant::now(), true)
    }

    fn step(&mut self, progress: &Progress<'_>, control: &mut Control) -> Result<()> {
        self.last_step = progress.step as u64;
        if self.histograms.is_some_and(|every| progress.step.is_multiple_of(every)) {
            control.show_parameters();
        }
        self.last_loss = Some(progress.loss);
        if !self.pace.is_due(progress.step, progress.steps) {
            return Ok(());
        }
        self.last_loss = None;
        let now = Instant::now();
        self.writer.scalar("", "loss", f64::from(progress.loss));
        for (name, value) in progress.metrics {
            self.writer.scalar("", name, *value);
        }
        // Of the first step alone there is no speed.
        if progress.steps_per_second > 0.0 {
            self.writer.scalar("speed/", "steps_per_second", progress.steps_per_second);
            self.writer.scalar("speed/", "samples_per_second", progress.samples_per_second);
        }
        self.memory(&progress.memory, now, progress.step == progress.steps);
        self.writer.summary(unix_seconds(), progress.step as u64);
        self.flush(now, false)?;
        self.pace.written();
        Ok(())
    }

    fn parameters(&mut self, parameters: &mut Parameters<'_>) -> Result<()> {
        if !self.histograms.is_some_and(|every| parameters.step.is_multiple_of(every)) {
            return Ok(());
        }
        let TensorBoard { histogram, writer, .. } = self;
        histogram.clear();
        let mut of = String::new();
        parameters.show(&mut |name, numbers| {
            if of != name {
                if !histogram.is_empty() {
                    writer.histogram("parameters/", &of, histogram);
                }
                histogram.clear();
                of.replace_range(.., name);
            }
            histogram.add(numbers);
            Ok(())
        })?;
        if !histogram.is_empty() {
            writer.histogram("parameters/", &of, histogram);
        }
        writer.summary(unix_seconds(), parameters.step as u64);
        self.flush(Instant::now(), false)
    }

    fn validated(&mut self, validation: &Validation<'_>, _: &mut Control) -> Result<()> {
        for (name, value) in validation.metrics {
            self.writer.scalar("validation/", name, *value);
        }
        self.writer.summary(unix_seconds(), validation.step as u64);
        self.flush(Instant::now(), true)
    }

    fn ended(&mut self, report: &TrainingReport) -> Result<()> {
        self.last_step_in_any_case();
        for (name, value) in &report.final_metrics {
            self.writer.scalar("final/", name, *value);
        }
        self.writer.summary(unix_seconds(), self.last_step);
        self.flush(Instant::now(), true)
    }
}

impl Drop for TensorBoard {
    fn drop(&mut self) {
        // Training that failed has its last steps in the log all the same.
        self.last_step_in_any_case();
        let _ = self.flush(Instant::now(), true);
    }
}

/// Removes the event files of an earlier run of ours.
fn remove_event_files(folder: &Path) -> Result<()> {
    let failed = |error| io_error("cannot look for event files of an earlier run in", folder, error);
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with("events.out.tfevents.") && name.ends_with(SUFFIX) {
            let path = entry.path();
            fs::remove_file(&path).map_err(|error| io_error("cannot remove", &path, error))?;
        }
    }
    Ok(())
}

/// The name of this machine, as a part of the name of a file.
fn host_name() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name: String = name
        .trim()
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
        .take(64)
        .collect();
    if name.is_empty() { "localhost".into() } else { name }
}
