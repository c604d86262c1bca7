//! The host's own memory as a [`Source`]: the pool behind eager mode on the CPU takes pages from here.
//!
//! Where the system keeps addresses and memory apart, a range of addresses costs nothing and a page is there from
//! the first write to it until it is unmapped. Elsewhere a range is allocated as a whole, in smaller pieces.

use crate::bytes::format_bytes;
use crate::error::{Error, ErrorKind, Result};
use crate::source::Source;
use std::collections::BTreeMap;

#[cfg(unix)]
use mapped as system;
#[cfg(not(unix))]
use plain as system;

/// The unit in which memory is mapped. A page of the system would be mapped a thousand times for one tensor.
const PAGE: u64 = 2 << 20;

/// Host memory, mapped and unmapped in pages of 2 MiB. What is mapped is zeros. All of it goes back to the system
/// when this is dropped.
#[derive(Debug, Default)]
pub struct HostMemory {
    /// What was reserved, by the address that was returned.
    ranges: BTreeMap<u64, Reservation>,
}

/// A range of addresses of the system.
#[derive(Debug)]
struct Reservation {
    /// Where it begins: the first page in it may begin later.
    base: u64,
    bytes: usize,
    /// The end of the whole pages in it.
    end: u64,
}

impl HostMemory {
    /// Host memory, of which nothing is taken yet.
    pub fn new() -> HostMemory {
        HostMemory::default()
    }

    /// Whether the bytes are whole pages in one reserved range.
    fn reserved(&self, address: u64, bytes: u64) -> bool {
        let range = self.ranges.range(..=address).next_back();
        let inside = range.zip(address.checked_add(bytes)).is_some_and(|((_, range), end)| end <= range.end);
        inside && address.is_multiple_of(PAGE) && bytes.is_multiple_of(PAGE)
    }
}

fn refused(bytes: u64) -> Error {
    Error::new(ErrorKind::OutOfMemory, format!("the system has no {bytes} bytes ({})", format_bytes(bytes)))
}

impl Source for HostMemory {
    fn page_bytes(&self) -> u64 {
        PAGE
    }

    fn range_bytes(&self) -> u64 {
        system::RANGE
    }

    fn available_bytes(&self) -> Option<u64> {
        // Where there is no such file it is not known.
        let text = std::fs::read_to_string("/proc/meminfo").ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
    }

    fn reserve(&mut self, bytes: u64) -> Result<u64> {
        let whole = bytes.checked_next_multiple_of(PAGE).and_then(|bytes| bytes.checked_add(PAGE));
        let size = whole.and_then(|whole| usize::try_from(whole).ok()).ok_or_else(|| refused(bytes))?;
        let base = system::reserve(size).ok_or_else(|| refused(bytes))? as u64;
        let start = base.next_multiple_of(PAGE);
        let end = (base + size as u64) / PAGE * PAGE;
        self.ranges.insert(start, Reservation { base, bytes: size, end });
        Ok(start)
    }

    fn map(&mut self, address: u64, bytes: u64) -> Result<()> {
        // SAFETY: the bytes are inside a range that `system::reserve` returned.
        if self.reserved(address, bytes) && unsafe { system::map(address as *mut u8, bytes as usize) } {
            return Ok(());
        }
        Err(refused(bytes))
    }

    fn unmap(&mut self, address: u64, bytes: u64) {
        if self.reserved(address, bytes) {
            // SAFETY: as in `map`. Whoever unmaps memory promises that nobody uses it any more, which is what the
            // unsafe code that uses an address relies on.
            unsafe { system::unmap(address as *mut u8, bytes as usize) };
        }
    }

    fn release(&mut self, address: u64, _bytes: u64) {
        if let Some(range) = self.ranges.remove(&address) {
            // SAFETY: the range is as `system::reserve` returned it and is forgotten here.
            unsafe { system::release(range.base as *mut u8, range.bytes) };
        }
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        for range in std::mem::take(&mut self.ranges).into_values() {
            // SAFETY: as in `release`.
            unsafe { system::release(range.base as *mut u8, range.bytes) };
        }
    }
}

