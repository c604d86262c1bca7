//! Memory of the host that the device copies from and to by itself.
//!
//! The system may not move or swap it, so that a copy runs beside the kernels and at the full speed of the bus.

use crate::driver::device::Shared;
use crate::error::Result;
use plimsoll_memory::format_bytes;
use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::Arc;

/// Host memory, zeroed, that stays where it is; given back when dropped.
pub(crate) struct Pinned {
    shared: Arc<Shared>,
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: it owns its memory; what is done through its addresses is the responsibility of the code that does it.
unsafe impl Send for Pinned {}
// SAFETY: as above.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// # Errors
    /// If the system has not so much memory that it may not move.
    pub(crate) fn new(shared: &Arc<Shared>, bytes: u64) -> Result<Pinned> {
        let mut start: *mut c_void = ptr::null_mut();
        let attempt = || format!("pin {} of host memory for {}", format_bytes(bytes), shared.id);
        if bytes > 0 {
            shared.with_context(|driver| {
                // SAFETY: the pointer is to a live pointer.
                let code = unsafe { (driver.functions.host_alloc)(&mut start, bytes as usize, 0) };
                driver.check(code, attempt)
            })?;
        }
        let bytes = if start.is_null() { 0 } else { bytes as usize };
        let start = NonNull::new(start.cast()).unwrap_or(NonNull::dangling());
        // SAFETY: so many bytes were taken there, or none.
        unsafe { start.write_bytes(0, bytes) };
        Ok(Pinned { shared: shared.clone(), start, bytes })
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    /// The address of `bytes` bytes at `offset`, or None if they are not all inside.
    pub(crate) fn address(&self, offset: u64, bytes: u64) -> Option<*mut u8> {
        let inside = offset.checked_add(bytes)? <= self.bytes as u64;
        // SAFETY: the offset is at most the size.
        inside.then(|| unsafe { self.start.as_ptr().add(offset as usize) })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if self.bytes > 0 {
            _ = self.shared.with_context(|driver| {
                // SAFETY: it was taken from the driver, and nothing uses it any more. A failure means that the
                // driver is shutting down.
                unsafe { (driver.functions.host_free)(self.start.as_ptr().cast()) };
                Ok(())
            });
        }
    }
}
