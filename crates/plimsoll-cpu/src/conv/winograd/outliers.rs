//! Which results are not left to Winograd's algorithm.
//!
//! The algorithm's errors are relative to the largest pixel of a tile, where those of a sum of products are relative to
//! the terms of each sum. They are about the same as long as no pixel is much larger than others around it, so that is
//! asked of every tile, of the lengths of pixels over their channels. A result whose own window is shorter than its
//! tile by more than [`SPREAD`] is a sum of products; so are all of a tile with numbers that are not finite, or so large
//! that values might overflow.
//!
//! Few tiles are in doubt, so there are two tests. The first is cheap and sometimes wrong about an ordinary tile, never
//! about another. The second decides, by the same numbers on every machine.

use super::transform::add;
use super::{PATCH, TILE, ZEROS};
use crate::simd::Vector;
use std::marker::PhantomData;
use std::ops::Range;

/// How many times the longest pixel of a window may be in the longest pixel of its tile.
///
/// Errors grow with it. If all rounding errors of a tile went one way, it would be off by a thousand of them; in twelve
/// thousand tensors of numbers up to twelve decades apart the largest error was 39 roundings (with 16 in place of 8, 97).
const SPREAD: f64 = 8.0;
/// The largest number that is left to the algorithm. With another one, 512 channels and a million tiles no value
/// overflows.
const LARGEST: f64 = (1u64 << 48) as f64;
/// The squared length of a tile below which squares in `f32` may be zero for numbers that are not.
const LEAST_SQUARES: f32 = 1e-30;
/// How much less than [`SPREAD`] the cheap test allows, for rounding errors of its own.
const CAUTION: f64 = 0.9;

/// How a result is computed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Way {
    Winograd,
    /// It is zero, or NaN, whatever the filter.
    Is(f32),
    Products,
}

/// How the results of a tile are computed.
pub(super) type Ways = [[Way; TILE]; TILE];

/// Whether numbers of up to this magnitude are left to the algorithm. What is not a number is not.
fn in_range(magnitude: f32) -> bool {
    f64::from(magnitude) <= LARGEST
}

/// How the results of a tile are computed whose input is `patch` and which has `size` pixels, down and across, in the
/// image; `None` if all are left to the algorithm. No number of the filter is larger than `filter`.
///
/// # Safety
///
/// The machine has the instruction set of `V`, and the addresses are of so many channels.
#[inline(always)]
pub(super) unsafe fn ways<V: Vector<Scalar = f32>>(
    test: &mut CheapTest<V>,
    patch: &Patch,
    channels: usize,
    size: [usize; 2],
    filter: f32,
) -> Option<Ways> {
    // SAFETY: the contract is the same.
    unsafe {
        if test.is_even(patch, &(0..channels), size) && in_range(filter) {
            return None;
        }
        decide(patch, channels, size, filter)
    }
}

type Patch = [[*const f32; PATCH]; PATCH];

unsafe fn decide(patch: &Patch, channels: usize, [down, across]: [usize; 2], filter: f32) -> Option<Ways> {
    // SAFETY: the caller vouches for the addresses.
    let lengths = unsafe { lengths(patch, &(0..channels)) };
    let longest = longest(&lengths, [0; 2], [PATCH; 2]);
    let are_ordinary = in_range(filter) && longest <= LARGEST * LARGEST;
    let mut ways = [[Way::Winograd; TILE]; TILE];
    for (y, row) in ways.iter_mut().enumerate().take(down) {
        for (x, way) in row.iter_mut().enumerate().take(across) {
            let window = self::longest(&lengths, [y, x], [3; 2]);
            *way = if window.is_nan() {
                Way::Is(f32::NAN)
            } else if window == 0.0 && filter.is_finite() {
                Way::Is(0.0)
            } else if are_ordinary && longest <= SPREAD * SPREAD * window {
                Way::Winograd
            } else {
                Way::Products
            }
        }
    }
    ways.as_flattened().iter().any(|&way| way != Way::Winograd).then_some(ways)
}

/// Whether a tile's part of the gradient of a filter is left to the algorithm: some channels of the input `patch` and of
/// the output's gradient in `tile`, which has `size` pixels, down and across, in the image.
///
/// A result is a sum over these pixels, and sees as many of the patch, from its tap on. Pixels whose window is zero take no
/// part in it, and are taken out of the tile. What is not finite or overflows is seen in the results.
///
/// # Safety
///
/// The machine has the instruction set of `V`, and the addresses are of these channels.
#[inline(always)]
pub(super) unsafe fn is_ordinary<V: Vector<Scalar = f32>>(
    test: &mut CheapTest<V>,
    (patch, rows): (&Patch, &Range<usize>),
    (tile, columns): (&mut [[*const f32; TILE]; TILE], &Range<usize>),
    size: [usize; 2],
) -> bool {
    // SAFETY: the contract is the same.
    unsafe {
        // Unless there is a single row or column, every tap sees one of the pixels in the middle too.
        test.is_even(patch, rows, size) && !size.contains(&1)
            || decide_gradient((patch, rows), (tile, columns), size)
    }
}

unsafe fn decide_gradient(
    (patch, rows): (&Patch, &Range<usize>),
    (tile, columns): (&mut [[*const f32; TILE]; TILE], &Range<usize>),
    [down, across]: [usize; 2],
) -> bool {
    // SAFETY: the caller vouches for the addresses.
    let lengths = unsafe { lengths(patch, rows) };
    let longest = longest(&lengths, [0; 2], [PATCH; 2]);
    if !longest.is_finite() {
        return true;
    }
    for (y, row) in tile.iter_mut().enumerate().take(down) {
        for (x, pixel) in row.iter_mut().enumerate().take(across) {
            let window = self::longest(&lengths, [y, x], [3; 2]);
            // SAFETY: the caller vouches for the address.
            if window == 0.0 && unsafe { length(*pixel, columns) }.is_finite() {
                *pixel = ZEROS.as_ptr();
            } else if longest > SPREAD * SPREAD * window {
                return false;
            }
        }
    }
    (0..9).all(|tap| {
        let seen = self::longest(&lengths, [tap / 3, tap % 3], [down, across]);
        seen == 0.0 || longest <= SPREAD * SPREAD * seen
    })
}

