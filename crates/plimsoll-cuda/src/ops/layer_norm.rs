//! Normalisation of rows, and its gradient.
//!
//! A row of up to [`MOST_HELD`] elements is read once and kept in registers, where its variance is taken from the
//! deviations from its mean. The gradient's teams keep their columns' sums for gamma and beta in registers too, over
//! all rows that fall to them; each block leaves them in the workspace, and a second launch adds the blocks up in a
//! fixed order. Longer rows are read again instead, and their columns are summed by a launch of their own.

use super::batch_norm::{self, settle_sums};
use super::stages::{Stages, Traits, blocks, count, read, write};
use super::tiles::Tiles;
use super::{accumulator, name, pack};
use crate::codegen::engine::Engine;
use crate::error::Result;
use crate::routine::Routine;
use plimsoll_graph::DType;
use plimsoll_graph::program::Operand;
use std::sync::Arc;

const TEXT: &str = include_str!("layer_norm.cu");

/// The longest row that is kept in registers.
const MOST_HELD: usize = 8192;
/// The bytes of a row, widened, that a lane of a warp keeps at most.
const MOST_IN_LANE: usize = 128;
/// The threads of a block that has several rows, or a row that is not kept.
const BLOCK: u32 = 256;
const LONG_BLOCK: u32 = 512;
/// The threads of a block of a gradient, at most: the fewer blocks, the fewer sums are left to add up. They share twice so
/// many packs of sums.
const GRAD_BLOCK: u32 = 512;
/// The blocks of a gradient that a multiprocessor has at most; more are no faster.
const GRAD_BLOCKS: u32 = 3;
/// The bytes of sums for gamma, and as many for beta, that a thread keeps where a row has a whole block.
const GRAD_SUMS: usize = 64;
/// The registers of a multiprocessor, as many on every device that kernels are compiled for, and those that a thread of a
/// gradient takes beside what it keeps.
const REGISTERS: usize = 65536;
const BESIDES: usize = 32;

/// Prepares [`Op::LayerNorm`](plimsoll_graph::Op::LayerNorm). The result may overwrite x.
pub(crate) fn prepare(
    engine: &Arc<Engine>,
    epsilon: f64,
    reads: &[Operand],
    _writes: &[Operand],
) -> Result<Box<dyn Routine>> {
    stages(epsilon, reads)?.prepare(engine)
}

/// Prepares [`Op::LayerNormGrad`](plimsoll_graph::Op::LayerNormGrad), or
/// [`Op::ResidualLayerNormGrad`](plimsoll_graph::Op::ResidualLayerNormGrad) where there is something to add. The gradient
/// of x may overwrite x, the gradient of y or what is added.
pub(crate) fn prepare_grad(
    engine: &Arc<Engine>,
    reads: &[Operand],
    _writes: &[Operand],
) -> Result<Box<dyn Routine>> {
    grad_stages(engine.properties().processors, reads)?.prepare(engine)
}

/// How rows are assigned to threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct NormRows {
    rows: usize,
    width: usize,
    pack: usize,
    team: u32,
    block: u32,
    held: bool,
}

impl NormRows {
    /// Teams of lanes, in blocks of `block` threads, where each keeps few enough elements; else blocks of which each thread
    /// keeps `each` elements.
    fn new(x: &Operand, block: u32, each: usize) -> Self {
        let shape = x.view.shape;
        let (width, lead) = (shape[shape.rank() - 1], &shape[..shape.rank() - 1]);
        let pack = pack(x.dtype.size(), 16, &[width]);
        let in_lane = MOST_IN_LANE / accumulator(x.dtype).1;
        let held = width <= MOST_HELD;
        let (team, block) = if width <= 32 * in_lane {
            (width.div_ceil(pack).next_power_of_two().clamp(8, 32) as u32, block)
        } else {
            let threads = width.div_ceil(each.max(pack)).next_power_of_two().clamp(64, 1024) as u32;
            if held { (threads, threads) } else { (LONG_BLOCK, LONG_BLOCK) }
        };
        Self { rows: lead.iter().product(), width, pack, team, block, held }
    }

