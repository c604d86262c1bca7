//! Sums of products, for what is not left to Winograd's algorithm.

use super::forward::Filter;
use super::transform::add;
use super::{PATCH, TILE, ZEROS};
use crate::gemm::{cut, pack_transposed};
use crate::simd::{Body, InstructionSet, MAX_LANES, Vector, VectorOf};
use std::ops::Range;

/// The windows that are multiplied at once.
const WINDOWS: usize = 8;
/// The most channels whose weights are brought together first, where they are apart.
const CHANNELS: usize = 32;

/// Some windows of images and where their products go. Those that are not there are zeros.
pub(super) struct Windows {
    taps: [[*const f32; 9]; WINDOWS],
    to: [*mut f32; WINDOWS],
    len: usize,
}

impl Windows {
    pub(super) fn new() -> Self {
        Self { taps: [[ZEROS.as_ptr(); 9]; WINDOWS], to: [std::ptr::null_mut(); WINDOWS], len: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn is_full(&self) -> bool {
        self.len == WINDOWS
    }

    /// Adds the window of a tile's pixel whose products go to an address.
    pub(super) fn push(&mut self, patch: &[[*const f32; PATCH]; PATCH], [y, x]: [usize; 2], to: *mut f32) {
        self.taps[self.len] = std::array::from_fn(|tap| patch[y + tap / 3][x + tap % 3]);
        self.to[self.len] = to;
        self.len += 1;
    }

    /// Writes the products with `columns` of a filter. Zeros around an image are not multiplied, whatever the filter.
    ///
    /// # Safety
    ///
    /// The machine has the instruction set of `V`; the windows, the filter and the results are of so many channels and
    /// columns.
    #[inline(always)]
    pub(super) unsafe fn multiply<V: Vector<Scalar = f32>>(
        &self,
        filter: &Filter,
        channels: usize,
        columns: Range<usize>,
    ) {
        // SAFETY: the caller vouches for the addresses.
        unsafe {
            let zero = V::splat(0.0);
            for columns in cut(columns, V::LANES) {
                let mut totals = [zero; WINDOWS];
                for tap in 0..9 {
                    let mut sums = [zero; WINDOWS];
                    for channels in cut(0..channels, CHANNELS) {
                        let mut packed = [0.0; CHANNELS * MAX_LANES];
                        let (weights, row) =
                            filter.rows::<V>(tap, channels.clone(), columns.clone(), &mut packed);
                        for (place, channel) in channels.enumerate() {
                            let weight = V::load(weights.add(place * row));
                            for (sum, taps) in sums.iter_mut().zip(&self.taps) {
                                *sum = V::splat(*taps[tap].add(channel)).mul_add(weight, *sum);
                            }
                        }
                    }
                    for ((total, sum), taps) in totals.iter_mut().zip(sums).zip(&self.taps) {
                        if is_inside(taps[tap]) {
                            *total = add(sum, *total);
                        }
                    }
                }
                for (total, to) in totals.iter().zip(self.to).take(self.len) {
                    total.store_first(to.add(columns.start), columns.len());
                }
            }
        }
    }
}

impl Filter {
    /// Where the weights of a tap are: a whole vector of columns for each channel, at most [`CHANNELS`], and the distance
    /// between them. They are brought to `packed` if they are apart or fewer.
    #[inline(always)]
    unsafe fn rows<V: Vector<Scalar = f32>>(
        &self,
        tap: usize,
        channels: Range<usize>,
        columns: Range<usize>,
        packed: &mut [f32; CHANNELS * MAX_LANES],
    ) -> (*const f32, usize) {
        let first = self.at(tap, channels.start, columns.start);
        if self.strides[2] == 1 && columns.len() == V::LANES {
            return (first, self.strides[1]);
        }
        // SAFETY: there is room for the channels, and the caller vouches for the filter.
        unsafe {
            if self.strides[2] == 1 {
                for (place, channel) in channels.enumerate() {
                    let weights = V::load_some(self.at(tap, channel, columns.start), 0..columns.len());
                    weights.store(packed.as_mut_ptr().add(place * V::LANES));
                }
            } else {
                let column = |column: usize| first.wrapping_add(column * self.strides[2]);
                let (count, depth) = (columns.len(), channels.len());
                pack_transposed::<V, f32>(count, column, depth, packed.as_mut_ptr(), V::LANES);
            }
        }
        (packed.as_ptr(), V::LANES)
    }
}

/// Adds the products of a tile to the gradient of a filter, for some input channels, the rows, and output channels, the
/// columns.
pub(super) struct AddProducts {
    pub(super) patch: [[*const f32; PATCH]; PATCH],
    pub(super) tile: [[*const f32; TILE]; TILE],
    pub(super) rows: Range<usize>,
    pub(super) columns: Range<usize>,
    /// The gradient, and the distances between its taps and its input channels.
    pub(super) to: *mut f32,
    pub(super) strides: [usize; 2],
    /// Whether there is nothing to add to yet.
    pub(super) is_first: bool,
}

/// The patch, the gradient in the tile and that of the filter are of the channels.
impl Body for AddProducts {
    type Output = ();

    #[inline(always)]
    unsafe fn run<I: InstructionSet>(self) {
        // SAFETY: the contract is the same.
        unsafe { self.compute::<VectorOf<I, f32>>() }
    }
}

impl AddProducts {
    #[inline(always)]
    unsafe fn compute<V: Vector<Scalar = f32>>(self) {
        let Self { patch, tile, rows, to, strides, is_first, .. } = self;
        for tap in 0..9 {
            let mut pairs = [(ZEROS.as_ptr(), ZEROS.as_ptr()); TILE * TILE];
            let mut len = 0;
            for (place, &output) in tile.as_flattened().iter().enumerate() {
                let input = patch[place / TILE + tap / 3][place % TILE + tap % 3];
                if is_inside(input) && is_inside(output) {
                    pairs[len] = (input, output);
                    len += 1;
                }
            }
            for columns in cut(self.columns.clone(), V::LANES) {
                let lanes = 0..columns.len();
                for row in rows.clone() {
                    let to = to.wrapping_add(tap * strides[0] + row * strides[1] + columns.start);
                    // SAFETY: the caller vouches for the addresses.
                    unsafe {
                        let mut sum = V::splat(0.0);
                        for (input, output) in &pairs[..len] {
                            let output = V::load_some(output.add(columns.start), lanes.clone());
                            sum = V::splat(*input.add(row)).mul_add(output, sum);
                        }
                        let total = if is_first { sum } else { add(V::load_some(to, lanes.clone()), sum) };
                        total.store_first(to, columns.len());
                    }
                }
            }
        }
    }
}

/// Whether a pixel's address is in an image, not that of the zeros around it.
fn is_inside(pixel: *const f32) -> bool {
    pixel != ZEROS.as_ptr()
}
