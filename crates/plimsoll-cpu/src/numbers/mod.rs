//! The numbers that tensors hold and the numbers that kernels compute with.
//!
//! A tensor holds elements. Kernels widen an [`Element`] to a [`Number`] when they read it, compute with that, and
//! round once, to nearest with ties to even, when they write. There are five numbers: half-precision floats are none of
//! their own, since they are storage for `f32`, and bools are bytes that are 0 or 1. A [`Float`] is a number with
//! elementary functions and vector registers; what takes float tensors alone is over an `Element<Acc: Float>`.

mod halves;
mod kind;

use crate::math::{double, single};
use crate::simd::{InstructionSet, MAX_LANES, Vector};
use std::fmt::Debug;
use std::ops::{Add, AddAssign, Div, Mul, Neg, Range, Sub};

pub(crate) use kind::{Kind, constant, is_acc, with_element, with_float, with_number};

/// A number as a tensor holds it.
pub trait Element: Copy + Default + Send + Sync + PartialEq + Debug + 'static {
    /// The number that it is computed with, and that sums of it are kept in: its accumulator.
    type Acc: Number<Acc = Self::Acc>;

    /// Whether it is its own [`Acc`](Self::Acc), so that memory of one is memory of the other.
    const IS_ACC: bool;

    /// The value, widened.
    fn widen(self) -> Self::Acc;

    /// The nearest element, ties to even.
    fn narrow(value: Self::Acc) -> Self;

    /// The nearest element, ties to even; of integers the next towards zero.
    fn from_f64(value: f64) -> Self;

    /// Reads the elements of `lanes`, widened, and sets the other lanes to zero.
    ///
    /// # Safety
    ///
    /// As for [`Vector::load_some`].
    #[inline(always)]
    unsafe fn load_some<V: Vector<Scalar = Self::Acc>>(from: *const Self, lanes: Range<usize>) -> V {
        let mut wide = [Self::Acc::default(); MAX_LANES];
        // SAFETY: the caller vouches for the elements of `lanes`, and no vector has more than `MAX_LANES` lanes.
        unsafe {
            if Self::IS_ACC {
                let from = from.cast();
                return if lanes == (0..V::LANES) { V::load(from) } else { V::load_some(from, lanes) };
            }
            if lanes == (0..V::LANES) {
                for (lane, wide) in wide[..V::LANES].iter_mut().enumerate() {
                    *wide = (*from.add(lane)).widen();
                }
            } else {
                for lane in lanes {
                    *wide.get_unchecked_mut(lane) = (*from.wrapping_add(lane)).widen();
                }
            }
            V::load(wide.as_ptr())
        }
    }
}

/// A number that kernels compute with. Integers wrap.
pub trait Number: Element<Acc = Self> + PartialOrd {
    /// What every number is at least.
    const LOWEST: Self;
    /// What every number is at most.
    const HIGHEST: Self;

    /// The sum.
    fn add(a: Self, b: Self) -> Self;
    /// The difference.
    fn sub(a: Self, b: Self) -> Self;
    /// The product.
    fn mul(a: Self, b: Self) -> Self;
    /// The quotient; of integers truncated, and 0 where `b` is.
    fn div(a: Self, b: Self) -> Self;
    /// The negative.
    fn neg(a: Self) -> Self;
    /// The larger; NaN if either is.
    fn max(a: Self, b: Self) -> Self;
    /// The smaller; NaN if either is.
    fn min(a: Self, b: Self) -> Self;
    /// Whether it is larger than `largest`; NaN is larger than all but NaN.
    #[inline(always)]
    #[expect(clippy::eq_op, reason = "only NaN differs from itself")]
    fn exceeds(self, largest: Self) -> bool {
        (self > largest) | ((self != self) & (largest == largest))
    }

    /// The number as an `f32` whose last digit is odd if digits were lost, so that rounding that to half precision
    /// gives what rounding the number at once does.
    fn round_to_odd(self) -> f32;
}

