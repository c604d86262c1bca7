//! The ops: the whole vocabulary that models, gradients and optimizers are written in.
//!
//! Primitive ops each have one gradient rule (see [`gradient`](crate::gradient)) and one lowering. The
//! structured ops at the end (cross-entropy, norms, attention, recurrent layers) could be written with the
//! primitives; they are ops because a kernel of their own keeps what the primitives would have to write to
//! memory. Images are `[batch, height, width, channels]` and filters
//! `[height, width, channels in / groups, channels out]`.

mod unary;

pub use unary::{Domain, Unary};

use crate::{Axes, DType, Shape};
use serde::Serialize;

/// What a node computes. Operands are listed in each variant's description, in order.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// A value from outside: a batch, a parameter, a state.
    Input {
        /// Its shape.
        shape: Shape,
        /// Its element type.
        dtype: DType,
    },
    /// The same number everywhere.
    Constant {
        /// The number, converted to `dtype`.
        value: f64,
        /// The shape it fills.
        shape: Shape,
        /// Its element type.
        dtype: DType,
    },
    /// The index along one axis.
    Iota {
        /// The shape.
        shape: Shape,
        /// The axis that is counted along.
        axis: usize,
        /// The element type.
        dtype: DType,
    },
    /// Numbers from a counter-based generator; operand: the state, `i64[3]` of seed, step and first sample. The
    /// same state, stream and shape always give the same numbers, so that recomputing them is exact.
    Random {
        /// How the numbers are distributed.
        distribution: Distribution,
        /// The shape.
        shape: Shape,
        /// The element type (a float).
        dtype: DType,
        /// Tells this op's numbers apart from those of every other op of the graph.
        stream: u64,
        /// How many elements each sample of the batch has, or 0 where they are not of samples. Elements are
        /// counted from those of the state's first sample, so that a part of a batch draws what it would in
        /// the whole.
        per_sample: u64,
    },
    /// A function of each element; operand: x.
    Unary(Unary),
    /// A function of each pair of elements; operands: a, b of one shape and type. Integers wrap.
    Binary(Binary),
    /// A comparison of each pair of elements, to bool; operands: a, b of one shape and type.
    Compare(Comparison),
    /// Chooses elements; operands: a bool condition, a where it holds, b where not.
    Select,
    /// Converts the element type; floats round to nearest even, to integers they truncate and saturate (NaN
    /// becomes 0).
    Cast {
        /// The new element type.
        dtype: DType,
    },
    /// Reduces over axes, which disappear; operand: x. A NaN among the elements gives NaN; the sum of bools
    /// is whether any holds.
    Reduce {
        /// How elements are combined.
        kind: Reduction,
        /// The axes that are reduced over.
        axes: Axes,
        /// Whether the result is kept in the accumulator type, not rounded to that of the elements, which are floats.
        wide: bool,
    },
    /// The position of the first largest element along an axis, which disappears, as `i32`; operand: x. NaN
    /// counts as the largest.
    ArgMax {
        /// The axis.
        axis: usize,
    },
    /// The same elements under another shape.
    Reshape {
        /// The new shape, of as many elements.
        shape: Shape,
    },
    /// Reorders axes.
    Permute {
        /// For each axis of the result, the operand's axis it is.
        order: Shape,
    },
    /// Repeats along axes of extent one and along new leading axes.
    Broadcast {
        /// The new shape.
        shape: Shape,
    },
    /// A part along every axis.
    Slice(Box<Slice>),
    /// A border of one value around the operand.
    Pad(Box<Pad>),
    /// The operands one after another along an axis.
    Concat {
        /// The axis.
        axis: usize,
    },
    /// Matrix products over the last two axes, batched over equal leading ones; operands: a, b.
    Dot {
        /// Whether a's last two axes are swapped first.
        transpose_a: bool,
        /// Whether b's last two axes are swapped first.
        transpose_b: bool,
    },
    /// A two-dimensional convolution; operands: images, filter.
    Conv2d(Conv2d),
    /// The gradient of a convolution for its images; operands: filter, output gradient.
    Conv2dInputGrad {
        /// The convolution.
        conv: Conv2d,
        /// The shape of the images.
        input: Shape,
    },
    /// The gradient of a convolution for its filter; operands: images, output gradient.
    Conv2dFilterGrad {
        /// The convolution.
        conv: Conv2d,
        /// The shape of the filter.
        filter: Shape,
    },
    /// Pooling over windows of images; operand: images.
    Pool2d(Pool2d),
    /// The gradient of pooling; operands: images, output gradient. That of a maximum goes to the first
    /// largest element of its window, row by row.
    Pool2dGrad(Pool2d),
    /// Rows of a table; operands: table `[rows, ..]`, integer indices of any shape. An index outside the
    /// table gives NaN (or zero, for integers).
    Gather,
    /// Adds updates into rows of a zero table; operands: integer indices, updates. Indices outside are
    /// skipped. Rows are added in the order of the updates.
    ScatterAdd {
        /// The rows of the table.
        rows: usize,
    },
    /// The operand itself, which no gradient flows through.
    StopGradient,
    /// Exponentials over the last axis, normalised to sum to one; operand: x.
    Softmax,
    /// The logarithm of [`Op::Softmax`]; operand: x.
    LogSoftmax,
    /// Cross-entropy of logits against class indices; operands: logits `[n, classes]`, integer labels `[n]`.
    /// Results: loss `[n]`, and `[n, 2]` of each row's largest logit and the log of the sum of exponentials relative to it,
    /// all in the accumulator type: their sum would round away what tells logits of a large common offset apart.
    /// A negative label contributes nothing; one past the classes gives NaN.
    CrossEntropy,
    /// Operands: logits, labels, the second result of [`Op::CrossEntropy`], gradient of the loss `[n]`. Result: gradient of the logits.
    CrossEntropyGrad,
    /// A projection to logits, their cross-entropy and its gradients, so that the logits never exist whole; operands:
    /// x `[n, width]`, weight, integer labels `[n]`, gradient of the loss `[n]` in the accumulator type. Results: loss
    /// `[n]` as of [`Op::CrossEntropy`], prediction `[n]` as of [`Op::ArgMax`] over the classes, and the gradients of
    /// x, which may replace x, and of the weight.
    ///
    /// The results have the bits of the ops it stands for ([`chunk_loss`](crate::chunk_loss) puts it in their place),
    /// whatever the chunk: a device takes as many rows at a time as `chunk` says, or more or fewer where its order of
    /// summation over rows demands it.
    ProjectedCrossEntropy {
        /// Whether the weight is `[classes, width]`, not `[width, classes]`.
        transpose_weight: bool,
        /// The rows whose logits exist at a time, at least 1.
        chunk: usize,
    },
    /// Normalises over the last axis; operands: x, gamma, beta.
    /// Results: y, mean and reciprocal standard deviation per row in the accumulator type.
    LayerNorm {
        /// Added to the variance.
        epsilon: f64,
    },
    /// Operands: x, gamma, mean, reciprocal deviation, gradient of y. Results: gradients of x, gamma, beta.
    LayerNormGrad,
    /// The same with one more operand, like x, that is added to the gradient of x, both rounded: what comes past the block
    /// that the norm is at the beginning of. Lowering puts it where that is all the gradient is used for.
    ResidualLayerNormGrad,
    /// Normalises each channel (last axis) over all other axes; operands: x, gamma, beta.
    /// Results: y, and mean and (biased) variance per channel in the accumulator type.
    BatchNorm {
        /// Added to the variance.
        epsilon: f64,
    },
    /// The statistics of each channel (last axis) over all other axes; operand: x. Results: mean, (biased)
    /// variance, and one over the standard deviation, all in the accumulator type. Lowering puts it, and
    /// arithmetic on elements, in the place of [`Op::BatchNorm`]; it has no gradient of its own.
    BatchMoments {
        /// Added to the variance under the root.
        epsilon: f64,
    },
    /// Operands: x, gamma, mean, variance, gradient of y. Results: gradients of x, gamma, beta.
    BatchNormGrad {
        /// Added to the variance.
        epsilon: f64,
    },
    /// Scaled dot-product attention; operands: q `[batch, queries, heads, width]`,
    /// k and v `[batch, keys, heads, width]`.
    /// Results: the output, shaped like q, and the log-sum `[batch, heads, queries]`.
    Attention(Attention),
    /// Operands: q, k, v, output, log-sum, gradient of the output. Results: gradients of q, k, v.
    AttentionGrad(Attention),
    /// The same of q, k and v of one shape. One result, `[batch, length, 3, heads, width]`: the gradients of q, k and v,
    /// side by side. Lowering puts it where they are concatenated so, for parts of one projection.
    JointAttentionGrad(Attention),
    /// A long short-term memory layer over time; operands: x `[batch, time, in]`, input weight
    /// `[in, 4 hidden]`, hidden weight `[hidden, 4 hidden]`, bias `[4 hidden]`, first hidden state and first
    /// cell state `[batch, hidden]`. Gates are in the order input, forget, cell, output. Results: hidden
    /// states `[batch, time, hidden]`, activated gates `[batch, time, 4 hidden]`, cell states
    /// `[batch, time, hidden]`.
    Lstm,
    /// Operands: x, input weight, hidden weight, first hidden, first cell, hidden states, gates, cells,
    /// gradient of the hidden states. Results: gradients of x, input weight, hidden weight, bias, first
    /// hidden, first cell.
    LstmGrad,
    /// A gated recurrent layer over time; operands: x `[batch, time, in]`, input weight `[in, 3 hidden]`,
    /// hidden weight `[hidden, 3 hidden]`, input bias, hidden bias `[3 hidden]`, first hidden state
    /// `[batch, hidden]`. Gates are in the order reset, update, new; the reset gate multiplies
    /// the hidden product with its bias, and the next state is (1 − update) · new + update · state. Results: hidden states, and `[batch, time, 4 hidden]` of the
    /// activated reset, update and new gates and the new gate's hidden product.
    Gru,
    /// Operands: x, input weight, hidden weight, first hidden, hidden states, gates, gradient of the hidden
    /// states. Results: gradients of x, input weight, hidden weight, input bias, hidden bias, first hidden.
    GruGrad,
}

