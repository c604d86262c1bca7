//! The convolution itself, which is also how a gradient goes back to the input.

use super::outliers::{self, CheapTest, Way, Ways};
use super::products::Windows;
use super::transform::{self, both_ways};
use super::{Grid, Images, LANES, MAX_DEPTH, Matrices, PANEL, PATCH, POINTS, TILE};
use crate::conv::To;
use crate::gemm::{Tile, WORKSPACE_ALIGN, cut, max_rows};
use crate::runtime::{Address, Pool};
use crate::simd::{Body, InstructionSet, Isa, MAX_LANES, Vector, VectorOf};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

/// The most tiles of a block: two register tiles of rows. With the channels of many a layer, their values and those of
/// their products stay in a second-level cache together.
const BLOCK: usize = 28;
/// The output channels whose products are in workspace at once.
const COLUMNS: usize = 64;
/// The most bytes of a filter's values. With more output channels, the input is transformed again.
const FILTER_BYTES: usize = 4 << 20;
/// The channels of a filter that one task transforms.
const FILTER_ROWS: usize = 8;

/// A filter of three by three as it lies in memory, with all distances in elements.
#[derive(Clone, Copy)]
pub(in crate::conv) struct Filter {
    pub(in crate::conv) start: *const f32,
    /// The distances between taps, between channels that are summed, and between those of the result.
    pub(in crate::conv) strides: [usize; 3],
    /// Whether the last tap comes first.
    pub(in crate::conv) flipped: bool,
}

impl Filter {
    pub(super) fn at(&self, tap: usize, channel: usize, column: usize) -> *const f32 {
        let tap = if self.flipped { 8 - tap } else { tap };
        self.start.wrapping_add(tap * self.strides[0] + channel * self.strides[1] + column * self.strides[2])
    }
}

/// A convolution of images with a filter.
#[derive(Clone, Copy)]
pub(in crate::conv) struct Convolution<'a> {
    pub(in crate::conv) batch: usize,
    pub(in crate::conv) from: Images,
    pub(in crate::conv) filter: Filter,
    /// Where the window of the first pixel begins.
    pub(in crate::conv) corner: [isize; 2],
    pub(in crate::conv) to: To<'a, f32>,
    pub(in crate::conv) to_size: [usize; 2],
    pub(in crate::conv) to_channels: usize,
}

// SAFETY: the images and the filter are only read, and tasks write disjoint pixels of the result.
unsafe impl Sync for Convolution<'_> {}

/// Where things are in workspace, in scalars.
struct ForwardWorkspace {
    /// The output channels of one pass over the images.
    pass: usize,
    /// The values of the filter for a pass, in panels of columns.
    filter: Matrices,
    /// The values of a block of tiles, and those of their products, for each thread.
    input: Matrices,
    output: Matrices,
    /// The pixels of a block, for an epilogue.
    staged: usize,
}

impl ForwardWorkspace {
    fn new(channels: usize, to_channels: usize, takes_epilogue: bool) -> Self {
        let most = (FILTER_BYTES / size_of::<f32>() / POINTS / channels / PANEL).max(1) * PANEL;
        let passes = to_channels.div_ceil(most).max(1);
        let pass = to_channels.div_ceil(passes).next_multiple_of(PANEL);
        Self {
            pass,
            filter: Matrices::new(1, channels * pass),
            input: Matrices::new(BLOCK, channels),
            output: Matrices::new(BLOCK, COLUMNS),
            staged: if takes_epilogue {
                BLOCK * TILE * TILE * to_channels.next_multiple_of(LANES)
            } else {
                0
            },
        }
    }

    fn worker(&self, worker: usize) -> usize {
        self.filter.len() + worker * (self.input.len() + self.output.len() + self.staged)
    }
}

/// The bytes of workspace of a [`Convolution`] from some channels to others, with an epilogue or without.
pub(in crate::conv) fn convolution_workspace(
    channels: usize,
    to_channels: usize,
    takes_epilogue: bool,
    threads: usize,
) -> usize {
    ForwardWorkspace::new(channels, to_channels, takes_epilogue).worker(threads) * size_of::<f32>()
}

