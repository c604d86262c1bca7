//! A log as lines of JSON, for any text tool.
//!
//! Each line is an object with `event`, `step` (steps done) and `time` (seconds since 1970), and besides:
//!
//! | `event` | further keys |
//! |---|---|
//! | `started` | `steps`, `steps_per_epoch`, `peak_bytes`, `arena_bytes`, `budget_bytes`, `ledger`, `remedies`, `version` |
//! | `step` | `epoch`, `loss`, `metrics`, `steps_per_second`, `samples_per_second`, `arena_bytes`, `process_bytes` |
//! | `validation` | `epoch`, `metrics` |
//! | `saved` | `path`, `bytes`, `best` |
//! | `ended` | `how` (`finished`, `stopped` or `interrupted`) and `why`, `loss`, `metrics`, `steps_per_second`, `arena_bytes` |
//! | `stopped` | `loss`: training failed, and this is where |
//!
//! Not every step need have a line ([`Pace`]). Readers can rely on this: lines are whole, `step` never decreases, and a
//! step has at most one line of the kind `step`. A run that begins anew begins the file anew. One that goes on from a checkpoint first cuts
//! off what is there of later steps, and a last line that is not whole, then adds a `started` of its own.

use super::{Pace, unix_seconds};
use crate::forecast::remedy::Remedy;
use crate::save::io_error;
use crate::{Control, Observer, Progress, Result, Saved, Started, TrainingReport, Validation};
use plimsoll_memory::resident_bytes;
use serde_json::{Value, json};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Writes `log.jsonl` into a folder.
#[derive(Debug)]
pub struct JsonLog {
    path: PathBuf,
    pace: Pace,
    file: Option<File>,
    pending: Vec<u8>,
    flushed: Instant,
    step: usize,
    /// That of the last step, whether it has a line or not.
    loss: f32,
    is_open: bool,
}

/// What comes sooner after the last write waits for the next.
const FLUSH_AFTER: Duration = Duration::from_millis(100);
/// More than this is never held back.
const MOST_PENDING: usize = 16 << 10;
/// Lines are shorter. What is longer is no log of ours.
const LONGEST_LINE: usize = 1 << 20;

impl JsonLog {
    /// The file's name.
    pub const FILE: &'static str = "log.jsonl";

    /// A log in a folder, which must be there when training begins.
    pub fn new(folder: impl Into<PathBuf>) -> JsonLog {
        JsonLog {
            path: folder.into().join(JsonLog::FILE),
            pace: Pace::by_time(),
            file: None,
            pending: Vec::with_capacity(2 * MOST_PENDING),
            flushed: Instant::now(),
            step: 0,
            loss: f32::NAN,
            is_open: false,
        }
    }

    /// Which steps to log.
    pub fn pace(mut self, pace: Pace) -> JsonLog {
        self.pace = pace;
        self
    }

    /// Adds a line with what all have and this.
    fn line(&mut self, event: &str, step: usize, mut about: Value) -> Result<()> {
        about["event"] = event.into();
        about["step"] = step.into();
        about["time"] = unix_seconds().into();
        // Writing to memory does not fail, and texts and numbers are all that there is.
        let _ = serde_json::to_writer(&mut self.pending, &about);
        self.pending.push(b'\n');
        self.step = step;
        self.flush(Instant::now(), true)
    }

    fn flush(&mut self, now: Instant, always: bool) -> Result<()> {
        let is_due =
            now.saturating_duration_since(self.flushed) >= FLUSH_AFTER || self.pending.len() >= MOST_PENDING;
        if let Some(file) = &mut self.file
            && (always || is_due)
        {
            let written = file.write_all(&self.pending);
            self.pending.clear();
            self.flushed = now;
            written.map_err(|error| io_error("cannot write", &self.path, error))?;
        }
        Ok(())
    }

    fn open(&self, step: usize) -> io::Result<File> {
        let fresh = step == 0;
        let mut file =
            File::options().read(true).write(true).create(true).truncate(fresh).open(&self.path)?;
        if !fresh {
            let kept = kept_bytes(&mut BufReader::new(&file), step)?;
            file.set_len(kept)?;
            file.seek(SeekFrom::Start(kept))?;
        }
        Ok(file)
    }
}

