//! Statistics of channels over all other axes, and the gradient of normalising by them. Normalising itself is
//! arithmetic on elements, which fused loops do.
//!
//! Statistics of a few rows are taken in two passes while they are in registers and merged by the parallel formula of
//! Chan, Golub and LeVeque, so that x is read from memory once and no variance is the difference of two large numbers. Means
//! are kept as two numbers until the end, for channels that are far from zero.

use super::stages::{Stages, Traits, count, read, write};
use super::tiles::{self, Tiles};
use super::{accumulator, name};
use crate::codegen::engine::Engine;
use crate::codegen::launches::LaunchArgument;
use crate::error::Result;
use crate::routine::Routine;
use plimsoll_graph::DType;
use plimsoll_graph::program::Operand;
use std::sync::Arc;

/// The templates of sums over rows.
pub(super) const TEXT: &str = include_str!("channels.cu");

/// The threads of a block of which each warp has one channel.
const SETTLE_BLOCK: u32 = 256;

/// Prepares [`Op::BatchMoments`](plimsoll_graph::Op::BatchMoments).
pub(crate) fn prepare_moments(
    engine: &Arc<Engine>,
    epsilon: f64,
    reads: &[Operand],
    _writes: &[Operand],
) -> Result<Box<dyn Routine>> {
    moments_stages(engine.properties().processors, epsilon, reads)?.prepare(engine)
}

/// Prepares [`Op::BatchNormGrad`](plimsoll_graph::Op::BatchNormGrad). The gradient of x may overwrite x or the gradient
/// of y.
pub(crate) fn prepare_grad(
    engine: &Arc<Engine>,
    epsilon: f64,
    reads: &[Operand],
    _writes: &[Operand],
) -> Result<Box<dyn Routine>> {
    grad_stages(engine.properties().processors, epsilon, reads)?.prepare(engine)
}

/// The rows and channels of x.
fn extents(x: &Operand) -> (usize, usize) {
    let shape = x.view.shape;
    let rank = shape.rank();
    (shape[..rank - 1].iter().product(), shape[rank - 1])
}

fn traits(ty: &str, channels: usize, tiles: Tiles) -> Traits {
    Traits::new().ty("E", ty).numbers([("CHANNELS", channels), ("N", tiles.pack), ("ACROSS", tiles.across)])
}

/// The grid with a warp for each of so many results.
fn settle_grid(results: usize) -> [usize; 2] {
    [results.div_ceil(SETTLE_BLOCK as usize / 32), 1]
}

pub(super) fn moments_stages(processors: u32, epsilon: f64, reads: &[Operand]) -> Result<Stages> {
    let dtype = reads[0].dtype;
    let (ty, (number, size)) = (name(dtype), accumulator(dtype));
    let (rows, channels) = extents(&reads[0]);
    let tiles = Tiles::new(processors, dtype.size(), 1, rows, channels);
    let mut stages = Stages::new(reads[0].view.shape.elements().max(32 * channels), &[TEXT]);
    let parts = stages.reserve(tiles.room.max(1) * 3 * channels * size);
    let arguments = [(&*format!("const {ty}"), read(0)), (number, parts), count(rows), count(tiles.chunk)];
    stages.launch("measure", traits(ty, channels, tiles), tiles.grid(), tiles::BLOCK, arguments)?;
    let arguments = [
        (&*format!("const {number}"), parts),
        (number, write(0)),
        (number, write(1)),
        (number, write(2)),
        count(rows),
        count(tiles.chunk),
        count(tiles.chunks),
    ];
    let traits = traits(ty, channels, tiles).float("epsilon", epsilon);
    stages.launch("settle_moments", traits, settle_grid(channels), SETTLE_BLOCK, arguments)?;
    Ok(stages)
}

pub(super) fn grad_stages(processors: u32, epsilon: f64, reads: &[Operand]) -> Result<Stages> {
    let dtype = reads[0].dtype;
    let (ty, (number, size)) = (name(dtype), accumulator(dtype));
    let (rows, channels) = extents(&reads[0]);
    let tiles = Tiles::new(processors, dtype.size(), 1, rows, channels);
    let mut stages = Stages::new(reads[0].view.shape.elements().max(64 * channels), &[TEXT]);
    let parts = stages.reserve(tiles.room.max(1) * 2 * channels * size);
    let factors = stages.reserve(3 * channels * size);
    slope_sums(&mut stages, dtype, rows, channels, tiles, false, parts)?;

    let (constant, statistic) = (format!("const {ty}"), format!("const {number}"));
    let arguments = [
        (&*statistic, parts),
        (&*constant, read(1)),
        (&*statistic, read(3)),
        (ty, write(1)),
        (ty, write(2)),
        (number, factors),
        count(rows),
        count(tiles.chunks),
    ];
    let settled = traits(ty, channels, tiles).float("epsilon", epsilon);
    stages.launch("settle_slopes", settled, settle_grid(channels), SETTLE_BLOCK, arguments)?;

    let arguments = [
        (&*constant, read(0)),
        (&*statistic, read(2)),
        (&*constant, read(4)),
        (&*statistic, factors),
        (ty, write(0)),
        count(rows),
        count(tiles.chunk),
    ];
    let applied = traits(ty, channels, tiles);
    stages.launch("apply_slopes", applied, tiles.grid(), tiles::BLOCK, arguments)?;
    Ok(stages)
}

/// Sums over the rows of each chunk for the gradients of gamma and beta. Operands of either norm's gradient are x,
/// gamma, two statistics and the gradient of y.
pub(super) fn slope_sums(
    stages: &mut Stages,
    dtype: DType,
    rows: usize,
    channels: usize,
    tiles: Tiles,
    by_row: bool,
    parts: LaunchArgument,
) -> Result<()> {
    let (ty, (number, _)) = (name(dtype), accumulator(dtype));
    let (constant, statistic) = (format!("const {ty}"), format!("const {number}"));
    let arguments = [
        (&*constant, read(0)),
        (&*statistic, read(2)),
        (&*statistic, read(3)),
        (&*constant, read(4)),
        (number, parts),
        count(rows),
        count(tiles.chunk),
    ];
    let traits = traits(ty, channels, tiles).flag("BY_ROW", by_row);
    stages.launch("slope_sums", traits, tiles.grid(), tiles::BLOCK, arguments)
}

/// The gradients of gamma and beta, the second and third write, from the sums of all chunks.
pub(super) fn settle_sums(
    stages: &mut Stages,
    dtype: DType,
    channels: usize,
    chunks: usize,
    parts: LaunchArgument,
) -> Result<()> {
    let ty = name(dtype);
    let traits = Traits::new().ty("E", ty).numbers([("CHANNELS", channels)]);
    let arguments =
        [(&*format!("const {}", accumulator(dtype).0), parts), (ty, write(1)), (ty, write(2)), count(chunks)];
    stages.launch("settle_sums", traits, settle_grid(2 * channels), SETTLE_BLOCK, arguments)
}