/// Whether a [`Convolution`] can have an epilogue: it computes all of their channels in one pass.
pub(in crate::conv) fn takes_epilogue(channels: usize, to_channels: usize) -> bool {
    ForwardWorkspace::new(channels, to_channels, true).pass >= to_channels
}

impl Convolution<'_> {
    /// Computes the convolution.
    ///
    /// # Panics
    ///
    /// When `workspace` is smaller than [`convolution_workspace`] says, or not aligned.
    ///
    /// # Safety
    ///
    /// The pointers are valid for what the sizes say, the result is used by nobody else, and it overlaps neither the
    /// operands nor `workspace`.
    pub(in crate::conv) unsafe fn run(&self, isa: Isa, pool: &Pool, workspace: &mut [u8]) {
        let Self { batch, from: Images { channels, .. }, to_size, to_channels, .. } = *self;
        let takes_epilogue = matches!(self.to, To::Epilogue(_));
        let bytes = convolution_workspace(channels, to_channels, takes_epilogue, pool.threads());
        assert!(
            workspace.len() >= bytes,
            "a convolution needs {bytes} bytes of workspace, not {}",
            workspace.len()
        );
        let scratch = workspace.as_mut_ptr();
        assert!(scratch.addr().is_multiple_of(WORKSPACE_ALIGN), "workspace is not aligned");
        let layout = ForwardWorkspace::new(channels, to_channels, takes_epilogue);
        let grid = Grid::new(batch, to_size);
        // Blocks of equal size, so that a small last one keeps no thread waiting.
        let block = grid.len().div_ceil(grid.len().div_ceil(BLOCK).max(1)).max(1);
        let scratch = Address::new(scratch.cast());
        for columns in cut(0..to_channels, layout.pass) {
            let filter_squares = AtomicU32::new(0);
            let pass = Pass { convolution: self, layout: &layout, grid, columns, scratch, filter_squares };
            pool.run(channels.div_ceil(FILTER_ROWS), &|_, task| {
                let first = task * FILTER_ROWS;
                isa.run(FilterRows { pass: &pass, channels: first..channels.min(first + FILTER_ROWS) });
            });
            pool.run(grid.len().div_ceil(block), &|worker, task| {
                let first = task * block;
                isa.run(TileBlock { pass: &pass, worker, tiles: first..grid.len().min(first + block) });
            });
        }
    }
}

/// Some output channels of all images.
struct Pass<'a> {
    convolution: &'a Convolution<'a>,
    layout: &'a ForwardWorkspace,
    grid: Grid,
    columns: Range<usize>,
    scratch: Address<f32>,
    /// The largest sum of the squares of the filter's numbers that a task has found, as bits: they have the same order, and
    /// NaN is after infinity.
    filter_squares: AtomicU32,
}

impl Pass<'_> {
    /// Where the values of a filter at a point are for one channel and the columns of a panel of `width` columns, the
    /// first of which is `column` of the pass. The channels of a panel follow each other.
    #[inline(always)]
    fn filter_values(&self, point: usize, channel: usize, column: usize, width: usize) -> *mut f32 {
        let channels = self.convolution.from.channels;
        self.scratch.at(point * self.layout.filter.point + column * channels + channel * width).pointer()
    }
}

/// The values of some channels of a filter.
struct FilterRows<'a> {
    pass: &'a Pass<'a>,
    channels: Range<usize>,
}

impl Body for FilterRows<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<I: InstructionSet>(self) {
        // SAFETY: the contract is the same.
        unsafe { self.compute::<VectorOf<I, f32>>() }
    }
}

