//! What each stage of a pipeline does and takes: records, time, memory. Whoever waits for data asks here which stage is
//! the slow one.

use super::Account;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// One record of so many is timed: looking at a clock takes as long as reading a small one.
const TIMED: u64 = 8;

/// What the stages of a pipeline report to while it runs.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    stages: Mutex<Vec<Arc<StageMeter>>>,
}

/// What one stage reports.
#[derive(Debug)]
pub(crate) struct StageMeter {
    name: String,
    records: AtomicU64,
    /// The nanoseconds of work on records that were timed, on all threads.
    nanoseconds: AtomicU64,
    timed: AtomicU64,
    threads: AtomicU64,
    depth: AtomicU64,
    held_bytes: AtomicU64,
    skipped: AtomicU64,
}

impl Meter {
    /// Adds a stage; upstream ones come first.
    pub(crate) fn stage(&self, name: impl Into<String>) -> Arc<StageMeter> {
        let stage = Arc::new(StageMeter {
            name: name.into(),
            records: AtomicU64::new(0),
            nanoseconds: AtomicU64::new(0),
            timed: AtomicU64::new(0),
            threads: AtomicU64::new(1),
            depth: AtomicU64::new(0),
            held_bytes: AtomicU64::new(0),
            skipped: AtomicU64::new(0),
        });
        self.stages.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&stage));
        stage
    }

    pub(crate) fn report(&self, account: &Account) -> PipelineReport {
        let stages = self.stages.lock().unwrap_or_else(PoisonError::into_inner);
        let stages = stages.iter().map(|stage| stage.report()).collect();
        PipelineReport { stages, most_bytes: account.most_bytes() }
    }
}

impl StageMeter {
    /// Does the work of the stage itself on one record; some are timed.
    pub(crate) fn work<T>(&self, work: impl FnOnce() -> T) -> T {
        let number = self.records.fetch_add(1, Ordering::Relaxed);
        if !number.is_multiple_of(TIMED) {
            return work();
        }
        let start = Instant::now();
        let made = work();
        let nanoseconds = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
        self.timed.fetch_add(1, Ordering::Relaxed);
        made
    }

    /// Does the work of the stage itself on several records at once.
    pub(crate) fn work_on<T>(&self, records: u64, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let made = work();
        let nanoseconds = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.records.fetch_add(records, Ordering::Relaxed);
        self.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
        self.timed.fetch_add(records, Ordering::Relaxed);
        made
    }

    /// Says how many threads work in the stage, and how many records it keeps ready.
    pub(crate) fn works_with(&self, threads: u64, depth: u64) {
        self.threads.store(threads, Ordering::Relaxed);
        self.depth.store(depth, Ordering::Relaxed);
    }

    /// Says what the stage holds.
    pub(crate) fn holds(&self, bytes: u64) {
        self.held_bytes.fetch_max(bytes, Ordering::Relaxed);
    }

    /// Says that a record was left out.
    pub(crate) fn skips(&self) {
        self.skipped.fetch_add(1, Ordering::Relaxed);
    }

    fn report(&self) -> StageReport {
        let load = |value: &AtomicU64| value.load(Ordering::Relaxed);
        let (records, timed) = (load(&self.records), load(&self.timed));
        let seconds = load(&self.nanoseconds) as f64 * 1e-9 * records as f64 / timed.max(1) as f64;
        let (threads, depth, held_bytes) = (load(&self.threads), load(&self.depth), load(&self.held_bytes));
        let skipped = load(&self.skipped);
        StageReport { name: self.name.clone(), records, seconds, threads, depth, held_bytes, skipped }
    }
}

/// What a pipeline did in an epoch.
#[derive(Clone, Debug, PartialEq)]
pub struct PipelineReport {
    /// The stages, from the sources on.
    pub stages: Vec<StageReport>,
    /// The most bytes of RAM that the stages held together.
    pub most_bytes: u64,
}

/// What a stage did in an epoch.
#[derive(Clone, Debug, PartialEq)]
pub struct StageReport {
    /// What it is, with its options.
    pub name: String,
    /// The records that it made.
    pub records: u64,
    /// The seconds of work that it took for them, of all its threads together; estimated from some of the records.
    pub seconds: f64,
    /// How many threads worked on them.
    pub threads: u64,
    /// How many records it kept ready, at most; 0 for a stage that makes them when it is asked.
    pub depth: u64,
    /// The most bytes that it held.
    pub held_bytes: u64,
    /// The records that could not be made and were left out, as was asked for.
    pub skipped: u64,
}

impl PipelineReport {
    /// The stage that bounds how fast records come: the one with the most seconds to each of its threads.
    pub fn slowest(&self) -> Option<&StageReport> {
        let each = |stage: &StageReport| stage.seconds / stage.threads.max(1) as f64;
        self.stages.iter().max_by(|a, b| each(a).total_cmp(&each(b)))
    }
}

impl fmt::Display for PipelineReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for stage in &self.stages {
            write!(f, "{}: {} records, {:.3} s", stage.name, stage.records, stage.seconds)?;
            if stage.threads > 1 {
                write!(f, " on {} threads", stage.threads)?;
            }
            if stage.depth > 0 {
                write!(f, ", {} ready", stage.depth)?;
            }
            if stage.held_bytes > 0 {
                write!(f, ", {} bytes held", stage.held_bytes)?;
            }
            if stage.skipped > 0 {
                write!(f, ", {} left out", stage.skipped)?;
            }
            writeln!(f)?;
        }
        write!(f, "at most {} bytes held", self.most_bytes)
    }
}
