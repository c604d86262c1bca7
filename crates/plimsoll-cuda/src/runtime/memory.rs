//! The memory that programs run in, and the books of the device it is on.

use crate::driver::device::{CudaDevice, Shared};
use crate::driver::pinned::Pinned;
use crate::driver::stream::Stream;
use crate::error::{Error, ErrorKind, Result};
use crate::runtime::arena::Arena;
use crate::runtime::in_flight::InFlight;
use plimsoll_device::Books;
use plimsoll_graph::program::Home;
use plimsoll_memory::format_bytes;
use std::sync::Arc;

/// The memory that programs run in: the device's arena, and the host's for what is kept there, which is pinned so that
/// copies run beside kernels.
///
/// Everything that is done in it is done in order: runs, and what is written and read between them.
pub struct Memory {
    pub(crate) shared: Arc<Shared>,
    pub(crate) device: Arena,
    pub(crate) host: Pinned,
    pub(crate) stream: Stream,
    pub(crate) in_flight: InFlight,
}

/// Where a buffer is in a [`Memory`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Placement {
    pub(crate) home: Home,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

impl CudaDevice {
    /// The arenas of a plan's bytes, of which the device's must not be over `limit`.
    ///
    /// # Errors
    /// If it is, or the device or the system refuses.
    pub fn reserve(&self, device: u64, host: u64, limit: Option<u64>) -> Result<Memory> {
        within(device, limit)?;
        let shared = &self.shared;
        Ok(Memory {
            shared: shared.clone(),
            device: Arena::new(shared, device)?,
            host: Pinned::new(shared, host)?,
            stream: Stream::new(shared)?,
            in_flight: InFlight::new(shared)?,
        })
    }

    /// What the device's bytes are taken by.
    ///
    /// # Errors
    /// If the driver does not say.
    pub fn books(&self) -> Result<Books> {
        let info = self.memory_info()?;
        let used_bytes = info.total_bytes.saturating_sub(info.free_bytes);
        let (at_open_bytes, mapped_bytes) = (self.shared.at_open, self.mapped_bytes());
        let known = at_open_bytes.saturating_add(mapped_bytes);
        let rest_bytes = used_bytes as i64 - known as i64;
        let page_bytes = self.granularity_bytes()?;
        Ok(Books {
            total_bytes: info.total_bytes,
            used_bytes,
            at_open_bytes,
            mapped_bytes,
            rest_bytes,
            page_bytes,
        })
    }
}

impl Memory {
    /// The bytes of the device's arena.
    pub fn device_bytes(&self) -> u64 {
        self.device.bytes()
    }

    /// The bytes of the host's arena.
    pub fn host_bytes(&self) -> u64 {
        self.host.bytes()
    }

    /// Waits until all that was begun in this memory is done.
    ///
    /// # Errors
    /// If any of it failed.
    pub fn synchronize(&self) -> Result<()> {
        self.stream.synchronize()
    }

    /// Sets every byte of the device's arena to one value.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn fill(&mut self, value: u8) -> Result<()> {
        let Some(start) = self.device.address(0, self.device.bytes()) else { return Ok(()) };
        if self.device.bytes() == 0 {
            return Ok(());
        }
        self.shared.with_context(|driver| {
            let bytes = self.device.bytes() as usize;
            // SAFETY: so many bytes are mapped there.
            let code = unsafe { (driver.functions.set_bytes_async)(start, value, bytes, self.stream.stream) };
            driver.check(code, || format!("set {bytes} bytes of {}", self.shared.id))
        })
    }

    /// Writes bytes to a place, after all that was begun before.
    pub(crate) fn write(&mut self, place: Placement, bytes: &[u8]) -> Result<()> {
        if bytes.len() as u64 != place.bytes {
            let message = format!("{} bytes were given for a buffer of {}", bytes.len(), place.bytes);
            return Err(Error::new(ErrorKind::BadRange, message));
        }
        if bytes.is_empty() {
            return Ok(());
        }
        if place.home == Home::Host {
            self.stream.synchronize()?;
            let to = self.host.address(place.offset, place.bytes).ok_or_else(|| self.outside(place))?;
            // SAFETY: so many bytes are there, borrowed mutably with `self`, and no work is under way.
            unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
            return Ok(());
        }
        let to = self.device.address(place.offset, place.bytes).ok_or_else(|| self.outside(place))?;
        // SAFETY: the destination is mapped; the source is a live slice that is not pinned, which the driver has read when
        // it returns.
        unsafe { self.stream.copy_to_device(to, bytes.as_ptr(), bytes.len()) }
    }

    /// Reads the bytes of a place, after all that was begun before.
    pub(crate) fn read(&self, place: Placement, bytes: &mut [u8]) -> Result<()> {
        if bytes.len() as u64 != place.bytes {
            let message = format!("room for {} bytes was given for a buffer of {}", bytes.len(), place.bytes);
            return Err(Error::new(ErrorKind::BadRange, message));
        }
        if bytes.is_empty() {
            return Ok(());
        }
        if place.home == Home::Host {
            self.stream.synchronize()?;
            let from = self.host.address(place.offset, place.bytes).ok_or_else(|| self.outside(place))?;
            // SAFETY: so many bytes are there, and no work is under way.
            unsafe { from.copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len()) };
            return Ok(());
        }
        let from = self.device.address(place.offset, place.bytes).ok_or_else(|| self.outside(place))?;
        // SAFETY: the source is mapped and the destination is a live slice, which the stream is waited for below.
        unsafe { self.stream.copy_to_host(bytes.as_mut_ptr(), from, bytes.len())? };
        self.stream.synchronize()
    }

    fn outside(&self, place: Placement) -> Error {
        let message = format!(
            "{} bytes at {} lie outside the arena of {} bytes (on the host {})",
            place.bytes,
            place.offset,
            self.device.bytes(),
            self.host.bytes()
        );
        Error::new(ErrorKind::BadRange, message)
    }
}

/// Refuses an arena over a limit.
fn within(device: u64, limit: Option<u64>) -> Result<()> {
    let Some(limit) = limit.filter(|&limit| device > limit) else { return Ok(()) };
    let message = format!(
        "an arena of {device} bytes ({}) is over the limit of {limit} bytes ({})",
        format_bytes(device),
        format_bytes(limit)
    );
    Err(Error::new(ErrorKind::OverLimit, message))
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Memory({}, {} bytes, host {})", self.shared.id, self.device.bytes(), self.host.bytes())
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // Kernels that still run use the arenas, and copies the staging slots.
        _ = self.stream.synchronize();
        _ = self.in_flight.synchronize();
    }
}
