//! Pooling over windows of images, and its gradient.
//!
//! The forward kernel keeps no positions: the gradient finds the largest elements again. It is gathered by the elements
//! that it goes to, each from the windows that cover it, so that nothing is added up in memory.

use super::stages::{Stages, Traits, blocks, count, read, write};
use super::{name, pack};
use crate::codegen::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::routine::Routine;
use plimsoll_graph::Shape;
use plimsoll_graph::op::{Pool2d, PoolKind};
use plimsoll_graph::program::Operand;
use std::sync::Arc;

const TEXT: &str = include_str!("pool2d.cu");
const BLOCK: u32 = 256;
/// The most elements of an image, of one channel, that a thread finds the gradient of.
const MOST_IN_CELL: usize = 4;

/// Prepares [`Op::Pool2d`](plimsoll_graph::Op::Pool2d). The largest of a window with a NaN in it is NaN.
pub(crate) fn prepare(
    engine: &Arc<Engine>,
    pool: Pool2d,
    reads: &[Operand],
    writes: &[Operand],
) -> Result<Box<dyn Routine>> {
    stages(pool, reads, writes)?.prepare(engine)
}

/// Prepares [`Op::Pool2dGrad`](plimsoll_graph::Op::Pool2dGrad). Of equally large elements the first of a window, row by
/// row, gets the gradient.
pub(crate) fn prepare_grad(
    engine: &Arc<Engine>,
    pool: Pool2d,
    reads: &[Operand],
    _writes: &[Operand],
) -> Result<Box<dyn Routine>> {
    grad_stages(pool, reads)?.prepare(engine)
}

/// The channels of one access, and what both kernels are told.
fn traits(pool: Pool2d, images: &Operand, pooled: &Shape, cell: [usize; 2]) -> Result<(usize, Traits)> {
    let shape = images.view.shape;
    // Places within an image are counted in 32 bits.
    let padded = |axis: usize| shape[1 + axis].saturating_add(pool.padding[2 * axis..][..2].iter().sum());
    if padded(0).saturating_add(1).saturating_mul(padded(1).saturating_add(1)) > i32::MAX as usize {
        let message =
            format!("images {shape} are too large to be pooled: 2³¹ places in an image are the most");
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    let pack = pack(images.dtype.size(), 16, &[shape[3]]);
    let traits = Traits::new()
        .ty("E", name(images.dtype))
        .flag("MAX", pool.kind == PoolKind::Max)
        .numbers([("N", pack), ("HEIGHT", shape[1]), ("WIDTH", shape[2])])
        .numbers([("PACKS", shape[3] / pack), ("DOWN", pooled[1]), ("ACROSS", pooled[2])])
        .numbers([("WINDOW_HEIGHT", pool.window[0]), ("WINDOW_WIDTH", pool.window[1])])
        .numbers([("STRIDE_DOWN", pool.stride[0]), ("STRIDE_ACROSS", pool.stride[1])])
        .numbers([("TOP", pool.padding[0]), ("LEFT", pool.padding[2])])
        .numbers([("CELL_HEIGHT", cell[0]), ("CELL_WIDTH", cell[1])]);
    Ok((pack, traits))
}

pub(super) fn stages(pool: Pool2d, reads: &[Operand], writes: &[Operand]) -> Result<Stages> {
    let pooled = writes[0].view.shape;
    let mut stages = Stages::new(reads[0].view.shape.elements().max(pooled.elements()), &[TEXT]);
    let (pack, traits) = traits(pool, &reads[0], &pooled, [1, 1])?;
    let ty = name(reads[0].dtype);
    let packs = pooled.elements() / pack;
    let arguments = [(&*format!("const {ty}"), read(0)), (ty, write(0)), count(packs)];
    stages.launch("pool", traits, [blocks(packs, BLOCK), 1], BLOCK, arguments)?;
    Ok(stages)
}

pub(super) fn grad_stages(pool: Pool2d, reads: &[Operand]) -> Result<Stages> {
    let (images, pooled) = (reads[0].view.shape, reads[1].view.shape);
    // A cell of as many elements as a window moves on has the fewest windows to look at for each element.
    let small = pool.stride[0].saturating_mul(pool.stride[1]) <= MOST_IN_CELL;
    let cell = if small { pool.stride } else { [1, 1] };
    let (pack, traits) = traits(pool, &reads[0], &pooled, cell)?;
    let cells = |axis: usize| (images[1 + axis] + pool.padding[2 * axis]).div_ceil(cell[axis]);
    let all = images[0] * cells(0) * cells(1) * (images[3] / pack);
    let mut stages = Stages::new(images.elements().max(pooled.elements()).max(all), &[TEXT]);
    let ty = name(reads[0].dtype);
    let constant = format!("const {ty}");
    let arguments = [(&*constant, read(0)), (&*constant, read(1)), (ty, write(0)), count(all)];
    stages.launch("pool_grad", traits, [blocks(all, BLOCK), 1], BLOCK, arguments)?;
    Ok(stages)
}
