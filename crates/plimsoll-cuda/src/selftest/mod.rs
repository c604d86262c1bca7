//! What a device's memory is relied on for, tried on the device at hand.
//!
//! Most machines that build this have no GPU, and the one it runs on has a driver nobody tested it with. So the
//! checks are part of the program: a person runs them where it matters, and each says what it saw in numbers.

mod eager;
mod memory;
mod pages;
mod pool;

use crate::driver::device::CudaDevice;
use memory::{Host, verify_pattern, write_pattern};
use plimsoll_memory::format_bytes;
use std::fmt;
use std::time::Instant;

/// One thing that was tried.
#[derive(Debug, Clone, PartialEq)]
pub struct Check {
    /// What should hold.
    pub name: &'static str,
    /// Whether it did.
    pub passed: bool,
    /// What was seen, or why it failed.
    pub detail: String,
    /// How long it took.
    pub seconds: f64,
}

/// Tries everything that the device's memory is relied on for. It fills the device for a moment, so nothing else
/// should be using it; a check that fails does not keep the others from running.
pub fn selftest(device: &CudaDevice) -> Vec<Check> {
    let mut checks = Vec::new();
    pages::run(device, &mut checks);
    pool::run(device, &mut checks);
    pool::run_to_the_end(device, &mut checks);
    eager::run(device, &mut checks);
    checks
}

/// Tries on the host's memory what [`selftest`] tries of pools on a device's.
pub fn selftest_host() -> Vec<Check> {
    let mut checks = Vec::new();
    pool::run(&Host, &mut checks);
    checks
}

/// Why a check failed.
#[derive(Debug)]
struct Failure(String);

/// What a check saw, or why it failed.
type Outcome = Result<String, Failure>;

impl<E: fmt::Display> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure(error.to_string())
    }
}

/// Runs one check and notes what came of it.
fn check(checks: &mut Vec<Check>, name: &'static str, work: impl FnOnce() -> Outcome) {
    let start = Instant::now();
    let outcome = work();
    let (passed, detail) = match outcome {
        Ok(detail) => (true, detail),
        Err(Failure(detail)) => (false, detail),
    };
    // Errors that have several lines are one here.
    let detail = detail.lines().map(str::trim).collect::<Vec<_>>().join("; ");
    checks.push(Check { name, passed, detail, seconds: start.elapsed().as_secs_f64() });
}

/// A failure with this text, unless `holds`.
fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), Failure> {
    if holds { Ok(()) } else { Err(Failure(otherwise())) }
}

/// A failure unless two amounts agree within a margin.
fn ensure_near(what: &str, found: u64, expected: u64, margin: u64) -> Result<(), Failure> {
    ensure(found.abs_diff(expected) <= margin, || {
        format!(
            "{what}: {found} bytes ({}), not {expected} ({}); they differ by {}, and {} would be fine",
            format_bytes(found),
            format_bytes(expected),
            format_bytes(found.abs_diff(expected)),
            format_bytes(margin)
        )
    })
}

/// A failure unless the result is an error of one of these kinds; its text if it is.
fn ensure_refused<T>(
    what: &str,
    result: plimsoll_memory::Result<T>,
    kinds: &[plimsoll_memory::ErrorKind],
) -> Result<String, Failure> {
    match result {
        Ok(_) => Err(Failure(format!("{what} was not refused"))),
        Err(error) if kinds.contains(&error.kind()) => Ok(error.to_string()),
        Err(error) => Err(Failure(format!("{what} was refused as {:?}: {error}", error.kind()))),
    }
}
