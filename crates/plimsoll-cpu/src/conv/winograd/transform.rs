//! Polynomials from coefficients to values at the points, and back.
//!
//! Every transform is a small matrix applied to the rows and to the columns of a square of pixels, each lane a channel
//! of its own. The matrices are those of Toom and Cook for the points 0, `A`, -`A`, `B`, -`B` and ∞; even and odd
//! coefficients are kept apart, because points come in pairs.

use super::PATCH;
use crate::simd::Vector;

/// The points. They and their squares are exact in `f32`.
const A: f32 = 0.625;
const B: f32 = 1.5;
const A2: f32 = A * A;
const B2: f32 = B * B;

/// The factors of a filter's values: one over the product of the distances from a point to the others.
const AT_0: f32 = 1.0 / (A2 * B2);
const AT_A: f32 = 1.0 / (2.0 * A2 * (A2 - B2));
const AT_B: f32 = 1.0 / (2.0 * B2 * (B2 - A2));

/// A matrix to apply to the rows and columns of a square.
pub(super) trait Line<const FROM: usize, const TO: usize> {
    /// The matrix applied to a row or column.
    ///
    /// # Safety
    ///
    /// The machine has the instruction set of `V`.
    unsafe fn apply<V: Vector<Scalar = f32>>(line: [V; FROM]) -> [V; TO];
}

/// Applies `L` to the columns, then to the rows of the square whose elements are the vectors at `offset` from
/// addresses, of which the first `lanes` lanes are there.
///
/// # Safety
///
/// The machine has the instruction set of `V`, and the addresses are valid.
#[inline(always)]
pub(super) unsafe fn both_ways<V, L, const FROM: usize, const TO: usize>(
    from: &[[*const f32; FROM]; FROM],
    offset: usize,
    lanes: usize,
) -> [[V; TO]; TO]
where
    V: Vector<Scalar = f32>,
    L: Line<FROM, TO>,
{
    // SAFETY: the caller vouches for the addresses.
    unsafe {
        let zero = V::splat(0.0);
        let mut half = [[zero; FROM]; TO];
        for x in 0..FROM {
            let mut column = [zero; FROM];
            for y in 0..FROM {
                let address = from[y][x].wrapping_add(offset);
                column[y] =
                    if lanes == V::LANES { V::load(address) } else { V::load_some(address, 0..lanes) };
            }
            let column = L::apply(column);
            for y in 0..TO {
                half[y][x] = column[y];
            }
        }
        let mut whole = [[zero; TO]; TO];
        for y in 0..TO {
            whole[y] = L::apply(half[y]);
        }
        whole
    }
}

/// From an input tile to its values.
pub(super) struct Input;

impl Line<PATCH, PATCH> for Input {
    #[inline(always)]
    unsafe fn apply<V: Vector<Scalar = f32>>(d: [V; 6]) -> [V; 6] {
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            let (product, sum) = (V::splat(A2 * B2), V::splat(-(A2 + B2)));
            let (minus_a2, minus_b2) = (V::splat(-A2), V::splat(-B2));
            let (even_a, odd_a) = (d[2].mul_add(minus_b2, d[4]), d[1].mul_add(minus_b2, d[3]));
            let (even_b, odd_b) = (d[2].mul_add(minus_a2, d[4]), d[1].mul_add(minus_a2, d[3]));
            [
                d[0].mul_add(product, d[2].mul_add(sum, d[4])),
                odd_a.mul_add(V::splat(A), even_a),
                odd_a.mul_add(V::splat(-A), even_a),
                odd_b.mul_add(V::splat(B), even_b),
                odd_b.mul_add(V::splat(-B), even_b),
                d[1].mul_add(product, d[3].mul_add(sum, d[5])),
            ]
        }
    }
}

/// From a filter to its values.
pub(super) struct Filter;