/// A floating-point number that kernels compute with.
///
/// Its functions give the same bits on every machine, and in vector code as one by one.
pub trait Float:
    Number
    + Add<Output = Self>
    + AddAssign
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
{
    /// Zero.
    const ZERO: Self;
    /// One.
    const ONE: Self;
    /// Not a number.
    const NAN: Self;
    /// Larger than any other.
    const INFINITY: Self;

    /// The register of an instruction set.
    type Vector<I: InstructionSet>: Vector<Scalar = Self>;

    /// The nearest number.
    fn of(value: f64) -> Self;
    /// `self * factor + addend`, rounded once where every processor of the architecture can.
    fn mul_add(self, factor: Self, addend: Self) -> Self;
    /// eˣ
    fn exp(x: Self) -> Self;
    /// The natural logarithm.
    fn ln(x: Self) -> Self;
    /// ln(1 + eˣ)
    fn softplus(x: Self) -> Self;
    /// The sine.
    fn sin(x: Self) -> Self;
    /// The cosine.
    fn cos(x: Self) -> Self;
    /// The hyperbolic tangent.
    fn tanh(x: Self) -> Self;
    /// 1 / (1 + e⁻ˣ)
    fn sigmoid(x: Self) -> Self;
    /// The error function.
    fn erf(x: Self) -> Self;
    /// x Φ(x), Φ the normal distribution function.
    fn gelu(x: Self) -> Self;
    /// The derivative of [`gelu`](Self::gelu).
    fn gelu_slope(x: Self) -> Self;
    /// Rounds down.
    fn floor(x: Self) -> Self;
    /// x to the power of y.
    fn pow(x: Self, y: Self) -> Self;
    /// The square root.
    fn sqrt(x: Self) -> Self;
    /// 1 / x
    fn recip(x: Self) -> Self;
    /// The magnitude.
    fn abs(x: Self) -> Self;
    /// −1, 0 or 1; zeros and NaN are returned as they are.
    fn sign(x: Self) -> Self;
    /// x, or 0 if it is negative.
    fn relu(x: Self) -> Self;
    /// Whether it is neither infinite nor NaN.
    fn is_finite(x: Self) -> bool;
}

/// Numbers are elements that are kept as they are computed with.
macro_rules! plain_elements {
    ($($number:ident)*) => {$(
        impl Element for $number {
            type Acc = Self;
            const IS_ACC: bool = true;

            #[inline(always)]
            fn widen(self) -> Self {
                self
            }

            #[inline(always)]
            fn narrow(value: Self) -> Self {
                value
            }

            fn from_f64(value: f64) -> Self {
                value as $number
            }
        }
    )*};
}

plain_elements!(f32 f64 i32 i64 u8);

macro_rules! integers {
    ($($integer:ident, |$x:ident| $round_to_odd:expr;)*) => {$(
        impl Number for $integer {
            const LOWEST: Self = $integer::MIN;
            const HIGHEST: Self = $integer::MAX;

            #[inline(always)]
            fn add(a: Self, b: Self) -> Self {
                a.wrapping_add(b)
            }

            #[inline(always)]
            fn sub(a: Self, b: Self) -> Self {
                a.wrapping_sub(b)
            }

            #[inline(always)]
            fn mul(a: Self, b: Self) -> Self {
                a.wrapping_mul(b)
            }

            #[inline(always)]
            fn div(a: Self, b: Self) -> Self {
                if b == 0 { 0 } else { a.wrapping_div(b) }
            }

            #[inline(always)]
            fn neg(a: Self) -> Self {
                a.wrapping_neg()
            }

            #[inline(always)]
            fn max(a: Self, b: Self) -> Self {
                if a > b { a } else { b }
            }

            #[inline(always)]
            fn min(a: Self, b: Self) -> Self {
                if a < b { a } else { b }
            }

            #[inline(always)]
            fn round_to_odd(self) -> f32 {
                let $x = self;
                $round_to_odd
            }
        }
    )*};
}

