//! How a loop's domain is cut into tiles, and where the elements of a tile are in memory.
//!
//! Axes that all views walk through as if they were one are joined first. A tile is then a box of the axes that
//! are left: whole rows in a loop with rows, unless rows are long, which are worked on in chunks.

use super::map::CHUNK;
use super::transfer::Block;
use crate::kernels::summation::BLOCK;
use plimsoll_graph::{MAX_RANK, Shape};

/// Tiles of at most these many bytes for each element's live registers stay in the first-level cache.
const CACHE: usize = 24 << 10;
/// The most elements of a tile, and the longest row that is worked on as a whole.
const LONGEST: usize = 2048;
/// Runs of at least these many elements are worth a tile of their own: it has direct access to memory, and
/// needs no copies of what is the same along the run.
const ALONE: usize = 512;
/// The rows of a tile that is read transposed: a cache line of most types.
const TRANSPOSED: usize = 32;

/// A walk over a buffer along the axes of a domain.
#[derive(Clone, Copy, Debug)]
pub(super) struct Walk {
    /// Where the first element is, in elements.
    pub(super) offset: usize,
    /// The distance between neighbours along each axis, in elements.
    pub(super) strides: [usize; MAX_RANK],
    /// Whether it goes along the axes of rows too, or only along those before.
    pub(super) along_rows: bool,
}

/// A domain's axes after joining, and the tiles it is cut into.
#[derive(Clone, Debug)]
pub(super) struct Geometry {
    /// The extents of the axes, those before the rows first.
    pub(super) extents: Vec<usize>,
    /// How many axes are before the rows; all, if there are no rows.
    pub(super) lead: usize,
    /// A tile's extents.
    pub(super) tile: Vec<usize>,
    /// The elements of a row, or 1 if there are no rows.
    pub(super) row: usize,
    /// The elements of a row that are worked on at once.
    pub(super) chunk: usize,
    /// Whether a tile is one row.
    pub(super) single: bool,
}

/// A tile, or a chunk of a row: where it begins and ends along each axis.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) start: [usize; MAX_RANK],
    pub(super) extents: [usize; MAX_RANK],
}

impl Geometry {
    /// The geometry of a single element.
    pub(super) fn empty() -> Geometry {
        Geometry { extents: vec![], lead: 0, tile: vec![], row: 1, chunk: 1, single: false }
    }

    /// Cuts a domain into tiles, and changes the walks to its joined axes. An element needs about `live` bytes.
    pub(super) fn new(domain: &Shape, row_axes: usize, walks: &mut [Walk], live: usize) -> Geometry {
        let (extents, lead) = join(domain, domain.rank() - row_axes, walks);
        let row = extents[lead..].iter().product();
        let size = (CACHE / live.max(1)).clamp(4 * CHUNK, LONGEST);
        let size = 1 << size.ilog2();
        let mut geometry =
            Geometry { tile: vec![1; extents.len()], extents, lead, row, chunk: row, single: false };
        if row_axes == 0 {
            geometry.tile_elements(walks, size);
        } else {
            geometry.tile_rows(walks, size);
        }
        geometry
    }

    fn tile_elements(&mut self, walks: &[Walk], size: usize) {
        let Some(last) = self.extents.len().checked_sub(1) else { return };
        // Where some view walks along another axis as the others do along the last, tiles extend along both.
        let transposed = (0..last).rev().find(|&axis| {
            walks.iter().any(|w| w.strides[axis] == 1 && w.strides[last] > 1) && self.extents[axis] > 1
        });
        if let Some(axis) = transposed {
            self.tile[last] = even(self.extents[last], CHUNK);
            self.tile[axis] = even(self.extents[axis], (size / self.tile[last]).clamp(1, TRANSPOSED));
        } else {
            self.tile[last] = even(self.extents[last], size);
            if self.tile[last] >= ALONE {
                return;
            }
        }
        self.fill(size);
    }

    fn tile_rows(&mut self, walks: &[Walk], size: usize) {
        self.tile[self.lead..].copy_from_slice(&self.extents[self.lead..]);
        let row_axes = self.extents.len() - self.lead;
        if self.row > LONGEST && row_axes == 1 {
            self.chunk = size.min(BLOCK);
            self.single = true;
            return;
        }
        let last = self.extents.len().wrapping_sub(1);
        let transposed = self.lead > 0
            && row_axes > 0
            && walks.iter().any(|w| w.along_rows && w.strides[self.lead - 1] == 1 && w.strides[last] > 1);
        if transposed && self.row <= LONGEST {
            self.fill((self.row * TRANSPOSED).max(size));
        } else if self.row < ALONE {
            self.fill(size);
        }
        self.single = self.tile[..self.lead].iter().all(|&extent| extent == 1);
    }

    /// Extends the tile up to `size` elements, along the last axes first.
    fn fill(&mut self, size: usize) {
        let mut elements: usize = self.tile.iter().product::<usize>().max(1);
        for axis in (0..self.lead).rev() {
            if self.tile[axis] == 1 {
                self.tile[axis] = self.extents[axis].clamp(1, (size / elements).max(1));
                elements *= self.tile[axis];
            }
            if self.tile[axis] < self.extents[axis] {
                return;
            }
        }
    }

    /// The number of tiles.
    pub(super) fn tiles(&self) -> usize {
        let along = |axis: usize| self.extents[axis].div_ceil(self.tile[axis].max(1));
        (0..self.lead).map(along).product()
    }

