//! The program: a step lowered to kernels over buffers.
//!
//! This is all that a planner and a device see of a model. A buffer is a value that needs an address; what a
//! fused kernel holds in registers is none. A kernel declares what it reads, writes and may overwrite in
//! place, its flops and its bytes; only its workspace depends on the device, which is asked for it.

use crate::op::{Binary, Comparison, Distribution, Reduction, Unary};
use crate::{DType, MAX_RANK, Op, Shape};
pub use plimsoll_ir::{Home, Keep, Role};

/// A step's kernels in an order that can be executed, and the buffers they work on.
#[derive(Debug, Clone, Default)]
pub struct Program {
    /// Every value that needs an address.
    pub buffers: Vec<Buffer>,
    /// The kernels, in a valid order.
    pub kernels: Vec<Kernel>,
    /// Cheaper ways to make one buffer again than to run the kernel that wrote it: each writes a single buffer,
    /// one that some kernel with several results writes, and gives the very same bits. They are no part of
    /// the order; a planner that has dropped a buffer may run one where it needs the buffer again, if what it
    /// reads still is, or is again, what it was when the kernel ran.
    pub rematerializations: Vec<Kernel>,
    /// The buffers of the step's states, in their order: one of each, or several of one that is [in parts](crate::StateParts).
    pub states: Vec<BufferId>,
    /// The buffer of each of the step's inputs.
    pub inputs: Vec<BufferId>,
    /// The buffer of each of the step's outputs.
    pub outputs: Vec<BufferId>,
}

/// A buffer of a [`Program`], by position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BufferId(pub u32);

impl BufferId {
    /// The position among the program's buffers.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A value that needs an address.
#[derive(Debug, Clone)]
pub struct Buffer {
    /// The scope and op it comes from, or the name it was declared under.
    pub name: Box<str>,
    /// Its extents.
    pub shape: Shape,
    /// Its element type.
    pub dtype: DType,
    /// What it is for: a line of the ledger.
    pub role: Role,
    /// How long it must keep its bytes.
    pub keep: Keep,
    /// Whose memory it is in.
    pub home: Home,
}

impl Buffer {
    /// The bytes it needs.
    pub fn bytes(&self) -> usize {
        self.shape.elements() * self.dtype.size()
    }
}

/// One launch on a device.
#[derive(Debug, Clone)]
pub struct Kernel {
    /// The scope it comes from.
    pub scope: Box<str>,
    /// What it computes.
    pub body: Body,
    /// Where its operands are.
    pub reads: Vec<Operand>,
    /// Where its results go, each densely packed in its buffer: from its first element on, or, for a loop, from any on.
    pub writes: Vec<Operand>,
    /// Pairs (of a write, a read) that may share one address: the result may replace the operand.
    pub in_place: Vec<(usize, usize)>,
    /// Floating-point operations, multiply and add counted as two, a function as the additions it takes as long as.
    pub flops: u64,
    /// Bytes read and written, each operand once.
    pub bytes: u64,
}

/// What a kernel computes.
#[derive(Debug, Clone)]
pub enum Body {
    /// A fused loop over elements, perhaps with reductions over rows.
    Loop(Loop),
    /// One op with a kernel of its own. Operands are densely packed, except those of [`Op::Dot`],
    /// [`Op::Attention`] and [`Op::AttentionGrad`], which may be strided views.
    Op(Op),
    /// An op whose result a loop takes in as it is made, so that the result never has an address.
    WithEpilogue(Box<WithEpilogue>),
    /// A copy between device and host begins: all bytes of the buffer that is read go to the one that is
    /// written. Both stay as they are until the [`Body::Wait`] for it.
    Copy,
    /// Kernels after it find the copy from the first of the buffers it reads to the second ended.
    Wait,
}

impl Kernel {
    /// The name of what it computes, for reports.
    pub fn name(&self) -> &'static str {
        match &self.body {
            Body::Loop(body) if body.row_axes > 0 => "fused_rows",
            Body::Loop(_) => "fused",
            Body::Op(op) => op.name(),
            Body::WithEpilogue(then) => then.op.name(),
            Body::Copy => "copy",
            Body::Wait => "wait",
        }
    }
}

/// An op that is followed by a loop over the elements of its only result.
///
/// A device hands parts of the result on while they are in cache; one that cannot keeps the result in workspace.
#[derive(Debug, Clone, PartialEq)]
pub struct WithEpilogue {
    /// The op. The kernel's first `operands` reads are its.
    pub op: Op,
    /// How many operands the op has.
    pub operands: usize,
    /// The extents of its result.
    pub shape: Shape,
    /// The element type of its result.
    pub dtype: DType,
    /// The loop, over the result as a matrix: all axes but the last are one. Its read 0 is the op's result, and its
    /// read r above 0 is the kernel's read `operands + r - 1`.
    pub body: Loop,
}

impl WithEpilogue {
    /// The op's result as an operand, of no buffer that there is.
    pub fn made(&self) -> Operand {
        Operand { buffer: BufferId(u32::MAX), dtype: self.dtype, view: View::dense(self.shape) }
    }

    /// What the loop reads: the op's result as a matrix, then those of the kernel's reads that are not the op's.
    pub fn loop_reads(&self, reads: &[Operand]) -> Vec<Operand> {
        let made = Operand { view: View::dense(self.body.domain), ..self.made() };
        [&[made], &reads[self.operands..]].concat()
    }