/// The squared lengths of a patch's pixels.
unsafe fn lengths(patch: &Patch, channels: &Range<usize>) -> Lengths {
    // SAFETY: the caller vouches for the addresses.
    patch.map(|row| row.map(|pixel| unsafe { length(pixel, channels) }))
}

/// The squared length of a pixel, in an order of sums that is the same on every machine.
unsafe fn length(pixel: *const f32, channels: &Range<usize>) -> f64 {
    // SAFETY: the caller vouches for the address.
    let pixel = unsafe { std::slice::from_raw_parts(pixel.add(channels.start), channels.len()) };
    let mut sums = [0f64; 8];
    for numbers in pixel.chunks(sums.len()) {
        for (sum, &number) in sums.iter_mut().zip(numbers) {
            *sum += f64::from(number) * f64::from(number);
        }
    }
    sums.iter().sum()
}

type Lengths = [[f64; PATCH]; PATCH];

/// The greatest length among some pixels, down and across from `corner`; NaN if one is.
fn longest(lengths: &Lengths, corner: [usize; 2], [down, across]: [usize; 2]) -> f64 {
    let rows = &lengths[corner[0]..corner[0] + down];
    let all = rows.iter().flat_map(|row| &row[corner[1]..corner[1] + across]);
    all.fold(0.0, |most: f64, &length| if most.is_nan() || length <= most { most } else { length })
}

/// The cheap test of patches, of one tile after another.
pub(super) struct CheapTest<V> {
    /// The sum of the squares of the last two columns of the last patch: the first two of the next one.
    right: Option<f32>,
    vector: PhantomData<V>,
}

impl<V: Vector<Scalar = f32>> CheapTest<V> {
    pub(super) fn new() -> Self {
        Self { right: None, vector: PhantomData }
    }

    /// Tells that the next tile is not the neighbour of the last.
    pub(super) fn begin_row(&mut self) {
        self.right = None;
    }

    /// Whether no window of a patch is much shorter than two columns of it. Every window has one of at most four pixels in
    /// the middle.
    #[inline(always)]
    unsafe fn is_even(&mut self, patch: &Patch, channels: &Range<usize>, size: [usize; 2]) -> bool {
        // SAFETY: the caller vouches for the addresses.
        unsafe {
            let left = match self.right {
                Some(left) => left,
                None => two_columns::<V, 0>(patch, channels),
            };
            let (middle, right) =
                (two_columns::<V, 2>(patch, channels), two_columns::<V, 4>(patch, channels));
            self.right = Some(right);
            // No maximum is NaN, but the sum is.
            if (left + middle + right).is_nan() {
                return false;
            }
            let most = left.max(middle).max(right);
            let [rows, columns] = size.map(|size| {
                let first = size.div_ceil(2);
                [first, first + (size + 1) % 2]
            });
            let mut least = f32::INFINITY;
            for row in rows {
                for column in columns {
                    least = least.min(squares::<V>(patch[row][column], channels));
                }
            }
            is_within(most, least * (CAUTION * SPREAD * SPREAD) as f32)
        }
    }
}

/// Whether a sum of squares is at most this, and one that `f32` can have of numbers in range.
fn is_within(squares: f32, most: f32) -> bool {
    squares <= most && squares >= LEAST_SQUARES && f64::from(squares) <= LARGEST * LARGEST
}

/// The sum of the squares of the channels of pixels in two neighbouring columns of a patch.
#[inline(always)]
unsafe fn two_columns<V: Vector<Scalar = f32>, const FIRST: usize>(
    patch: &Patch,
    channels: &Range<usize>,
) -> f32 {
    // SAFETY: the caller vouches for the addresses.
    unsafe {
        let mut sums = [V::splat(0.0); 4];
        for at in channels.clone().step_by(V::LANES) {
            let lanes = channels.end - at;
            for row in 0..PATCH {
                for column in 0..2 {
                    let vector: V = load(patch[row][FIRST + column].wrapping_add(at), lanes);
                    let sum = &mut sums[row % 2 * 2 + column];
                    *sum = vector.mul_add(vector, *sum);
                }
            }
        }
        let [a, b, c, d] = sums;
        add(add(a, b), add(c, d)).sum()
    }
}

/// The sum of the squares of a pixel's channels.
#[inline(always)]
unsafe fn squares<V: Vector<Scalar = f32>>(pixel: *const f32, channels: &Range<usize>) -> f32 {
    // SAFETY: the caller vouches for the address.
    unsafe {
        let mut sum = V::splat(0.0);
        for at in channels.clone().step_by(V::LANES) {
            let vector = load::<V>(pixel.wrapping_add(at), channels.end - at);
            sum = vector.mul_add(vector, sum);
        }
        sum.sum()
    }
}

/// A vector of which `lanes` lanes are there, or more.
#[inline(always)]
pub(super) unsafe fn load<V: Vector<Scalar = f32>>(from: *const f32, lanes: usize) -> V {
    // SAFETY: the caller vouches for the lanes.
    unsafe { if lanes >= V::LANES { V::load(from) } else { V::load_some(from, 0..lanes) } }
}