/// Systems that keep addresses and memory apart.
#[cfg(unix)]
mod mapped {
    use libc::{
        MAP_ANON, MAP_FAILED, MAP_FIXED, MAP_NORESERVE, MAP_PRIVATE, PROT_NONE, PROT_READ, PROT_WRITE,
    };
    use std::ptr;

    /// The addresses to take at a time: they cost nothing.
    pub(super) const RANGE: u64 = 1 << (if usize::BITS == 64 { 40 } else { 28 });
    const NOTHING: i32 = MAP_PRIVATE | MAP_ANON | MAP_NORESERVE;

    /// Takes addresses, without memory behind them.
    pub(super) fn reserve(bytes: usize) -> Option<*mut u8> {
        // SAFETY: a new mapping at an address of the system's choice touches nobody's memory.
        let start = unsafe { libc::mmap(ptr::null_mut(), bytes, PROT_NONE, NOTHING, -1, 0) };
        (start != MAP_FAILED).then_some(start.cast())
    }

    /// Allows reading and writing, and says whether the system did.
    ///
    /// # Safety
    /// The bytes must be of a range from `reserve`.
    pub(super) unsafe fn map(start: *mut u8, bytes: usize) -> bool {
        // SAFETY: the range is ours, by the contract; allowing more breaks no one's assumptions.
        unsafe { libc::mprotect(start.cast(), bytes, PROT_READ | PROT_WRITE) == 0 }
    }

    /// Gives the memory back and keeps the addresses.
    ///
    /// # Safety
    /// The bytes must be of a range from `reserve`, and nobody may use them until they are mapped again.
    pub(super) unsafe fn unmap(start: *mut u8, bytes: usize) {
        // A fresh mapping in place of the old one. Should the system refuse, which it may where it runs out of
        // mappings, the memory stays and is found again when the range is mapped.
        // SAFETY: the range is ours and unused, by the contract.
        unsafe { libc::mmap(start.cast(), bytes, PROT_NONE, NOTHING | MAP_FIXED, -1, 0) };
    }

    /// Gives the addresses back too.
    ///
    /// # Safety
    /// The range must be one from `reserve`, whole, and never be used again.
    pub(super) unsafe fn release(start: *mut u8, bytes: usize) {
        // SAFETY: the range is ours and unused, by the contract.
        unsafe { libc::munmap(start.cast(), bytes) };
    }
}

/// Systems where memory comes from the allocator of the program, addresses and all.
#[cfg(any(test, not(unix)))]
mod plain {
    use std::alloc::{Layout, alloc_zeroed, dealloc};

    /// The addresses to take at a time: memory is behind all of them.
    #[cfg(not(unix))]
    pub(super) const RANGE: u64 = 64 << 20;
    const ALIGN: usize = 4096;

    /// Takes addresses with zeroed memory behind them.
    pub(super) fn reserve(bytes: usize) -> Option<*mut u8> {
        let layout = Layout::from_size_align(bytes.max(1), ALIGN).ok()?;
        // SAFETY: the layout's size is at least one byte.
        let start = unsafe { alloc_zeroed(layout) };
        (!start.is_null()).then_some(start)
    }

    /// The memory is there already.
    ///
    /// # Safety
    /// The bytes must be of a range from `reserve`.
    pub(super) unsafe fn map(_start: *mut u8, _bytes: usize) -> bool {
        true
    }

    /// Keeps the memory, and zeros it as whoever maps it again expects.
    ///
    /// # Safety
    /// The bytes must be of a range from `reserve`, and nobody may use them until they are mapped again.
    pub(super) unsafe fn unmap(start: *mut u8, bytes: usize) {
        // SAFETY: the range is ours, allocated and unused, by the contract.
        unsafe { start.write_bytes(0, bytes) };
    }

