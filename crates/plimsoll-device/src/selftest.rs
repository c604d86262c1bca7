//! What a device is relied on for beside its kernels, tried where it runs.
//!
//! Most machines that build this have no GPU, and the one it runs on has a driver nobody tested it with. So the checks
//! are part of the program: a person runs them where it matters, and each says what it saw in numbers. Those of pools are
//! the same for all memory; a device adds those of its own.

mod memory;
mod pool;

pub use memory::{Host, TestedMemory, ensure_pattern, pattern};
pub use pool::{pools, pools_of_all_memory};

use crate::SelfTest;
use plimsoll_memory::format_bytes;
use std::fmt;
use std::time::Instant;

/// Why a check failed.
#[derive(Debug)]
pub struct Failure(pub String);

/// What a check saw, or why it failed.
pub type Outcome = Result<String, Failure>;

impl<E: fmt::Display> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure(error.to_string())
    }
}

/// Runs one check and notes what came of it.
pub fn check(checks: &mut Vec<SelfTest>, name: &'static str, work: impl FnOnce() -> Outcome) {
    let start = Instant::now();
    let outcome = work();
    let (passed, detail) = match outcome {
        Ok(detail) => (true, detail),
        Err(Failure(detail)) => (false, detail),
    };
    // Errors that have several lines are one here.
    let detail = detail.lines().map(str::trim).collect::<Vec<_>>().join("; ");
    checks.push(SelfTest { name, passed, detail, seconds: start.elapsed().as_secs_f64() });
}

/// A failure with this text, unless `holds`.
///
/// # Errors
/// That one.
pub fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), Failure> {
    if holds { Ok(()) } else { Err(Failure(otherwise())) }
}

/// A failure unless two amounts agree within a margin.
///
/// # Errors
/// If they do not: with both, and how far they are apart.
pub fn ensure_near(what: &str, found: u64, expected: u64, margin: u64) -> Result<(), Failure> {
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
