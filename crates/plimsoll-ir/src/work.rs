//! What there is to plan: buffers with sizes, kernels that read and write them.
//!
//! This is all the planner knows of a model, so it can plan anyone's graph: it never sees a tensor, an op or
//! a device.

use plimsoll_memory::Category;
use serde::Serialize;

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
    /// Kernels that are no part of the step, each of which makes again what one of its kernels wrote: from the
    /// same values that one read or wrote, and to the same bits.
    pub rematerializations: Vec<Kernel>,
}

/// Bytes that need an address.
#[derive(Debug, Clone, Copy)]
pub struct Buffer {
    /// How many bytes.
    pub bytes: u64,
    /// What they are for.
    pub role: Role,
    /// How long they must be kept.
    pub keep: Keep,
    /// Whose memory they are in.
    pub home: Home,
}

/// What a value is for. The roles are the ledger's categories.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Weights, and statistics that inference needs.
    Parameter,
    /// The gradient of a parameter.
    Gradient,
    /// What an optimizer remembers between steps.
    Optimizer,
    /// A batch from outside.
    Input,
    /// A value between the first op and the last.
    Activation,
    /// A number that is reported.
    Metric,
    /// The state that random numbers are drawn from.
    Random,
}

impl Role {
    /// The line of a ledger that buffers of this role are booked on.
    pub const fn category(self) -> Category {
        match self {
            Role::Parameter => Category::Parameters,
            Role::Gradient => Category::Gradients,
            Role::Optimizer => Category::Optimizer,
            Role::Input => Category::Inputs,
            Role::Activation => Category::Activations,
            Role::Metric => Category::Metrics,
            Role::Random => Category::Random,
        }
    }
}

/// Whose memory a buffer is in. Lowering puts every buffer on the device; a plan may move one to the host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Home {
    /// The device's, which is scarce.
    #[default]
    Device,
    /// The host's, which kernels cannot reach: what is there has to be copied.
    Host,
}

/// How long a buffer must keep its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Keep {
    /// From one step to the next.
    Always,
    /// From before the first kernel, where the host writes it, to the last use.
    FromStart,
    /// From the first write to after the last kernel, where the host reads it.
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
    /// What its operations are, which decides how fast they go.
    pub arithmetic: Arithmetic,
    /// The kind of kernels whose times it is to be compared with.
    pub family: Family,
}

impl Kernel {
    /// The buffers it reads or writes, each once.
    pub fn operands(&self) -> impl Iterator<Item = BufferIndex> {
        let reads =
            self.reads.iter().enumerate().filter(|(i, b)| !self.reads[..*i].contains(b)).map(|(_, b)| *b);
        let writes = self.writes.iter().copied().filter(|b| !self.reads.contains(b));
        reads.chain(writes)
    }
}

/// Where a launch comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LaunchSource {
    /// A kernel of the step.
    Kernel(KernelIndex),
    /// A kernel of the step, run once more to make its results again.
    Again(KernelIndex),
    /// One of the work's rematerializations.
    Rematerialize(u32),
    /// A copy between device and host begins: the first buffer it reads goes to the one it writes.
    Copy,
    /// The copy that wrote the second of the buffers it reads has ended.
    Wait,
}

impl LaunchSource {
    /// Whether it runs on the device's time line, unlike copies and waits.
    pub fn computes(self) -> bool {
        !matches!(self, LaunchSource::Copy | LaunchSource::Wait)
    }
}

/// Kernels that are as far from the ideal as each other, where they are as large: what tables of a device's times go by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Family {
    /// What it computes, and in which of the ways that differ in speed.
    pub name: &'static str,
    /// What about its shapes makes it faster or slower than others of its name that have as much to do; empty where there
    /// is nothing. A table that does not know a class goes by the name alone.
    pub class: &'static str,
    /// Whether its numbers have two bytes.
    pub half: bool,
    /// How many steps of it wait for each other: those of a recurrent layer.
    pub steps: u32,
}

impl Default for Family {
    fn default() -> Self {
        Family { name: "elements", class: "", half: false, steps: 1 }
    }
}

/// What kind of operations a kernel's flops are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Arithmetic {
    /// One element at a time.
    #[default]
    Elementwise,
    /// Products of matrices of four or eight bytes an element.
    Matrix,
    /// Products of matrices of two bytes an element.
    MatrixHalf,
    /// Convolutions of four or eight bytes an element.
    Convolution,
    /// Convolutions of two bytes an element.
    ConvolutionHalf,
    /// Attention.
    Attention,
    /// Products of matrices of four or eight bytes an element, and passes over their results in between: arithmetic
    /// and traffic take turns.
    Projection,
    /// The same of two bytes an element.
    ProjectionHalf,
}
