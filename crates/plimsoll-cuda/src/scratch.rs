//! Memory of the device for a moment, while kernels are being prepared.
//!
//! What is measured before a plan exists needs operands to work on. They are taken and given back before the arena is,
//! which holds the same operands later and more: no budget is exceeded.

use crate::device::Shared;
use crate::error::Result;
use cudarc::driver::sys::CUdeviceptr;
use plimsoll_memory::format_bytes;
use std::sync::Arc;

/// Memory of a device, given back when dropped.
pub(crate) struct Scratch {
    shared: Arc<Shared>,
    pub(crate) address: CUdeviceptr,
}

impl Scratch {
    /// # Errors
    /// If the device has no such memory.
    pub(crate) fn new(shared: &Arc<Shared>, bytes: u64) -> Result<Scratch> {
        /// Every byte, so that floats of any type are small and not zero.
        const FILL: u8 = 0x3c;
        shared.with_context(|driver| {
            let (mut address, bytes) = (0, bytes.max(1) as usize);
            // SAFETY: the pointer is to a live address.
            let code = unsafe { (driver.functions.mem_alloc)(&mut address, bytes) };
            driver.check(code, || format!("take {} of {}", format_bytes(bytes as u64), shared.id))?;
            let scratch = Scratch { shared: shared.clone(), address };
            // SAFETY: so many bytes were taken there.
            let code = unsafe { (driver.functions.set_bytes)(address, FILL, bytes) };
            driver.check(code, || format!("set {bytes} bytes of {}", shared.id))?;
            // SAFETY: takes no pointer.
            let code = unsafe { (driver.functions.context_synchronize)() };
            driver.check(code, || format!("wait for work on {}", shared.id))?;
            Ok(scratch)
        })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        _ = self.shared.with_context(|driver| {
            // SAFETY: it was taken from the driver, which waits for work that uses it.
            unsafe { (driver.functions.mem_free)(self.address) };
            Ok(())
        });
    }
}
