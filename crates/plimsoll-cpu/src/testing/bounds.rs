//! Elements as numbers, and how far sums of them may be off.

use super::Numbers;
use crate::numbers::{Element, Float};
use half::{bf16, f16};

/// An element that can be compared with a reference in `f64`.
pub(crate) trait Bounded: Element<Acc: Float> {
    /// The relative error of rounding to it.
    const EPSILON: f64;
    /// The smallest number above zero: below it, rounding is off by up to half of it.
    const SMALLEST: f64;
    /// The relative error of one addition to a sum of it.
    const SUM_EPSILON: f64;

    fn to_f64(self) -> f64;
}

macro_rules! bounded {
    ($($scalar:ident: $epsilon:expr, $smallest:expr, $sum_epsilon:expr;)*) => {$(
        impl Bounded for $scalar {
            const EPSILON: f64 = $epsilon;
            const SMALLEST: f64 = $smallest;
            const SUM_EPSILON: f64 = $sum_epsilon;

            fn to_f64(self) -> f64 {
                f64::from(self.widen())
            }
        }
    )*};
}

bounded! {
    f32: 0.0, 1e-45, f32::EPSILON as f64;
    f64: 0.0, 0.0, f64::EPSILON;
    f16: 1.0 / 1024.0, 1.0 / (1u64 << 24) as f64, f32::EPSILON as f64;
    bf16: 1.0 / 128.0, 1e-40, f32::EPSILON as f64;
}

/// The most that a sum of `terms` products may be off, if the products' magnitudes add up to `magnitude`.
pub(crate) fn bound<T: Bounded>(terms: usize, magnitude: f64, value: f64) -> f64 {
    (terms + 2) as f64 * T::SUM_EPSILON * magnitude + T::EPSILON * value.abs() + T::SMALLEST
}

/// Values from -1 to 1 that depend on `seed`.
pub(crate) fn values<T: Bounded>(len: usize, seed: u64) -> Vec<T> {
    let mut numbers = Numbers::new(seed);
    (0..len).map(|_| T::from_f64(numbers.float())).collect()
}

/// Asserts that two results are the same to the bit.
pub(crate) fn assert_same_bits<T: Bounded>(one: &[T], other: &[T]) {
    assert_eq!(one.len(), other.len());
    for (i, (one, other)) in one.iter().zip(other).enumerate() {
        assert_eq!(one.to_f64().to_bits(), other.to_f64().to_bits(), "element {i}: {one:?} and {other:?}");
    }
}
