//! Double precision, one number at a time. The tests hold it against correctly rounded results (`exact.txt`).

use std::f64::consts::{FRAC_1_SQRT_2, PI};

/// eˣ
#[inline]
pub(crate) fn exp(x: f64) -> f64 {
    libm::exp(x)
}

/// The natural logarithm.
#[inline]
pub(crate) fn ln(x: f64) -> f64 {
    libm::log(x)
}

/// ln(1 + eˣ)
#[inline]
pub(crate) fn softplus(x: f64) -> f64 {
    (if x <= 0.0 { 0.0 } else { x }) + libm::log1p(libm::exp(-x.abs()))
}

/// The sine.
#[inline]
pub(crate) fn sin(x: f64) -> f64 {
    libm::sin(x)
}

/// The cosine.
#[inline]
pub(crate) fn cos(x: f64) -> f64 {
    libm::cos(x)
}

/// The hyperbolic tangent.
#[inline]
pub(crate) fn tanh(x: f64) -> f64 {
    libm::tanh(x)
}

/// 1 / (1 + e⁻ˣ)
#[inline]
pub(crate) fn sigmoid(x: f64) -> f64 {
    let e = libm::exp(-x.abs());
    (if x < 0.0 { e } else { 1.0 }) / (1.0 + e)
}

/// The error function.
#[inline]
pub(crate) fn erf(x: f64) -> f64 {
    libm::erf(x)
}

/// x Φ(x), Φ the normal distribution function.
#[inline]
pub(crate) fn gelu(x: f64) -> f64 {
    if x == f64::NEG_INFINITY { -0.0 } else { x * normal(x) }
}

/// The derivative of [`gelu`].
#[inline]
pub(crate) fn gelu_slope(x: f64) -> f64 {
    let density = libm::exp(-0.5 * x * x) * (1.0 / (2.0 * PI).sqrt());
    // The density of an infinite number is zero, and so is the number of times it counts.
    normal(x) + if density == 0.0 { 0.0 } else { x * density }
}

/// Rounds down.
#[inline]
pub(crate) fn floor(x: f64) -> f64 {
    const INTEGERS: f64 = (1u64 << 52) as f64;
    let nearest = ((x.abs() + INTEGERS) - INTEGERS).copysign(x);
    let down = if nearest > x { nearest - 1.0 } else { nearest };
    if x.abs() < INTEGERS { down } else { x }
}

/// x to the power of y.
#[inline]
pub(crate) fn pow(x: f64, y: f64) -> f64 {
    libm::pow(x, y)
}

/// The normal distribution function, accurate in both tails.
#[inline]
fn normal(x: f64) -> f64 {
    0.5 * libm::erfc(-x * FRAC_1_SQRT_2)
}
