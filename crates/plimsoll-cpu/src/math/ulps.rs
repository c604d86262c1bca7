//! How far a result is from the exact one.

/// The error of `got` in units of the spacing of `f32` at `expected`.
pub(crate) fn ulps(got: f32, expected: f64) -> f64 {
    let rounded = expected as f32;
    if got.is_nan() || rounded.is_nan() || rounded.is_infinite() || got.is_infinite() {
        let same = got == rounded || got.is_nan() && rounded.is_nan();
        // At the edge of overflow, infinity and the largest number are one step apart.
        let edge = got.abs() >= f32::MAX && rounded.abs() >= f32::MAX && got.signum() == rounded.signum();
        return if same || edge { 0.0 } else { f64::INFINITY };
    }
    let magnitude = rounded.abs().max(f32::MIN_POSITIVE);
    let spacing = f64::from(f32::from_bits(magnitude.to_bits() + 1)) - f64::from(magnitude);
    (f64::from(got) - expected).abs() / spacing
}
