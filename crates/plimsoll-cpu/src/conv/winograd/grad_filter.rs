//! The gradient of the filter: the values of input tiles times those of their outputs' gradients, summed over tiles.
//!
//! The sums stay values until all tiles have been added, and only then go back to the nine taps. They are the
//! largest thing in workspace, so a task has a block of channels of its own as well as a part of the tiles.

use super::outliers::{self, CheapTest};
use super::products::AddProducts;
use super::transform::{FilterGrad, Input, OutputGrad, add, both_ways};
use super::{Grid, Images, Matrices, PATCH, POINTS, TILE, ZEROS};
use crate::conv::ConvShape;
use crate::gemm::{Tile, WORKSPACE_ALIGN, cut, max_rows};
use crate::runtime::{Address, Pool};
use crate::simd::{Body, InstructionSet, Isa, Vector, VectorOf};
use std::ops::Range;

/// The tiles that are summed in one go.
const DEPTH: usize = 28;
/// The most input and output channels of a block.
const CHANNELS: usize = 64;
/// The tasks that parts of the tiles make, if there are not as many blocks of channels. It must not depend on the
/// number of threads.
const TASKS: usize = 12;

/// How the sums are cut up, from the shape alone, and where things are in workspace, in scalars.
struct GradWorkspace {
    grid: Grid,
    /// The tiles of a part, and the parts.
    part_tiles: usize,
    parts: usize,
    /// The input and the output channels of a block.
    block: [usize; 2],
    /// The values of some tiles of the input and of the gradient, and the sums, for each thread.
    input: Matrices,
    output: Matrices,
    sums: Matrices,
    /// The gradients of all parts, if there are several.
    partial: usize,
}

impl GradWorkspace {
    fn new(shape: &ConvShape) -> Self {
        let grid = Grid::new(shape.batch, shape.output);
        let block = [shape.channels, shape.out_channels]
            .map(|channels| channels.div_ceil(channels.div_ceil(CHANNELS)).next_multiple_of(super::LANES));
        let blocks = shape.channels.div_ceil(block[0]) * shape.out_channels.div_ceil(block[1]);
        let steps = grid.len().div_ceil(DEPTH);
        let part_tiles = steps.div_ceil((TASKS / blocks).max(1)).max(1) * DEPTH;
        let parts = grid.len().div_ceil(part_tiles);
        Self {
            grid,
            part_tiles,
            parts,
            block,
            input: Matrices::new(DEPTH, block[0]),
            output: Matrices::new(DEPTH, block[1]),
            sums: Matrices::new(block[0], block[1]),
            partial: if parts > 1 { (parts * shape.filter_len()).next_multiple_of(super::LANES) } else { 0 },
        }
    }

    fn worker(&self, worker: usize) -> usize {
        self.partial + worker * (self.input.len() + self.output.len() + self.sums.len())
    }
}

/// The bytes of workspace of [`grad_filter`].
pub(in crate::conv) fn grad_filter_workspace(shape: &ConvShape, threads: usize) -> usize {
    GradWorkspace::new(shape).worker(threads) * size_of::<f32>()
}

/// Computes the gradient with respect to the filter.
///
/// # Panics
///
/// When `workspace` is smaller than [`grad_filter_workspace`] says, or not aligned.
///
/// # Safety
///
/// As for [`conv_grad_filter`](crate::conv::conv_grad_filter), and the shape [`fits`](super::fits).
pub(in crate::conv) unsafe fn grad_filter(
    isa: Isa,
    pool: &Pool,
    shape: &ConvShape,
    input: *const f32,
    output_grad: *const f32,
    filter_grad: *mut f32,
    workspace: &mut [u8],
) {
    let bytes = grad_filter_workspace(shape, pool.threads());
    assert!(workspace.len() >= bytes, "a gradient needs {bytes} bytes of workspace, not {}", workspace.len());
    let scratch = workspace.as_mut_ptr();
    assert!(scratch.addr().is_multiple_of(WORKSPACE_ALIGN), "workspace is not aligned");
    let layout = GradWorkspace::new(shape);
    let gradient = Gradient {
        input: Images { start: input, size: shape.input, channels: shape.channels },
        output: Images { start: output_grad, size: shape.output, channels: shape.out_channels },
        corner: shape.padding.map(|[before, _]| -(before as isize)),
        filter_grad,
        scratch: Address::new(scratch.cast()),
        layout: &layout,
    };
    let GradWorkspace { block, parts, part_tiles, grid, .. } = layout;
    let across = shape.out_channels.div_ceil(block[1]);
    let blocks = shape.channels.div_ceil(block[0]) * across;
    pool.run(blocks * parts, &|worker, task| {
        let (part, first) = (task / blocks, [task % blocks / across * block[0], task % across * block[1]]);
        isa.run(SumOfTiles {
            gradient: &gradient,
            worker,
            part,
            tiles: part * part_tiles..grid.len().min((part + 1) * part_tiles),
            rows: first[0]..shape.channels.min(first[0] + block[0]),
            columns: first[1]..shape.out_channels.min(first[1] + block[1]),
        });
    });
    if parts > 1 {
        const STEP: usize = 1 << 13;
        let len = shape.filter_len();
        pool.run(len.div_ceil(STEP), &|_, task| {
            isa.run(AddParts { gradient: &gradient, range: task * STEP..len.min((task + 1) * STEP) });
        });
    }
}