/// The pattern of the ops that no program has a kernel of. Lowering puts most into loops, makes movements views of
/// their operand, decomposes batch norm, and gives inputs buffers.
#[doc(hidden)]
#[macro_export]
macro_rules! op_without_kernel {
    () => {
        $crate::Op::Constant { .. }
            | $crate::Op::Iota { .. }
            | $crate::Op::Random { .. }
            | $crate::Op::Unary(_)
            | $crate::Op::Binary(_)
            | $crate::Op::Compare(_)
            | $crate::Op::Select
            | $crate::Op::Cast { .. }
            | $crate::Op::Softmax
            | $crate::Op::LogSoftmax
            | $crate::Op::Reshape { .. }
            | $crate::Op::Permute { .. }
            | $crate::Op::Broadcast { .. }
            | $crate::Op::Slice(_)
            | $crate::Op::StopGradient
            | $crate::Op::BatchNorm { .. }
            | $crate::Op::Input { .. }
    };
}

/// A function of two elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Binary {
    /// a + b; of bools: or
    Add,
    /// a − b
    Sub,
    /// a · b; of bools: and
    Mul,
    /// a / b; of integers: truncated, 0 where b is 0
    Div,
    /// The larger; NaN if either is.
    Max,
    /// The smaller; NaN if either is.
    Min,
    /// aᵇ, of floats
    Pow,
}

