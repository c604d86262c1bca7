//! A prepared loop: steps over tiles, and the memory of the worker that takes them.

use super::functions::Map;
use super::geometry::{BlockShape, Walk};
use super::map::CHUNK;
use super::rows::ReduceArgs;
use super::transfer::{PositionArgs, RandomArgs, RepeatArgs, TransferArgs};
use crate::simd::Compiled;

/// Where a value of a loop is kept, by position in [`Steps::slots`].
pub(super) type SlotId = usize;

/// Where a value of a loop is kept.
#[derive(Clone, Copy, Debug)]
pub(super) enum Slot {
    /// A chunk of copies among the constants, from this byte on.
    Constant(usize),
    /// In the worker's memory, from this byte on; with the step of its [`Place`](super::map::Place).
    Fixed { offset: usize, step: usize },
    /// In the worker's memory, elements of this size in a buffer that other values use too, once one is given.
    Tile { size: usize },
    /// In the worker's memory, a whole row of elements of this size, from this byte on.
    Row { offset: usize, size: usize },
    /// Where an access begins: it needs no copy.
    Direct(usize),
}

impl Slot {
    /// Whether it is one chunk of copies.
    pub(super) fn is_chunk(self) -> bool {
        matches!(self, Slot::Constant(_) | Slot::Fixed { step: 0, .. })
    }
}

/// A walk over an operand of the kernel.
#[derive(Clone, Debug)]
pub(super) struct Access {
    pub(super) operand: AccessOf,
    /// The bytes of an element.
    pub(super) size: usize,
    pub(super) walk: Walk,
    pub(super) shape: BlockShape,
}

/// What an access goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AccessOf {
    /// One of the kernel's reads.
    Read(usize),
    /// One of the kernel's writes.
    Write(usize),
    /// No memory: only the positions matter.
    Positions,
}

/// One action on a tile.
#[derive(Clone, Copy)]
pub(super) struct Step {
    pub(super) action: Action,
    pub(super) out: SlotId,
    pub(super) operands: [SlotId; 3],
    pub(super) count: Count,
}

/// How many elements a step is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Count {
    /// A chunk of copies.
    Chunk,
    /// The tile's rows.
    Rows,
    /// The tile's elements.
    Elements,
}

#[derive(Clone, Copy)]
pub(super) enum Action {
    /// A function of the operands.
    Map(Map),
    /// Brings what an access goes to.
    Load { function: Compiled<TransferArgs>, access: usize },
    /// Takes the first operand to where an access goes; there is no result.
    Store { function: Compiled<TransferArgs>, access: usize },
    /// The positions of an access.
    Positions { function: Compiled<PositionArgs>, access: usize },
    /// Random numbers for the positions in the first operand; the state is at these bytes of this read.
    Random { function: Compiled<RandomArgs>, read: usize, bytes: [usize; 3], stream: u64, per_sample: u64 },
    /// The row values of the first operand for each element, or the first of them as a chunk of copies.
    Repeat(Compiled<RepeatArgs>),
    /// Combines the rows of the first operand; partial results are in the worker's memory at `state`.
    Reduce { function: Compiled<ReduceArgs>, state: usize },
}

/// The steps of one pass over a tile.
#[derive(Default)]
pub(super) struct Stage {
    /// Taken first.
    pub(super) rows: Vec<Step>,
    /// Taken for each chunk of the tile's row, or once.
    pub(super) elements: Vec<Step>,
}

/// All steps of a loop.
#[derive(Default)]
pub(super) struct Steps {
    pub(super) slots: Vec<Slot>,
    pub(super) accesses: Vec<Access>,
    /// Taken before the first tile.
    pub(super) prologue: Vec<Step>,
    /// Taken for each tile, one after another.
    pub(super) stages: Vec<Stage>,
    /// Taken for each tile, last.
    pub(super) epilogue: Vec<Step>,
    pub(super) constants: Vec<Constants>,
    /// The bytes of memory that a worker needs.
    pub(super) memory: usize,
}

/// Memory for one chunk of the largest numbers.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Constants(pub(super) [u8; CHUNK * 8]);

impl Steps {
    /// How many steps there are for a tile.
    pub(super) fn per_tile(&self) -> usize {
        self.stages.iter().map(|s| s.rows.len() + s.elements.len()).sum::<usize>() + self.epilogue.len()
    }

    /// Gives back what lists have reserved and do not use: loops of hundreds of shapes may be kept.
    pub(super) fn shrink_to_fit(&mut self) {
        let Self { slots, accesses, prologue, stages, epilogue, constants, .. } = self;
        slots.shrink_to_fit();
        accesses.shrink_to_fit();
        constants.shrink_to_fit();
        for access in accesses {
            access.shape.shrink_to_fit();
        }
        let of_stages = stages.iter_mut().flat_map(|stage| [&mut stage.rows, &mut stage.elements]);
        of_stages.chain([prologue, epilogue]).for_each(Vec::shrink_to_fit);
    }

    /// Gives every tile a buffer in the worker's memory. A buffer is used again once its value is not needed.
    pub(super) fn place_tiles(&mut self, capacity: usize) {
        let mut buffers: Vec<(usize, usize)> = vec![];
        for stage in &self.stages {
            let mut last_use = vec![0; self.slots.len()];
            for (at, step) in stage.elements.iter().enumerate() {
                step.operands.iter().chain([&step.out]).for_each(|&slot| last_use[slot] = at);
            }
            let mut free = buffers.clone();
            for (at, step) in stage.elements.iter().enumerate() {
                let mut ended = vec![];
                if let Slot::Tile { size } = self.slots[step.out] {
                    // The result must not overlap the operands, so theirs are not free yet.
                    let offset = match free.iter().position(|&(of, _)| of == size) {
                        Some(found) => free.swap_remove(found).1,
                        None => {
                            let offset = self.memory;
                            self.memory += (capacity * size).next_multiple_of(64);
                            buffers.push((size, offset));
                            offset
                        }
                    };
                    self.slots[step.out] = Slot::Fixed { offset, step: CHUNK };
                    if last_use[step.out] == at {
                        ended.push((size, offset));
                    }
                }
                for (i, &slot) in step.operands.iter().enumerate() {
                    let ends =
                        last_use[slot] == at && slot != step.out && !step.operands[..i].contains(&slot);
                    if let (Slot::Fixed { offset, .. }, true) = (self.slots[slot], ends)
                        && let Some(&buffer) = buffers.iter().find(|(_, of)| *of == offset)
                    {
                        ended.push(buffer);
                    }
                }
                free.append(&mut ended);
            }
        }
    }
}
