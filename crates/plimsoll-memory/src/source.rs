//! Where an allocator's memory comes from: a device, real or simulated.
//!
//! Allocators only decide on addresses, so that the same code serves the eager pool on real memory and the
//! replay of a recording on memory that is only counted.

use crate::bytes::format_bytes;
use crate::error::{Error, ErrorKind, Result};

/// Ranges of addresses, and memory behind parts of them. A plain device allocation is both at once.
pub trait Source: Send {
    /// The unit in which memory is mapped.
    fn page_bytes(&self) -> u64;

    /// How many addresses to reserve at a time, if so many can be had: many where they cost nothing.
    fn range_bytes(&self) -> u64 {
        1 << 40
    }

    /// Memory that the device could still give, where that can be asked. It is asked when a request was refused.
    fn available_bytes(&self) -> Option<u64> {
        None
    }

    /// Takes a range of addresses, with nothing behind it yet; aligned to a page.
    ///
    /// # Errors
    /// If the device has no such range left.
    fn reserve(&mut self, bytes: u64) -> Result<u64>;

    /// Puts memory behind a part of a reserved range; whole pages.
    ///
    /// # Errors
    /// If the device has no such memory left, or a limit would be passed; nothing is mapped then.
    fn map(&mut self, address: u64, bytes: u64) -> Result<()>;

    /// Takes the memory away again; what it held is lost, the addresses stay reserved.
    fn unmap(&mut self, address: u64, bytes: u64);

    /// Gives a range of addresses back. What is still mapped in it is unmapped.
    fn release(&mut self, address: u64, bytes: u64);
}

/// A device that is only counted: it has addresses without end and memory up to a limit.
#[derive(Debug, Clone)]
pub struct CountedDevice {
    page: u64,
    limit: u64,
    next: u64,
    mapped: u64,
    peak: u64,
}

impl CountedDevice {
    /// A device of `limit` bytes whose memory comes in pages of `page` bytes.
    pub fn new(limit: u64, page: u64) -> CountedDevice {
        CountedDevice { page: page.max(1), limit, next: 1 << 32, mapped: 0, peak: 0 }
    }

    /// Bytes mapped now.
    pub fn mapped_bytes(&self) -> u64 {
        self.mapped
    }

    /// The most bytes that were mapped at once.
    pub fn peak_bytes(&self) -> u64 {
        self.peak
    }
}

impl Source for CountedDevice {
    fn page_bytes(&self) -> u64 {
        self.page
    }

    fn available_bytes(&self) -> Option<u64> {
        Some(self.limit - self.mapped)
    }

    fn reserve(&mut self, bytes: u64) -> Result<u64> {
        let refused =
            || Error::new(ErrorKind::OutOfMemory, format!("no range of {} is left", format_bytes(bytes)));
        let address = self.next;
        // A page lies between ranges, so that pieces of two ranges are never neighbours.
        let taken = bytes.checked_next_multiple_of(self.page).and_then(|b| b.checked_add(self.page));
        self.next = taken.and_then(|taken| address.checked_add(taken)).ok_or_else(refused)?;
        Ok(address)
    }

    fn map(&mut self, _address: u64, bytes: u64) -> Result<()> {
        let mapped = self.mapped.saturating_add(bytes);
        if mapped > self.limit {
            let message = format!(
                "{bytes} bytes ({}) are over the limit: {} of {} are taken",
                format_bytes(bytes),
                format_bytes(self.mapped),
                format_bytes(self.limit)
            );
            return Err(Error::new(ErrorKind::OverLimit, message));
        }
        self.mapped = mapped;
        self.peak = self.peak.max(mapped);
        Ok(())
    }

    fn unmap(&mut self, _address: u64, bytes: u64) {
        self.mapped = self.mapped.saturating_sub(bytes);
    }

    fn release(&mut self, _address: u64, _bytes: u64) {}
}