    /// Gives the memory back.
    ///
    /// # Safety
    /// The range must be one from `reserve`, whole, and never be used again.
    pub(super) unsafe fn release(start: *mut u8, bytes: usize) {
        if let Ok(layout) = Layout::from_size_align(bytes.max(1), ALIGN) {
            // SAFETY: allocated in `reserve` with this layout, by the contract.
            unsafe { dealloc(start, layout) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes at an address that is mapped.
    fn bytes(memory: &mut HostMemory, address: u64, bytes: usize) -> &mut [u8] {
        assert!(memory.reserved(address, (bytes as u64).next_multiple_of(PAGE)));
        // SAFETY: the tests map what they look at, one slice at a time.
        unsafe { std::slice::from_raw_parts_mut(address as *mut u8, bytes) }
    }

    #[test]
    fn what_is_mapped_can_be_written_and_what_is_mapped_again_is_zeros() {
        let mut memory = HostMemory::new();
        let start = memory.reserve(10 * PAGE).unwrap();
        assert_eq!(start % PAGE, 0);
        for page in [0, 3, 9] {
            memory.map(start + page * PAGE, PAGE).unwrap();
            bytes(&mut memory, start + page * PAGE, PAGE as usize).fill(page as u8 + 1);
        }
        memory.unmap(start + 3 * PAGE, PAGE);
        memory.map(start + 2 * PAGE, 2 * PAGE).unwrap();
        assert!(bytes(&mut memory, start + 2 * PAGE, 2 * PAGE as usize).iter().all(|&b| b == 0));
        assert!(bytes(&mut memory, start, PAGE as usize).iter().all(|&b| b == 1));
        assert!(bytes(&mut memory, start + 9 * PAGE, PAGE as usize).iter().all(|&b| b == 10));
        memory.release(start, 10 * PAGE);
    }

    #[test]
    fn what_was_never_reserved_is_not_mapped_or_touched() {
        let mut memory = HostMemory::new();
        let start = memory.reserve(2 * PAGE).unwrap();
        let mut mine = vec![7u8; 64];
        let address = mine.as_mut_ptr() as u64;
        for (address, size) in
            [(address, PAGE), (start + 64, PAGE), (start, 64), (start, u64::MAX / PAGE * PAGE), (0, PAGE)]
        {
            assert_eq!(memory.map(address, size).unwrap_err().kind(), ErrorKind::OutOfMemory);
            memory.unmap(address, size);
            memory.release(address + 64, size);
        }
        assert_eq!(mine, [7; 64]);
        memory.map(start, 2 * PAGE).unwrap();
        bytes(&mut memory, start, 2 * PAGE as usize).fill(1);
    }

    #[test]
    fn more_than_there_are_addresses_is_an_error() {
        let mut memory = HostMemory::new();
        for bytes in [u64::MAX, u64::MAX - PAGE, 1 << 62] {
            assert_eq!(memory.reserve(bytes).unwrap_err().kind(), ErrorKind::OutOfMemory);
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn addresses_take_no_memory_and_unmapped_pages_are_given_back() {
        let resident = |start: u64, pages: u64| {
            let mut seen = vec![0u8; (pages * PAGE / 4096) as usize];
            // SAFETY: the range is reserved, and the list has an element for each page of 4 KiB or more.
            let done = unsafe {
                libc::mincore(start as *mut libc::c_void, (pages * PAGE) as usize, seen.as_mut_ptr())
            };
            assert_eq!(done, 0);
            seen.iter().filter(|&&page| page & 1 == 1).count()
        };
        let mut memory = HostMemory::new();
        let start = memory.reserve(1 << 38).unwrap();
        memory.map(start, 4 * PAGE).unwrap();
        assert_eq!(resident(start, 8), 0);
        bytes(&mut memory, start, 4 * PAGE as usize).fill(1);
        let written = resident(start, 8);
        assert!(written > 0);
        memory.unmap(start + PAGE, 3 * PAGE);
        assert_eq!(resident(start, 8), written / 4);
    }

    #[test]
    fn without_mapping_a_range_is_zeros_when_it_is_taken_and_after_it_was_unmapped() {
        let start = plain::reserve(8192).unwrap();
        // SAFETY: the range is used between its being taken and given back alone, within its bytes.
        unsafe {
            let all = std::slice::from_raw_parts_mut(start, 8192);
            assert!(plain::map(start, 8192) && all.iter().all(|&b| b == 0));
            all.fill(9);
            plain::unmap(start, 4096);
            assert!(all[..4096].iter().all(|&b| b == 0) && all[4096..].iter().all(|&b| b == 9));
            plain::release(start, 8192);
        }
        assert!(plain::reserve(usize::MAX).is_none());
    }
}