impl FilterRows<'_> {
    #[inline(always)]
    unsafe fn compute<V: Vector<Scalar = f32>>(self) {
        let Self { pass, channels } = self;
        let filter = pass.convolution.filter;
        let width = 2 * V::LANES;
        // SAFETY: the contract is the same.
        let mut squares = unsafe { V::splat(0.0) };
        for columns in cut(pass.columns.clone(), V::LANES) {
            let column = columns.start - pass.columns.start;
            let (panel, lane) = (column - column % width, column % width);
            for channel in channels.clone() {
                // Taps whose columns are apart are gathered first.
                let mut gathered = [[0.0; MAX_LANES]; 9];
                let mut taps = [[gathered[0].as_ptr(); 3]; 3];
                for (tap, address) in taps.as_flattened_mut().iter_mut().enumerate() {
                    if filter.strides[2] == 1 {
                        *address = filter.at(tap, channel, columns.start);
                        continue;
                    }
                    for (lane, column) in columns.clone().enumerate() {
                        // SAFETY: the caller vouches for the filter.
                        gathered[tap][lane] = unsafe { *filter.at(tap, channel, column) };
                    }
                    *address = gathered[tap].as_ptr();
                }
                // SAFETY: the taps are valid for the columns, and the values have room for whole panels.
                unsafe {
                    for &weights in taps.as_flattened() {
                        let weights: V = outliers::load(weights, columns.len());
                        squares = weights.mul_add(weights, squares);
                    }
                    let values = both_ways::<V, transform::Filter, 3, 6>(&taps, 0, columns.len());
                    for (point, value) in values.as_flattened().iter().enumerate() {
                        value.store(pass.filter_values(point, channel, panel, width).add(lane));
                    }
                }
            }
        }
        // SAFETY: the contract is the same.
        let squares = unsafe { squares.sum() };
        pass.filter_squares.fetch_max(squares.to_bits() & i32::MAX as u32, Ordering::Relaxed);
    }
}

/// The pixels of some tiles.
struct TileBlock<'a> {
    pass: &'a Pass<'a>,
    worker: usize,
    tiles: Range<usize>,
}

impl Body for TileBlock<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<I: InstructionSet>(self) {
        // SAFETY: the contract is the same.
        unsafe { self.compute::<VectorOf<I, f32>>() }
    }
}

impl TileBlock<'_> {
    #[inline(always)]
    unsafe fn compute<V: Vector<Scalar = f32>>(self) {
        let ForwardWorkspace { input, output, .. } = self.pass.layout;
        let own = self.pass.layout.worker(self.worker);
        let inputs = self.pass.scratch.at(own).pointer();
        let outputs = inputs.wrapping_add(input.len());
        let staged = outputs.wrapping_add(output.len());
        let epilogue = match self.pass.convolution.to {
            To::Epilogue(epilogue) => Some(epilogue),
            To::Memory(_) => None,
        };
        // SAFETY: the thread's workspace has room for a block, and the epilogue takes each of its pixels once.
        unsafe {
            let ways = self.transform_input::<V>(*input, inputs);
            if let Some(epilogue) = epilogue {
                let columns = self.pass.columns.clone();
                self.each_row(|pixels, _| epilogue.prefetch(pixels, columns.clone()));
            }
            for columns in cut(self.pass.columns.clone(), COLUMNS) {
                self.multiply::<V>(columns.clone(), (*input, inputs), (*output, outputs));
                for (row, tile) in self.tiles.clone().enumerate() {
                    self.write::<V>(tile, columns.clone(), output.addresses(outputs, row), staged);
                    if let Some(ways) = &ways[row] {
                        V::Set::run(WriteOtherwise {
                            convolution: self.pass.convolution,
                            patch: self.patch(tile),
                            pixels: self.pixels(tile, staged),
                            ways,
                            columns: columns.clone(),
                        });
                    }
                }
            }
            if let Some(epilogue) = epilogue {
                let columns = self.pass.columns.clone();
                self.each_row(|pixels, place| {
                    let values = staged.cast_const().wrapping_add(place * columns.len()).cast();
                    epilogue.take(self.worker, pixels, columns.clone(), values);
                });
            }
        }
    }
}

