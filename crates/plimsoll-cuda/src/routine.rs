//! The contract between the runtime and the kernels.
//!
//! A kernel of a program is *prepared* once: when a plan is loaded, when the planner asks for its workspace, or when eager
//! mode first meets it. Then it is run on addresses of the device, directly or as part of a captured CUDA graph. Preparing
//! may compile and allocate; running must not.

use crate::error::Result;
use cudarc::driver::sys::{CUdeviceptr, CUstream};

/// A kernel made ready for one device.
pub(crate) trait Routine: Send + Sync {
    /// The scratch bytes a run needs, beginning at an address aligned to [`ALIGNMENT`].
    fn workspace(&self) -> u64;

    /// Enqueues the kernel on `call.stream`, with the device's context current. The stream may be capturing a
    /// graph: neither is anything waited for nor allocated.
    ///
    /// # Safety
    /// `call` must hold one address for each read and write of the kernel that was prepared, each valid
    /// for the operand's buffer on the device (reads initialised when the stream comes to it) and aligned to
    /// [`ALIGNMENT`]; writes overlap nothing else but reads that the kernel declares to be overwritable in place;
    /// `call.workspace` is valid for [`Routine::workspace`] bytes, which may hold anything.
    unsafe fn run(&self, call: &Call<'_>) -> Result<()>;
}

/// The alignment of every buffer and workspace, in bytes: what the widest access and every library ask for.
pub(crate) const ALIGNMENT: u64 = 256;

/// The addresses of one run of a kernel.
pub(crate) struct Call<'a> {
    /// The first byte of each read's buffer; the operand's view applies its own offset.
    pub(crate) reads: &'a [CUdeviceptr],
    /// The first byte of each write's buffer.
    pub(crate) writes: &'a [CUdeviceptr],
    /// Scratch memory.
    pub(crate) workspace: CUdeviceptr,
    /// What the work is enqueued on.
    pub(crate) stream: CUstream,
}

/// What an argument of a kernel points to. Where that is, each call says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PointerTo {
    /// One of the kernel's reads.
    Read(usize),
    /// One of the kernel's writes.
    Write(usize),
    /// These bytes into the workspace.
    Workspace(u64),
}

impl PointerTo {
    /// The address in one call.
    pub(crate) fn address(self, call: &Call<'_>) -> CUdeviceptr {
        match self {
            PointerTo::Read(read) => call.reads[read],
            PointerTo::Write(write) => call.writes[write],
            PointerTo::Workspace(offset) => call.workspace + offset,
        }
    }
}
