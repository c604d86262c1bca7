//! Bytes to and from a device.
//!
//! Only what a [`CudaSource`](crate::CudaSource) has mapped can be reached, and the address book is locked meanwhile,
//! so that it stays mapped. Every call returns when its bytes are where they should be.

use crate::driver::device::CudaDevice;
use crate::error::Result;
use std::ffi::c_void;

impl CudaDevice {
    /// Copies bytes to an address of the device.
    ///
    /// # Errors
    /// If there is no memory behind all of them, or the driver refuses.
    pub fn write(&self, address: u64, bytes: &[u8]) -> Result<()> {
        let book = self.shared.address_book();
        book.check_mapped(address, bytes.len() as u64)?;
        self.shared.with_context(|driver| {
            let from = bytes.as_ptr().cast::<c_void>();
            // SAFETY: the source is a live slice, and the address book says that memory is behind the destination.
            let code = unsafe { (driver.functions.copy_to_device)(address, from, bytes.len()) };
            driver.check(code, || format!("copy {} bytes to {address:#x} of {}", bytes.len(), self.id()))
        })
    }

    /// Copies bytes from an address of the device.
    ///
    /// # Errors
    /// If there is no memory behind all of them, or the driver refuses.
    pub fn read(&self, address: u64, bytes: &mut [u8]) -> Result<()> {
        let book = self.shared.address_book();
        book.check_mapped(address, bytes.len() as u64)?;
        self.shared.with_context(|driver| {
            let to = bytes.as_mut_ptr().cast::<c_void>();
            // SAFETY: the destination is a live slice, and the address book says that memory is behind the source.
            let code = unsafe { (driver.functions.copy_to_host)(to, address, bytes.len()) };
            driver.check(code, || format!("copy {} bytes from {address:#x} of {}", bytes.len(), self.id()))
        })
    }

    /// Sets bytes at an address of the device to one value.
    ///
    /// # Errors
    /// If there is no memory behind all of them, or the driver refuses.
    pub fn fill(&self, address: u64, bytes: u64, value: u8) -> Result<()> {
        let book = self.shared.address_book();
        book.check_mapped(address, bytes)?;
        self.shared.with_context(|driver| {
            // SAFETY: the address book says that memory is behind all of the range.
            let code = unsafe { (driver.functions.set_bytes)(address, value, bytes as usize) };
            driver.check(code, || format!("set {bytes} bytes at {address:#x} of {}", self.id()))?;
            // SAFETY: takes no pointer.
            let code = unsafe { (driver.functions.context_synchronize)() };
            driver.check(code, || format!("wait for work on {}", self.id()))
        })
    }
}