    fn traits(&self, ty: &str) -> Traits {
        Traits::new().ty("E", ty).flag("HELD", self.held).numbers([
            ("WIDTH", self.width),
            ("N", self.pack),
            ("TEAM", self.team as usize),
        ])
    }

    fn blocks(&self) -> usize {
        blocks(self.rows, self.block / self.team)
    }

    /// The threads of a gradient that a multiprocessor has registers for. Each keeps its part of two rows of x and of the
    /// gradient of y, of one that is added if any is, of the sums, and of gamma where a row has a whole block.
    fn grad_threads(&self, dtype: DType, adds: bool) -> u32 {
        let kept = self.width.div_ceil(self.team as usize * self.pack) * self.pack;
        let packs = 4 + usize::from(self.team > 32) + usize::from(adds);
        let bytes = kept * (packs * dtype.size() + 2 * accumulator(dtype).1);
        (REGISTERS / (bytes / 4 + BESIDES)) as u32
    }
}

pub(super) fn stages(epsilon: f64, reads: &[Operand]) -> Result<Stages> {
    let (ty, number) = (name(reads[0].dtype), accumulator(reads[0].dtype).0);
    let rows = NormRows::new(&reads[0], BLOCK, 16);
    let mut stages = Stages::new(reads[0].view.shape.elements(), &[TEXT]);
    let constant = format!("const {ty}");
    let arguments = [
        (&*constant, read(0)),
        (&*constant, read(1)),
        (&*constant, read(2)),
        (ty, write(0)),
        (number, write(1)),
        (number, write(2)),
        count(rows.rows),
    ];
    let traits = rows.traits(ty).float("epsilon", epsilon);
    stages.launch("layer_norm", traits, [rows.blocks(), 1], rows.block, arguments)?;
    Ok(stages)
}

pub(super) fn grad_stages(processors: u32, reads: &[Operand]) -> Result<Stages> {
    let dtype = reads[0].dtype;
    let (ty, (number, size)) = (name(dtype), accumulator(dtype));
    let mut rows = NormRows::new(&reads[0], GRAD_BLOCK, GRAD_SUMS / size);
    let width = rows.width;
    let adds = reads.len() > 5;
    let threads = rows.grad_threads(dtype, adds);
    if rows.team <= 32 {
        rows.block = (threads / 128 * 128).clamp(128, GRAD_BLOCK);
    }
    let mut stages = Stages::new(reads[0].view.shape.elements().max(2 * width), &[TEXT, batch_norm::TEXT]);
    // Without rows the sums are still those of one block, of nothing.
    let most = (processors * (threads / rows.block).clamp(1, GRAD_BLOCKS)) as usize;
    let blocks = if rows.held { rows.blocks().clamp(1, most) } else { rows.blocks() };
    let tiles = Tiles::new(processors, dtype.size(), 1, rows.rows, width);
    let (chunks, room) = if rows.held { (blocks, blocks) } else { (tiles.chunks, tiles.room.max(1)) };
    let parts = stages.reserve(room * 2 * width * size);
    if !rows.held {
        batch_norm::slope_sums(&mut stages, dtype, rows.rows, width, tiles, true, parts)?;
    }
    let constant = format!("const {ty}");
    let statistic = format!("const {number}");
    let arguments = [
        (&*constant, read(0)),
        (&*constant, read(1)),
        (&*statistic, read(2)),
        (&*statistic, read(3)),
        (&*constant, read(4)),
        // Where nothing is added, nothing is read of it.
        (&*constant, read(if adds { 5 } else { 4 })),
        (ty, write(0)),
        (number, parts),
        count(rows.rows),
    ];
    if width > 0 {
        let traits = rows.traits(ty).flag("ADDS", adds);
        stages.launch("layer_norm_grad", traits, [blocks, 1], rows.block, arguments)?;
    }
    settle_sums(&mut stages, dtype, width, chunks, parts)?;
    Ok(stages)
}