/// A comparison of two elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Comparison {
    /// a = b
    Eq,
    /// a ≠ b
    Ne,
    /// a < b
    Lt,
    /// a ≤ b
    Le,
    /// a > b
    Gt,
    /// a ≥ b
    Ge,
}

/// How a reduction combines elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reduction {
    /// Their sum.
    Sum,
    /// The largest.
    Max,
    /// The smallest.
    Min,
}

/// How random numbers are distributed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Distribution {
    /// Evenly in `[0, 1)`.
    Uniform,
    /// With mean 0 and deviation 1.
    Normal,
}

/// Which part [`Op::Slice`] takes: from `start` up to `stop` in steps, along every axis.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Slice {
    /// The first index along each axis.
    pub start: Shape,
    /// One past the last index along each axis.
    pub stop: Shape,
    /// The distance between indices along each axis, at least 1.
    pub step: Shape,
}

/// The border [`Op::Pad`] adds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Pad {
    /// Elements before, along each axis.
    pub before: Shape,
    /// Elements after, along each axis.
    pub after: Shape,
    /// Elements between neighbours, along each axis.
    pub between: Shape,
    /// What the border is filled with.
    pub value: f64,
}

/// The geometry of a convolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct Conv2d {
    /// Steps of the window (down, across).
    pub stride: [usize; 2],
    /// Zero rows and columns around the image (top, bottom, left, right).
    pub padding: [usize; 4],
    /// Distance between a filter's taps (down, across).
    pub dilation: [usize; 2],
    /// Channels are split into this many groups that do not see each other.
    pub groups: usize,
}

impl Default for Conv2d {
    fn default() -> Self {
        Conv2d { stride: [1, 1], padding: [0; 4], dilation: [1, 1], groups: 1 }
    }
}

/// The geometry of pooling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct Pool2d {
    /// What a window becomes.
    pub kind: PoolKind,
    /// The window (height, width).
    pub window: [usize; 2],
    /// Its steps (down, across).
    pub stride: [usize; 2],
    /// Rows and columns around the image that no window sees (top, bottom, left, right).
    pub padding: [usize; 4],
}

