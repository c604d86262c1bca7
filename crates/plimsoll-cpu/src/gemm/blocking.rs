//! How a product is cut up: into sums over parts of the depth, tiles for the threads, blocks for the caches.
//!
//! Two rules keep results the same for any number of threads. What decides the order of a sum, the splits and the
//! depth of a block, depends on the product's shape alone. What depends on the number of threads, the tiles,
//! decides only who computes an element and never how.

use super::kernel::{max_rows, vectors};
use super::pack::row_pitch;
use crate::numbers::{Element, Float};
use crate::simd::Isa;

/// The bytes of a row in a block: with this depth, the rows of a register tile fill a first-level cache.
const DEPTH_BYTES: usize = 2048;
/// The most rows and columns of a tile that is written in place.
const TILE: [usize; 2] = [4096, 1024];
/// The most rows and columns of a tile that is summed in workspace.
const SUMMED_TILE: [usize; 2] = [256, EPILOGUE_COLUMNS];

/// The most rows of a tile that is summed in workspace for an epilogue: right operands are packed for each.
const EPILOGUE_ROWS: usize = 1024;
/// The most columns that an epilogue takes at once; fewer only where there are fewer.
pub(crate) const EPILOGUE_COLUMNS: usize = 512;
/// About how many elements an epilogue takes at once.
pub(crate) const EPILOGUE_ELEMENTS: usize = 4096;

/// The distance between rows that an epilogue takes, in sums. Where it takes all columns at once, rows follow each
/// other; else it is no multiple of a page, and not the distance of `columns` elements, of the size of a sum or half of
/// it, so that parts of rows never look like whole ones.
pub(crate) const fn epilogue_pitch(columns: usize) -> usize {
    const PITCH: usize = EPILOGUE_COLUMNS + 16;
    match columns {
        0..=EPILOGUE_COLUMNS => columns,
        PITCH => PITCH + 16,
        _ if columns == 2 * PITCH => PITCH + 16,
        _ => PITCH,
    }
}

/// The shallowest part that is worth a sum of its own.
const SPLIT_DEPTH: usize = 2048;
/// The most scalars that partial sums may take.
const SPLIT_SCALARS: usize = 1 << 18;
/// The most parts of a sum.
const MAX_SPLITS: usize = 32;

// Rough costs in cycles, to choose tiles by.
const PACK_CYCLES: f64 = 0.3;
const TASK_CYCLES: f64 = 500.0;
const WAKE_CYCLES: f64 = 8000.0;

/// The size of a batch of products of `m × k` by `k × n`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) batch: usize,
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
}

/// How every sum of a product is ordered, which decides its bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    /// The parts of every sum, each summed apart, and the depth of one.
    pub(crate) splits: usize,
    pub(crate) split_depth: usize,
    /// The depth of a block within a part.
    pub(crate) depth: usize,
    /// Whether a row is summed in the lanes of vectors, if both operands lie in memory along the depth.
    pub(crate) in_lanes: bool,
    /// Whether the first block goes on with the sums that are in the result instead of with zeros.
    pub(crate) resumed: bool,
}

impl Order {
    /// The order of the sums of a product of scalars of `size` bytes.
    pub(crate) fn of(shape: Shape, size: usize) -> Self {
        let Shape { batch, m, n, k } = shape;
        let results = (batch * m * n).max(1);
        let splits = (k / SPLIT_DEPTH).min(SPLIT_SCALARS / results).clamp(1, MAX_SPLITS);
        let split_depth = k.div_ceil(splits).max(1);
        let splits = k.div_ceil(split_depth).max(1);
        // Blocks of equal depth: a shallow last one would cost as much traffic as a deep one.
        let depth = split_depth.div_ceil(split_depth.div_ceil(DEPTH_BYTES / size));
        Self { splits, split_depth, depth, in_lanes: m == 1, resumed: false }
    }
}

/// Where a tile of a product is summed up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sums {
    /// Where the result goes.
    InPlace,
    /// In workspace, and rounded to where the result goes.
    InTile,
    /// In workspace, for an epilogue.
    ToEpilogue,
}

impl Sums {
    /// For a result of `T`, that goes to rows at equal distances or to an epilogue.
    pub(crate) fn of<T: Element<Acc: Float>>(in_rows: bool, with_epilogue: bool) -> Sums {
        match (with_epilogue, T::IS_ACC && in_rows) {
            (true, _) => Sums::ToEpilogue,
            (false, true) => Sums::InPlace,
            (false, false) => Sums::InTile,
        }
    }
}

/// How one product is cut up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blocking {
    /// The order of its sums.
    pub(crate) order: Order,
    /// The rows of a register tile.
    pub(crate) rows: usize,
    /// The columns of a register tile.
    pub(crate) columns: usize,
    pub(crate) tile_m: usize,
    pub(crate) tile_n: usize,
    /// The tiles down and across.
    pub(crate) grid: [usize; 2],
    /// The tiles of one task of the pool.
    pub(crate) tiles_per_task: usize,
    /// The most rows that an epilogue takes at once.
    pub(crate) held: usize,
    /// The scalars of a register tile's packed rows, of the packed columns, and of a tile's sums.
    pub(crate) a_len: usize,
    pub(crate) b_len: usize,
    pub(crate) c_len: usize,
    /// The scalars of all partial sums.
    pub(crate) partial_len: usize,
}

