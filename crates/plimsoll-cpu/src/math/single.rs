//! Single precision, for loops that become vector code.
//!
//! Each function states its largest error in units in the last place (ulp) of the result, over all numbers;
//! the tests sample for it. Subnormal operands and results are exact to the same bound of their spacing, and
//! infinities and NaN give what the limit or IEEE 754 says. Both sides of a choice are computed, and then one is
//! selected: a branch would end the vector code.

use std::hint::select_unpredictable as select;

/// eˣ, to 1 ulp.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    let (e, n) = exp_parts(x, 0.0);
    scale(e, n)
}

/// e to the power of `high + low`, as a number near one and a power of two; `low` is below 0.1.
#[inline(always)]
fn exp_parts(high: f32, low: f32) -> (f32, i32) {
    // Beyond these bounds, which NaN passes, the result is 0 or infinite.
    let high = select(high < -130.0, -130.0, high);
    let high = select(high > 100.0, 100.0, high);
    // high = n ln 2 + r; the first part of ln 2 has few bits, so that its product with n is exact.
    let (n, exponent) = nearest(high * std::f32::consts::LOG2_E);
    let r = (high - n * 0.693_359_4) - (n * -2.121_944_4e-4 - low);
    let mut p = 1.987_569_1e-4;
    p = p * r + 1.398_199_9e-3;
    p = p * r + 8.333_452e-3;
    p = p * r + 4.166_579_6e-2;
    p = p * r + 1.666_666_5e-1;
    p = p * r + 0.5;
    ((p * (r * r) + r) + 1.0, exponent)
}

/// `x` times 2ⁿ, in two steps, so that neither factor over- or underflows before the product does.
#[inline(always)]
fn scale(x: f32, n: i32) -> f32 {
    let half = n >> 1;
    x * power_of_two(half) * power_of_two(n - half)
}

/// The nearest integer, of numbers below 2²², as a number and as an integer.
#[inline(always)]
fn nearest(x: f32) -> (f32, i32) {
    const MAGIC: f32 = (3 << 22) as f32;
    let shifted = x + MAGIC;
    (shifted - MAGIC, shifted.to_bits().wrapping_sub(MAGIC.to_bits()) as i32)
}

/// 2ⁿ, for n from −126 to 127.
#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) as u32) << 23)
}

/// The natural logarithm, to 1 ulp.
#[inline(always)]
pub(crate) fn ln(x: f32) -> f32 {
    ln_plus(x, -0.0)
}

/// The logarithm of `x`, plus a `correction` of about the rounding error of one.
#[inline(always)]
fn ln_plus(x: f32, correction: f32) -> f32 {
    const SQRT_HALF: u32 = 0x3f35_04f3;
    let subnormal = x < f32::MIN_POSITIVE;
    let scaled = select(subnormal, x * 8_388_608.0, x);
    // x = m 2ⁿ with m from √½ to √2.
    let shifted = scaled.to_bits().wrapping_sub(SQRT_HALF);
    let n = (shifted as i32 >> 23) - select(subnormal, 23, 0);
    let m = f32::from_bits((shifted & 0x007f_ffff) + SQRT_HALF);
    let n = n as f32;
    let f = m - 1.0;
    let z = f * f;
    let mut p = 7.037_683_6e-2;
    p = p * f - 1.151_461e-1;
    p = p * f + 1.167_699_9e-1;
    p = p * f - 1.242_014_1e-1;
    p = p * f + 1.424_932_3e-1;
    p = p * f - 1.666_805_7e-1;
    p = p * f + 2.000_071_5e-1;
    p = p * f - 2.499_999_4e-1;
    p = p * f + 3.333_333e-1;
    let tail = (p * f * z + n * -2.121_944_4e-4 + correction) - 0.5 * z;
    let finite = (f + tail) + n * 0.693_359_4;
    let positive = select(x < f32::INFINITY, finite, x);
    let other = select(x == 0.0, f32::NEG_INFINITY, f32::NAN);
    select(x > 0.0, positive, other)
}

