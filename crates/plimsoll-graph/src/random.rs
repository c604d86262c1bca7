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
/// for: √(−2 ln u) cos 2πv with u in `(0, 1]` and v in `[0, 1)`, both of 24 bits.
#[inline(always)]
pub fn normal(block: [u32; 4]) -> f64 {
    let scale = 1.0 / f64::from(1u32 << 24);
    let u = f64::from((block[0] >> 8) + 1) * scale;
    let v = f64::from(block[1] >> 8) * scale;
    (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
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
