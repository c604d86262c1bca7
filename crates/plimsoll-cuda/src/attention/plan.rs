//! Which kernels compute attention: their source, grids, shared memory and workspace.
//!
//! Nothing here needs a device but its properties, so what is launched can be tested anywhere.

use super::geometry::{AttentionShape, define};
use crate::codegen::dtype_defines::dtype_defines;
use crate::codegen::engine::Properties;
use crate::routine::PointerTo::{self, Read, Workspace, Write};
use plimsoll_graph::DType;

const EXTENTS: &str = include_str!("extents.cu");
const PRIMITIVES: &str = include_str!("primitives.cu");
const TILES: &str = include_str!("tiles.cu");
const FRAGMENTS: &str = include_str!("fragments.cu");
const QUERIES: &str = include_str!("queries.cu");
const FORWARD: &str = include_str!("forward.cu");
const BACKWARD: &str = include_str!("backward.cu");
const BACKWARD_KEYS: &str = include_str!("backward_keys.cu");
const WIDE_KEYS: &str = include_str!("wide_keys.cu");
const HOPPER: &str = include_str!("hopper.cu");
const HOPPER_PRODUCTS: &str = include_str!("hopper_products.cu");
const HOPPER_FORWARD: &str = include_str!("hopper_forward.cu");
const HOPPER_BACKWARD: &str = include_str!("hopper_backward.cu");
const PLAIN: &str = include_str!("plain.cu");

/// What is compiled and launched.
#[derive(Debug)]
pub(super) struct AttentionPlan {
    pub(super) source: String,
    /// In their order. What has nothing to do is left out.
    pub(super) launches: Vec<AttentionLaunch>,
    pub(super) workspace: u64,
}

/// A function of the source and how it is launched.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct AttentionLaunch {
    pub(super) name: &'static str,
    pub(super) grid: [u32; 3],
    pub(super) threads: u32,
    /// Bytes of dynamic shared memory.
    pub(super) shared: u32,
    pub(super) arguments: Vec<PointerTo>,
    /// The last argument: kernels are compiled for any batch and length.
    pub(super) extents: [i64; 8],
}

// The arguments of the forward pass, with and without tensor cores.
const FORWARD_ARGUMENTS: [PointerTo; 5] = [Read(0), Read(1), Read(2), Write(0), Write(1)];

/// Where the gradients of k and of v are written.
fn key_results(geometry: &AttentionShape) -> [PointerTo; 2] {
    if geometry.joint { [Write(0); 2] } else { [Write(1), Write(2)] }
}

/// The plan for `Op::Attention`.
pub(super) fn forward(geometry: &AttentionShape, properties: &Properties) -> AttentionPlan {
    match Tensor::choose(geometry, properties, AttentionPass::Forward) {
        Some(tensor) => tensor.forward(geometry),
        None => plain_forward(geometry),
    }
}