/// ln(1 + eˣ), to 2 ulp.
#[inline(always)]
pub(crate) fn softplus(x: f32) -> f32 {
    let e = exp(-x.abs());
    // What rounding 1 + e loses is exact; the logarithm's slope says what it counts.
    let sum = 1.0 + e;
    let lost = e - (sum - 1.0);
    select(x <= 0.0, 0.0, x) + ln_plus(sum, lost / sum)
}

/// The hyperbolic tangent, to 2 ulp.
#[inline(always)]
pub(crate) fn tanh(x: f32) -> f32 {
    let t = x.abs();
    let z = x * x;
    let mut p = -5.704_988_7e-3;
    p = p * z + 2.063_909e-2;
    p = p * z - 5.373_971_6e-2;
    p = p * z + 1.333_144_2e-1;
    p = p * z - 3.333_328e-1;
    let small = p * z * x + x;
    let large = 1.0 - 2.0 / (exp(2.0 * t) + 1.0);
    select(t < 0.625, small, large).copysign(x)
}

/// 1 / (1 + e⁻ˣ), to 3 ulp.
#[inline(always)]
pub(crate) fn sigmoid(x: f32) -> f32 {
    let e = exp(-x.abs());
    select(x < 0.0, e, 1.0) / (1.0 + e)
}

/// The error function, to 2 ulp.
#[inline(always)]
pub(crate) fn erf(x: f32) -> f32 {
    let t = x.abs();
    let z = x * x;
    let mut p = -5.967_617e-4;
    p = p * z + 4.991_194_2e-3;
    p = p * z - 2.676_813_5e-2;
    p = p * z + 1.128_199_25e-1;
    p = p * z - 3.761_253_4e-1;
    p = p * z + 1.283_791_7e-1;
    let small = p * x + x;
    // 1 - exp of a polynomial; from 4 on the result is 1.
    let t = select(t > 4.0, 4.0, t);
    let mut q = -1.728_534_7e-5;
    q = q * t + 3.831_971_3e-4;
    q = q * t - 3.883_964_4e-3;
    q = q * t + 2.425_462_2e-2;
    q = q * t - 1.067_778_8e-1;
    q = q * t - 6.348_467e-1;
    q = q * t - 1.287_175_1e-1;
    let large = (1.0 - exp(q * t - t)).copysign(x);
    select(t > 0.927_734_4, large, small)
}

/// x Φ(x), Φ the normal distribution function, to 4 ulp.
#[inline(always)]
pub(crate) fn gelu(x: f32) -> f32 {
    let z = x * x;
    let mut q = -7.664_679e-6;
    q = q * z + 1.135_126_6e-4;
    q = q * z - 1.186_353_1e-3;
    q = q * z + 9.973_332e-3;
    q = q * z - 6.649_036e-2;
    q = q * z + 3.989_423e-1;
    let small = x * (0.5 + x * q);
    // |x| Φ(-|x|) is the density's exponential times a function that a polynomial describes.
    let t = x.abs();
    let (e, n, u) = tail(t, 4.0);
    let mut p = 7.884_863e-4;
    p = p * u - 9.548_816e-4;
    p = p * u - 5.481_87e-3;
    p = p * u + 2.643_521_6e-2;
    p = p * u - 6.306_616e-2;
    p = p * u + 1.003_071_6e-1;
    p = p * u - 1.103_794_6e-1;
    p = p * u + 7.369_426e-2;
    p = p * u + 3.776_425_6e-1;
    let part = scale(e * p, n);
    let large = select(x < 0.0, -part, x - part);
    select(t < 1.0, small, large)
}

/// The derivative of [`gelu`], to 5 ulp, or 2⁻²³ from −1.3 to −0.4, where it crosses zero.
#[inline(always)]
pub(crate) fn gelu_slope(x: f32) -> f32 {
    let z = x * x;
    let mut q = -8.881_634e-5;
    q = q * z + 1.128_029_3e-3;
    q = q * z - 9.485_316e-3;
    q = q * z + 5.983_827_4e-2;
    q = q * z - 2.659_612_6e-1;
    q = q * z + 7.978_846e-1;
    let small = 0.5 + x * q;
    // Φ(-|x|) / e^(-x²/2)
    let t = x.abs();
    let (e, n, u) = tail(t, 3.0);
    let mut p = 1.654_695_3e-4;
    p = p * u - 3.185_433e-4;
    p = p * u - 1.010_104_4e-3;
    p = p * u + 2.903_074_7e-3;
    p = p * u + 6.136_494_8e-3;
    p = p * u - 4.621_345_6e-2;
    p = p * u + 1.232_247_9e-1;
    p = p * u - 2.064_026_1e-1;
    p = p * u + 1.215_139_5e-1;
    let part = scale(e * (0.398_942_3 * bounded(t) - p), n);
    let large = select(x < 0.0, -part, 1.0 + part);
    select(t < 1.0, small, large)
}

