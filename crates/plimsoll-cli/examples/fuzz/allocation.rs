//! What is allocated, to the byte: the system's allocator, counted.
//!
//! Resident memory would be blurred by what the process kept from inputs before; and a request that is never written to
//! would not show. Beyond a bound nothing is given, so that an input that asks for everything ends this process and not
//! the machine's other work.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// What all allocations of this process may have together.
const MOST_BYTES: usize = 4 << 30;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static COUNTED: Counted = Counted;

struct Counted;

// SAFETY: every request is passed to the system's allocator as it is, or refused by a null pointer; counting touches
// none of the memory.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !take(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's promises are those that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if !take(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as above; every pointer that is given back came from the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // Old and new may both be there while the one is copied to the other.
        if !take(new_size) {
            return std::ptr::null_mut();
        }
        // SAFETY: as above.
        let moved = unsafe { System.realloc(pointer, layout, new_size) };
        LIVE.fetch_sub(if moved.is_null() { new_size } else { layout.size() }, Relaxed);
        moved
    }
}

fn take(bytes: usize) -> bool {
    let live = LIVE.fetch_add(bytes, Relaxed).saturating_add(bytes);
    let given = live <= MOST_BYTES;
    if given {
        PEAK.fetch_max(live, Relaxed);
    } else {
        LIVE.fetch_sub(bytes, Relaxed);
    }
    given
}

/// The most bytes that were allocated at once while something was done, beyond those that were before.
pub(crate) fn peak_of<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = LIVE.load(Relaxed);
    PEAK.store(before, Relaxed);
    let result = work();
    (result, PEAK.load(Relaxed).saturating_sub(before))
}
