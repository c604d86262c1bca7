//! The contract between the executor and the kernels.
//!
//! A kernel of a program is *prepared* once, when a plan is loaded (or when the planner asks for its
//! workspace), and then run any number of times on addresses. Preparing may allocate; running must not.

use crate::runtime::Pool;

/// A kernel made ready for this machine.
pub(crate) trait Routine: Send + Sync {
    /// The scratch bytes a run on `threads` threads needs, beginning at an address aligned to
    /// [`ALIGNMENT`]. A function of the kernel and the thread count alone.
    fn workspace(&self, threads: usize) -> usize;

    /// Computes the kernel's results. Results do not depend on the thread count.
    ///
    /// # Safety
    /// `call` must hold one address for each read and write of the kernel that was prepared, each valid
    /// for the operand's buffer (reads initialised) and aligned to [`ALIGNMENT`]; writes overlap nothing
    /// else but reads that the kernel declares to be overwritable in place; `call.workspace` is valid for
    /// `self.workspace(call.pool.threads())` bytes, which may hold anything.
    unsafe fn run(&self, call: &Call<'_>);
}

/// What a person may choose about how kernels compute.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    /// Whether Winograd's algorithm may compute convolutions.
    pub(crate) winograd: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { winograd: true }
    }
}

/// The alignment of every buffer and workspace, in bytes: a cache line, and the widest vector.
pub const ALIGNMENT: usize = 64;

/// The addresses of one run of a kernel.
pub(crate) struct Call<'a> {
    /// The first byte of each read's buffer; the operand's view applies its own offset.
    pub(crate) reads: &'a [*const u8],
    /// The first byte of each write's buffer.
    pub(crate) writes: &'a [*mut u8],
    /// Scratch memory.
    pub(crate) workspace: *mut u8,
    /// The threads to run on.
    pub(crate) pool: &'a Pool,
}

// SAFETY: it is only addresses; whoever uses one vouches that no other thread writes to the same elements.
unsafe impl Sync for Call<'_> {}
