//! Random numbers as a pure function of where they are: seed, step, op and element.
//!
//! A generator with a hidden state would make recomputing a dropout mask impossible and tie the numbers to
//! the order of execution. Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011)
//! is a function from a counter and a key to four words; every device evaluates [`block`] for an element and
//! turns its words into a number by the formulas here, so that all devices draw the same numbers.
//! The formulas are inlined wherever they are used: a loop over positions becomes vector code for the instruction set
//! it is compiled for.

use crate::DType;

/// Philox4x32-10: four random words for a counter under a key.
#[inline(always)]
pub fn philox(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let multiply = |a: u32, b: u32| {
        let product = u64::from(a) * u64::from(b);
        ((product >> 32) as u32, product as u32)
    };
    let ([mut a, mut b, mut c, mut d], [mut low, mut high]) = (counter, key);
    for _ in 0..10 {
        let (high_a, low_a) = multiply(0xD251_1F53, a);
        let (high_c, low_c) = multiply(0xCD9E_8D57, c);
        [a, b, c, d] = [high_c ^ b ^ low, low_c, high_a ^ d ^ high, low_a];
        low = low.wrapping_add(0x9E37_79B9);
        high = high.wrapping_add(0xBB67_AE85);
    }
    [a, b, c, d]
}

/// The words of one element: `position` is its row-major position in its value for the whole batch, `stream` its
/// op's, `seed` and `step` the random state's. Streams and steps count up to 2³², and repeat after.
#[inline(always)]
pub fn block(seed: u64, step: u64, stream: u64, position: u64) -> [u32; 4] {
    let counter = [position as u32, (position >> 32) as u32, stream as u32, step as u32];
    philox(counter, [seed as u32, (seed >> 32) as u32])
}

/// A number in `[0, 1)` with the 24 bits of an `f32`. Half precision rounds it, to at most
/// [`largest_below_one`].
#[inline(always)]
pub fn uniform32(block: [u32; 4]) -> f32 {
    (block[0] >> 8) as f32 / (1u32 << 24) as f32
}

/// A number in `[0, 1)` with the 53 bits of an `f64`.
#[inline(always)]
pub fn uniform64(block: [u32; 4]) -> f64 {
    let bits = u64::from(block[0]) << 21 | u64::from(block[1]) >> 11;
    bits as f64 / (1u64 << 53) as f64
}

/// A number with mean 0 and deviation 1, by Box and Muller's transformation, to be rounded to the type asked
/// for: √(−2 ln u) cos 2πv with u in `(0, 1]` and v in `[0, 1)`, both of 24 bits. Logarithm and cosine are sums and
/// products in this order, to some units in the last place: the functions of a system's library differ in their bits
/// from one to the next, and are not made for vectors.
#[inline(always)]
pub fn normal(block: [u32; 4]) -> f64 {
    let scale = 1.0 / f64::from(1u32 << 24);
    // Of 25 bits at most: signed words are what most machines turn into numbers at once.
    let u = f64::from(((block[0] >> 8) + 1) as i32) * scale;
    let v = f64::from((block[1] >> 8) as i32) * scale;
    (-2.0 * ln(u)).sqrt() * cos_turns(v)
}

/// The natural logarithm of a normal positive number.
#[inline(always)]
fn ln(x: f64) -> f64 {
    const SQRT_HALF: u64 = std::f64::consts::FRAC_1_SQRT_2.to_bits();
    // x = m 2ⁿ with m from √½ to √2; the exponent is a signed number of twelve bits.
    let shifted = x.to_bits().wrapping_sub(SQRT_HALF);
    let n = f64::from(((shifted >> 52) as i32) << 20 >> 20);
    let m = f64::from_bits((shifted & ((1 << 52) - 1)) + SQRT_HALF);
    // ln m = 2 artanh s = 2 (s + s³/3 + s⁵/5 + …)
    let s = (m - 1.0) / (m + 1.0);
    let z = s * s;
    let mut p = 1.0 / 21.0;
    p = p * z + 1.0 / 19.0;
    p = p * z + 1.0 / 17.0;
    p = p * z + 1.0 / 15.0;
    p = p * z + 1.0 / 13.0;
    p = p * z + 1.0 / 11.0;
    p = p * z + 1.0 / 9.0;
    p = p * z + 1.0 / 7.0;
    p = p * z + 1.0 / 5.0;
    p = p * z + 1.0 / 3.0;
    p = p * z + 1.0;
    n * std::f64::consts::LN_2 + 2.0 * s * p
}

/// The cosine of so many turns, from 0 to 1.
#[inline(always)]
fn cos_turns(turns: f64) -> f64 {
    // cos 2πv = sin 2π(|v − ½| − ¼), an angle of at most a quarter turn, and exact.
    let x = std::f64::consts::TAU * ((turns - 0.5).abs() - 0.25);
    // sin x = x − x³/3! + x⁵/5! − …
    let z = x * x;
    let mut p = -1.0 / 25_852_016_738_884_976_640_000.0;
    p = p * z + 1.0 / 51_090_942_171_709_440_000.0;
    p = p * z - 1.0 / 121_645_100_408_832_000.0;
    p = p * z + 1.0 / 355_687_428_096_000.0;
    p = p * z - 1.0 / 1_307_674_368_000.0;
    p = p * z + 1.0 / 6_227_020_800.0;
    p = p * z - 1.0 / 39_916_800.0;
    p = p * z + 1.0 / 362_880.0;
    p = p * z - 1.0 / 5_040.0;
    p = p * z + 1.0 / 120.0;
    p = p * z - 1.0 / 6.0;
    p = p * z + 1.0;
    p * x
}

/// The largest number below one of a float type: what rounds up to one is taken down to it, so that uniform
/// numbers stay below one in every type.
pub const fn largest_below_one(dtype: DType) -> f64 {
    let bits = match dtype {
        DType::BF16 => 8,
        DType::F16 => 11,
        DType::F32 => 24,
        _ => 53,
    };
    1.0 - 1.0 / (1u64 << bits) as f64
}
