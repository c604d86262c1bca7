//! Weights go in and out in pieces: none is in memory whole beside the run's own.

use plimsoll::exchange::{
    Names, Partial, TensorFile, convert_weights, load_weights, save_weights, write_onnx,
};
use plimsoll::layers::{Dense, Layer};
use plimsoll::{Context, DType, Input, Precision, Run};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Counts the bytes of the process's heap.
struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Relaxed) + layout.size();
        MOST.fetch_max(now, Relaxed);
        // SAFETY: the caller's contract is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's contract is the same.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// The bytes of heap that something takes at most.
fn heap_of<T>(what: impl FnOnce() -> T) -> usize {
    let before = NOW.load(Relaxed);
    MOST.store(before, Relaxed);
    what();
    MOST.load(Relaxed) - before
}

#[test]
fn a_weight_of_32_mib_is_moved_in_a_few_whatever_its_order() {
    const WIDE: [usize; 2] = [2048, 4096];
    const FEW: usize = 8 << 20;
    let place = tempfile::tempdir().unwrap();
    let [ours, theirs, again, onnx] =
        ["ours", "theirs", "again", "model.onnx"].map(|name| place.path().join(name));
    let mut run = Run::builder()
        .inference("predict", vec![Input::new("x", &[1, WIDE[0]], DType::F32)], |cx, inputs| {
            let [x] = inputs.all()?;
            Ok(vec![("y".into(), cx.layer("dense", Dense::new(WIDE[1]), x)?)])
        })
        .compile()
        .unwrap();
    let weight = run.state("dense/weight").unwrap();
    assert!(weight.bytes().len() > 3 * FEW);

    assert!(heap_of(|| save_weights(&mut run, &ours, &Names::plimsoll()).unwrap()) < FEW);
    assert!(heap_of(|| save_weights(&mut run, &theirs, &Names::torch()).unwrap()) < FEW);
    let file = TensorFile::open(&ours).unwrap();
    assert!(heap_of(|| convert_weights(&file, &again, &Names::torch()).unwrap()) < FEW);
    let trace = |samples: usize| {
        let cx = Context::trace(false, Precision::F32);
        let x = cx.input("x", &[samples, WIDE[0]], DType::F32)?;
        cx.output("y", &cx.scope("dense", |cx| Dense::new(WIDE[1]).forward(cx, &x))?)?;
        cx.take_step()
    };
    assert!(heap_of(|| write_onnx(&trace, &file, &onnx).unwrap()) < FEW);
    run.set_state("dense/weight", &plimsoll::Array::zeros(&WIDE, DType::F32).unwrap()).unwrap();
    let load = || load_weights(&mut run, &theirs, &Names::torch(), Partial::Refused).unwrap();
    assert!(heap_of(load) < FEW);
    assert!(run.state("dense/weight").unwrap() == weight);
}