impl Blocking {
    /// Cuts up a product of scalars of `size` bytes, summed in `order` and in that place.
    pub(crate) fn new(shape: Shape, order: Order, isa: Isa, size: usize, sums: Sums, threads: usize) -> Self {
        let Shape { batch, m, n, .. } = shape;
        let Order { splits, split_depth, depth, .. } = order;
        let results = (batch * m * n).max(1);

        let lanes = isa.lanes(size);
        let columns = vectors(isa, m) * lanes;
        // Of rows that are finished in one block, few are in workspace at a time.
        let in_one_block = split_depth <= depth;
        let limit = match sums {
            Sums::InPlace => TILE,
            _ if splits > 1 => TILE,
            Sums::ToEpilogue if in_one_block => [TILE[0], EPILOGUE_COLUMNS],
            Sums::ToEpilogue => [EPILOGUE_ROWS, EPILOGUE_COLUMNS],
            Sums::InTile => SUMMED_TILE,
        };
        let across_once = sums == Sums::ToEpilogue && splits == 1 && n <= EPILOGUE_COLUMNS;
        let tiling = Tiling { m, n, max_rows: max_rows(isa), columns };
        let (work, units) = (split_depth as f64, (batch * splits) as f64);
        let cost = |tile_m: usize, tile_n: usize| {
            let sums = (tile_m * tile_n) as f64 / lanes as f64;
            work * (sums + PACK_CYCLES * (tile_m + tile_n) as f64) + TASK_CYCLES
        };
        // What takes little longer than waking a thread is left to one.
        let total = units * cost(m, n);
        let threads = if total < 2.0 * WAKE_CYCLES { 1 } else { threads };
        let mut best = (f64::INFINITY, tiling.cut(1, 1));
        for down in counts(m.div_ceil(limit[0]), threads) {
            for across in counts(n.div_ceil(limit[1]), threads).take(if across_once { 1 } else { usize::MAX })
            {
                let cut = tiling.cut(down, across);
                let tiles = units * (cut.grid[0] * cut.grid[1]) as f64;
                let rounds = (tiles / threads as f64).ceil();
                let wake = if tiles > 1.0 && threads > 1 { WAKE_CYCLES } else { 0.0 };
                let time = (rounds + 0.05) * cost(cut.tile_m, cut.tile_n) + wake;
                if time < best.0 {
                    best = (time, cut);
                }
            }
        }
        let Cut { rows, tile_m, tile_n, grid } = best.1;
        let tiles = batch * splits * grid[0] * grid[1];
        let tile_cycles = cost(tile_m, tile_n);
        let tiles_per_task = if threads == 1 {
            tiles.max(1)
        } else {
            ((WAKE_CYCLES / tile_cycles) as usize).clamp(1, tiles.div_ceil(4 * threads))
        };

        let line = 64 / size;
        let held = EPILOGUE_ELEMENTS.div_ceil(n.min(EPILOGUE_COLUMNS)).next_multiple_of(rows);
        let tile_sums = match sums {
            Sums::ToEpilogue if splits > 1 => EPILOGUE_COLUMNS,
            Sums::ToEpilogue if in_one_block => held * epilogue_pitch(n),
            Sums::ToEpilogue => tile_m * epilogue_pitch(n),
            Sums::InTile if splits == 1 => tile_m * tile_n,
            Sums::InPlace | Sums::InTile => 0,
        };
        Self {
            order,
            rows,
            columns,
            tile_m,
            tile_n,
            grid,
            tiles_per_task,
            held,
            a_len: (rows * row_pitch(depth, lanes))
                .max(rows.next_multiple_of(lanes) * depth)
                .next_multiple_of(line),
            b_len: (tile_n * depth).next_multiple_of(line),
            c_len: tile_sums.next_multiple_of(line),
            partial_len: if splits > 1 { (splits * results).next_multiple_of(line) } else { 0 },
        }
    }

    /// The scalars of workspace that one thread needs for itself.
    pub(crate) fn worker_len(&self) -> usize {
        self.a_len + self.b_len + self.c_len
    }

    /// The scalars of workspace in all.
    pub(crate) fn len(&self, threads: usize) -> usize {
        self.partial_len + threads * self.worker_len()
    }
}

/// Numbers of tiles to try in one dimension: `least` and its small multiples.
fn counts(least: usize, threads: usize) -> impl Iterator<Item = usize> + Clone {
    const FACTORS: [usize; 12] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64];
    let most = if threads > 1 { 2 * threads } else { 1 };
    FACTORS.into_iter().take_while(move |&factor| factor <= most).map(move |factor| least.max(1) * factor)
}

/// What the tiles are cut from.
struct Tiling {
    m: usize,
    n: usize,
    max_rows: usize,
    columns: usize,
}

/// One way to cut a result into tiles of whole register tiles.
#[derive(Clone, Copy)]
struct Cut {
    rows: usize,
    tile_m: usize,
    tile_n: usize,
    grid: [usize; 2],
}

impl Tiling {
    /// Cuts into at most `down × across` tiles. Register tiles get equally many rows, as far as they divide.
    fn cut(&self, down: usize, across: usize) -> Cut {
        let Self { m, n, max_rows, columns } = *self;
        let panels = m.div_ceil(max_rows).div_ceil(down).max(1);
        let rows = m.div_ceil(panels * down).max(1);
        let tile_m = rows * panels;
        let tile_n = n.div_ceil(columns).div_ceil(across).max(1) * columns;
        Cut { rows, tile_m, tile_n, grid: [m.div_ceil(tile_m), n.div_ceil(tile_n)] }
    }
}