/// A gradient while it is computed.
struct Gradient<'a> {
    input: Images,
    output: Images,
    /// Where the window of the first pixel begins.
    corner: [isize; 2],
    filter_grad: *mut f32,
    scratch: Address<f32>,
    layout: &'a GradWorkspace,
}

// SAFETY: the images are only read, and tasks write disjoint parts of the result.
unsafe impl Sync for Gradient<'_> {}

impl Gradient<'_> {
    fn filter_len(&self) -> usize {
        9 * self.input.channels * self.output.channels
    }

    /// Where the gradient of a part goes.
    fn of_part(&self, part: usize) -> *mut f32 {
        if self.layout.parts > 1 {
            self.scratch.at(part * self.filter_len()).pointer()
        } else {
            self.filter_grad
        }
    }
}

/// The gradient that some tiles give for a block of input channels, its rows, and output channels, its columns.
struct SumOfTiles<'a> {
    gradient: &'a Gradient<'a>,
    worker: usize,
    part: usize,
    tiles: Range<usize>,
    rows: Range<usize>,
    columns: Range<usize>,
}

impl Body for SumOfTiles<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<I: InstructionSet>(self) {
        // SAFETY: the contract is the same.
        unsafe { self.compute::<VectorOf<I, f32>>() }
    }
}

impl SumOfTiles<'_> {
    #[inline(always)]
    unsafe fn compute<V: Vector<Scalar = f32>>(self) {
        let layout = self.gradient.layout;
        let inputs = self.gradient.scratch.at(layout.worker(self.worker)).pointer();
        let outputs = inputs.wrapping_add(layout.input.len());
        let sums = outputs.wrapping_add(layout.output.len());
        // SAFETY: the thread's workspace has room for the tiles and the sums.
        unsafe {
            let mut has_products = false;
            for tiles in cut(self.tiles.clone(), DEPTH) {
                self.transform::<V>(tiles.clone(), inputs, outputs, &mut has_products);
                self.multiply::<V>(tiles, inputs, outputs, sums);
            }
            if !self.write::<V>(sums, has_products) {
                self.sum_products::<V>();
            }
        }
    }
}