impl TileBlock<'_> {
    /// Evaluates the tiles' patches of the images, and returns how the results of each tile are computed.
    #[inline(always)]
    unsafe fn transform_input<V: Vector<Scalar = f32>>(
        &self,
        input: Matrices,
        values: *mut f32,
    ) -> [Option<Ways>; BLOCK] {
        let from = self.pass.convolution.from;
        let filter = f32::from_bits(self.pass.filter_squares.load(Ordering::Relaxed)).sqrt();
        let mut ways = [None; BLOCK];
        let mut test = CheapTest::<V>::new();
        for (row, tile) in self.tiles.clone().enumerate() {
            let patch = self.patch(tile);
            if let (_, [_, 0]) = self.pass.grid.at(tile) {
                test.begin_row();
            }
            // SAFETY: the addresses are of pixels or zeros.
            ways[row] = unsafe { outliers::ways(&mut test, &patch, from.channels, self.size(tile), filter) };
            for channel in (0..from.channels).step_by(V::LANES) {
                let lanes = V::LANES.min(from.channels - channel);
                // SAFETY: the addresses are of pixels or zeros, and a row of values has room for whole vectors.
                unsafe {
                    let square = both_ways::<V, transform::Input, 6, 6>(&patch, channel, lanes);
                    for (point, value) in square.as_flattened().iter().enumerate() {
                        value.store(values.add(point * input.point + row * input.row + channel));
                    }
                }
            }
        }
        ways
    }

    /// The input of a tile.
    #[inline(always)]
    fn patch(&self, tile: usize) -> [[*const f32; PATCH]; PATCH] {
        let Convolution { from, corner, .. } = *self.pass.convolution;
        let (image, [y, x]) = self.pass.grid.at(tile);
        from.square(image, [y as isize + corner[0], x as isize + corner[1]])
    }

    /// The pixels of a tile that are in the image, down and across.
    #[inline(always)]
    fn size(&self, tile: usize) -> [usize; 2] {
        let [height, width] = self.pass.convolution.to_size;
        let (_, [y, x]) = self.pass.grid.at(tile);
        [TILE.min(height - y), TILE.min(width - x)]
    }

    /// The addresses of a tile's pixels: in the images, or where the epilogue takes them from. Those beyond the image
    /// are of nothing.
    #[inline(always)]
    fn pixels(&self, tile: usize, staged: *mut f32) -> [[*mut f32; TILE]; TILE] {
        let Convolution { to, to_size: [height, width], to_channels, .. } = *self.pass.convolution;
        let (image, [y, x]) = self.pass.grid.at(tile);
        let (start, first, row) = match to {
            To::Memory(to) => (to, (image * height + y) * width + x, width),
            To::Epilogue(_) => {
                (staged, self.place(tile, 0, 0), self.place(tile, 1, 0) - self.place(tile, 0, 0))
            }
        };
        let mut pixels = [[start; TILE]; TILE];
        for (place, pixel) in pixels.as_flattened_mut().iter_mut().enumerate() {
            *pixel = start.wrapping_add((first + place / TILE * row + place % TILE) * to_channels);
        }
        pixels
    }

    /// Multiplies the tiles' values by those of the filter's `columns`, at most [`COLUMNS`], summed over channels.
    #[inline(always)]
    unsafe fn multiply<V: Vector<Scalar = f32>>(
        &self,
        columns: Range<usize>,
        (input, inputs): (Matrices, *mut f32),
        (output, outputs): (Matrices, *mut f32),
    ) {
        let channels = self.pass.convolution.from.channels;
        let (rows, width) = (self.tiles.len(), 2 * V::LANES);
        let tile_rows = rows.div_ceil(rows.div_ceil(max_rows(V::ISA)));
        let depth = channels.div_ceil(channels.div_ceil(MAX_DEPTH));
        for point in 0..POINTS {
            for panel in cut(columns.clone(), width) {
                for block in cut(0..channels, depth) {
                    let first = panel.start - self.pass.columns.start;
                    let b = self.pass.filter_values(point, block.start, first, width);
                    for tile in cut(0..rows, tile_rows) {
                        let a = inputs.wrapping_add(point * input.point + tile.start * input.row);
                        let c = outputs.wrapping_add(point * output.point + tile.start * output.row);
                        let tile = Tile {
                            depth: block.len(),
                            a: a.wrapping_add(block.start),
                            a_row: input.row as isize,
                            a_depth: 1,
                            b,
                            b_depth: width as isize,
                            c: c.wrapping_add(panel.start - columns.start),
                            c_row: output.row as isize,
                            rows: tile.len(),
                            columns: panel.len(),
                            alpha: 1.0,
                            add: block.start > 0,
                            resume: false,
                        };
                        // SAFETY: the ranges are within the matrices.
                        unsafe { tile.run::<V>() };
                    }
                }
            }
        }
    }

    /// Calls `row` with the pixels of each row of neighbouring tiles, and the place of the first among those that the
    /// epilogue takes.
    #[inline(always)]
    fn each_row(&self, mut row: impl FnMut(Range<usize>, usize)) {
        let [height, width] = self.pass.convolution.to_size;
        let mut first = self.tiles.start;
        while first < self.tiles.end {
            let (image, [y, x]) = self.pass.grid.at(first);
            let tiles = (self.tiles.end - first).min((width - x).div_ceil(TILE));
            let across = (tiles * TILE).min(width - x);
            for dy in 0..TILE.min(height - y) {
                let pixel = (image * height + y + dy) * width + x;
                row(pixel..pixel + across, self.place(first, dy, 0));
            }
            first += tiles;
        }
    }

    /// The place of a tile's pixel among those of the block that the epilogue takes.
    #[inline(always)]
    fn place(&self, tile: usize, dy: usize, dx: usize) -> usize {
        (dy * BLOCK + tile - self.tiles.start) * TILE + dx
    }

    /// Writes `columns` of a tile's pixels, given the addresses of their products' values.
    #[inline(always)]
    unsafe fn write<V: Vector<Scalar = f32>>(
        &self,
        tile: usize,
        columns: Range<usize>,
        values: [[*const f32; 6]; 6],
        staged: *mut f32,
    ) {
        let ([down, across], pixels) = (self.size(tile), self.pixels(tile, staged));
        for column in columns.clone().step_by(V::LANES) {
            let lanes = V::LANES.min(columns.end - column);
            // SAFETY: a row of values has room for whole vectors, and the pixels are within the image.
            unsafe {
                let square =
                    both_ways::<V, transform::Output, 6, 4>(&values, column - columns.start, V::LANES);
                for (dy, row) in square.into_iter().enumerate() {
                    for (dx, value) in row.into_iter().enumerate() {
                        if dy < down && dx < across {
                            store(value, pixels[dy][dx].add(column), lanes);
                        }
                    }
                }
            }
        }
    }
}