integers! {
    u8, |x| f32::from(x);
    i32, |x| f64::from(x).round_to_odd();
    i64, |x| {
        // All but the last digits, and whether those are zero, fit into the digits of an `f64`.
        let short = (x >> 11) | i64::from(x & 0x7ff != 0);
        let fits = (-(1 << 52)..1 << 52).contains(&x);
        (if fits { x as f64 } else { short as f64 * 2048.0 }).round_to_odd()
    };
}

macro_rules! floats {
    ($($float:ident, $vector:ident, $module:ident, |$x:ident| $round_to_odd:expr;)*) => {$(
        impl Number for $float {
            const LOWEST: Self = $float::NEG_INFINITY;
            const HIGHEST: Self = $float::INFINITY;

            #[inline(always)]
            fn add(a: Self, b: Self) -> Self {
                a + b
            }

            #[inline(always)]
            fn sub(a: Self, b: Self) -> Self {
                a - b
            }

            #[inline(always)]
            fn mul(a: Self, b: Self) -> Self {
                a * b
            }

            #[inline(always)]
            fn div(a: Self, b: Self) -> Self {
                a / b
            }

            #[inline(always)]
            fn neg(a: Self) -> Self {
                -a
            }

            #[inline(always)]
            fn max(a: Self, b: Self) -> Self {
                if a > b || a.is_nan() { a } else { b }
            }

            #[inline(always)]
            fn min(a: Self, b: Self) -> Self {
                if a < b || a.is_nan() { a } else { b }
            }

            #[inline(always)]
            fn round_to_odd(self) -> f32 {
                let $x = self;
                $round_to_odd
            }
        }

        impl Float for $float {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const NAN: Self = $float::NAN;
            const INFINITY: Self = $float::INFINITY;

            type Vector<I: InstructionSet> = I::$vector;

            #[inline(always)]
            fn of(value: f64) -> Self {
                value as $float
            }

            #[inline(always)]
            fn mul_add(self, factor: Self, addend: Self) -> Self {
                // Without the instruction, fusing would be a library call for every product.
                if cfg!(any(target_arch = "aarch64", target_feature = "fma")) {
                    self.mul_add(factor, addend)
                } else {
                    self * factor + addend
                }
            }

            floats!(@ $module exp ln softplus sin cos tanh sigmoid erf gelu gelu_slope floor);

            #[inline(always)]
            fn pow(x: Self, y: Self) -> Self {
                $module::pow(x, y)
            }

            #[inline(always)]
            fn sqrt(x: Self) -> Self {
                x.sqrt()
            }

            #[inline(always)]
            fn recip(x: Self) -> Self {
                1.0 / x
            }

            #[inline(always)]
            fn abs(x: Self) -> Self {
                x.abs()
            }

            #[inline(always)]
            fn sign(x: Self) -> Self {
                if x > 0.0 {
                    1.0
                } else if x < 0.0 {
                    -1.0
                } else {
                    x
                }
            }

            #[inline(always)]
            fn relu(x: Self) -> Self {
                if x <= 0.0 { 0.0 } else { x }
            }

            #[inline(always)]
            fn is_finite(x: Self) -> bool {
                x.abs() < $float::INFINITY
            }
        }
    )*};
    (@ $module:ident $($function:ident)*) => {$(
        #[inline(always)]
        fn $function(x: Self) -> Self {
            $module::$function(x)
        }
    )*};
}

floats! {
    f32, F32, single, |x| x;
    f64, F64, double, |x| {
        let nearest = x as f32;
        let back = f64::from(nearest);
        // Towards zero, then odd. What overflows is infinite in half precision either way.
        let away = u32::from(back.abs() > x.abs());
        let lost = back != x && nearest.abs() < f32::INFINITY;
        let odd = f32::from_bits((nearest.to_bits() - away) | 1);
        if lost && !x.is_nan() { odd } else { nearest }
    };
}
