//! The traits: a device, and memory on it that programs run in.

use crate::books::Books;
use crate::checked::CheckedProgram;
use crate::error::Result;
use plimsoll_graph::Program;
use plimsoll_memory::{Block, Pool};
use std::rc::Rc;

/// What plans for a device must respect, and which rewrites pay there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlanningTraits {
    /// What every address is a multiple of; a power of two.
    pub alignment: u64,
    /// Whether inputs are copied to the device, into buffers of their own, while the step before still runs.
    pub stages_inputs: bool,
    /// Neighbouring launches on buffers of at most so many bytes are launched as one: small copies of parameters come
    /// first in a plan, small updates last. Zero where a value is better off right beside what it is for.
    pub group_bytes: u64,
    /// Whether a value can rest outside of the memory that a budget bounds: on the host of a GPU, in a file that a person
    /// named for it.
    pub rests_elsewhere: bool,
    /// Whether memory is scarce enough that rematerialization worth next to no time is taken without a budget.
    pub memory_is_scarce: bool,
    /// From how many bytes on logits are better made some rows at a time in any case.
    pub chunk_logits_bytes: usize,
}

/// The bytes of the arenas that a run reserves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ArenaBytes {
    /// On the device.
    pub device: u64,
    /// On the host of a GPU, or in a file of a CPU, for what rests there between its uses.
    pub host: u64,
}

/// A device: what plans must know of it, and what runs need of it.
pub trait Device {
    /// Its name, as a person writes it: `cpu`, `cuda:0`, or that of its profile.
    fn name(&self) -> String;

    /// What its maker calls it, as in `NVIDIA H200`.
    fn model(&self) -> String;

    // What plans must know.

    /// What plans for it must respect.
    fn planning_traits(&self) -> PlanningTraits;

    /// The bytes of workspace that each of a program's kernels needs, and each of its rematerializations. What has to
    /// be compiled for them is compiled, and kept.
    ///
    /// # Errors
    /// If the device has no kernel for something in it.
    fn workspaces(&self, program: &Program) -> Result<[Vec<u64>; 2]>;

    /// What the device's bytes are taken by, where a driver counts them.
    ///
    /// # Errors
    /// If the driver does not say.
    fn books(&self) -> Result<Option<Books>>;

    // What runs need.

    /// Reserves arenas, of which the device's must not be over `limit`.
    ///
    /// # Errors
    /// If it is, or there is no such memory.
    fn reserve(&self, bytes: ArenaBytes, limit: Option<u64>) -> Result<Box<dyn DeviceMemory>>;

    /// A pool of the device's memory for eager mode, of at most `limit` bytes of blocks at a time.
    ///
    /// # Errors
    /// If the device's memory cannot be had.
    fn pool(&self, limit: Option<u64>) -> Result<Pool>;

    /// Runs a program once, each of its buffers in a block of its own that is freed after its last use. `inputs` are the
    /// blocks of the program's inputs; returned are those of its outputs. All blocks are of pools of this device.
    ///
    /// # Errors
    /// If memory runs out, in which case what was made so far is freed and the pool stays usable, the program is not
    /// sound, or it has states, which need an arena to survive in.
    fn run_once(&self, program: &Program, inputs: &[Rc<Block>], pool: &Pool) -> Result<Vec<Rc<Block>>>;

    /// Writes all bytes of a block, after what was run before.
    ///
    /// # Errors
    /// If there are not as many bytes, the block is not of this device, or that failed.
    fn write_block(&self, block: &mut Block, bytes: &[u8]) -> Result<()>;

    /// Reads all bytes of a block, after what was run before.
    ///
    /// # Errors
    /// If there are not as many bytes, the block is not of this device, or that failed.
    fn read_block(&self, block: &Block, bytes: &mut [u8]) -> Result<()>;

    /// Tries what is relied on of this kind of device beside its kernels, and tells what came of each.
    fn selftest(&self) -> Vec<SelfTest>;
}

/// Something that is relied on of a device, and what came of trying it.
#[derive(Debug, Clone, PartialEq)]
pub struct SelfTest {
    /// What should hold.
    pub name: &'static str,
    /// Whether it did.
    pub passed: bool,
    /// What was seen, or why it failed.
    pub detail: String,
    /// How long it took.
    pub seconds: f64,
}

/// A program that is loaded into a [`DeviceMemory`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handle(pub usize);

/// The caller could not give an input. It knows why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InputRefused;

/// Writes an input's bytes, by its position.
pub type FillInput<'a> = &'a mut dyn FnMut(usize, &mut [u8]) -> std::result::Result<(), InputRefused>;

/// Writes a piece of a state that begins at so many bytes of it.
pub type WritePiece<'a> = &'a mut dyn FnMut(usize, &mut [u8]);

/// The most bytes of a state that are copied at a time: saving and loading take no more memory than that.
pub const PIECE_BYTES: usize = 1 << 20;

/// Memory of a device, and the programs that are loaded into it. All programs find what survives a step at the same
/// offsets. Where a device runs beside the host, runs may be begun before those before them have ended.
pub trait DeviceMemory {
    /// The bytes of the arenas.
    fn bytes(&self) -> ArenaBytes;

    /// Binds a program to the memory.
    ///
    /// # Errors
    /// If its plan does not fit the memory or the device.
    fn load(&mut self, program: &CheckedProgram) -> Result<Handle>;

    /// Lets go of a program, none of whose runs may be under way. What it left in states stays.
    fn unload(&mut self, program: Handle);

    /// How many runs may be under way when the next begins.
    fn ahead(&self) -> usize;

    /// Begins a run on what `fill` writes for each input.
    ///
    /// # Errors
    /// If an input is refused, or the device fails.
    fn begin(&mut self, program: Handle, fill: FillInput<'_>) -> Result<()>;

    /// Waits for the oldest run that was begun, which was one of `program`, and shows each output.
    ///
    /// # Errors
    /// If the run failed.
    fn collect(&mut self, program: Handle, read: &mut dyn FnMut(usize, &[u8])) -> Result<()>;

    /// Runs a program on what `fill` writes for each input, one kernel after another, and returns the seconds of each in the
    /// plan's order. No run may be under way.
    ///
    /// # Errors
    /// As [`DeviceMemory::begin`].
    fn time_kernels(&mut self, program: Handle, fill: FillInput<'_>) -> Result<Vec<f64>>;

    /// Sets a state by `write`, which is called with one piece after another and where in the state it begins: from zeros
    /// if it was not written before, else all of it. Pieces that are copied have at most [`PIECE_BYTES`]. No run may be
    /// under way.
    ///
    /// # Errors
    /// If the device fails.
    fn write_state(&mut self, program: Handle, index: usize, write: WritePiece<'_>) -> Result<()>;

    /// Shows the bytes of a state, one piece after another. Pieces that are copied have at most [`PIECE_BYTES`]. No run may
    /// be under way.
    ///
    /// # Errors
    /// If the device fails.
    fn read_state(&self, program: Handle, index: usize, read: &mut dyn FnMut(&[u8])) -> Result<()>;

    /// Sets every byte of the device's arena to one value, states included: for tests of what kernels rely on.
    ///
    /// # Errors
    /// If the device fails.
    fn fill(&mut self, value: u8) -> Result<()>;
}