/// The exponential of the normal density, e^(−t²/2), as [`exp_parts`] returns it, and (t − k) / (t + k).
#[inline(always)]
fn tail(t: f32, k: f32) -> (f32, i32, f32) {
    let t = bounded(t);
    // t² in two parts: the square of the first half of t's digits is exact.
    let first = f32::from_bits(t.to_bits() & 0xffff_f000);
    let (e, n) = exp_parts(-0.5 * (first * first), -0.5 * ((t - first) * (t + first)));
    (e, n, (t - k) / (t + k))
}

/// At most 16, from where on the normal density is zero, so that its factors stay finite.
#[inline(always)]
fn bounded(t: f32) -> f32 {
    select(t > 16.0, 16.0, t)
}

/// Rounds down.
#[inline(always)]
pub(crate) fn floor(x: f32) -> f32 {
    const INTEGERS: f32 = (1 << 23) as f32;
    let nearest = ((x.abs() + INTEGERS) - INTEGERS).copysign(x);
    let down = select(nearest > x, nearest - 1.0, nearest);
    select(x.abs() < INTEGERS, down, x)
}

/// The sine, to 1 ulp.
#[inline(always)]
pub(crate) fn sin(x: f32) -> f32 {
    let (quarter, r) = quarters(x);
    on_circle(quarter, r)
}

/// The cosine, to 1 ulp.
#[inline(always)]
pub(crate) fn cos(x: f32) -> f32 {
    let (quarter, r) = quarters(x);
    on_circle(quarter.wrapping_add(1), r)
}

/// The sine of `quarter` quarter turns and the angle `r`, at most an eighth turn.
#[inline(always)]
fn on_circle(quarter: u32, r: f64) -> f32 {
    let z = r * r;
    let mut s = 2.755_731_922_398_589e-6;
    s = s * z - 1.984_126_984_126_984e-4;
    s = s * z + 8.333_333_333_333_333e-3;
    s = s * z - 1.666_666_666_666_666_6e-1;
    let sin = (s * z + 1.0) * r;
    let mut c = -2.755_731_922_398_589e-7;
    c = c * z + 2.480_158_730_158_73e-5;
    c = c * z - 1.388_888_888_888_889e-3;
    c = c * z + 4.166_666_666_666_666_4e-2;
    c = c * z - 0.5;
    let cos = c * z + 1.0;
    let value = select(quarter & 1 == 0, sin, cos) as f32;
    f32::from_bits(value.to_bits() ^ ((quarter & 2) << 30))
}

/// The number of quarter turns nearest to `x`, modulo four, and the angle that is left.
#[inline(always)]
fn quarters(x: f32) -> (u32, f64) {
    // x = m 2ᵏ with an integer m of 24 bits if x is large, else k = 0. As whole turns do not count, 2ᵏ quarter
    // turns per radian are tabulated modulo four, in three parts whose products with m are exact.
    let exponent = (x.to_bits() >> 23) & 0xff;
    let k = exponent.saturating_sub(150);
    let m = x as f64 * f64::from_bits(u64::from(1023 - k) << 52);
    let [first, second, third] = TURNS[(k & 127) as usize];
    const MAGIC: f64 = (3u64 << 51) as f64;
    let product = m * first;
    let shifted = product + MAGIC;
    let fraction = ((product - (shifted - MAGIC)) + m * second) + m * third;
    (shifted.to_bits() as u32, fraction * std::f64::consts::FRAC_PI_2)
}

/// For each k, 2ᵏ · 2/π modulo four, in parts of 29, 29 and 53 bits.
static TURNS: [[f64; 3]; 128] = turns();