/// The bytes of the lines of a log up to a step.
fn kept_bytes(log: &mut impl BufRead, step: usize) -> io::Result<u64> {
    let (mut kept, mut line) = (0, vec![]);
    loop {
        line.clear();
        let read = io::Read::take(&mut *log, LONGEST_LINE as u64).read_until(b'\n', &mut line)?;
        let whole = line.last() == Some(&b'\n');
        let of = serde_json::from_slice::<Value>(&line).ok().and_then(|line| line["step"].as_u64());
        if !whole || of.is_none_or(|of| of > step as u64) {
            return Ok(kept);
        }
        kept += read as u64;
    }
}

/// Writes a number as JSON has it: what is not finite is null.
fn number(out: &mut Vec<u8>, number: f64) {
    // Writing to memory does not fail.
    let _ = serde_json::to_writer(out, &number);
}

impl Observer for JsonLog {
    fn started(&mut self, started: &Started<'_>) -> Result<()> {
        let file = self.open(started.step).map_err(|error| io_error("cannot write", &self.path, error))?;
        (self.file, self.is_open) = (Some(file), true);
        let forecast = started.forecast;
        let about = json!({
            "steps": started.steps,
            "steps_per_epoch": started.steps_per_epoch,
            "peak_bytes": forecast.peak_bytes,
            "arena_bytes": started.memory.arena_bytes,
            "budget_bytes": started.memory.budget_bytes,
            "ledger": forecast.ledger,
            "remedies": forecast.remedies.iter().map(Remedy::to_json).collect::<Vec<_>>(),
            "version": env!("CARGO_PKG_VERSION"),
        });
        self.line("started", started.step, about)
    }

    fn step(&mut self, progress: &Progress<'_>, _: &mut Control) -> Result<()> {
        (self.step, self.loss) = (progress.step, progress.loss);
        if !self.pace.is_due(progress.step, progress.steps) {
            return Ok(());
        }
        let out = &mut self.pending;
        let _ = write!(out, "{{\"event\":\"step\",\"step\":{},\"time\":", progress.step);
        number(out, unix_seconds());
        let _ = write!(out, ",\"epoch\":{},\"loss\":", progress.epoch);
        number(out, f64::from(progress.loss));
        let _ = write!(out, ",\"metrics\":{{");
        for (index, (name, value)) in progress.metrics.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            let _ = serde_json::to_writer(&mut *out, name);
            out.push(b':');
            number(out, *value);
        }
        let _ = write!(out, "}},\"steps_per_second\":");
        number(out, progress.steps_per_second);
        let _ = write!(out, ",\"samples_per_second\":");
        number(out, progress.samples_per_second);
        let _ = write!(out, ",\"arena_bytes\":{}", progress.memory.arena_bytes);
        let now = Instant::now();
        // Asking the system costs as much as all else together, so it is asked when the file is written to.
        if now.saturating_duration_since(self.flushed) >= FLUSH_AFTER
            && let Some(bytes) = resident_bytes()
        {
            let _ = write!(out, ",\"process_bytes\":{bytes}");
        }
        out.extend_from_slice(b"}\n");
        self.flush(now, false)?;
        self.pace.written();
        Ok(())
    }

    fn validated(&mut self, validation: &Validation<'_>, _: &mut Control) -> Result<()> {
        let metrics: Value =
            validation.metrics.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        self.line("validation", validation.step, json!({ "epoch": validation.epoch, "metrics": metrics }))
    }

    fn saved(&mut self, saved: &Saved<'_>) -> Result<()> {
        let about = json!({ "path": saved.path.to_string_lossy(), "bytes": saved.bytes, "best": saved.best });
        self.line("saved", saved.step, about)
    }

    fn ended(&mut self, report: &TrainingReport) -> Result<()> {
        self.is_open = false;
        let ended = report.ended.to_json();
        let about = json!({
            "how": ended["how"],
            "why": ended["why"],
            "loss": self.loss,
            "metrics": report.final_metrics,
            "steps_per_second": report.steps_per_second,
            "arena_bytes": report.arena_bytes,
        });
        self.line("ended", self.step, about)
    }
}

impl Drop for JsonLog {
    fn drop(&mut self) {
        if self.is_open {
            // Training that failed has told why to whoever began it; where the log fails too, nothing can be done.
            let _ = self.line("stopped", self.step, json!({ "loss": self.loss }));
        }
    }
}