    /// Tile number `index`.
    pub(super) fn tile(&self, mut index: usize) -> Part {
        let mut part = Part { start: [0; MAX_RANK], extents: [1; MAX_RANK] };
        part.extents[self.lead..self.extents.len()].copy_from_slice(&self.extents[self.lead..]);
        for axis in (0..self.lead).rev() {
            let along = self.extents[axis].div_ceil(self.tile[axis]);
            let start = index % along * self.tile[axis];
            index /= along;
            part.start[axis] = start;
            part.extents[axis] = self.tile[axis].min(self.extents[axis] - start);
        }
        part
    }

    /// The rows of a tile; its elements, if there are no rows.
    pub(super) fn rows(&self, part: &Part) -> usize {
        part.extents[..self.lead].iter().product()
    }

    /// Whether rows are worked on in chunks.
    pub(super) fn is_chunked(&self) -> bool {
        self.chunk < self.row
    }

    /// The elements of the largest tile or chunk.
    pub(super) fn capacity(&self) -> usize {
        if self.is_chunked() { self.chunk } else { self.tile.iter().product() }
    }

    /// Limits a tile of one row to the chunk that begins at element `start` of it.
    pub(super) fn narrow(&self, part: &mut Part, start: usize) {
        if self.is_chunked() {
            part.start[self.lead] = start;
            part.extents[self.lead] = self.chunk.min(self.row - start);
        }
    }

    /// The box that a walk makes of a tile.
    pub(super) fn shape(&self, walk: &Walk) -> BlockShape {
        let rank = if walk.along_rows { self.extents.len() } else { self.lead };
        let mut shape = BlockShape::default();
        let whole = |axis: usize| self.tile[axis] == self.extents[axis] && !self.chunked(axis);
        for axis in 0..rank {
            if self.tile[axis] == 1 {
                continue;
            }
            let joins = shape
                .axes
                .last()
                .is_some_and(|last| whole(axis) && last.stride == walk.strides[axis] * self.extents[axis]);
            match shape.axes.last_mut() {
                Some(last) if joins => {
                    last.stride = walk.strides[axis];
                    last.times *= self.extents[axis];
                }
                _ => shape.axes.push(BlockAxis { axis, times: 1, stride: walk.strides[axis] }),
            }
        }
        shape
    }

    fn chunked(&self, axis: usize) -> bool {
        axis == self.lead && self.is_chunked()
    }
}

/// How the box of a tile in memory follows from the tile.
#[derive(Clone, Debug, Default)]
pub(super) struct BlockShape {
    axes: Vec<BlockAxis>,
}

/// One axis of the box: `times` the tile's extent along `axis`.
#[derive(Clone, Copy, Debug)]
struct BlockAxis {
    axis: usize,
    times: usize,
    stride: usize,
}

impl BlockShape {
    /// Whether all of a tile is one element.
    pub(super) fn is_same(&self) -> bool {
        self.axes.iter().all(|axis| axis.stride == 0)
    }

    /// Whether a tile is densely packed.
    pub(super) fn is_dense(&self) -> bool {
        match self.axes[..] {
            [] => true,
            [BlockAxis { stride, .. }] => stride == 1,
            _ => false,
        }
    }

    /// Gives back what is reserved and not used.
    pub(super) fn shrink_to_fit(&mut self) {
        self.axes.shrink_to_fit();
    }

    /// The box of one tile.
    pub(super) fn block(&self, part: &Part) -> Block {
        let mut block = Block { rank: self.axes.len(), ..Block::default() };
        for (i, axis) in self.axes.iter().enumerate() {
            block.extents[i] = part.extents[axis.axis] * axis.times;
            block.strides[i] = axis.stride;
        }
        block
    }
}

impl Walk {
    /// Whether it stays at one element.
    pub(super) fn is_constant(&self, geometry: &Geometry) -> bool {
        let rank = if self.along_rows { geometry.extents.len() } else { geometry.lead };
        self.strides[..rank].iter().all(|&stride| stride == 0)
    }

    /// Where a tile begins, in elements.
    #[inline]
    pub(super) fn start(&self, part: &Part) -> usize {
        let along = self.strides.iter().zip(&part.start).map(|(stride, start)| stride * start);
        self.offset + along.sum::<usize>()
    }
}

/// Joins axes wherever all walks go through them as through one, and leaves out axes of one element. Returns
/// the extents, and how many axes are before the rows.
fn join(domain: &Shape, lead: usize, walks: &mut [Walk]) -> (Vec<usize>, usize) {
    let original: Vec<_> = walks.iter().map(|w| w.strides).collect();
    let mut extents: Vec<usize> = vec![];
    let mut joined_lead = 0;
    for walk in walks.iter_mut() {
        walk.strides = [0; MAX_RANK];
    }
    for (axis, &extent) in domain.iter().enumerate() {
        if extent == 1 {
            continue;
        }
        let in_row = axis >= lead;
        let first_of_part = extents.len() == if in_row { joined_lead } else { 0 };
        let joins = !first_of_part
            && walks.iter().zip(&original).all(|(walk, strides)| {
                in_row && !walk.along_rows || walk.strides[extents.len() - 1] == strides[axis] * extent
            });
        if joins {
            *extents.last_mut().unwrap_or(&mut 0) *= extent;
        } else {
            extents.push(extent);
        }
        for (walk, strides) in walks.iter_mut().zip(&original) {
            if !in_row || walk.along_rows {
                walk.strides[extents.len() - 1] = strides[axis];
            }
        }
        if !in_row {
            joined_lead = extents.len();
        }
    }
    (extents, joined_lead)
}

/// The extent of equal parts of at most `limit`, as large as they can be, in whole chunks if there are many.
fn even(extent: usize, limit: usize) -> usize {
    if extent <= limit {
        return extent.max(1);
    }
    let part = extent.div_ceil(extent.div_ceil(limit));
    part.next_multiple_of(CHUNK).min(limit)
}
