//! Convolutions by filters of three by three with a quarter of the multiplications.
//!
//! Neighbouring windows of an image overlap, and Winograd's algorithm makes use of it: sixteen output pixels in a
//! square, and the six by six input pixels that they see, are taken as polynomials, which are multiplied at as many
//! points as they have coefficients. A tile then costs 36 products of a pixel's channels with a filter's, where the
//! windows cost 144. What is added is the evaluation at the points and the way back, for every channel once, which
//! is little beside the products if there are enough channels.
//!
//! The products of one point are a matrix product of tiles, input and output channels. All 36 are done for a block of
//! tiles that stays in a second-level cache, so nothing the size of an image is ever written but the result.
//!
//! # Accuracy
//!
//! Evaluation magnifies rounding errors, the more the farther the points are from one. With the points 0, ±5/8,
//! ±3/2 and ∞, which are near the best there are, and sums over at most [`MAX_DEPTH`] channels at once, the errors of
//! random normal data against `f64` are 1.8 to 2.1 times those of sums of products (root mean square; the largest of
//! them 1.7 to 2.6 times), and 1.5 times in the gradient of the filter. The usual points 0, ±1, ±2 and ∞ would make
//! it 4 to 7 times. As in any sum, errors are relative to the largest terms, here those of all pixels of a tile: where
//! they are much larger than an element's own, it is a sum of products ([`outliers`]).

mod forward;
mod grad_filter;
mod outliers;
mod products;
mod transform;

use super::ConvShape;
use crate::numbers::{Element, Float};
pub(super) use forward::{Convolution, Filter, convolution_workspace, takes_epilogue};
pub(super) use grad_filter::{grad_filter, grad_filter_workspace};
use std::any::TypeId;

/// The output pixels down and across a tile.
const TILE: usize = 4;
/// The input pixels down and across that a tile sees.
const PATCH: usize = TILE + 2;
/// The values of a tile and channel that products are made of.
const POINTS: usize = PATCH * PATCH;

/// The most channels, of the input and of the output, that workspace and this file's zeros are meant for.
const MAX_CHANNELS: usize = 512;
/// The fewest channels, and the fewest tiles, that are worth it.
const MIN_CHANNELS: usize = 16;
const MIN_TILES: usize = 32;
/// The most channels that are summed in one go, to bound the errors of long sums.
const MAX_DEPTH: usize = 32;
/// The lanes that rows in workspace are padded to, which fit the vectors of every machine.
const LANES: usize = 16;
/// The columns that matrices in workspace are padded to, which fit the register tiles of every machine.
const PANEL: usize = 2 * LANES;

/// What the pixels around an image are made of.
static ZEROS: [f32; MAX_CHANNELS] = [0.0; MAX_CHANNELS];

/// Whether a convolution is of the kind that this is for, and large enough that it wins in every pass.
///
/// With 16 channels it is twice as fast as the product of windows, with 64 almost three times. Below that, vectors
/// would not be full.
pub(super) fn fits<T: Element<Acc: Float>>(shape: &ConvShape) -> bool {
    let ConvShape { filter, stride, dilation, groups, channels, out_channels, .. } = *shape;
    TypeId::of::<T>() == TypeId::of::<f32>()
        && (filter, stride, dilation, groups) == ([3; 2], [1; 2], [1; 2], 1)
        && [channels, out_channels].iter().all(|channels| (MIN_CHANNELS..=MAX_CHANNELS).contains(channels))
        && pays(shape.batch, shape.output)
        && pays(shape.batch, shape.input)
}

/// Whether there are tiles enough for two blocks, and more than half of their pixels in the images: with nine of
/// sixteen it is still 1.6 times as fast.
fn pays(batch: usize, size: [usize; 2]) -> bool {
    let tiles = Grid::new(batch, size).len();
    tiles >= MIN_TILES && batch * size[0] * size[1] > TILE * TILE / 2 * tiles
}

/// The tiles of a batch of images.
#[derive(Clone, Copy)]
struct Grid {
    batch: usize,
    tiles: [usize; 2],
}

