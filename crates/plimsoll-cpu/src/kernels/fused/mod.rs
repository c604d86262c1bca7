//! Fused loops: a straight-line program for every element, run tile by tile.
//!
//! Generating machine code would tie the library to an assembler; interpreting element by element would be
//! slow. So a loop is interpreted tile by tile: each instruction is one call of a compiled function on some
//! hundreds of elements, whose operands and results stay in the first-level cache, and the cost of
//! interpreting is shared by all of them. Operands that are densely packed in memory are used, and results
//! computed, where they are.
//!
//! In a loop with rows, short rows share a tile, and long ones are worked on in chunks: the loop then becomes
//! several passes over a row, each of which ends where a reduction over the whole row is needed to go on.

mod analysis;
mod emit;
mod epilogue;
mod functions;
mod geometry;
mod map;
mod rows;
mod steps;
#[cfg(test)]
mod tests;
mod transfer;

use crate::runtime::{Call, Routine};
use crate::simd::Isa;
use analysis::Analysis;
use emit::Emitter;
pub(crate) use epilogue::FusedEpilogue;
#[cfg(test)]
pub(crate) use functions::of_float;
use geometry::{Geometry, Part};
use map::{CHUNK, MapArgs, Place};
use plimsoll_graph::program::{Loop, Operand};
use rows::ReduceArgs;
use std::ops::Range;
use steps::{AccessOf, Action, Count, Slot, Step, Steps};
use transfer::{PositionArgs, RandomArgs, RepeatArgs, TransferArgs};

/// Loops of fewer elements times steps run on one thread: waking another takes longer.
const SMALL: usize = 16 << 10;
/// How many tasks there are for each thread, so that none waits long for another.
const TASKS: usize = 4;

/// Prepares a fused loop. `in_place` are the pairs of a write and a read that may share one address.
pub(crate) fn prepare(
    body: &Loop,
    reads: &[Operand],
    writes: &[Operand],
    in_place: &[(usize, usize)],
) -> Box<dyn Routine> {
    Box::new(Fused::new(body, reads, writes, in_place, Isa::detect()))
}

/// A fused loop, ready to run.
struct Fused {
    geometry: Geometry,
    steps: Steps,
    otherwise: Option<Otherwise>,
}

/// The same loop where a truth does not hold that is one for all elements, and by which it selects. Whether it holds is
/// looked at once and not for each element, since updates select so: by whether the loss is finite.
struct Otherwise {
    /// The read that has the truth, and its byte there.
    read: usize,
    offset: usize,
    fused: Box<Fused>,
}

impl Fused {
    fn new(
        body: &Loop,
        reads: &[Operand],
        writes: &[Operand],
        in_place: &[(usize, usize)],
        isa: Isa,
    ) -> Fused {
        let fused = |decided: Option<(u16, bool)>, otherwise: Option<Otherwise>| {
            let analysis = Analysis::new(body, reads, writes, in_place, decided);
            let steps = Emitter::new(&analysis, isa).emit();
            Fused { geometry: analysis.geometry, steps, otherwise }
        };
        let Some(read) = analysis::truth_for_all(body, reads) else { return fused(None, None) };
        let otherwise = Otherwise {
            read: usize::from(read),
            offset: reads[usize::from(read)].view.offset,
            fused: Box::new(fused(Some((read, false)), None)),
        };
        fused(Some((read, true)), Some(otherwise))
    }

    /// The loop for what is in memory now.
    ///
    /// # Safety
    /// As for [`Routine::run`].
    unsafe fn decided(&self, call: &Call<'_>) -> &Fused {
        match &self.otherwise {
            // SAFETY: the read is there, and a truth is a byte.
            Some(other) if unsafe { *call.reads[other.read].add(other.offset) } == 0 => &other.fused,
            _ => self,
        }
    }

    /// The bytes of the table of places, which is at the beginning of a worker's memory.
    fn table(&self) -> usize {
        (self.steps.slots.len() * size_of::<Place>()).next_multiple_of(64)
    }

    /// The bytes of one worker's memory, however a truth turns out. Two workers' never share a pair of cache lines.
    fn memory(&self) -> usize {
        let own = (self.table() + self.steps.memory).next_multiple_of(128);
        self.otherwise.as_ref().map_or(own, |other| own.max(other.fused.memory()))
    }

