//! Measuring the time of a step, and the memory that it takes in the end.

use crate::trainer::Trainer;
use crate::{Error, ErrorKind, HostUse, PredictedVsActual, Result};
use plimsoll_data::{Dataset, Field, Promise, Source};
use plimsoll_device::Books;
use plimsoll_memory::{format_bytes, peak_resident_bytes, resident_bytes};
use serde_json::{Value, json};
use std::fmt;
use std::time::Instant;

/// Steps that are run and not counted, so that caches and clocks have settled.
const WARM_UP: usize = 3;
/// Batches that are measured on, in turns.
const BATCHES: usize = 2;

/// The time of a training step, and what it takes.
#[derive(Debug, Clone)]
pub struct BenchReport {
    /// The median time of a step, in seconds, filling its inputs and all its micro-batches included.
    pub median_seconds: f64,
    /// The times below which a tenth and nine tenths of all steps were.
    pub spread_seconds: [f64; 2],
    /// What the device's profile says that a step takes, in seconds.
    pub predicted_seconds: f64,
    /// From data and a model to being ready to run: checking the data, tracing, planning, reserving the arena,
    /// loading, first weights.
    pub ready_seconds: f64,
    /// From data and a model to the end of the first step: being ready, and one step on memory never used before.
    pub first_step_seconds: f64,
    /// The time of all steps together, compiling new shapes included.
    pub total_seconds: f64,
    /// Steps that were measured.
    pub steps: usize,
    /// The bytes of the arena.
    pub arena_bytes: u64,
    /// The most memory that the process ever had, over what it had when measuring began, with the data there: the arena,
    /// plans, the device's threads and all else. `None` where the system does not tell.
    pub peak_rss_over_start_bytes: Option<u64>,
    /// The threads it ran on; those that prepare inputs, where the device is not the CPU.
    pub threads: usize,
    /// What the device's bytes are taken by at the end, where a driver counts them.
    pub books: Option<Books>,
    /// What was foretold of them, and what they are.
    pub device_use: Option<PredictedVsActual>,
    /// What is pinned of the host's memory, where the device is a GPU.
    pub host_use: Option<HostUse>,
    /// How often memory was reserved after the first step.
    pub allocations_after_first_step: u64,
    /// By how many bytes more of the device were taken at the end than after the warm-up, where a driver counts them.
    pub device_grown_bytes: Option<i64>,
}

impl Trainer {
    /// Runs training steps and measures them.
    ///
    /// # Errors
    /// As [`Trainer::fit`].
    pub fn bench(&self, data: &Dataset, steps: usize) -> Result<BenchReport> {
        if steps == 0 {
            return Err(Error::new(ErrorKind::Argument, "nothing is measured in 0 steps; use at least 1"));
        }
        let batch = self.batch.min(data.samples());
        let data = &hold(data, BATCHES * batch)?;
        let start_rss = resident_bytes();
        let begin = Instant::now();
        let trainer = self.clone().steps(WARM_UP + steps);
        let mut runner = trainer.compile(data, None)?;
        runner.must_fit()?;
        runner.open()?;
        let forecast = runner.forecast();
        let ready_seconds = begin.elapsed().as_secs_f64();
        let batches = data.batches(batch)?;
        let full = |epoch| batches.epoch(epoch).filter(|b| b.samples() == batch.min(data.samples()));
        let mut times = Vec::with_capacity(steps);
        let (mut first, mut reservations, mut total) = (0.0, 0, Instant::now());
        let (mut last, mut warm) = (total, None);
        for (number, batch) in (0..).flat_map(full).take(WARM_UP + steps).enumerate() {
            if number == WARM_UP {
                runner.finish()?;
                warm = runner.run().books();
                (total, last) = (Instant::now(), Instant::now());
            }
            runner.train(&batch, number)?;
            while runner.run().ended().is_some() {}
            if number == 0 {
                runner.finish()?;
                first = begin.elapsed().as_secs_f64();
                reservations = runner.run().reservations();
            }
            if number >= WARM_UP {
                // Where a step goes on beside the host, the one before has ended when the call returns.
                let now = Instant::now();
                times.push((now - last).as_secs_f64());
                last = now;
            }
        }
        runner.finish()?;
        let total_seconds = total.elapsed().as_secs_f64();
        let books = runner.run().books();
        times.sort_by(f64::total_cmp);
        let at = |part: f64| times[((times.len() - 1) as f64 * part).round() as usize];
        Ok(BenchReport {
            median_seconds: at(0.5),
            spread_seconds: [at(0.1), at(0.9)],
            predicted_seconds: forecast.step_seconds,
            ready_seconds,
            first_step_seconds: first,
            total_seconds,
            steps,
            arena_bytes: runner.run().reserved_bytes().unwrap_or(0),
            peak_rss_over_start_bytes: peak_resident_bytes()
                .zip(start_rss)
                .map(|(peak, start)| peak.saturating_sub(start)),
            threads: runner.threads(),
            device_grown_bytes: books
                .zip(warm)
                .map(|(end, warm)| end.used_bytes as i64 - warm.used_bytes as i64),
            device_use: PredictedVsActual::of(forecast.device_use, books),
            books,
            host_use: forecast.host_use,
            allocations_after_first_step: runner.run().reservations() - reservations,
        })
    }
}

