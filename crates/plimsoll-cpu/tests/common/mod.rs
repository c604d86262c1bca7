//! What the tests of kernels share: memory that shows misuse, values, and bounds on errors.
#![allow(dead_code, reason = "every test file uses a part of it")]

use half::{bf16, f16};
use plimsoll_cpu::gemm::WORKSPACE_ALIGN;
use plimsoll_cpu::numbers::{Element, FloatElement};
use plimsoll_cpu::simd::Isa;

/// A scalar that can be compared with a reference in `f64`.
pub(crate) trait Scalar: FloatElement {
    /// The relative error of rounding to it.
    const EPSILON: f64;
    /// The smallest number above zero: below it, rounding is off by up to half of it.
    const SMALLEST: f64;
    /// The relative error of one addition to a sum of it.
    const SUM_EPSILON: f64;

    fn to_f64(self) -> f64;
}

macro_rules! scalar {
    ($($scalar:ident: $epsilon:expr, $smallest:expr, $sum_epsilon:expr;)*) => {$(
        impl Scalar for $scalar {
            const EPSILON: f64 = $epsilon;
            const SMALLEST: f64 = $smallest;
            const SUM_EPSILON: f64 = $sum_epsilon;

            fn to_f64(self) -> f64 {
                f64::from(self.widen())
            }
        }
    )*};
}

scalar! {
    f32: 0.0, 1e-45, f32::EPSILON as f64;
    f64: 0.0, 0.0, f64::EPSILON;
    f16: 1.0 / 1024.0, 1.0 / (1u64 << 24) as f64, f32::EPSILON as f64;
    bf16: 1.0 / 128.0, 1e-40, f32::EPSILON as f64;
}

/// The most that a sum of `terms` products may be off, if the products' magnitudes add up to `magnitude`.
pub(crate) fn bound<T: Scalar>(terms: usize, magnitude: f64, value: f64) -> f64 {
    (terms + 2) as f64 * T::SUM_EPSILON * magnitude + T::EPSILON * value.abs() + T::SMALLEST
}

/// Values from -1 to 1 that depend on `seed`.
pub(crate) fn values<T: Scalar>(len: usize, seed: u64) -> Vec<T> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        T::from_f64((state >> 11) as f64 / (1u64 << 52) as f64 - 1.0)
    };
    (0..len).map(|_| next()).collect()
}

/// Asserts that two results are the same to the bit.
pub(crate) fn assert_same_bits<T: Scalar>(one: &[T], other: &[T]) {
    assert_eq!(one.len(), other.len());
    for (i, (one, other)) in one.iter().zip(other).enumerate() {
        assert_eq!(one.to_f64().to_bits(), other.to_f64().to_bits(), "element {i}: {one:?} and {other:?}");
    }
}

/// The instruction sets that this machine has.
pub(crate) fn isas() -> Vec<Isa> {
    Isa::ALL.into_iter().filter(|isa| isa.is_available()).collect()
}

/// Workspace of an exact size, filled with NaNs and followed by bytes that nobody may touch.
pub(crate) struct Workspace {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

/// All bits set is a NaN in every format.
const POISON: u8 = 0xff;
const CANARY: u8 = 0xa5;

impl Workspace {
    pub(crate) fn new(len: usize) -> Self {
        let mut memory = vec![CANARY; len + 2 * WORKSPACE_ALIGN];
        let start = memory.as_ptr().align_offset(WORKSPACE_ALIGN);
        memory[start..start + len].fill(POISON);
        Self { memory, start, len }
    }

    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let mut outside = self.memory[..self.start].iter().chain(&self.memory[self.start + self.len..]);
            assert!(outside.all(|&byte| byte == CANARY), "a kernel wrote past its workspace");
        }
    }
}
