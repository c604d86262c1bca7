//! Rows of a table, and sums into rows of a table.
//!
//! Adding sorts the updates by their row first, stably, so that each row of the table is written once and its updates
//! are added in their order, without atomics on numbers. The sort takes one launch: every block has a range of rows,
//! looks at all indices, and knows from those of lower rows where its part of the sorted list begins. So all indices are
//! read twice for every 256 rows, from the cache: 16 thousand indices into 50 thousand rows are 26 MB, a few
//! microseconds, against more than a hundred megabytes of updates and table that the sums have to move in any case. The
//! sums take a second launch, with a warp for each row; a row of many updates is shared by the warps of a block, each
//! with columns of its own and many updates under way at once.

use super::stages::{Stages, Traits, blocks, count, read, write};
use super::{name, pack};
use crate::codegen::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::routine::Routine;
use plimsoll_graph::program::Operand;
use std::sync::Arc;

const TEXT: &str = include_str!("gather.cu");
const BLOCK: u32 = 256;
/// The threads of a block that sorts, and the rows that it has.
const SORT_BLOCK: u32 = 1024;
const SORT_RANGE: usize = 256;
/// The updates of a row that are left to one warp.
const FEW: usize = 16;

/// Prepares [`Op::Gather`](plimsoll_graph::Op::Gather).
pub(crate) fn prepare(
    engine: &Arc<Engine>,
    reads: &[Operand],
    _writes: &[Operand],
) -> Result<Box<dyn Routine>> {
    stages(reads)?.prepare(engine)
}

/// Prepares [`Op::ScatterAdd`](plimsoll_graph::Op::ScatterAdd). Integers wrap around; the sum of bools is whether any
/// holds.
pub(crate) fn prepare_scatter_add(
    engine: &Arc<Engine>,
    rows: usize,
    reads: &[Operand],
    _writes: &[Operand],
) -> Result<Box<dyn Routine>> {
    scatter_add_stages(rows, reads)?.prepare(engine)
}

pub(super) fn stages(reads: &[Operand]) -> Result<Stages> {
    let (table, indices) = (reads[0].view.shape, reads[1].view.shape);
    let (ty, label) = (name(reads[0].dtype), name(reads[1].dtype));
    let (indices, width) = (indices.elements(), table[1..].iter().product::<usize>());
    let mut stages = Stages::new(table.elements().max(indices.saturating_mul(width)), &[TEXT]);
    let pack = pack(reads[0].dtype.size(), 16, &[width]);
    let packs = width / pack;
    let traits = Traits::new().ty("E", ty).ty("Label", label).numbers([
        ("N", pack),
        ("ROWS", table[0]),
        ("PACKS", packs),
    ]);
    let arguments = [
        (&*format!("const {ty}"), read(0)),
        (&*format!("const {label}"), read(1)),
        (ty, write(0)),
        count(indices * packs),
    ];
    stages.launch("gather", traits, [blocks(indices * packs, BLOCK), 1], BLOCK, arguments)?;
    Ok(stages)
}

pub(super) fn scatter_add_stages(rows: usize, reads: &[Operand]) -> Result<Stages> {
    let (indices, updates) = (reads[0].view.shape, reads[1].view.shape);
    let (label, ty) = (name(reads[0].dtype), name(reads[1].dtype));
    let (all, width) = (indices.elements(), updates[indices.rank()..].iter().product::<usize>());
    if all > i32::MAX as usize {
        let message = format!("{all} indices are added up, and {} are the most there can be", i32::MAX);
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    let mut stages = Stages::new(updates.elements().max(rows.saturating_mul(width)), &[TEXT]);
    // Of halves eight bytes at once, so that more threads share the updates of a frequent row.
    let size = reads[1].dtype.size();
    let pack = pack(size, if size == 2 { 8 } else { 16 }, &[width]);
    let packs = width / pack;
    if packs == 0 {
        return Ok(stages);
    }
    let (bounds, sorted) = (stages.reserve((rows + 1) * 4), stages.reserve(all * 4));

    let traits = Traits::new().ty("Label", label).numbers([("ROWS", rows), ("RANGE", SORT_RANGE)]);
    let arguments = [(&*format!("const {label}"), read(0)), ("u32", bounds), ("u32", sorted), count(all)];
    stages.launch("sort", traits, [rows.div_ceil(SORT_RANGE), 1], SORT_BLOCK, arguments)?;

    let traits =
        Traits::new().ty("E", ty).numbers([("N", pack), ("ROWS", rows), ("PACKS", packs), ("FEW", FEW)]);
    let arguments =
        [(&*format!("const {ty}"), read(1)), ("const u32", bounds), ("const u32", sorted), (ty, write(0))];
    stages.launch("sum_rows", traits, [rows.div_ceil(BLOCK as usize / 32), 1], BLOCK, arguments)?;
    Ok(stages)
}