const fn turns() -> [[f64; 3]; 128] {
    let mut table = [[0.0; 3]; 128];
    let mut k = 0;
    while k < 128 {
        table[k] = [
            two_over_pi(k as i32 - 2, 29) / (1u64 << 27) as f64,
            two_over_pi(k as i32 + 27, 29) / (1u64 << 56) as f64,
            two_over_pi(k as i32 + 56, 53) / (1u128 << 109) as f64,
        ];
        k += 1;
    }
    table
}

/// Some binary digits of 2/π after the point, from digit `start` on, as an integer.
const fn two_over_pi(start: i32, count: i32) -> f64 {
    const DIGITS: [u32; 8] = [
        0xa2f9_836e,
        0x4e44_1529,
        0xfc27_57d1,
        0xf534_ddc0,
        0xdb62_9599,
        0x3c43_9041,
        0xfe51_63ab,
        0xdebb_c561,
    ];
    let mut integer = 0u64;
    let mut digit = start;
    while digit < start + count {
        integer <<= 1;
        if digit >= 0 && digit < 256 {
            integer |= (DIGITS[digit as usize / 32] >> (31 - digit as usize % 32) & 1) as u64;
        }
        digit += 1;
    }
    integer as f64
}

/// x to the power of y, to 1 ulp.
#[inline(always)]
pub(crate) fn pow(x: f32, y: f32) -> f32 {
    let (a, b) = (f64::from(x.abs()), f64::from(y));
    // Double precision keeps the product of y with the logarithm exact enough.
    let power = exp2(b * log2(a));
    // One, whatever the other is, even NaN.
    let magnitude = select((x == 1.0) | (y == 0.0), 1.0, power);
    let magnitude = select((x == -1.0) & (y.abs() == f32::INFINITY), 1.0, magnitude);
    let whole = floor(y) == y;
    let odd = whole & (floor(y * 0.5) * 2.0 != y);
    let negative = x.is_sign_negative();
    let signed = select(negative & odd, -magnitude, magnitude);
    let no_root = (x < 0.0) & !whole & (x > f32::NEG_INFINITY);
    select(no_root, f64::NAN, signed) as f32
}

/// The base-two logarithm of zero, an `f32`'s magnitude, infinity or NaN, to 40 bits.
#[inline(always)]
fn log2(x: f64) -> f64 {
    const SQRT_HALF: u64 = 0x3fe6_a09e_667f_3bcd;
    let shifted = x.to_bits().wrapping_sub(SQRT_HALF);
    let n = (shifted >> 52) as u32 as i32;
    // The exponent is a signed number of twelve bits.
    let n = f64::from((n << 20) >> 20);
    let m = f64::from_bits((shifted & 0x000f_ffff_ffff_ffff) + SQRT_HALF);
    let s = (m - 1.0) / (m + 1.0);
    let z = s * s;
    let mut p = 1.0 / 15.0;
    p = p * z + 1.0 / 13.0;
    p = p * z + 1.0 / 11.0;
    p = p * z + 1.0 / 9.0;
    p = p * z + 1.0 / 7.0;
    p = p * z + 1.0 / 5.0;
    p = p * z + 1.0 / 3.0;
    p = p * z + 1.0;
    let finite = n + s * p * (2.0 * std::f64::consts::LOG2_E);
    let positive = select(x < f64::INFINITY, finite, x);
    select(x == 0.0, f64::NEG_INFINITY, positive)
}

/// 2ˣ to 36 bits, for results that are rounded to an `f32`.
#[inline(always)]
fn exp2(x: f64) -> f64 {
    const MAGIC: f64 = (3u64 << 51) as f64;
    let x = select(x < -200.0, -200.0, x);
    let x = select(x > 200.0, 200.0, x);
    let shifted = x + MAGIC;
    let r = (x - (shifted - MAGIC)) * std::f64::consts::LN_2;
    let mut p = 1.0 / 362_880.0;
    p = p * r + 1.0 / 40_320.0;
    p = p * r + 1.0 / 5_040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    let scale = shifted.to_bits().wrapping_sub(MAGIC.to_bits()).wrapping_add(1023) << 52;
    p * f64::from_bits(scale)
}
