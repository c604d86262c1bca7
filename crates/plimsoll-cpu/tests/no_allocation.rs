//! Kernels allocate nothing while they run: what they need is in their workspace.
//!
//! The count is of all threads of the process, so there are none of the usual harness here.

#![allow(clippy::print_stdout)]

use plimsoll_cpu::conv::{self, ConvShape, Pass, convolve};
use plimsoll_cpu::gemm::{Gemm, Matrix, MatrixMut, WORKSPACE_ALIGN, gemm, gemm_workspace};
use plimsoll_cpu::pool::Pool;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The system's allocator, with a count of its calls.
struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the contract is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the contract is the same.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() {
    let pool = Pool::new(3).unwrap();
    let threads = pool.threads();
    let (m, n, k) = (100, 90, 3000);
    let shape = ConvShape::new([2, 12, 12, 8], [3, 3, 8, 16], [1, 1], [[1, 1]; 2], [1, 1], 1).unwrap();
    let depthwise = ConvShape::new([2, 12, 12, 8], [3, 3, 1, 8], [1, 1], [[1, 1]; 2], [1, 1], 8).unwrap();
    let passes = || [&shape, &depthwise].into_iter().flat_map(|shape| Pass::ALL.map(|pass| (pass, shape)));
    let bytes = passes().map(|(pass, shape)| conv::workspace::<f32>(pass, shape, threads)).max().unwrap();
    let bytes = bytes.max(gemm_workspace::<f32>(1, m, n, k, threads));
    let mut workspace = vec![0u8; bytes + WORKSPACE_ALIGN];
    let start = workspace.as_ptr().align_offset(WORKSPACE_ALIGN);
    let workspace = &mut workspace[start..];
    let (a, b) = (vec![0.5f32; m * k], vec![0.25f32; k * n]);
    let mut c = vec![0f32; m * n];
    let matrix = |start, row_stride| Matrix { start, row_stride, column_stride: 1, batch_strides: [0, 0] };
    let args = Gemm {
        batch: [1, 1],
        m,
        n,
        k,
        alpha: 1.0,
        a: matrix(a.as_ptr(), k as isize),
        b: matrix(b.as_ptr(), n as isize),
        c: MatrixMut { start: c.as_mut_ptr(), row_stride: n as isize, batch_strides: [0, 0] },
        accumulate: false,
    };
    let (x, f) = (a.as_ptr(), b.as_ptr());

    let before = ALLOCATIONS.load(Ordering::SeqCst);
    for _ in 0..50 {
        // SAFETY: the vectors are at least as long as the shapes need.
        unsafe {
            gemm(&pool, &args, workspace);
            for (pass, shape) in passes() {
                convolve(pass, &pool, shape, [x, f], c.as_mut_ptr(), workspace);
            }
        }
    }
    assert_eq!(ALLOCATIONS.load(Ordering::SeqCst), before);
    println!("test products_and_convolutions_allocate_nothing ... ok");
}
