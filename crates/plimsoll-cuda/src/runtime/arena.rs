//! The device's arena: one range of addresses that every buffer of a plan lives in.
//!
//! Addresses are reserved for as much as the device has and memory is mapped behind the first of them, in as few
//! pieces as possible: mapping costs by the piece, not by the byte. So an arena grows where it is, and what was bound
//! to its addresses stays bound.

use crate::driver::device::{self, Shared};
use crate::driver::functions::Driver;
use crate::driver::source;
use crate::error::{Error, ErrorKind, Result};
use cudarc::driver::sys::CUdeviceptr;
use plimsoll_memory::format_bytes;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Memory of a device behind one range of addresses; given back when dropped.
pub(crate) struct Arena {
    shared: Arc<Shared>,
    start: CUdeviceptr,
    /// The addresses that are reserved.
    reserved: usize,
    /// The pieces that are mapped, one after another: the bytes of each.
    pieces: Vec<usize>,
    /// What was asked for: the last piece may be longer.
    bytes: u64,
    granularity: u64,
}

impl Arena {
    /// Reserves addresses for all of the device, and maps `bytes`.
    ///
    /// # Errors
    /// If the device has no such memory to give.
    pub(crate) fn new(shared: &Arc<Shared>, bytes: u64) -> Result<Arena> {
        let granularity = device::granularity(shared.driver, shared.id, shared.device)?;
        let total = device::total_bytes(shared.driver, shared.id, shared.device)?;
        if bytes > total {
            return Err(full(shared, bytes, "the device never had so many"));
        }
        let reserved = total.next_multiple_of(granularity) as usize;
        let start = shared.with_context(|driver| {
            let mut start = 0;
            // SAFETY: the pointer is to a live address, and the size is a multiple of the granularity.
            let code = unsafe { (driver.functions.mem_address_reserve)(&mut start, reserved, 0, 0, 0) };
            driver.check(code, || format!("reserve addresses for an arena on {}", shared.id))?;
            Ok(start)
        })?;
        let mut arena =
            Arena { shared: shared.clone(), start, reserved, pieces: Vec::new(), bytes: 0, granularity };
        arena.grow(bytes)?;
        Ok(arena)
    }

    /// The bytes there are.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The bytes that are mapped, with what rounding adds at the end.
    pub(crate) fn mapped_bytes(&self) -> u64 {
        self.pieces.iter().map(|&piece| piece as u64).sum()
    }

    /// The address of `bytes` bytes at `offset`, or None if they are not all inside.
    pub(crate) fn address(&self, offset: u64, bytes: u64) -> Option<CUdeviceptr> {
        (offset.checked_add(bytes)? <= self.bytes).then(|| self.start + offset)
    }

    /// Makes the arena `bytes` long, unless it is longer. What is in it stays where it is.
    ///
    /// # Errors
    /// If the device has no such memory to give; the arena is as it was then.
    pub(crate) fn grow(&mut self, bytes: u64) -> Result<()> {
        let mapped = self.mapped_bytes();
        let whole = bytes.checked_next_multiple_of(self.granularity).unwrap_or(u64::MAX);
        if whole > self.reserved as u64 {
            return Err(full(&self.shared, bytes, "the device never had so many"));
        }
        if whole > mapped {
            let (address, piece) = (self.start + mapped, (whole - mapped) as usize);
            let shared = &self.shared;
            shared
                .with_context(|driver| map(driver, shared, address, piece))
                .map_err(|error| explain(shared, error, piece as u64))?;
            self.pieces.push(piece);
            self.shared.arenas.fetch_add(piece as u64, Ordering::Relaxed);
        }
        self.bytes = self.bytes.max(bytes);
        Ok(())
    }
}

/// Maps memory of the device that it may read and write.
fn map(driver: &Driver, shared: &Shared, address: CUdeviceptr, bytes: usize) -> Result<()> {
    // SAFETY: the arena has reserved the range, and maps one piece after another, each of whole units of the granularity.
    unsafe { source::map(driver, shared, address, bytes as u64)? };
    let allowed = source::allow_access(driver, shared, address, bytes as u64);
    if allowed.is_err() {
        // SAFETY: the range was mapped as one a moment ago, and nobody has seen it.
        unsafe { (driver.functions.mem_unmap)(address, bytes) };
    }
    allowed
}

fn full(shared: &Shared, bytes: u64, why: &str) -> Error {
    let message = format!("{} has no {bytes} bytes ({}) for an arena: {why}", shared.id, format_bytes(bytes));
    Error::new(ErrorKind::OutOfMemory, message)
}

/// Says of a device that is full how full it is.
fn explain(shared: &Shared, error: Error, bytes: u64) -> Error {
    match (error.kind(), shared.memory_info()) {
        (ErrorKind::OutOfMemory, Ok(info)) => {
            let books = format!(
                "{} of {} are free; end other processes on it, or train within a smaller budget ({error})",
                format_bytes(info.free_bytes),
                format_bytes(info.total_bytes)
            );
            full(shared, bytes, &books)
        }
        _ => error,
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let mapped = self.mapped_bytes();
        let given_back = self.shared.with_context(|driver| {
            // Unmapping does not wait for work that uses the memory.
            // SAFETY: takes no pointer.
            unsafe { (driver.functions.context_synchronize)() };
            let mut address = self.start;
            for &piece in &self.pieces {
                // SAFETY: the piece was mapped as one, and all work that could use it is done. What the driver
                // refuses here it takes back when the process ends.
                unsafe { (driver.functions.mem_unmap)(address, piece) };
                address += piece as u64;
            }
            // SAFETY: the range was reserved with this size, and nothing is mapped in it.
            unsafe { (driver.functions.mem_address_free)(self.start, self.reserved) };
            Ok(())
        });
        if given_back.is_ok() {
            self.shared.arenas.fetch_sub(mapped, Ordering::Relaxed);
        }
    }
}