impl SumOfTiles<'_> {
    /// Evaluates some tiles of the input and of the gradient. Those that are not left to Winograd's algorithm are zeros,
    /// and their products are added to the result, which `has_products` since the first of them.
    #[inline(always)]
    unsafe fn transform<V: Vector<Scalar = f32>>(
        &self,
        tiles: Range<usize>,
        inputs: *mut f32,
        outputs: *mut f32,
        has_products: &mut bool,
    ) {
        let Gradient { input, output, corner, layout, .. } = *self.gradient;
        let mut test = CheapTest::<V>::new();
        for (row, tile) in tiles.enumerate() {
            let (image, [y, x]) = layout.grid.at(tile);
            if x == 0 {
                test.begin_row();
            }
            let size = [TILE.min(output.size[0] - y), TILE.min(output.size[1] - x)];
            let (y, x) = (y as isize, x as isize);
            let mut patch = input.square(image, [y + corner[0], x + corner[1]]);
            let mut tile = output.square(image, [y, x]);
            // SAFETY: the addresses are of pixels or zeros, and the gradient is of all taps and channels.
            unsafe {
                if !outliers::is_ordinary(&mut test, (&patch, &self.rows), (&mut tile, &self.columns), size) {
                    V::Set::run(self.products(patch, tile, !*has_products));
                    *has_products = true;
                    (patch, tile) = ([[ZEROS.as_ptr(); PATCH]; PATCH], [[ZEROS.as_ptr(); TILE]; TILE]);
                }
            }
            for channels in cut(self.rows.clone(), V::LANES) {
                let to = inputs.wrapping_add(row * layout.input.row + channels.start - self.rows.start);
                // SAFETY: the addresses are of pixels or zeros, and a row of values has room for whole vectors.
                unsafe {
                    let values = both_ways::<V, Input, 6, 6>(&patch, channels.start, channels.len());
                    for (point, value) in values.as_flattened().iter().enumerate() {
                        value.store(to.add(point * layout.input.point));
                    }
                }
            }
            for channels in cut(self.columns.clone(), V::LANES) {
                let to = outputs.wrapping_add(row * layout.output.row + channels.start - self.columns.start);
                // SAFETY: the same.
                unsafe {
                    let values = both_ways::<V, OutputGrad, 4, 6>(&tile, channels.start, channels.len());
                    for (point, value) in values.as_flattened().iter().enumerate() {
                        value.store(to.add(point * layout.output.point));
                    }
                }
            }
        }
    }

    /// Adds the products of some tiles' values to the sums, or begins with them if the tiles are the part's first.
    #[inline(always)]
    unsafe fn multiply<V: Vector<Scalar = f32>>(
        &self,
        tiles: Range<usize>,
        inputs: *const f32,
        outputs: *const f32,
        sums: *mut f32,
    ) {
        let layout = self.gradient.layout;
        let rows = self.rows.len();
        let tile_rows = rows.div_ceil(rows.div_ceil(max_rows(V::ISA)));
        for point in 0..POINTS {
            let inputs = inputs.wrapping_add(point * layout.input.point);
            let outputs = outputs.wrapping_add(point * layout.output.point);
            let sums = sums.wrapping_add(point * layout.sums.point);
            for panel in cut(0..self.columns.len(), 2 * V::LANES) {
                for tile in cut(0..rows, tile_rows) {
                    let tile = Tile {
                        depth: tiles.len(),
                        a: inputs.wrapping_add(tile.start),
                        a_row: 1,
                        a_depth: layout.input.row as isize,
                        b: outputs.wrapping_add(panel.start),
                        b_depth: layout.output.row as isize,
                        c: sums.wrapping_add(tile.start * layout.sums.row + panel.start),
                        c_row: layout.sums.row as isize,
                        rows: tile.len(),
                        columns: panel.len(),
                        alpha: 1.0,
                        add: tiles.start > self.tiles.start,
                        resume: false,
                    };
                    // SAFETY: the ranges are within the matrices.
                    unsafe { tile.run::<V>() };
                }
            }
        }
    }

    /// The products of a tile, to be added to the result.
    #[inline(always)]
    fn products(
        &self,
        patch: [[*const f32; PATCH]; PATCH],
        tile: [[*const f32; TILE]; TILE],
        is_first: bool,
    ) -> AddProducts {
        let Gradient { input, output, .. } = *self.gradient;
        AddProducts {
            patch,
            tile,
            rows: self.rows.clone(),
            columns: self.columns.clone(),
            to: self.gradient.of_part(self.part),
            strides: [input.channels * output.channels, output.channels],
            is_first,
        }
    }

    /// Computes the gradient by products alone.
    #[inline(always)]
    unsafe fn sum_products<V: Vector<Scalar = f32>>(&self) {
        let Gradient { input, output, corner, layout, .. } = *self.gradient;
        for tile in self.tiles.clone() {
            let (image, [y, x]) = layout.grid.at(tile);
            let (y, x) = (y as isize, x as isize);
            let patch = input.square(image, [y + corner[0], x + corner[1]]);
            let is_first = tile == self.tiles.start;
            // SAFETY: the addresses are of pixels or zeros, and the gradient is of all taps and channels.
            unsafe { V::Set::run(self.products(patch, output.square(image, [y, x]), is_first)) };
        }
    }

    /// Writes the gradient that the sums are the values of, or adds it to products that are there, and returns whether it
    /// is finite.
    #[inline(always)]
    unsafe fn write<V: Vector<Scalar = f32>>(&self, sums: *mut f32, has_products: bool) -> bool {
        let Gradient { input, output, layout, .. } = *self.gradient;
        // Zero times what is not finite is NaN, to which it adds up.
        // SAFETY: the contract is the same.
        let (zero, mut zeros) = unsafe { (V::splat(0.0), V::splat(0.0)) };
        let to = self.gradient.of_part(self.part);
        for row in self.rows.clone() {
            let values = layout.sums.addresses(sums, row - self.rows.start);
            for columns in cut(self.columns.clone(), V::LANES) {
                let offset = columns.start - self.columns.start;
                // SAFETY: a row of sums has room for whole vectors, and the gradient is of all taps and channels.
                unsafe {
                    let taps = both_ways::<V, FilterGrad, 6, 3>(&values, offset, columns.len());
                    for (tap, &value) in taps.as_flattened().iter().enumerate() {
                        let to = to.add((tap * input.channels + row) * output.channels + columns.start);
                        let total = match has_products {
                            true => add(V::load_some(to, 0..columns.len()), value),
                            false => value,
                        };
                        total.store_first(to, columns.len());
                        zeros = total.mul_add(zero, zeros);
                    }
                }
            }
        }
        // SAFETY: the contract is the same.
        unsafe { zeros.sum() == 0.0 }
    }
}

/// Some of a gradient, from its parts.
struct AddParts<'a> {
    gradient: &'a Gradient<'a>,
    range: Range<usize>,
}

impl Body for AddParts<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<I: InstructionSet>(self) {
        // SAFETY: the contract is the same.
        unsafe { self.compute::<VectorOf<I, f32>>() }
    }
}

impl AddParts<'_> {
    #[inline(always)]
    unsafe fn compute<V: Vector<Scalar = f32>>(self) {
        for at in cut(self.range, V::LANES) {
            // SAFETY: every part has an element for each of the gradient.
            unsafe {
                let mut total = V::splat(0.0);
                for part in 0..self.gradient.layout.parts {
                    let from = self.gradient.of_part(part).wrapping_add(at.start);
                    total = V::load_some(from, 0..at.len()).mul_add(V::splat(1.0), total);
                }
                total.store_first(self.gradient.filter_grad.add(at.start), at.len());
            }
        }
    }
}
