//! A CUDA device as a source of pages.
//!
//! Addresses are reserved without memory and pages are put behind them, so that a pool can grow where it is,
//! give back what is empty in its middle, and never ask for one contiguous piece. The driver unmaps only what was
//! mapped as one: every page is an allocation of its own.

use crate::driver::device::{self, CudaDevice, Shared};
use crate::driver::functions::Driver;
use crate::error::{Error, ErrorKind, Result};
use cudarc::driver::sys::{
    CUdevice_attribute_enum as Attribute, CUmemAccess_flags_enum as Access, CUmemAccessDesc,
};
use plimsoll_memory::{Source, format_bytes};

/// The largest page that can be asked for.
const LARGEST_PAGE: u64 = 1 << 30;

/// Pages of a CUDA device's memory, behind addresses that kernels and copies use. What it reserved is given back
/// when it is dropped.
#[derive(Debug)]
pub struct CudaSource {
    device: CudaDevice,
    page: u64,
    /// Where the ranges start that were reserved through this.
    reserved: Vec<u64>,
}

impl CudaSource {
    /// Memory of a device in the smallest pages that it has, 2 MiB at least.
    ///
    /// # Errors
    /// If the device cannot map memory behind addresses.
    pub fn new(device: &CudaDevice) -> Result<CudaSource> {
        CudaSource::with_page_bytes(device, 2 << 20)
    }