    fn tasks(&self, threads: usize) -> usize {
        let tiles = self.geometry.tiles();
        let work = tiles.saturating_mul(self.geometry.tile.iter().product::<usize>() * self.steps.per_tile());
        if work < SMALL || threads == 1 { tiles.min(1) } else { tiles.min(threads * TASKS) }
    }
}

impl Routine for Fused {
    fn workspace(&self, threads: usize) -> usize {
        let workers = |fused: &Fused| match fused.tasks(threads) {
            tasks if tasks > 1 => threads,
            tasks => tasks,
        };
        let other = self.otherwise.as_ref().map_or(0, |other| workers(&other.fused));
        self.memory() * workers(self).max(other)
    }

    unsafe fn run(&self, call: &Call<'_>) {
        // SAFETY: as the caller vouches for.
        let fused = unsafe { self.decided(call) };
        let tiles = fused.geometry.tiles();
        let tasks = fused.tasks(call.pool.threads());
        let task = |worker: usize, task: usize| {
            let bound = |task: usize| tiles * task / tasks;
            // SAFETY: the caller vouches for the addresses; no two calls at a time have the same worker, and
            // so the same part of the workspace; tiles of different tasks are different elements.
            unsafe { fused.task(call, worker, bound(task)..bound(task + 1)) };
        };
        if tasks <= 1 {
            (0..tasks).for_each(|index| task(0, index));
        } else {
            call.pool.run(tasks, &task);
        }
    }
}

/// A worker at a tile.
struct Worker<'a> {
    loops: &'a Fused,
    call: &'a Call<'a>,
    /// The worker's memory after the table.
    memory: *mut u8,
    places: *mut Place,
    /// Where the result of the op whose epilogue the loop is lies, as if all of it were there.
    made: Option<*const u8>,
    part: Part,
    rows: usize,
    /// The first element of the row's chunk.
    start: usize,
    elements: usize,
}

impl Fused {
    /// # Safety
    /// As for [`Routine::run`]; the part of the workspace that belongs to `worker` is used by no one else.
    unsafe fn task(&self, call: &Call<'_>, worker: usize, tiles: Range<usize>) {
        // SAFETY: the workspace has this many bytes for each worker.
        unsafe {
            let mut at = self.worker(call, call.workspace.add(worker * self.memory()), None);
            for tile in tiles {
                at.tile(self.geometry.tile(tile));
            }
        }
    }

    /// A worker that is ready for its first tile.
    ///
    /// # Safety
    /// As for [`Routine::run`]; `memory` is as much as [`memory`](Self::memory) says and used by no one else.
    unsafe fn worker<'a>(
        &'a self,
        call: &'a Call<'a>,
        memory: *mut u8,
        made: Option<*const u8>,
    ) -> Worker<'a> {
        // SAFETY: the memory begins with the table.
        unsafe {
            let mut at = Worker {
                loops: self,
                call,
                memory: memory.add(self.table()),
                places: memory.cast(),
                made,
                part: self.geometry.tile(0),
                rows: 0,
                start: 0,
                elements: 0,
            };
            at.set_fixed_places();
            at.take(&self.steps.prologue);
            at
        }
    }
}

