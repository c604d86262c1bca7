//! The arena: one reservation that every buffer of a plan lives in.

use crate::bytes::format_bytes;
use crate::error::{Error, ErrorKind, Result};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

/// The alignment of an arena's first byte, in bytes: a cache line, and the widest vector.
pub const ALIGNMENT: usize = 64;

/// From this size on, an arena asks for pages of [`HUGE_PAGE`]. Allocators take all that is as large from the system and
/// for itself.
const LARGE: usize = 32 << 20;

/// A large page: thousands of times fewer are made and looked up than of the usual ones.
const HUGE_PAGE: usize = 2 << 20;

/// Host memory reserved once, zeroed, aligned to [`ALIGNMENT`], and given back when dropped.
///
/// An arena hands out no pieces: a plan has an offset for every buffer. That its users stay inside is
/// checked here; that they stay out of each other's way is the plan's promise, and borrowing the arena
/// mutably is the right to run one.
#[derive(Debug)]
pub struct Arena {
    /// What the allocator returned, and was asked for.
    allocated: NonNull<u8>,
    layout: Layout,
    /// The first aligned address in it.
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: an arena owns its memory and has no interior state; what is done through its addresses is the
// responsibility of the unsafe code that uses them.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    /// Reserves `bytes`.
    ///
    /// # Errors
    /// If that is over `limit`, or the system refuses.
    pub fn reserve(bytes: u64, limit: Option<u64>) -> Result<Arena> {
        if let Some(limit) = limit
            && bytes > limit
        {
            let message = format!(
                "an arena of {bytes} bytes ({}) is over the limit of {limit} bytes ({})",
                format_bytes(bytes),
                format_bytes(limit)
            );
            return Err(Error::new(ErrorKind::OverLimit, message));
        }
        let refused = || {
            let message = format!("the system has no {bytes} bytes ({}) for the arena", format_bytes(bytes));
            Error::new(ErrorKind::OutOfMemory, message)
        };
        let size = usize::try_from(bytes).map_err(|_| refused())?;
        // An allocator asked for an alignment of its own choice takes zeros from the system, which makes each page
        // when it is first used, by whoever uses it. Asked for a wider one, it would write them all here and now.
        let alignment = if size < LARGE { ALIGNMENT } else { HUGE_PAGE };
        let room = size.checked_add(alignment).ok_or_else(refused)?;
        let layout = Layout::array::<u8>(room).map_err(|_| refused())?;
        // SAFETY: the layout's size is at least that of the alignment.
        let allocated = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(refused)?;
        // SAFETY: less than `alignment` bytes on, which were asked for beyond those of the arena.
        let start = unsafe { allocated.add(allocated.align_offset(alignment)) };
        if size >= LARGE {
            prefer_huge_pages(start, size / HUGE_PAGE * HUGE_PAGE);
        }
        Ok(Arena { allocated, layout, start, bytes: size })
    }

    /// The bytes that were reserved.
    pub fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    /// The address of the `bytes` bytes at `offset`, or `None` if they are not all inside.
    pub fn address(&self, offset: u64, bytes: u64) -> Option<*mut u8> {
        let end = offset.checked_add(bytes)?;
        if end > self.bytes as u64 {
            return None;
        }
        // SAFETY: offset is at most the size of the allocation.
        Some(unsafe { self.start.as_ptr().add(offset as usize) })
    }

    /// The `bytes` bytes at `offset`, or `None` if they are not all inside.
    pub fn slice(&self, offset: u64, bytes: u64) -> Option<&[u8]> {
        let address = self.address(offset, bytes)?;
        // SAFETY: the range is inside the allocation, which is initialised and borrowed for as long.
        Some(unsafe { std::slice::from_raw_parts(address, bytes as usize) })
    }

    /// The `bytes` bytes at `offset` to write to, or `None` if they are not all inside.
    pub fn slice_mut(&mut self, offset: u64, bytes: u64) -> Option<&mut [u8]> {
        let address = self.address(offset, bytes)?;
        // SAFETY: as in `slice`, and the arena is borrowed mutably for as long.
        Some(unsafe { std::slice::from_raw_parts_mut(address, bytes as usize) })
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: allocated in `reserve` with this layout, and not freed since.
        unsafe { dealloc(self.allocated.as_ptr(), self.layout) }
    }
}

/// Asks the system for large pages behind memory that begins and ends with one, and leaves it at that if it declines.
#[cfg(target_os = "linux")]
fn prefer_huge_pages(start: NonNull<u8>, bytes: usize) {
    // SAFETY: this changes how the memory is backed and nothing about what it holds, whatever the range.
    unsafe { libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) };
}

#[cfg(not(target_os = "linux"))]
fn prefer_huge_pages(_start: NonNull<u8>, _bytes: usize) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arena_over_its_limit_is_refused_with_both_numbers() {
        let error = Arena::reserve(2048, Some(1024)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OverLimit);
        assert!(error.to_string().contains("2048") && error.to_string().contains("1024"), "{error}");
    }

    #[test]
    fn addresses_are_aligned_zeroed_and_inside() {
        let mut arena = Arena::reserve(1000, None).unwrap();
        assert_eq!(arena.address(0, 1000).unwrap() as usize % ALIGNMENT, 0);
        assert!(arena.slice(0, 1000).unwrap().iter().all(|&b| b == 0));
        arena.slice_mut(990, 10).unwrap().fill(7);
        assert_eq!(arena.slice(989, 11).unwrap(), [0, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7]);
        assert!(arena.address(1, 1000).is_none());
        assert!(arena.address(u64::MAX, 2).is_none());
        assert!(arena.address(1000, 0).is_some());
    }

    #[test]
    fn a_large_arena_is_aligned_zeroed_and_writable_from_end_to_end() {
        // The last byte lies in a large page that is not the arena's alone.
        let bytes = (40 << 20) + 12_345;
        let mut arena = Arena::reserve(bytes, None).unwrap();
        assert_eq!(arena.address(0, bytes).unwrap() as usize % HUGE_PAGE, 0);
        assert!(arena.slice(0, bytes).unwrap() == vec![0; bytes as usize]);
        arena.slice_mut(0, bytes).unwrap().fill(7);
        assert!(arena.slice(0, bytes).unwrap() == vec![7; bytes as usize]);
    }

    #[test]
    fn more_than_the_address_space_is_an_error_not_a_panic() {
        assert_eq!(Arena::reserve(u64::MAX, None).unwrap_err().kind(), ErrorKind::OutOfMemory);
    }
}
