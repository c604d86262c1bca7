//! Tiling of reductions over columns: each block reduces some columns over a chunk of the rows, so that a matrix of few
//! columns still fills the device. The chunks' partial results are combined afterwards, in an order that is fixed for a
//! device.
//!
//! Fewer rows or matrices can make for more chunks: a chunk is a whole number of rows, and many matrices fill a device
//! without chunks. The workspace for partial results is therefore the most that any tiling of fewer takes, so that a
//! shorter step never needs a larger arena.

use super::pack;

/// The threads of a block.
pub(super) const BLOCK: u32 = 256;
/// The blocks for each multiprocessor that chunks are made for.
const BLOCKS_PER_PROCESSOR: usize = 4;
/// The rows of a chunk that each thread has at least.
const LEAST_ROWS: usize = 8;

/// The bytes of a memory sector.
const SECTOR: usize = 32;

/// A tiling of `outer` matrices of `rows` by `columns`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tiles {
    /// The columns of one access.
    pub(super) pack: usize,
    /// The accesses of a block side by side; a power of two.
    pub(super) across: usize,
    /// The blocks side by side, of all matrices.
    pub(super) tiles: usize,
    /// The rows of a chunk, and how many chunks there are.
    pub(super) chunk: usize,
    pub(super) chunks: usize,
    /// The most chunks that tilings of as many rows and matrices or fewer have, those of all matrices together; 0 where
    /// none has more than one of a matrix.
    pub(super) room: usize,
}

impl Tiles {
    /// A tiling for elements of `size` bytes.
    pub(super) fn new(processors: u32, size: usize, outer: usize, rows: usize, columns: usize) -> Self {
        let tiles = Self::whole(size, outer, rows, columns);
        let down = BLOCK as usize / tiles.across;
        let blocks = BLOCKS_PER_PROCESSOR * processors as usize;
        let wanted = blocks / tiles.tiles.max(1);
        let most = rows.div_ceil(down * LEAST_ROWS);
        let chunk = rows.div_ceil(wanted.min(most).max(1)).max(1);
        let matrix = blocks / (tiles.tiles / outer.max(1)).max(1);
        let room = if most > 1 && matrix > 1 { matrix.min(outer.max(1) * most) } else { 0 };
        Self { chunk, chunks: rows.div_ceil(chunk).max(1), room, ..tiles }
    }

    /// A tiling whose chunks are all rows.
    fn whole(size: usize, outer: usize, rows: usize, columns: usize) -> Self {
        Self::across(pack(size, 16, &[columns]), 32, outer, rows, columns)
    }

    /// A tiling of one matrix of few rows. Where columns are few, an access is of one, and no more of them are side by side
    /// than lie in a sector of memory, so that there are many blocks and each has many threads for the rows.
    pub(super) fn low(processors: u32, size: usize, rows: usize, columns: usize) -> Self {
        let across = SECTOR / size;
        let few = columns.div_ceil(across) <= BLOCKS_PER_PROCESSOR * processors as usize;
        let pack = if few { 1 } else { pack(size, 16, &[columns]) };
        Self::across(pack, across, 1, rows, columns)
    }

    /// A tiling whose chunks are all rows, with packs of `pack` columns and at most `across` of them side by side.
    fn across(pack: usize, across: usize, outer: usize, rows: usize, columns: usize) -> Self {
        let across = columns.div_ceil(pack).next_power_of_two().min(across);
        let tiles = outer * columns.div_ceil(pack * across);
        Self { pack, across, tiles, chunk: rows.max(1), chunks: 1, room: 0 }
    }

    /// The grid: tiles across, chunks down.
    pub(super) fn grid(&self) -> [usize; 2] {
        [self.tiles, self.chunks]
    }
}
