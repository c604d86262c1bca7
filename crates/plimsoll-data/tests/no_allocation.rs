//! Iterating batches allocates nothing: an allocator that counts is the witness.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use plimsoll_data::{Columns, Dataset, Source, Synthetic, digits};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

fn count() {
    ALLOCATIONS.with(|count| count.set(count.get() + 1));
}

// SAFETY: every call is passed on to the system's allocator unchanged; counting does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations of two epochs over a split of the source, all fields read.
fn allocations(source: impl Source + 'static) -> usize {
    let split = Dataset::new(source).unwrap().split(0.8, 1).unwrap();
    let batches = split.train.batches(32).unwrap().shuffled(2);
    let fields = split.train.fields().len();
    let mut buffers: Vec<Vec<u8>> = (0..fields).map(|field| vec![0; batches.buffer_bytes(field)]).collect();
    let before = ALLOCATIONS.get();
    for epoch in 0..2 {
        for batch in batches.epoch(epoch) {
            for (field, buffer) in buffers.iter_mut().enumerate() {
                batch.read(field, buffer).unwrap();
            }
        }
    }
    ALLOCATIONS.get() - before
}

#[test]
fn iterating_batches_allocates_nothing() {
    assert_eq!(allocations(digits()), 0);
    let columns = Columns::new().column("x", &[5], vec![0.0; 5000]).unwrap().column("y", &[], vec![0; 1000]);
    assert_eq!(allocations(columns.unwrap()), 0);
    let synthetic = Synthetic::new(1000, 0).normal("x", &[9]).unwrap().tokens("t", "n", 7, 50);
    assert_eq!(allocations(synthetic.unwrap()), 0);
}

#[test]
fn the_witness_sees_an_allocation() {
    let before = ALLOCATIONS.get();
    std::hint::black_box(vec![0u8; std::hint::black_box(10)]);
    assert_eq!(ALLOCATIONS.get() - before, 1);
}
