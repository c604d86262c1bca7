//! A device with the memory that a model's steps run in: what a session asks of it, whichever it is.
//!
//! On the CPU the arena is the process's own memory and a run ends before its call does. On others, inputs and results
//! are copied, and a run goes on while the host prepares the next.

mod cpu;
mod cuda;

pub(crate) use cpu::CpuMachine;
pub(crate) use cuda::CudaMachine;

use crate::Result;
use plimsoll_cuda::Books;
use plimsoll_graph::Program;
use plimsoll_plan::Plan;

/// A step that is loaded on a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Handle(usize);

/// Writes an input's bytes.
pub(crate) type Fill<'a> = &'a mut dyn FnMut(usize, &mut [u8]) -> Result<()>;

/// A device and memory on it.
pub(crate) trait Machine {
    /// The bytes of the device's arena and of the host's.
    fn bytes(&self) -> [u64; 2];

    /// Makes the arenas so long, unless they are longer; the first `kept` bytes of each stay as they are. Returns
    /// whether what is loaded stays so as well; else all of it has to be loaded again.
    fn grow(&mut self, bytes: [u64; 2], kept: [u64; 2]) -> Result<bool>;

    /// Binds a program and its plan to the memory.
    fn load(&mut self, program: &Program, plan: &Plan) -> Result<Handle>;

    /// How many runs may be under way when the next begins.
    fn ahead(&self) -> usize;

    /// Begins a run on what `fill` writes for each input.
    fn begin(&mut self, step: Handle, fill: Fill<'_>) -> Result<()>;

    /// Waits for the oldest run that was begun, which was one of `step`, and shows each output.
    fn collect(&mut self, step: Handle, read: &mut dyn FnMut(usize, &[u8])) -> Result<()>;

    /// Runs a step once more, on the inputs that are there, and returns the seconds of each kernel in the plan's order. No
    /// run may be under way.
    fn time_kernels(&mut self, step: Handle) -> Result<Vec<f64>>;

    /// Sets a state by `write`: from zeros if it was not written before, else all of it.
    fn set_state(&mut self, step: Handle, index: usize, write: &mut dyn FnMut(&mut [u8])) -> Result<()>;

    /// The bytes of a state.
    fn state(&self, step: Handle, index: usize) -> Result<Vec<u8>>;

    /// What the device's bytes are taken by, as its driver counts, where there is one.
    fn books(&self) -> Option<Books>;
}
