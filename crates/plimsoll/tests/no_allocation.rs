//! The prediction is the truth, and after the first step nothing is allocated.
//!
//! Allocations are counted in the whole process, whichever thread makes them. The usual harness has threads of its own
//! that allocate whenever the system lets them: when a test ends, when one begins, when one has run for a minute. So
//! there is none here: these tests run one after another in `main`, and what is counted is theirs.

#![allow(clippy::print_stdout)]

use plimsoll::logs::{JsonLog, Pace, RunPage, TensorBoard};
use plimsoll::spec::Spec;
use plimsoll::{Observers, Progress, Trainer};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counts allocations of the whole process.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: the caller's contract is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract is the same.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: the caller's contract is the same.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: the caller's contract is the same.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Trains a workload and returns the host allocations between the end of the first step and that of the last.
fn allocations_after_first_step(name: &str, batch: Option<usize>, steps: usize) -> u64 {
    allocations_in_parts(name, batch, 1, steps)
}

/// [`allocations_after_first_step`] with each step run as micro-batches.
fn allocations_in_parts(name: &str, batch: Option<usize>, parts: usize, steps: usize) -> u64 {
    allocations(name, batch, steps, |trainer| trainer.micro_batches(parts))
}

/// [`allocations_after_first_step`] with a trainer that is set up further.
fn allocations(name: &str, batch: Option<usize>, steps: usize, set: impl Fn(Trainer) -> Trainer) -> u64 {
    let spec = Spec::find(name).unwrap().steps(steps);
    let spec = if let Some(batch) = batch { spec.batch(batch) } else { spec };
    let (data, _) = spec.datasets().unwrap();
    let trainer = set(spec.trainer());
    let forecast = trainer.forecast(&data, None).unwrap();
    let (mut first, mut last) = (0, 0);
    let trained = trainer
        .fit(&data, None, &mut |progress: &Progress<'_>| {
            last = ALLOCATIONS.load(Relaxed);
            if progress.step == 1 {
                first = last;
            }
        })
        .unwrap();
    let report = &trained.report;
    assert_eq!(report.losses.len(), steps, "{name}");
    assert_eq!(report.predicted_peak_bytes, forecast.peak_bytes, "{name}");
    assert_eq!(report.arena_bytes, report.predicted_peak_bytes, "{name}");
    assert_eq!(report.allocations_after_first_step, 0, "{name}");
    assert_eq!(report.ledger.total(), report.arena_bytes, "{name}");
    last - first
}

fn digits_trains_a_thousand_steps_without_an_allocation() {
    assert_eq!(allocations_after_first_step("digits", None, 1000), 0);
}

fn a_small_mlp_trains_a_thousand_steps_without_an_allocation() {
    assert_eq!(allocations_after_first_step("mlp-small", None, 1000), 0);
}

fn larger_workloads_train_without_an_allocation() {
    for name in ["mlp-wide", "cnn-small", "gpt-small"] {
        assert_eq!(allocations_after_first_step(name, Some(8), 6), 0, "{name}");
    }
}

fn micro_batches_train_without_an_allocation() {
    // An epoch of digits is 45 steps, the last of them partial.
    assert_eq!(allocations_in_parts("digits", None, 5, 100), 0);
    assert_eq!(allocations_in_parts("gpt-small", Some(8), 3, 6), 0);
}

fn lengths_in_buckets_are_all_loaded_before_the_first_step() {
    let bucketed = |trainer: Trainer| trainer.buckets(64);
    assert_eq!(allocations("gpt-varlen", Some(4), 12, bucketed), 0);
}

/// A new length is a new plan on the host, but never new memory for the model: the arena is that of the
/// largest length.
fn variable_lengths_share_the_arena_of_the_largest() {
    for name in ["gpt-varlen", "lstm-seq"] {
        allocations_after_first_step(name, Some(4), 12);
    }
}

/// Every step is written to all logs, and each write to a file happens when it is due.
fn logs_of_every_step_allocate_nothing_once_they_are_warm() {
    let folder = tempfile::tempdir().unwrap();
    let spec = Spec::find("digits").unwrap().steps(3000);
    let (data, _) = spec.datasets().unwrap();
    let mut training = spec.trainer().compile(&data, None).unwrap();
    let (mut warm, mut last) = (0, 0);
    let mut observers = Observers::new()
        .with(TensorBoard::new(folder.path()).pace(Pace::every(1)))
        .with(JsonLog::new(folder.path()).pace(Pace::every(1)))
        .with(RunPage::new("digits", &[], &training.plan_picture()).save_to(folder.path()))
        .with(|progress: &Progress<'_>| {
            last = ALLOCATIONS.load(Relaxed);
            if progress.step == 1500 {
                warm = last;
            }
        });
    training.fit(&mut observers).unwrap();
    drop(observers);
    assert!(warm > 0);
    assert_eq!(last - warm, 0);
}

/// Runs the tests whose names contain one of the arguments; all of them if there is none.
fn main() {
    macro_rules! tests {
        ($($name:ident),* $(,)?) => { [$((stringify!($name), $name as fn())),*] };
    }
    let tests = tests![
        digits_trains_a_thousand_steps_without_an_allocation,
        a_small_mlp_trains_a_thousand_steps_without_an_allocation,
        larger_workloads_train_without_an_allocation,
        micro_batches_train_without_an_allocation,
        lengths_in_buckets_are_all_loaded_before_the_first_step,
        variable_lengths_share_the_arena_of_the_largest,
        logs_of_every_step_allocate_nothing_once_they_are_warm,
    ];
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    for (name, test) in tests {
        if wanted.is_empty() || wanted.iter().any(|part| name.contains(part.as_str())) {
            test();
            println!("test {name} ... ok");
        }
    }
}