    /// Memory of a device in pages of at least so many bytes: fewer calls of the driver, more memory that lies
    /// idle in pages that are used in part. A page is a power of two times what the device has, up to 1 GiB.
    ///
    /// # Errors
    /// If the device cannot map memory behind addresses.
    pub fn with_page_bytes(device: &CudaDevice, bytes: u64) -> Result<CudaSource> {
        let Shared { driver, id, device: handle, .. } = &*device.shared;
        let which = Attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
        if device::attribute(driver, *id, *handle, which)? == 0 {
            let message = format!(
                "{id} cannot map memory behind addresses; GPUs of compute capability 6.0 can, under a driver \
                 for CUDA 10.2 or newer"
            );
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let page = device.granularity_bytes()?.max(bytes.min(LARGEST_PAGE)).next_power_of_two();
        Ok(CudaSource { device: device.clone(), page, reserved: Vec::new() })
    }

    /// The device whose memory this is.
    pub fn device(&self) -> &CudaDevice {
        &self.device
    }

    /// Bytes as the driver takes them, in whole pages.
    fn whole_pages(&self, bytes: u64) -> Option<usize> {
        usize::try_from(bytes.max(1).checked_next_multiple_of(self.page)?).ok()
    }

    fn try_reserve(&mut self, bytes: u64) -> Result<u64> {
        let shared = &*self.device.shared;
        let attempt = || format!("reserve a range of {} on {}", format_bytes(bytes), shared.id);
        let Some(whole) = self.whole_pages(bytes) else {
            let message = format!("cannot {}: no device has so many addresses", attempt());
            return Err(Error::new(ErrorKind::OutOfMemory, message));
        };
        let address = shared.with_context(|driver| {
            let mut address = 0;
            // SAFETY: the pointer is to a live address; the size is a multiple of the granularity and the
            // alignment a power of two.
            let code = unsafe {
                (driver.functions.mem_address_reserve)(&mut address, whole, self.page as usize, 0, 0)
            };
            driver.check(code, attempt)?;
            Ok(address)
        })?;
        shared.address_book().enter(address, whole as u64, self.page);
        self.reserved.push(address);
        if !address.is_multiple_of(self.page) {
            self.try_release(address)?;
            let message = format!(
                "the driver ignores alignment: {address:#x} is not a multiple of a page of {}",
                format_bytes(self.page)
            );
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        Ok(address)
    }

    fn try_map(&mut self, address: u64, bytes: u64) -> Result<()> {
        let shared = &*self.device.shared;
        let mut book = shared.address_book();
        let pages = book.unmapped_pages(address, bytes)?;
        if pages.is_empty() {
            return Ok(());
        }
        let result = shared.with_context(|driver| {
            for (index, &page) in pages.iter().enumerate() {
                // SAFETY: the book says that the page is reserved, with nothing behind it; a page is a multiple of the
                // granularity.
                unsafe { map(driver, shared, page, self.page) }
                    .inspect_err(|_| self.take_back(driver, &pages[..index]))?;
            }
            allow_access(driver, shared, address, bytes).inspect_err(|_| self.take_back(driver, &pages))
        });
        match result {
            Ok(()) => pages.iter().for_each(|&page| book.set_mapped(page, true)),
            Err(error) => return Err(self.explain(error, bytes, book.mapped_bytes())),
        }
        Ok(())
    }

    /// Unmaps pages that were mapped and that nobody has seen yet.
    fn take_back(&self, driver: &Driver, pages: &[u64]) {
        for &page in pages {
            // SAFETY: the page was mapped as one a moment ago and nothing uses it. Should the driver refuse even
            // this, the page is lost to the process, and there is an error to report already.
            unsafe { (driver.functions.mem_unmap)(page, self.page as usize) };
        }
    }

    /// Says of a device that is full how full it is.
    fn explain(&self, error: Error, bytes: u64, mapped: u64) -> Error {
        if error.kind() != ErrorKind::OutOfMemory {
            return error;
        }
        let books = match self.device.memory_info() {
            Ok(info) => format!(
                "{} of {} are free, {} are mapped by this process",
                format_bytes(info.free_bytes),
                format_bytes(info.total_bytes),
                format_bytes(mapped)
            ),
            Err(error) => error.to_string(),
        };
        let message = format!(
            "{} is full: {bytes} bytes ({}) cannot be mapped; {books}; free tensors, use a smaller batch or end \
             other processes on it ({error})",
            self.device.id(),
            format_bytes(bytes)
        );
        Error::new(ErrorKind::OutOfMemory, message)
    }

    fn try_unmap(&mut self, address: u64, bytes: u64) -> Result<()> {
        let shared = &*self.device.shared;
        let mut book = shared.address_book();
        let pages = book.mapped_pages(address, bytes);
        if pages.is_empty() {
            return Ok(());
        }
        shared.with_context(|driver| {
            // Unmapping does not wait for work that uses the pages.
            // SAFETY: takes no pointer.
            let code = unsafe { (driver.functions.context_synchronize)() };
            driver.check(code, || format!("wait for work on {}", shared.id))?;
            for page in pages {
                // SAFETY: the page was mapped as one, and all work that could use it is done.
                let code = unsafe { (driver.functions.mem_unmap)(page, self.page as usize) };
                driver.check(code, || format!("unmap the page at {page:#x} of {}", shared.id))?;
                book.set_mapped(page, false);
            }
            Ok(())
        })
    }

    fn try_release(&mut self, address: u64) -> Result<()> {
        let bytes = self.device.shared.address_book().reserved(address)?;
        self.try_unmap(address, bytes)?;
        let shared = &*self.device.shared;
        shared.with_context(|driver| {
            // SAFETY: the range was reserved with this size, and nothing is mapped in it.
            let code = unsafe { (driver.functions.mem_address_free)(address, bytes as usize) };
            driver.check(code, || format!("give back the range at {address:#x} of {}", shared.id))
        })?;
        shared.address_book().remove(address);
        self.reserved.retain(|&start| start != address);
        Ok(())
    }
}

/// Takes memory of the device and puts it behind addresses, with no access to it yet. It lives as long as it is mapped.
///
/// # Errors
/// If the device has no such memory to give; nothing is mapped then.
///
/// # Safety
/// The addresses must be reserved, with nothing mapped behind them, and the bytes whole units of the granularity.
pub(crate) unsafe fn map(driver: &Driver, shared: &Shared, address: u64, bytes: u64) -> Result<()> {
    let (mut handle, properties) = (0, device::properties(shared.device));
    let attempt = || format!("map {} at {address:#x} of {}", format_bytes(bytes), shared.id);
    // SAFETY: the pointers are to a live handle and to live properties, and the caller vouches for the size.
    let code = unsafe { (driver.functions.mem_create)(&mut handle, bytes as usize, &properties, 0) };
    driver.check(code, || format!("take {} of {}", format_bytes(bytes), shared.id))?;
    // SAFETY: the caller vouches for the range.
    let mapped = unsafe { (driver.functions.mem_map)(address, bytes as usize, 0, handle, 0) };
    // SAFETY: the handle was made above and is used no more. A mapping keeps its memory, and without one it is free again.
    let released = unsafe { (driver.functions.mem_release)(handle) };
    driver.check(mapped, attempt)?;
    driver.check(released, || format!("leave memory of {} to its mapping", shared.id)).inspect_err(|_| {
        // SAFETY: the range was mapped as one a moment ago, and nobody has seen it.
        unsafe { (driver.functions.mem_unmap)(address, bytes as usize) };
    })
}

/// Lets the device read and write what was mapped.
pub(crate) fn allow_access(driver: &Driver, shared: &Shared, address: u64, bytes: u64) -> Result<()> {
    let access = CUmemAccessDesc {
        location: device::location(shared.device),
        flags: Access::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    // SAFETY: the pointer is to one live description, and all of the range was mapped a moment ago.
    let code = unsafe { (driver.functions.mem_set_access)(address, bytes as usize, &access, 1) };
    driver.check(code, || format!("allow access to {} at {address:#x} of {}", format_bytes(bytes), shared.id))
}

/// What the driver refuses to unmap or to take back stays in the address book as mapped and reserved: mapping it again
/// is an error then, and it is not used by mistake.
impl Source for CudaSource {
    fn page_bytes(&self) -> u64 {
        self.page
    }

    fn available_bytes(&self) -> Option<u64> {
        Some(self.device.memory_info().ok()?.free_bytes)
    }

    fn reserve(&mut self, bytes: u64) -> plimsoll_memory::Result<u64> {
        Ok(self.try_reserve(bytes)?)
    }

    fn map(&mut self, address: u64, bytes: u64) -> plimsoll_memory::Result<()> {
        Ok(self.try_map(address, bytes)?)
    }

    fn unmap(&mut self, address: u64, bytes: u64) {
        _ = self.try_unmap(address, bytes);
    }

    fn release(&mut self, address: u64, _bytes: u64) {
        _ = self.try_release(address);
    }
}

impl Drop for CudaSource {
    fn drop(&mut self) {
        for address in self.reserved.clone() {
            _ = self.try_release(address);
        }
    }
}
