//! What a device's memory is relied on for, tried on the device at hand.
//!
//! Most machines that build this have no GPU, and the one it runs on has a driver nobody tested it with. So the
//! checks are part of the program: a person runs them where it matters, and each says what it saw in numbers.

mod pages;

use crate::device::CudaDevice;
use crate::error::{Error, ErrorKind};
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

/// Numbers that look random and are the same for the same seed.
#[derive(Debug, Clone)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// Bytes that are different for every seed.
fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    let mut random = Random(seed);
    let mut pattern = Vec::with_capacity(bytes + 8);
    while pattern.len() < bytes {
        pattern.extend_from_slice(&random.next().to_le_bytes());
    }
    pattern.truncate(bytes);
    pattern
}

/// Writes the pattern of a seed.
fn write_pattern(device: &CudaDevice, address: u64, bytes: usize, seed: u64) -> Result<(), Error> {
    device.write(address, &pattern(seed, bytes))
}

/// A failure unless the bytes are still the pattern of the seed.
fn verify_pattern(device: &CudaDevice, address: u64, bytes: usize, seed: u64) -> Result<(), Error> {
    let (expected, mut found) = (pattern(seed, bytes), vec![0; bytes]);
    device.read(address, &mut found)?;
    match expected.iter().zip(&found).position(|(a, b)| a != b) {
        None => Ok(()),
        Some(at) => {
            let message = format!(
                "the byte at {:#x}, {at} of {bytes} from {address:#x}, is {:#04x} and was written as {:#04x}",
                address + at as u64,
                found[at],
                expected[at]
            );
            Err(Error::new(ErrorKind::Driver, message))
        }
    }
}