/// Writes `columns` of those of a tile's pixels that are not left to Winograd's algorithm. Apart from the blocks, which are
/// large and almost never need it.
struct WriteOtherwise<'a> {
    convolution: &'a Convolution<'a>,
    patch: [[*const f32; PATCH]; PATCH],
    pixels: [[*mut f32; TILE]; TILE],
    ways: &'a Ways,
    columns: Range<usize>,
}

impl Body for WriteOtherwise<'_> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<I: InstructionSet>(self) {
        let Convolution { from: Images { channels, .. }, filter, .. } = *self.convolution;
        let Self { patch, pixels, ways, columns, .. } = self;
        let mut windows = Windows::new();
        for (place, &way) in ways.as_flattened().iter().enumerate() {
            let (at, pixel) = ([place / TILE, place % TILE], pixels.as_flattened()[place]);
            // SAFETY: pixels that are not in the image are left to the algorithm, and the pass vouches for the others.
            unsafe {
                match way {
                    Way::Winograd => {}
                    Way::Is(value) => {
                        std::slice::from_raw_parts_mut(pixel.add(columns.start), columns.len()).fill(value);
                    }
                    Way::Products => windows.push(&patch, at, pixel),
                }
                if windows.is_full() || place == TILE * TILE - 1 && !windows.is_empty() {
                    windows.multiply::<VectorOf<I, f32>>(&filter, channels, columns.clone());
                    windows = Windows::new();
                }
            }
        }
    }
}

/// Writes the first `lanes` lanes.
#[inline(always)]
unsafe fn store<V: Vector<Scalar = f32>>(vector: V, to: *mut f32, lanes: usize) {
    // SAFETY: the caller vouches for the lanes.
    unsafe { if lanes == V::LANES { vector.store(to) } else { vector.store_first(to, lanes) } }
}