    /// The kernel's pairs of a write and a read that may share an address, by the loop's reads. None is the op's.
    pub fn loop_pairs(&self, in_place: &[(usize, usize)]) -> Vec<(usize, usize)> {
        in_place.iter().map(|&(write, read)| (write, read + 1 - self.operands)).collect()
    }
}

/// A view of a buffer: the buffer's elements as a kernel sees them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Operand {
    /// The buffer.
    pub buffer: BufferId,
    /// The element type, that of the buffer.
    pub dtype: DType,
    /// The elements of the buffer that are seen.
    pub view: View,
}

impl Operand {
    /// The byte of its buffer at which what is seen begins: where a kernel writes.
    pub fn first_byte(&self) -> usize {
        self.view.offset * self.dtype.size()
    }
}

/// A strided walk over a buffer: element `[i, j, ..]` is at `offset + i · strides[0] + j · strides[1] + ..`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View {
    /// The extents.
    pub shape: Shape,
    /// Where the first element is, in elements.
    pub offset: usize,
    /// The distance between neighbours along each axis, in elements; zero where a value is repeated.
    pub strides: [usize; MAX_RANK],
}

impl View {
    /// All elements of a densely packed buffer.
    pub fn dense(shape: Shape) -> View {
        View { shape, offset: 0, strides: shape.strides() }
    }

    /// One past the last element of the buffer that is seen; `None` if that cannot be counted.
    pub fn end(&self) -> Option<usize> {
        if self.shape.elements() == 0 {
            return Some(0);
        }
        let reach = |end: usize, axis: usize| {
            end.checked_add((self.shape[axis] - 1).checked_mul(self.strides[axis])?)
        };
        (0..self.shape.rank()).try_fold(self.offset, reach)?.checked_add(1)
    }

    /// Whether the view is all elements from the first on, densely packed.
    pub fn is_dense(&self) -> bool {
        let dense = self.shape.strides();
        let same = |axis: usize| self.shape[axis] == 1 || self.strides[axis] == dense[axis];
        self.offset == 0 && (self.shape.elements() == 0 || (0..self.shape.rank()).all(same))
    }
}

/// A fused loop: a straight-line program run for every element of `domain`.
///
/// With `row_axes` above zero the last that many axes are a *row*. Instructions are then of two levels:
/// those of [`Level::Element`] have a value for every element, those of [`Level::Row`] one for every row.
/// A [`Scalar::Reduce`] goes from element to row; an element instruction may use a row's value, which is
/// the same for all its elements. Instruction i defines register i; operands are earlier registers.
///
/// Every register holds a value of its `dtype`'s precision, so that fusing never changes a number.
#[derive(Debug, Clone, PartialEq)]
pub struct Loop {
    /// The iteration space.
    pub domain: Shape,
    /// How many trailing axes of the domain form a row; 0 if there are no rows.
    pub row_axes: usize,
    /// The straight-line program.
    pub instructions: Vec<Instruction>,
    /// The register each of the kernel's writes stores, and with it the level it is stored at: a write of
    /// an element register covers the domain, one of a row register the domain without its row axes.
    pub stores: Vec<Register>,
}

/// An instruction of a [`Loop`], by position; it names the value the instruction defines.
pub type Register = u16;

/// One instruction of a [`Loop`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Instruction {
    /// What is computed.
    pub scalar: Scalar,
    /// The element type of the result.
    pub dtype: DType,
    /// Whether there is one result for each element or for each row.
    pub level: Level,
}

/// How often an instruction of a [`Loop`] has a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// For each element.
    Element,
    /// For each row.
    Row,
}

/// What an [`Instruction`] computes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scalar {
    /// Loads the kernel's read number `read`: at element level its view has the domain's shape, at row
    /// level the domain's shape without the row axes.
    Load {
        /// Which of the kernel's reads.
        read: u16,
    },
    /// A constant.
    Constant(f64),
    /// The index along an axis of the domain.
    Iota {
        /// The axis.
        axis: u8,
    },
    /// A random number from the `i64[3]` state in the kernel's read number `state`; the counter is the
    /// element's position in the domain, row-major, plus those of the samples before the state's first.
    Random {
        /// How it is distributed.
        distribution: Distribution,
        /// The kernel's read that holds seed, step and first sample.
        state: u16,
        /// Tells this op's numbers apart from others.
        stream: u64,
        /// Elements of each sample, or 0.
        per_sample: u64,
    },
    /// A function of one register.
    Unary(Unary, Register),
    /// A function of two registers of the result's type.
    Binary(Binary, Register, Register),
    /// A comparison of two registers of one type.
    Compare(Comparison, Register, Register),
    /// The second register where the first holds, else the third.
    Select(Register, Register, Register),
    /// The register converted to the instruction's type.
    Cast(Register),
    /// The row's elements of a register combined.
    Reduce(Reduction, Register),
}

impl Scalar {
    /// The registers this instruction uses.
    pub fn operands(&self) -> impl Iterator<Item = Register> + use<> {
        let list = match *self {
            Scalar::Load { .. } | Scalar::Constant(_) | Scalar::Iota { .. } | Scalar::Random { .. } => {
                [None, None, None]
            }
            Scalar::Unary(_, a) | Scalar::Cast(a) | Scalar::Reduce(_, a) => [Some(a), None, None],
            Scalar::Binary(_, a, b) | Scalar::Compare(_, a, b) => [Some(a), Some(b), None],
            Scalar::Select(c, a, b) => [Some(c), Some(a), Some(b)],
        };
        list.into_iter().flatten()
    }
}
