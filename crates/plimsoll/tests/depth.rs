//! A graph of five thousand layers is traced, differentiated, lowered and planned in little memory.

use plimsoll::layers::{Activation, Dense, Layer};
use plimsoll::{DType, Input, Optimizer, Run};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Keeps the live and the most live bytes of the process.
struct Measuring;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

fn grow(bytes: usize) {
    PEAK.fetch_max(LIVE.fetch_add(bytes, Relaxed) + bytes, Relaxed);
}

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Measuring {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: the caller's contract is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's contract is the same.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static MEASURING: Measuring = Measuring;

#[test]
fn five_thousand_layers_are_planned_in_two_hundred_megabytes() {
    let optimizer = Optimizer::sgd(1e-3);
    let run = Run::builder()
        .step("train", [Input::new("x", &[1000, 100], DType::F32)], move |cx, inputs| {
            let layer = Dense::new(100).activation(Activation::Relu);
            let mut x = inputs.get("x")?.clone();
            for i in 0..5000 {
                x = cx.scope(&format!("layer{i}"), |cx| layer.forward(cx, &x))?;
            }
            let loss = x.square()?.mean_all()?;
            cx.minimise(&loss, &optimizer)?;
            Ok([("loss", loss)])
        })
        .threads(2)
        .compile()
        .unwrap();
    let forecast = run.forecast();
    // At least the five thousand activations of 400,000 bytes live at once.
    assert!(forecast.peak_bytes > 5000 * 400_000);
    assert!(forecast.peak_bytes as f64 <= 1.01 * forecast.lower_bound_bytes as f64);
    let peak = PEAK.load(Relaxed);
    assert!(peak < 200_000_000, "{peak} bytes");
}
