//! Iterating batches allocates nothing: an allocator that counts is the witness.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::Path;

use plimsoll_data::sources::{Inputs, JsonLines, Key, Targets, Text, TfRecord, npy};
use plimsoll_data::{Columns, Csv, Dataset, Element, Field, Record, Source, Synthetic, digits};

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
fn reading_files_in_place_allocates_nothing() {
    let file = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    let inputs = Inputs { scale: false, channels: true };
    for name in ["little-f4.npy", "big-f8.npy"] {
        let source = npy(file(name), file("labels.npy"), inputs, Targets::Classes(3));
        assert_eq!(allocations(source.unwrap()), 0);
    }
    assert_eq!(allocations(Text::open(&[file("../no_allocation.rs")], 16).unwrap()), 0);
}

/// Allocations of reading all fields of all samples, from the last to the first.
fn allocations_by_number(source: impl Source) -> usize {
    let mut buffers: Vec<Vec<u8>> = source.fields().iter().map(|field| vec![0; field.bytes()]).collect();
    let before = ALLOCATIONS.get();
    for sample in (0..source.samples()).rev() {
        for (field, buffer) in buffers.iter_mut().enumerate() {
            source.read(sample, field, buffer).unwrap();
        }
    }
    ALLOCATIONS.get() - before
}

#[test]
fn reading_records_by_number_allocates_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.csv");
    let rows: String =
        (0..200_000).map(|row| format!("{row}.25,{}e-3, {row},{}\n", row * 7, row % 3)).collect();
    std::fs::write(&path, format!("a,b,c,y\n{rows}")).unwrap();
    let source = Csv::label("y").open(&path).unwrap();
    assert!(source.resident_bytes() < 4 << 20);
    assert_eq!(allocations_by_number(source), 0);
    // Who trains on them allocates nothing either, once batches are made ahead.
    let source = Csv::label("y").open(&path).unwrap();
    let batches = Dataset::new(source).unwrap().batches(32).unwrap().shuffled(2);
    let mut buffer = vec![0; batches.buffer_bytes(0)];
    let mut epoch = batches.epoch(0);
    let mut before = 0;
    for number in 0..batches.per_epoch() {
        if number == 100 {
            before = ALLOCATIONS.get();
        }
        epoch.next().unwrap().read(0, &mut buffer).unwrap();
    }
    assert_eq!(ALLOCATIONS.get() - before, 0);

    let file = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    let label = || Key::of(Field::new("label", Element::I32, &[]).unwrap()).classes(3);
    let floats = |shape: &[usize]| Key::of(Field::new("floats", Element::F32, shape).unwrap());
    let examples = TfRecord::new(&[floats(&[6]), label()]).unwrap();
    assert_eq!(allocations_by_number(examples.open(file("records.tfrecord")).unwrap()), 0);
    let lines = JsonLines::new(&[floats(&[2, 3]), label()]).unwrap();
    assert_eq!(allocations_by_number(lines.open(file("records.jsonl")).unwrap()), 0);
}

#[test]
fn records_of_open_shape_allocate_nothing_once_the_largest_was_read() {
    let file = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    let open = |name, element| Key::of(Field::open(name, element, &[Field::OPEN]).unwrap());
    let keys = [open("text", Element::U8), open("tokens", Element::I64)];
    let sources = [
        JsonLines::new(&keys).unwrap().open(file("records.jsonl")).unwrap(),
        TfRecord::new(&keys).unwrap().open(file("records.tfrecord")).unwrap(),
    ];
    for source in sources {
        let mut record = Record::new(&source.fields().into());
        (0..5).for_each(|sample| source.read_record(sample, &mut record).unwrap());
        let before = ALLOCATIONS.get();
        (0..5).for_each(|sample| source.read_record(sample, &mut record).unwrap());
        assert_eq!(ALLOCATIONS.get() - before, 0);
    }
}

#[test]
fn streaming_allocates_nothing_once_it_has_begun() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.csv");
    let rows: String = (0..50_000).map(|row| format!("{row}.25,{}\n", row % 3)).collect();
    std::fs::write(&path, format!("a,y\n{rows}")).unwrap();
    let streamed = Csv::label("y").stream(&path).unwrap();
    let (mut record, mut reader) = (Record::new(streamed.fields()), streamed.reader().unwrap());
    assert!(reader.next(&mut record).unwrap());
    let before = ALLOCATIONS.get();
    while reader.next(&mut record).unwrap() {}
    assert_eq!(ALLOCATIONS.get() - before, 0);
}

#[test]
fn the_witness_sees_an_allocation() {
    let before = ALLOCATIONS.get();
    std::hint::black_box(vec![0u8; std::hint::black_box(10)]);
    assert_eq!(ALLOCATIONS.get() - before, 1);
}