/// The plan for `Op::AttentionGrad`.
pub(super) fn backward(geometry: &AttentionShape, properties: &Properties) -> AttentionPlan {
    match Tensor::choose(geometry, properties, AttentionPass::Backward) {
        Some(tensor) => tensor.backward(geometry),
        None => plain_backward(geometry),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AttentionPass {
    Forward,
    Backward,
}

/// How products of halves are tiled for tensor cores.
#[derive(Debug, Clone, Copy)]
struct Tensor {
    pass: AttentionPass,
    /// The width of tiles, the operands' rounded up.
    padded: usize,
    unit: Unit,
}

/// Which threads share a matrix instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    /// A warp, which has this many times 16 rows: with twice as many, each is multiplied with half as much from
    /// shared memory, if the sums fit into registers.
    Warp { row_tiles: usize },
    /// Eight warps of 16 rows each, where rows are so wide that a warp's sums fill its registers. So many rows come and
    /// go at a time.
    Wide { block: usize },
    /// Four warps with 64 rows, on devices of capability 9.0 alone, which have so many multiprocessors.
    Group { processors: usize },
}

/// How many blocks of threads of the kernels by groups share a multiprocessor: as many as their registers and shared
/// memory allow, which the kernels are compiled for.
const FORWARD_BLOCKS: usize = 4;
const QUERY_BLOCKS: usize = 3;
const KEY_BLOCKS: usize = 2;
/// How far the second and the third axis of a grid go.
const MOST_IN_GRID: usize = 65_535;
/// The pipeline stages of the kernels by groups: one is computed with while the next is copied and the last still read.
const STAGES: usize = 3;

impl Tensor {
    /// The rows of a tile that is streamed through, but for rows that are wide.
    const BLOCK: usize = 64;
    /// The keys that a block of threads has where rows are wide, and the queries that are streamed through it: two warps
    /// share 16 keys.
    const WIDE_KEYS: usize = 64;
    const WIDE_QUERIES: usize = 64;
    /// The rows that a group of warps has.
    const GROUP_ROWS: usize = 64;
    /// The columns of scores that gradients by single warps have in registers at a time.
    const STEP: usize = 32;

    /// `None` if the operands are no halves, cannot be copied in 16 bytes, are too wide, or the device cannot.
    fn choose(geometry: &AttentionShape, properties: &Properties, pass: AttentionPass) -> Option<Self> {
        let AttentionShape { dtype, width, attention, views, .. } = geometry;
        let chunks = |elements: usize| elements.is_multiple_of(8);
        let copyable = views.iter().all(|(_, view)| {
            let outer = (0..3).all(|axis| view.shape[axis] <= 1 || chunks(view.strides[axis]));
            outer && view.strides[3] == 1 && chunks(view.offset)
        });
        let suitable = matches!(dtype, DType::BF16 | DType::F16) && attention.scale > 0.0;
        if !suitable || !copyable || !chunks(*width) || *width == 0 || properties.capability < (8, 0) {
            return None;
        }
        let padded = [32, 64, 96, 128, 192, 256].into_iter().find(|padded| padded >= width)?;
        let blocks = geometry.queries.max(geometry.keys).div_ceil(Self::GROUP_ROWS);
        let units = match (properties.capability, padded) {
            ((9, 0), 64) if blocks <= MOST_IN_GRID => {
                vec![Unit::Group { processors: properties.processors as usize }]
            }
            (_, 32 | 64) => vec![Unit::Warp { row_tiles: 2 }],
            (_, 192 | 256) if pass == AttentionPass::Forward => {
                vec![Unit::Wide { block: 64 }, Unit::Wide { block: 32 }]
            }
            (_, 192 | 256) => vec![Unit::Wide { block: 32 }],
            _ if pass == AttentionPass::Forward => vec![Unit::Warp { row_tiles: 2 }],
            _ => vec![Unit::Warp { row_tiles: 1 }],
        };
        let tensors = units.into_iter().map(|unit| Tensor { pass, padded, unit });
        tensors
            .into_iter()
            .find(|tensor| tensor.shared().max(tensor.shared_of_keys()) <= properties.shared_per_block)
    }

    /// The threads of a block.
    fn threads(&self) -> usize {
        match self.unit {
            Unit::Warp { .. } | Unit::Group { .. } => 128,
            Unit::Wide { .. } => 256,
        }
    }

    /// The rows of a tile that is streamed through.
    fn block(&self) -> usize {
        match self.unit {
            Unit::Warp { .. } | Unit::Group { .. } => Self::BLOCK,
            Unit::Wide { block } => block,
        }
    }

    /// The rows that a block of threads owns.
    fn rows(&self) -> usize {
        match self.unit {
            Unit::Warp { row_tiles } => 64 * row_tiles,
            Unit::Wide { .. } => 128,
            Unit::Group { .. } => Self::GROUP_ROWS,
        }
    }

    /// The keys that a block of threads owns for their gradients.
    fn rows_of_keys(&self) -> usize {
        if matches!(self.unit, Unit::Wide { .. }) { Self::WIDE_KEYS } else { self.rows() }
    }

    /// Tiles of owned rows, stages of two tiles, and for gradients two numbers for each row of the stages.
    fn shared(&self) -> u32 {
        let stages = match self.unit {
            Unit::Warp { .. } | Unit::Wide { .. } => 2,
            Unit::Group { .. } => STAGES,
        };
        let (owned, numbers) = match self.pass {
            AttentionPass::Forward => (1, 0),
            AttentionPass::Backward => (2, stages * 2 * self.block() * 4),
        };
        ((owned * self.rows() + stages * 2 * self.block()) * self.padded * 2 + numbers) as u32
    }

    /// The same for the gradients of keys and values; where rows are wide, with two tiles of factors.
    fn shared_of_keys(&self) -> u32 {
        let (keys, queries) = (Self::WIDE_KEYS, Self::WIDE_QUERIES);
        match (self.unit, self.pass) {
            (Unit::Wide { .. }, AttentionPass::Backward) => {
                let tiles = (2 * keys + 2 * 2 * queries) * self.padded * 2;
                (tiles + 2 * keys * queries * 2 + 2 * 2 * queries * 4) as u32
            }
            _ => self.shared(),
        }
    }

    fn source(&self, geometry: &AttentionShape) -> String {
        let mut text = geometry.defines();
        let scale = geometry.attention.scale;
        let bf16 = geometry.dtype == DType::BF16;
        for (name, value) in [
            ("PADDED", self.padded),
            ("ROWS", self.rows()),
            ("THREADS", self.threads()),
            ("BLOCK", self.block()),
            ("HALF_IS_BF16", usize::from(bf16)),
        ] {
            define(&mut text, name, value);
        }
        let of_unit: &[(&str, usize)] = match self.unit {
            Unit::Warp { row_tiles } => &[("ROW_TILES", row_tiles), ("STEP", Self::STEP), ("RESIDENT", 2)],
            Unit::Wide { .. } => &[
                ("ROW_TILES", 1),
                ("STEP", Self::STEP),
                ("RESIDENT", 1),
                ("KEY_ROWS", Self::WIDE_KEYS),
                ("KEY_BLOCK", Self::WIDE_QUERIES),
            ],
            Unit::Group { .. } => &[
                ("STAGES", STAGES),
                ("FORWARD_BLOCKS", FORWARD_BLOCKS),
                ("QUERY_BLOCKS", QUERY_BLOCKS),
                ("KEY_BLOCKS", KEY_BLOCKS),
            ],
        };
        for (name, value) in of_unit {
            define(&mut text, name, value);
        }
        define(&mut text, "HALF_TYPE", if bf16 { "\"bf16\"" } else { "\"f16\"" });
        define(&mut text, "SCALE", format!("((float){scale:e})"));
        define(&mut text, "SCALE_LOG2", format!("((float){:e})", scale * std::f64::consts::LOG2_E));
        let kernels: &[&str] = match (self.unit, self.pass) {
            (Unit::Warp { .. } | Unit::Wide { .. }, AttentionPass::Forward) => &[FORWARD],
            (Unit::Warp { .. }, AttentionPass::Backward) => &[QUERIES, BACKWARD, BACKWARD_KEYS],
            (Unit::Wide { .. }, AttentionPass::Backward) => &[QUERIES, BACKWARD, WIDE_KEYS],
            (Unit::Group { .. }, AttentionPass::Forward) => &[HOPPER, HOPPER_PRODUCTS, HOPPER_FORWARD],
            (Unit::Group { .. }, AttentionPass::Backward) => {
                &[HOPPER, HOPPER_PRODUCTS, QUERIES, HOPPER_BACKWARD]
            }
        };
        [text.as_str(), EXTENTS, PRIMITIVES, TILES, FRAGMENTS].iter().chain(kernels).copied().collect()
    }

    /// A launch with a block of threads for each of the blocks of `rows`, `own` in each, of each pair, of which `blocks`
    /// share a multiprocessor; `None` if there is nothing to do.
    fn launch(
        &self,
        geometry: &AttentionShape,
        name: &'static str,
        (rows, own): (usize, usize),
        blocks: usize,
        shared: u32,
        arguments: &[PointerTo],
    ) -> Option<AttentionLaunch> {
        let (pairs, each) = (geometry.pairs(), rows.div_ceil(own));
        let grid = match self.unit {
            Unit::Warp { .. } | Unit::Wide { .. } => grid(pairs, each, 1)?,
            Unit::Group { processors } => grid_by_pairs(pairs, each, processors * blocks)?,
        };
        let (arguments, extents) = (arguments.to_vec(), geometry.extents());
        let threads = self.threads() as u32;
        Some(AttentionLaunch { name, grid, threads, shared, arguments, extents })
    }

    fn forward(&self, geometry: &AttentionShape) -> AttentionPlan {
        let rows = (geometry.queries, self.rows());
        let launch =
            self.launch(geometry, "attention", rows, FORWARD_BLOCKS, self.shared(), &FORWARD_ARGUMENTS);
        let source = self.source(geometry);
        AttentionPlan { source, launches: launch.into_iter().collect(), workspace: 0 }
    }

    fn backward(&self, geometry: &AttentionShape) -> AttentionPlan {
        let to_queries = [Read(0), Read(1), Read(2), Read(3), Read(4), Read(5), Workspace(0), Write(0)];
        let [dk, dv] = key_results(geometry);
        let to_keys = [Read(0), Read(1), Read(2), Read(5), Workspace(0), dk, dv];
        let rows = (geometry.queries, self.rows());
        let shared = self.shared();
        let queries =
            self.launch(geometry, "attention_grad_queries", rows, QUERY_BLOCKS, shared, &to_queries);
        let rows = (geometry.keys, self.rows_of_keys());
        let shared = self.shared_of_keys();
        let keys = self.launch(geometry, "attention_grad_keys", rows, KEY_BLOCKS, shared, &to_keys);
        let source = self.source(geometry);
        AttentionPlan {
            source,
            launches: queries.into_iter().chain(keys).collect(),
            workspace: 2 * number_bytes(geometry),
        }
    }
}

/// The bytes of a number of the accumulator type for each query.
fn number_bytes(geometry: &AttentionShape) -> u64 {
    (geometry.pairs() * geometry.queries * geometry.dtype.accumulator().size()) as u64
}

/// A block of threads for each of `blocks` of each pair, times `columns`; `None` if there is nothing to do.
fn grid(pairs: usize, blocks: usize, columns: usize) -> Option<[u32; 3]> {
    // A geometry has no more blocks than fit.
    let count = (pairs * blocks) as u32;
    (count > 0).then_some([count, columns as u32, 1])
}

/// The same as pairs, blocks of a pair, and again pairs, the last of which may be beyond the end. Blocks start in this order,
/// for the sake of the L2 cache: those that run at once, of which there are `at_once`, read the keys and values of few
/// pairs, and the longest come first.
fn grid_by_pairs(pairs: usize, blocks: usize, at_once: usize) -> Option<[u32; 3]> {
    let most = (2 * at_once).div_ceil(blocks.max(1)).max(pairs.div_ceil(MOST_IN_GRID));
    let times = pairs.div_ceil(most).max(1);
    (pairs * blocks > 0).then_some([pairs.div_ceil(times) as u32, blocks as u32, times as u32])
}

/// How much of a square of scores a thread of the plain kernels has.
fn plain_tile(dtype: DType) -> usize {
    if dtype == DType::F64 { 2 } else { 4 }
}

/// How many times 64 columns of the result a block of the plain kernels has.
fn plain_column_tiles(geometry: &AttentionShape) -> usize {
    if geometry.width <= 64 { 1 } else { 2 }
}

fn plain_source(geometry: &AttentionShape) -> String {
    let mut text = geometry.defines();
    define(&mut text, "TILE", plain_tile(geometry.dtype));
    define(&mut text, "COLUMN_TILES", plain_column_tiles(geometry));
    define(&mut text, "SCALE", format!("{:e}", geometry.attention.scale));
    [&dtype_defines(geometry.dtype), &text, EXTENTS, PLAIN].concat()
}

fn plain_launch(
    geometry: &AttentionShape,
    name: &'static str,
    rows: usize,
    arguments: &[PointerTo],
) -> Option<AttentionLaunch> {
    let columns = geometry.width.div_ceil(64 * plain_column_tiles(geometry)).max(1);
    let grid = grid(geometry.pairs(), rows.div_ceil(16 * plain_tile(geometry.dtype)), columns)?;
    Some(AttentionLaunch {
        name,
        grid,
        threads: 256,
        shared: 0,
        arguments: arguments.to_vec(),
        extents: geometry.extents(),
    })
}

fn plain_forward(geometry: &AttentionShape) -> AttentionPlan {
    let launch = plain_launch(geometry, "attention", geometry.queries, &FORWARD_ARGUMENTS);
    AttentionPlan { source: plain_source(geometry), launches: launch.into_iter().collect(), workspace: 0 }
}

fn plain_backward(geometry: &AttentionShape) -> AttentionPlan {
    let rows = geometry.pairs() * geometry.queries;
    let sum = grid(1, rows.div_ceil(8), 1).map(|grid| AttentionLaunch {
        name: "attention_grad_products",
        grid,
        threads: 256,
        shared: 0,
        arguments: vec![Read(3), Read(5), Workspace(0)],
        extents: geometry.extents(),
    });
    let to_queries = [Read(0), Read(1), Read(2), Read(4), Read(5), Workspace(0), Write(0)];
    let queries = plain_launch(geometry, "attention_grad_queries", geometry.queries, &to_queries);
    let [dk, dv] = key_results(geometry);
    let to_keys = [Read(0), Read(1), Read(2), Read(4), Read(5), Workspace(0), dk, dv];
    let keys = plain_launch(geometry, "attention_grad_keys", geometry.keys, &to_keys);
    let launches = sum.into_iter().chain(queries).chain(keys).collect();
    AttentionPlan { source: plain_source(geometry), launches, workspace: number_bytes(geometry) }
}

#[cfg(test)]
mod tests;