impl Pool2d {
    /// Whether every element is in one window at most.
    pub fn is_disjoint(&self) -> bool {
        self.padding == [0; 4] && (0..2).all(|axis| self.stride[axis] >= self.window[axis])
    }
}

/// What a pooling window becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PoolKind {
    /// The largest element.
    Max,
    /// The mean of the elements that are inside the image.
    Mean,
}

/// The parameters of scaled dot-product attention.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Attention {
    /// Whether query i sees only keys up to i (aligned at the end if there are more keys than queries).
    pub causal: bool,
    /// What scores are multiplied with.
    pub scale: f64,
}

impl Op {
    /// The name, as printed in graphs and errors.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Input { .. } => "input",
            Op::Constant { .. } => "constant",
            Op::Iota { .. } => "iota",
            Op::Random { .. } => "random",
            Op::Unary(f) => f.name(),
            Op::Binary(f) => f.name(),
            Op::Compare(f) => f.name(),
            Op::Select => "select",
            Op::Cast { .. } => "cast",
            Op::Reduce { kind: Reduction::Sum, .. } => "sum",
            Op::Reduce { kind: Reduction::Max, .. } => "reduce_max",
            Op::Reduce { kind: Reduction::Min, .. } => "reduce_min",
            Op::ArgMax { .. } => "arg_max",
            Op::Reshape { .. } => "reshape",
            Op::Permute { .. } => "permute",
            Op::Broadcast { .. } => "broadcast",
            Op::Slice(_) => "slice",
            Op::Pad(_) => "pad",
            Op::Concat { .. } => "concat",
            Op::Dot { .. } => "dot",
            Op::Conv2d(_) => "conv2d",
            Op::Conv2dInputGrad { .. } => "conv2d_input_grad",
            Op::Conv2dFilterGrad { .. } => "conv2d_filter_grad",
            Op::Pool2d(Pool2d { kind: PoolKind::Max, .. }) => "max_pool2d",
            Op::Pool2d(Pool2d { kind: PoolKind::Mean, .. }) => "mean_pool2d",
            Op::Pool2dGrad(Pool2d { kind: PoolKind::Max, .. }) => "max_pool2d_grad",
            Op::Pool2dGrad(Pool2d { kind: PoolKind::Mean, .. }) => "mean_pool2d_grad",
            Op::Gather => "gather",
            Op::ScatterAdd { .. } => "scatter_add",
            Op::StopGradient => "stop_gradient",
            Op::Softmax => "softmax",
            Op::LogSoftmax => "log_softmax",
            Op::CrossEntropy => "cross_entropy",
            Op::CrossEntropyGrad => "cross_entropy_grad",
            Op::ProjectedCrossEntropy { .. } => "projected_cross_entropy",
            Op::LayerNorm { .. } => "layer_norm",
            Op::LayerNormGrad => "layer_norm_grad",
            Op::ResidualLayerNormGrad => "residual_layer_norm_grad",
            Op::BatchNorm { .. } => "batch_norm",
            Op::BatchMoments { .. } => "batch_moments",
            Op::BatchNormGrad { .. } => "batch_norm_grad",
            Op::Attention(_) => "attention",
            Op::AttentionGrad(_) => "attention_grad",
            Op::JointAttentionGrad(_) => "joint_attention_grad",
            Op::Lstm => "lstm",
            Op::LstmGrad => "lstm_grad",
            Op::Gru => "gru",
            Op::GruGrad => "gru_grad",
        }
    }
}

impl Binary {
    /// Every function; powers, which are of floats alone, last.
    pub const ALL: [Binary; 7] =
        [Binary::Add, Binary::Sub, Binary::Mul, Binary::Div, Binary::Max, Binary::Min, Binary::Pow];

    /// The name, as printed in graphs and errors.
    pub fn name(self) -> &'static str {
        match self {
            Binary::Add => "add",
            Binary::Sub => "sub",
            Binary::Mul => "mul",
            Binary::Div => "div",
            Binary::Max => "max",
            Binary::Min => "min",
            Binary::Pow => "pow",
        }
    }
}

impl Comparison {
    /// Every comparison.
    pub const ALL: [Comparison; 6] =
        [Comparison::Eq, Comparison::Ne, Comparison::Lt, Comparison::Le, Comparison::Gt, Comparison::Ge];

    /// The name, as printed in graphs and errors.
    pub fn name(self) -> &'static str {
        match self {
            Comparison::Eq => "eq",
            Comparison::Ne => "ne",
            Comparison::Lt => "lt",
            Comparison::Le => "le",
            Comparison::Gt => "gt",
            Comparison::Ge => "ge",
        }
    }
}
