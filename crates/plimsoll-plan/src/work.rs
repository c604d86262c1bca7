//! What there is to plan: buffers with sizes, kernels that read and write them.
//!
//! This is all the planner knows of a model, so it can plan anyone's graph: it never sees a tensor, an op or
//! a device.

use plimsoll_memory::Category;

/// A buffer of some [`Work`], by position.
pub type BufferIndex = u32;

/// A kernel of some [`Work`], by position.
pub type KernelIndex = u32;

/// Kernels in an order that can be executed, and the buffers they work on.
#[derive(Debug, Clone, Default)]
pub struct Work {
    /// The buffers.
    pub buffers: Vec<Buffer>,
    /// The kernels, in a valid order.
    pub kernels: Vec<Kernel>,
}

/// Bytes that need an address.
#[derive(Debug, Clone, Copy)]
pub struct Buffer {
    /// How many bytes.
    pub bytes: u64,
    /// What they are for.
    pub category: Category,
    /// How long they must be kept.
    pub keep: Keep,
}

/// How long a buffer must keep its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// From one step to the next.
    Always,
    /// From before the first kernel to the last use.
    FromStart,
    /// From the first write to after the last kernel.
    ToEnd,
    /// From the first write to the last use.
    WhileUsed,
}

/// One launch.
#[derive(Debug, Clone, Default)]
pub struct Kernel {
    /// The buffers it reads.
    pub reads: Vec<BufferIndex>,
    /// The buffers it writes. One that is read as well is updated.
    pub writes: Vec<BufferIndex>,
    /// Pairs of a written and a read buffer that may share one address.
    pub in_place: Vec<(BufferIndex, BufferIndex)>,
    /// Scratch bytes it needs while it runs.
    pub workspace: u64,
    /// Floating-point operations.
    pub flops: u64,
    /// Bytes read and written.
    pub bytes: u64,
}