/// A data set whose samples are the first `held` of another, over and over, in memory: making or reading them is not
/// training's time.
pub(crate) fn hold(data: &Dataset, held: usize) -> Result<Dataset> {
    let (samples, held) = (data.samples(), held.min(data.samples()));
    let mut values: Vec<Vec<u8>> =
        data.fields().iter().map(|field| Vec::with_capacity(field.bytes() * held)).collect();
    let mut records = data.records(0)?;
    for _ in 0..held {
        let Some(record) = records.read()? else { break };
        for (index, of_field) in values.iter_mut().enumerate() {
            of_field.extend_from_slice(record.bytes(index));
        }
    }
    let (fields, resident) = (data.fields().to_vec(), data.resident_bytes());
    let promise = |field| data.source().map_or(Promise::Nothing, |source| source.promise(field));
    let promises = (0..fields.len()).map(promise).collect();
    Ok(Dataset::new(Held { fields, promises, samples, held, values, resident })?)
}

/// Samples in memory.
struct Held {
    fields: Vec<Field>,
    /// Those of the set that this stands for: it is looked at before training as that would be.
    promises: Vec<Promise>,
    samples: usize,
    held: usize,
    values: Vec<Vec<u8>>,
    /// What the set takes that this stands for.
    resident: u64,
}

impl Source for Held {
    fn samples(&self) -> usize {
        self.samples
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn read(&self, sample: usize, field: usize, out: &mut [u8]) -> plimsoll_data::Result<()> {
        let bytes = self.locate(sample, field, out)?.bytes();
        out.copy_from_slice(&self.values[field][sample % self.held.max(1) * bytes..][..bytes]);
        Ok(())
    }

    fn resident_bytes(&self) -> u64 {
        self.resident
    }

    fn promise(&self, field: usize) -> Promise {
        self.promises.get(field).copied().unwrap_or(Promise::Nothing)
    }
}

impl BenchReport {
    /// The report as data.
    pub fn to_json(&self) -> Value {
        json!({
            "median_seconds": self.median_seconds,
            "predicted_seconds": self.predicted_seconds,
            "spread_seconds": self.spread_seconds,
            "ready_seconds": self.ready_seconds,
            "first_step_seconds": self.first_step_seconds,
            "total_seconds": self.total_seconds,
            "steps": self.steps,
            "arena_bytes": self.arena_bytes,
            "peak_rss_over_start_bytes": self.peak_rss_over_start_bytes,
            "threads": self.threads,
            "allocations_after_first_step": self.allocations_after_first_step,
            "device_grown_bytes": self.device_grown_bytes,
            "host_use_bytes": self.host_use.map(|of| of.bytes()),
            "host_use": self.host_use.map(|of| of.to_json()),
            "predicted_device_bytes": self.device_use.map(|of| of.predicted_bytes),
            "device_difference_percent": self.device_use.map(|of| of.difference_percent()),
            "device": self.books.map(|books| json!({
                "total_bytes": books.total_bytes,
                "used_bytes": books.used_bytes,
                "at_open_bytes": books.at_open_bytes,
                "mapped_bytes": books.mapped_bytes,
                "rest_bytes": books.rest_bytes,
            })),
        })
    }
}

impl fmt::Display for BenchReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "step        {:.3} ms (a tenth below {:.3}, a tenth above {:.3}; {} steps, {} threads)",
            1e3 * self.median_seconds,
            1e3 * self.spread_seconds[0],
            1e3 * self.spread_seconds[1],
            self.steps,
            self.threads
        )?;
        writeln!(
            f,
            "predicted   {:.3} ms a step by the device's profile ({:+.0} %)",
            1e3 * self.predicted_seconds,
            100.0 * (self.predicted_seconds / self.median_seconds.max(1e-12) - 1.0)
        )?;
        writeln!(f, "ready       {:.3} s after the start", self.ready_seconds)?;
        writeln!(f, "first step  done {:.3} s after the start", self.first_step_seconds)?;
        writeln!(f, "in all      {:.3} s, compiling what was new included", self.total_seconds)?;
        writeln!(f, "arena       {}", format_bytes(self.arena_bytes))?;
        if let Some(books) = &self.books {
            writeln!(
                f,
                "device      {} used: {} when it was opened, {} mapped, {} for code and libraries",
                format_bytes(books.used_bytes),
                format_bytes(books.at_open_bytes),
                format_bytes(books.mapped_bytes),
                format_bytes(books.rest_bytes.max(0) as u64),
            )?;
        }
        if let Some(foretold) = &self.device_use {
            writeln!(f, "foretold    {foretold}")?;
        }
        if let Some(host) = &self.host_use {
            writeln!(f, "host        {host}")?;
        }
        match self.peak_rss_over_start_bytes {
            Some(bytes) => writeln!(f, "process     {} at its peak, over the start", format_bytes(bytes)),
            None => Ok(()),
        }
    }
}
