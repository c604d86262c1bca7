//! Small matrix products of `f32`.
//!
//! The library's kernels have large tiles, of which a small product fills few; each then adds up its whole depth alone,
//! for ten microseconds and more. Here tiles are small, and the threads of a block share the depth.

use crate::engine::Engine;
use crate::error::Result;
use crate::function::{Argument, Function};
use crate::product::Gemm;
use cudarc::driver::sys::{CUdeviceptr, CUstream};
use plimsoll_graph::DType;
use std::sync::Arc;

const TEXT: &str = include_str!("small.cu");
const TILE: usize = 16;
const THREADS: u32 = 1024;
const GROUPS: usize = 16;
/// The depth that a block holds at once, at most.
const MOST_DEPTH: usize = 512;
/// Products of more multiplications are the library's.
const MOST_MULTIPLICATIONS: usize = 1 << 25;

/// A small product, ready to run.
pub(crate) struct SmallProduct {
    function: Function,
    grid: [u32; 3],
    shared: u32,
}

impl SmallProduct {
    /// Whether a product is small enough, and of numbers that are added up as they are.
    pub(crate) fn suits(gemm: &Gemm, tf32: bool) -> bool {
        let Gemm { m, n, k, batch, dtype, result, accumulate, .. } = *gemm;
        let plain = dtype == DType::F32 && result == DType::F32 && !tf32 && !accumulate && batch == 1;
        plain && m.saturating_mul(n).saturating_mul(k) <= MOST_MULTIPLICATIONS
    }

    pub(crate) fn new(engine: &Arc<Engine>, gemm: &Gemm) -> Result<SmallProduct> {
        let (source, shared) = source(gemm);
        let blocks = |extent: usize| extent.div_ceil(TILE) as u32;
        let function = engine.compile(&source, "small_product", shared)?;
        Ok(SmallProduct { function, grid: [blocks(gemm.n) * blocks(gemm.m), 1, 1], shared })
    }

    /// Enqueues the product, with the device's context current.
    ///
    /// # Safety
    /// The addresses must be those of matrices as they were described, valid when it runs.
    pub(crate) unsafe fn run(&self, addresses: [CUdeviceptr; 3], stream: CUstream) -> Result<()> {
        let arguments = addresses.map(Argument::Address);
        // SAFETY: the kernel takes three addresses and stays within the matrices that the caller vouches for.
        unsafe { self.function.launch(stream, self.grid, THREADS, self.shared, &arguments) }
    }
}

/// The kernel of a product, and its shared memory in bytes.
fn source(gemm: &Gemm) -> (String, u32) {
    let Gemm { m, n, k, a, b, c, .. } = *gemm;
    // As few parts as are held at once, all of about the same depth.
    let depth = k.div_ceil(k.div_ceil(MOST_DEPTH).max(1)).next_multiple_of(4 * GROUPS);
    let pitch = depth.next_multiple_of(32) + 4;
    let constants = [
        ("M", m),
        ("N", n),
        ("K", k),
        ("A_ROW", a[0]),
        ("A_COLUMN", a[1]),
        ("B_ROW", b[0]),
        ("B_COLUMN", b[1]),
        ("C_ROW", c[0]),
        ("DEPTH", depth),
        ("PITCH", pitch),
    ];
    let constants: String =
        constants.iter().map(|(name, value)| format!("constexpr int {name} = {value};\n")).collect();
    let shared = (2 * TILE * pitch).max(GROUPS * TILE * TILE) * size_of::<f32>();
    (constants + TEXT, shared as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gemm(m: usize, n: usize, k: usize) -> Gemm {
        Gemm {
            m,
            n,
            k,
            batch: 1,
            a: [k, 1, 0],
            b: [n, 1, 0],
            c: [n, 0],
            dtype: DType::F32,
            result: DType::F32,
            accumulate: false,
            alignment: [256; 3],
        }
    }

    #[test]
    fn small_products_of_whole_precision_are_taken() {
        assert!(SmallProduct::suits(&gemm(256, 100, 784), false));
        assert!(!SmallProduct::suits(&gemm(256, 100, 784), true), "rounded operands are the library's");
        assert!(!SmallProduct::suits(&gemm(1024, 1024, 1024), false), "too large");
        assert!(!SmallProduct::suits(&Gemm { dtype: DType::BF16, ..gemm(16, 16, 16) }, false));
        assert!(!SmallProduct::suits(&Gemm { accumulate: true, ..gemm(16, 16, 16) }, false));
    }

    #[test]
    fn shared_memory_holds_the_operands_and_then_the_groups_sums() {
        assert_eq!(source(&gemm(256, 100, 784)).1, 4 * 2 * 16 * (448 + 4));
        assert_eq!(source(&gemm(256, 10, 5)).1, 4 * 16 * 256, "the sums need more");
        assert!(source(&gemm(256, 100, 784)).0.contains("constexpr int DEPTH = 448;"), "half of 784");
    }
}
