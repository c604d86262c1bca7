//! What kernels compute with, and how it is kept in memory.
//!
//! There are five kinds of numbers. Half-precision floats are no kind of their own: they are computed with as
//! `f32` and rounded; bools are bytes that are 0 or 1.

use crate::element::Element;
use half::{bf16, f16};
use plimsoll_graph::DType;

/// A number that kernels compute with. Integers wrap.
pub(crate) trait Number: Copy + Default + PartialOrd + Send + Sync + 'static {
    /// What every number is at least.
    const LOWEST: Self;
    /// What every number is at most.
    const HIGHEST: Self;

    fn add(a: Self, b: Self) -> Self;
    fn sub(a: Self, b: Self) -> Self;
    fn mul(a: Self, b: Self) -> Self;
    /// Of integers: truncated, 0 where `b` is.
    fn div(a: Self, b: Self) -> Self;
    fn neg(a: Self) -> Self;
    /// The larger; NaN if either is.
    fn max(a: Self, b: Self) -> Self;
    /// The smaller; NaN if either is.
    fn min(a: Self, b: Self) -> Self;
}

macro_rules! floats {
    ($($float:ident)*) => {
        $(impl Number for $float {
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
        })*
    };
}

floats!(f32 f64);

macro_rules! integers {
    ($($integer:ident)*) => {
        $(impl Number for $integer {
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
        })*
    };
}

integers!(i32 i64 u8);

/// A number as it is kept in memory.
pub(crate) trait Stored: Copy + 'static {
    /// What it is computed with.
    type Number: Number;
    /// Whether it is kept as it is computed with.
    const PLAIN: bool;

    fn load(self) -> Self::Number;
    /// The nearest that can be kept, ties to even.
    fn store(number: Self::Number) -> Self;
    /// The nearest that can be kept, ties to even; of integers the next towards zero.
    fn from_f64(value: f64) -> Self;
}

macro_rules! plain {
    ($($number:ident)*) => {
        $(impl Stored for $number {
            type Number = Self;
            const PLAIN: bool = true;

            #[inline(always)]
            fn load(self) -> Self {
                self
            }

            #[inline(always)]
            fn store(number: Self) -> Self {
                number
            }

            fn from_f64(value: f64) -> Self {
                value as $number
            }
        })*
    };
}

plain!(f32 f64 i32 i64 u8);

macro_rules! halves {
    ($($half:ident)*) => {
        $(impl Stored for $half {
            type Number = f32;
            const PLAIN: bool = false;

            #[inline(always)]
            fn load(self) -> f32 {
                self.widen()
            }

            #[inline(always)]
            fn store(number: f32) -> Self {
                <$half as Element>::narrow(number)
            }

            fn from_f64(value: f64) -> Self {
                <$half as Element>::narrow(value.sticky())
            }
        })*
    };
}

halves!(f16 bf16);

/// A number on its way to half precision: as an `f32` whose last digit is odd if digits were lost, so that
/// rounding it once more gives what rounding the number at once does.
pub(crate) trait Sticky: Copy + Default {
    fn sticky(self) -> f32;
}

impl Sticky for f32 {
    #[inline(always)]
    fn sticky(self) -> f32 {
        self
    }
}

impl Sticky for f64 {
    #[inline(always)]
    fn sticky(self) -> f32 {
        let nearest = self as f32;
        let back = f64::from(nearest);
        // Towards zero, then odd. What overflows is infinite in half precision either way.
        let away = u32::from(back.abs() > self.abs());
        let lost = back != self && nearest.abs() < f32::INFINITY;
        let odd = f32::from_bits((nearest.to_bits() - away) | 1);
        if lost && !self.is_nan() { odd } else { nearest }
    }
}

impl Sticky for i32 {
    #[inline(always)]
    fn sticky(self) -> f32 {
        f64::from(self).sticky()
    }
}

impl Sticky for i64 {
    #[inline(always)]
    fn sticky(self) -> f32 {
        // All but the last digits, and whether those are zero, fit into the digits of an `f64`.
        let short = (self >> 11) | i64::from(self & 0x7ff != 0);
        let fits = (-(1 << 52)..1 << 52).contains(&self);
        (if fits { self as f64 } else { short as f64 * 2048.0 }).sticky()
    }
}

impl Sticky for u8 {
    #[inline(always)]
    fn sticky(self) -> f32 {
        f32::from(self)
    }
}

/// The kind of number a value of some type is computed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    F32,
    F64,
    I32,
    I64,
    U8,
}

impl Kind {
    pub(crate) fn of(dtype: DType) -> Kind {
        match dtype {
            DType::F32 | DType::F16 | DType::BF16 => Kind::F32,
            DType::F64 => Kind::F64,
            DType::I32 => Kind::I32,
            DType::I64 => Kind::I64,
            DType::U8 | DType::Bool => Kind::U8,
        }
    }

    /// Bytes of one number.
    pub(crate) fn size(self) -> usize {
        match self {
            Kind::F64 | Kind::I64 => 8,
            Kind::F32 | Kind::I32 => 4,
            Kind::U8 => 1,
        }
    }
}

/// Whether values of the type are kept in memory as they are computed with.
pub(crate) fn is_plain(dtype: DType) -> bool {
    !matches!(dtype, DType::F16 | DType::BF16)
}

/// The number that a constant of some type is converted from: itself, or 0 or 1 for a bool.
pub(crate) fn constant(value: f64, dtype: DType) -> f64 {
    if dtype == DType::Bool { f64::from(u8::from(value != 0.0)) } else { value }
}

/// Evaluates an expression with a type of [`Stored`] for a `DType`.
macro_rules! with_stored {
    ($dtype:expr, $stored:ident => $body:expr) => {
        match $dtype {
            plimsoll_graph::DType::F32 => {
                type $stored = f32;
                $body
            }
            plimsoll_graph::DType::F16 => {
                type $stored = half::f16;
                $body
            }
            plimsoll_graph::DType::BF16 => {
                type $stored = half::bf16;
                $body
            }
            plimsoll_graph::DType::F64 => {
                type $stored = f64;
                $body
            }
            plimsoll_graph::DType::I32 => {
                type $stored = i32;
                $body
            }
            plimsoll_graph::DType::I64 => {
                type $stored = i64;
                $body
            }
            plimsoll_graph::DType::U8 | plimsoll_graph::DType::Bool => {
                type $stored = u8;
                $body
            }
        }
    };
}

/// Evaluates an expression with a type of [`Number`] for a [`Kind`].
macro_rules! with_number {
    ($kind:expr, $number:ident => $body:expr) => {
        match $kind {
            $crate::kernels::number::Kind::F32 => {
                type $number = f32;
                $body
            }
            $crate::kernels::number::Kind::F64 => {
                type $number = f64;
                $body
            }
            $crate::kernels::number::Kind::I32 => {
                type $number = i32;
                $body
            }
            $crate::kernels::number::Kind::I64 => {
                type $number = i64;
                $body
            }
            $crate::kernels::number::Kind::U8 => {
                type $number = u8;
                $body
            }
        }
    };
}

pub(crate) use {with_number, with_stored};