impl Grid {
    /// The tiles of images of a height and a width.
    fn new(batch: usize, size: [usize; 2]) -> Self {
        Self { batch, tiles: size.map(|size| size.div_ceil(TILE)) }
    }

    fn len(&self) -> usize {
        self.batch * self.tiles[0] * self.tiles[1]
    }

    /// The image of a tile, and the row and the column of its first pixel.
    fn at(&self, tile: usize) -> (usize, [usize; 2]) {
        let (row, across) = (tile / self.tiles[1], tile % self.tiles[1]);
        (row / self.tiles[0], [row % self.tiles[0] * TILE, across * TILE])
    }
}

/// Channels-last images to read.
#[derive(Clone, Copy)]
pub(super) struct Images {
    pub(super) start: *const f32,
    pub(super) size: [usize; 2],
    pub(super) channels: usize,
}

impl Images {
    /// The addresses of the pixels of a square, whose first one is at `corner` of an image. Those around the image
    /// are zeros.
    #[inline(always)]
    fn square<const SIZE: usize>(&self, image: usize, corner: [isize; 2]) -> [[*const f32; SIZE]; SIZE] {
        let [height, width] = self.size;
        let mut square = [[ZEROS.as_ptr(); SIZE]; SIZE];
        for (row, y) in square.iter_mut().zip(corner[0]..) {
            // A negative number is beyond the image too.
            if y as usize >= height {
                continue;
            }
            let start = self.start.wrapping_add((image * height + y as usize) * width * self.channels);
            for (pixel, x) in row.iter_mut().zip(corner[1]..) {
                if (x as usize) < width {
                    *pixel = start.wrapping_add(x as usize * self.channels);
                }
            }
        }
        square
    }
}

/// Matrices in workspace, one for each point: rows of tiles or channels, with columns of channels.
#[derive(Clone, Copy)]
struct Matrices {
    /// The distance between rows.
    row: usize,
    /// The distance between matrices.
    point: usize,
}

impl Matrices {
    /// Matrices of `rows` rows with room for `columns` columns.
    ///
    /// Rows are not at a distance of pages and matrices at one of an odd number of lines, so that both spread over the
    /// sets of a cache.
    const fn new(rows: usize, columns: usize) -> Self {
        let row = columns.next_multiple_of(LANES);
        let row = if row.is_multiple_of(256) { row + LANES } else { row };
        Self { row, point: ((rows * row).div_ceil(LANES) | 1) * LANES }
    }

    /// The scalars of all matrices.
    const fn len(&self) -> usize {
        POINTS * self.point
    }

    /// The addresses of one element of every matrix.
    #[inline(always)]
    fn addresses(&self, start: *mut f32, row: usize) -> [[*const f32; PATCH]; PATCH] {
        let mut addresses = [[start.cast_const(); PATCH]; PATCH];
        for (point, address) in addresses.as_flattened_mut().iter_mut().enumerate() {
            *address = start.wrapping_add(point * self.point + row * self.row);
        }
        addresses
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::bf16;

    fn shape(input: [usize; 4], out_channels: usize, stride: usize) -> ConvShape {
        let filter = [3, 3, input[3], out_channels];
        ConvShape::new(input, filter, [stride; 2], [[1; 2]; 2], [1; 2], 1).unwrap()
    }

    #[test]
    fn it_is_chosen_for_large_enough_layers_of_f32_alone() {
        assert!(fits::<f32>(&shape([128, 32, 32, 32], 64, 1)));
        assert!(fits::<f32>(&shape([32, 3, 3, 16], 16, 1)));
        assert!(!fits::<bf16>(&shape([128, 32, 32, 32], 64, 1)));
        assert!(!fits::<f32>(&shape([128, 32, 32, 32], 64, 2)));
        assert!(!fits::<f32>(&shape([128, 32, 32, 3], 64, 1)));
        assert!(!fits::<f32>(&shape([128, 32, 32, 513], 64, 1)));
        assert!(!fits::<f32>(&shape([31, 3, 3, 16], 16, 1)));
        assert!(!fits::<f32>(&shape([128, 5, 5, 32], 64, 1)));
    }
}