impl Line<3, PATCH> for Filter {
    #[inline(always)]
    unsafe fn apply<V: Vector<Scalar = f32>>(g: [V; 3]) -> [V; 6] {
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            let zero = V::splat(0.0);
            let (at_a, at_b) = (V::splat(AT_A), V::splat(AT_B));
            let even_a = g[0].mul_add(at_a, g[2].mul_add(V::splat(A2 * AT_A), zero));
            let even_b = g[0].mul_add(at_b, g[2].mul_add(V::splat(B2 * AT_B), zero));
            [
                g[0].mul_add(V::splat(AT_0), zero),
                g[1].mul_add(V::splat(A * AT_A), even_a),
                g[1].mul_add(V::splat(-A * AT_A), even_a),
                g[1].mul_add(V::splat(B * AT_B), even_b),
                g[1].mul_add(V::splat(-B * AT_B), even_b),
                g[2],
            ]
        }
    }
}

/// From the products' values to an output tile.
pub(super) struct Output;

impl Line<PATCH, 4> for Output {
    #[inline(always)]
    unsafe fn apply<V: Vector<Scalar = f32>>(m: [V; 6]) -> [V; 4] {
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            let zero = V::splat(0.0);
            let Pairs { even_a, odd_a, even_b, odd_b } = Pairs::of(m);
            [
                add(add(m[0], even_a), even_b),
                odd_a.mul_add(V::splat(A), odd_b.mul_add(V::splat(B), zero)),
                even_a.mul_add(V::splat(A2), even_b.mul_add(V::splat(B2), zero)),
                odd_a.mul_add(V::splat(A * A2), odd_b.mul_add(V::splat(B * B2), m[5])),
            ]
        }
    }
}

/// From the gradient of an output tile to its values: the transpose of [`Output`].
pub(super) struct OutputGrad;

impl Line<4, PATCH> for OutputGrad {
    #[inline(always)]
    unsafe fn apply<V: Vector<Scalar = f32>>(y: [V; 4]) -> [V; 6] {
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            let (a2, b2) = (V::splat(A2), V::splat(B2));
            let (even_a, odd_a) = (y[2].mul_add(a2, y[0]), y[3].mul_add(a2, y[1]));
            let (even_b, odd_b) = (y[2].mul_add(b2, y[0]), y[3].mul_add(b2, y[1]));
            [
                y[0],
                odd_a.mul_add(V::splat(A), even_a),
                odd_a.mul_add(V::splat(-A), even_a),
                odd_b.mul_add(V::splat(B), even_b),
                odd_b.mul_add(V::splat(-B), even_b),
                y[3],
            ]
        }
    }
}

/// From the products' values to the gradient of a filter: the transpose of [`Filter`].
pub(super) struct FilterGrad;

impl Line<PATCH, 3> for FilterGrad {
    #[inline(always)]
    unsafe fn apply<V: Vector<Scalar = f32>>(m: [V; 6]) -> [V; 3] {
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            let zero = V::splat(0.0);
            let Pairs { even_a, odd_a, even_b, odd_b } = Pairs::of(m);
            let at_0 = m[0].mul_add(V::splat(AT_0), zero);
            [
                even_a.mul_add(V::splat(AT_A), even_b.mul_add(V::splat(AT_B), at_0)),
                odd_a.mul_add(V::splat(A * AT_A), odd_b.mul_add(V::splat(B * AT_B), zero)),
                even_a.mul_add(V::splat(A2 * AT_A), even_b.mul_add(V::splat(B2 * AT_B), m[5])),
            ]
        }
    }
}

/// The sums and differences of the values at opposite points.
struct Pairs<V> {
    even_a: V,
    odd_a: V,
    even_b: V,
    odd_b: V,
}

impl<V: Vector<Scalar = f32>> Pairs<V> {
    #[inline(always)]
    unsafe fn of(m: [V; 6]) -> Self {
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            let minus = V::splat(-1.0);
            Self {
                even_a: add(m[1], m[2]),
                odd_a: m[2].mul_add(minus, m[1]),
                even_b: add(m[3], m[4]),
                odd_b: m[4].mul_add(minus, m[3]),
            }
        }
    }
}

#[inline(always)]
pub(super) unsafe fn add<V: Vector<Scalar = f32>>(one: V, other: V) -> V {
    // SAFETY: the caller vouches for the instruction set.
    unsafe { one.mul_add(V::splat(1.0), other) }
}