impl Worker<'_> {
    /// Works on one tile.
    unsafe fn tile(&mut self, part: Part) {
        let Fused { geometry, steps, .. } = self.loops;
        self.part = part;
        self.rows = geometry.rows(&part);
        // SAFETY: the places are set for each chunk before steps are taken on it.
        unsafe {
            self.start_chunk(0);
            for stage in &steps.stages {
                self.take(&stage.rows);
                if stage.elements.is_empty() {
                    continue;
                }
                if self.start != 0 {
                    self.start_chunk(0);
                }
                self.take(&stage.elements);
                while self.start + geometry.chunk < geometry.row {
                    self.start_chunk(self.start + geometry.chunk);
                    self.take(&stage.elements);
                }
            }
            self.take(&steps.epilogue);
        }
    }

    /// Fills in the places that are the same for all tiles.
    unsafe fn set_fixed_places(&mut self) {
        for (index, slot) in self.loops.steps.slots.iter().enumerate() {
            // SAFETY: the table has a place for each slot; offsets are within the worker's memory and the
            // constants.
            unsafe {
                let place = match *slot {
                    Slot::Constant(offset) => {
                        let constants = self.loops.steps.constants.as_ptr().cast::<u8>();
                        Place { address: constants.add(offset).cast_mut(), step: 0 }
                    }
                    Slot::Fixed { offset, step } => Place { address: self.memory.add(offset), step },
                    Slot::Row { offset, .. } => Place { address: self.memory.add(offset), step: CHUNK },
                    Slot::Direct(_) | Slot::Tile { .. } => Place { address: self.memory, step: CHUNK },
                };
                self.places.add(index).write(place);
            }
        }
    }

    /// Goes to the chunk that begins at element `start` of the tile's row, or to the whole tile.
    unsafe fn start_chunk(&mut self, start: usize) {
        let geometry = &self.loops.geometry;
        self.start = start;
        geometry.narrow(&mut self.part, start);
        self.elements = self.rows * geometry.chunk.min(geometry.row - start);
        for (index, slot) in self.loops.steps.slots.iter().enumerate() {
            // SAFETY: the chunk is within the row, and the row within the operand.
            unsafe {
                let place = &mut (*self.places.add(index)).address;
                match *slot {
                    Slot::Direct(access) => *place = self.address(access),
                    Slot::Row { offset, size } => *place = self.memory.add(offset + start * size),
                    _ => {}
                }
            }
        }
    }

    /// Where an access begins at this tile.
    fn address(&self, access: usize) -> *mut u8 {
        let access = &self.loops.steps.accesses[access];
        let buffer = match (access.operand, self.made) {
            (AccessOf::Read(0), Some(made)) => made.cast_mut(),
            (AccessOf::Read(read), _) => self.call.reads[read].cast_mut(),
            (AccessOf::Write(write), _) => self.call.writes[write],
            (AccessOf::Positions, _) => return self.memory,
        };
        buffer.wrapping_add(access.walk.start(&self.part) * access.size)
    }

    /// Takes some steps, in order.
    ///
    /// # Safety
    /// The places are those of this tile, and what the steps read has been computed.
    unsafe fn take(&mut self, steps: &[Step]) {
        for step in steps {
            // SAFETY: the caller vouches for the places. What a function needs of its arguments is what the
            // emitter of the steps keeps: places have room for the counts, and results overlap no operand.
            unsafe { self.take_one(step) }
        }
    }

    #[inline(always)]
    unsafe fn take_one(&mut self, step: &Step) {
        let count = match step.count {
            Count::Chunk => CHUNK,
            Count::Rows => self.rows,
            Count::Elements => self.elements,
        };
        // SAFETY: see `take`.
        unsafe {
            let place = |slot: usize| *self.places.add(slot);
            let out = place(step.out).address;
            let first = place(step.operands[0]).address;
            match step.action {
                Action::Map(function) => {
                    function(&MapArgs { out, operands: step.operands.map(place), count });
                }
                Action::Load { function, access } => {
                    let block = self.loops.steps.accesses[access].shape.block(&self.part);
                    function(&TransferArgs { tile: out, memory: self.address(access), block });
                }
                Action::Store { function, access } => {
                    let block = self.loops.steps.accesses[access].shape.block(&self.part);
                    function(&TransferArgs { tile: first, memory: self.address(access), block });
                }
                Action::Positions { function, access } => {
                    let access = &self.loops.steps.accesses[access];
                    let block = access.shape.block(&self.part);
                    function(&PositionArgs { tile: out, first: access.walk.start(&self.part), block });
                }
                Action::Random { function, read, bytes, stream, per_sample } => {
                    let [seed, step, sample] = bytes.map(|at| *self.call.reads[read].add(at).cast::<u64>());
                    let (positions, before) = (first.cast(), sample.wrapping_mul(per_sample));
                    function(&RandomArgs { out, positions, count, seed, step, stream, before });
                }
                Action::Repeat(function) => {
                    let (rows, length) = match step.count {
                        Count::Chunk => (1, CHUNK),
                        _ => (self.rows, self.loops.geometry.row),
                    };
                    function(&RepeatArgs { tile: out, values: first, rows, length });
                }
                Action::Reduce { function, state } => {
                    let geometry = &self.loops.geometry;
                    let chunk = geometry.chunk.min(geometry.row - self.start);
                    function(&ReduceArgs {
                        out,
                        single: geometry.single,
                        state: self.memory.add(state),
                        values: first,
                        rows: self.rows,
                        start: self.start,
                        count: if geometry.is_chunked() { chunk } else { geometry.row },
                        length: geometry.row,
                    });
                }
            }
        }
    }
}
