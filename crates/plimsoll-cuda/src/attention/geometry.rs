//! The extents and strides of attention, and how they are written into a kernel's source.

use crate::error::{Error, ErrorKind, Result};
use plimsoll_graph::DType;
use plimsoll_graph::op::Attention;
use plimsoll_graph::program::{Operand, View};
use std::fmt::Write;

/// Extents up to this can be rounded up to blocks, and blocks counted, in 32 bits with a sign.
const LONGEST: usize = 1 << 30;
/// No kernel takes fewer queries or keys in a block of threads; a grid has fewer than 2^31 blocks.
const SMALLEST_BLOCK: usize = 8;

/// The extents of attention, and where its operands are.
#[derive(Debug, Clone)]
pub(super) struct AttentionShape {
    pub(super) dtype: DType,
    pub(super) batch: usize,
    pub(super) heads: usize,
    pub(super) queries: usize,
    pub(super) keys: usize,
    pub(super) width: usize,
    pub(super) attention: Attention,
    /// q, k and v, the output and its gradient, each with the letter it has in sources.
    pub(super) views: [(char, View); 5],
    /// Whether the gradients of q, k and v are one result.
    pub(super) joint: bool,
}

impl AttentionShape {
    /// Of q, k and v.
    pub(super) fn forward(attention: Attention, reads: &[Operand]) -> Result<Self> {
        let output = View::dense(reads[0].view.shape);
        Self::new(attention, reads, [output, output], false)
    }

    /// Of q, k, v, output, log-sum and the output's gradient.
    pub(super) fn backward(attention: Attention, reads: &[Operand], joint: bool) -> Result<Self> {
        if !reads[4].view.is_dense() {
            return Err(unsupported("log-sums that are not densely packed"));
        }
        Self::new(attention, reads, [reads[3].view, reads[5].view], joint)
    }

    fn new(
        attention: Attention,
        reads: &[Operand],
        [output, upstream]: [View; 2],
        joint: bool,
    ) -> Result<Self> {
        let [q, k, v] = [0, 1, 2].map(|index| reads[index].view);
        let [batch, queries, heads, width] = [0, 1, 2, 3].map(|axis| q.shape[axis]);
        let keys = k.shape[1];
        if !attention.scale.is_finite() {
            return Err(unsupported(&format!("a scale of {}", attention.scale)));
        }
        let pairs = batch.saturating_mul(heads);
        if [pairs, queries, keys, width].iter().any(|&extent| extent > LONGEST) {
            return Err(unsupported(&format!("more than {LONGEST} queries, keys, columns or heads")));
        }
        let blocks = pairs.saturating_mul(queries.max(keys).div_ceil(SMALLEST_BLOCK));
        if blocks > i32::MAX as usize {
            return Err(unsupported(&format!("{pairs} heads of {queries} queries and {keys} keys")));
        }
        let views = [('Q', q), ('K', k), ('V', v), ('O', output), ('U', upstream)];
        Ok(Self { dtype: reads[0].dtype, batch, heads, queries, keys, width, attention, views, joint })
    }

    /// The heads of all elements of the batch.
    pub(super) fn pairs(&self) -> usize {
        self.batch * self.heads
    }

    /// How many gradients are in one result.
    fn parts(&self) -> usize {
        if self.joint { 3 } else { 1 }
    }

    /// The type that positions in every operand and result fit into.
    fn index(&self) -> &'static str {
        let last = |view: &View| {
            (0..view.shape.rank()).fold(view.offset, |last, axis| {
                last.saturating_add(view.shape[axis].saturating_sub(1).saturating_mul(view.strides[axis]))
            })
        };
        let rows = self.pairs().saturating_mul(self.queries.max(self.keys));
        let results = rows.saturating_mul(self.width.max(1)).saturating_mul(self.parts());
        let end = self.views.iter().map(|(_, view)| last(view)).max().unwrap_or(0).max(results);
        if end < i32::MAX as usize { "int" } else { "long long" }
    }

    /// The lines that a source begins with which does for any batch and length.
    pub(super) fn defines(&self) -> String {
        let mut text = String::new();
        let AttentionShape { heads, width, attention, .. } = self;
        for (name, value) in [("HEADS", heads), ("WIDTH", width), ("CAUSAL", &usize::from(attention.causal))]
        {
            define(&mut text, name, value);
        }
        for (letter, view) in &self.views {
            let [row, head, column] = [1, 2, 3].map(|axis| view.strides[axis]);
            let of = [("FIRST", view.offset), ("ROW", row), ("HEAD", head), ("COLUMN", column)];
            for (name, value) in of {
                define(&mut text, &format!("{letter}_{name}"), value);
            }
        }
        // A row of a result, and where the gradients of k and of v begin in it.
        let row = heads * width;
        define(&mut text, "RESULT_ROW", row * self.parts());
        define(&mut text, "DK_FIRST", if self.joint { row } else { 0 });
        define(&mut text, "DV_FIRST", if self.joint { 2 * row } else { 0 });
        define(&mut text, "Index", self.index());
        text
    }

    /// What changes with batch and length, as kernels take it.
    pub(super) fn extents(&self) -> [i64; 8] {
        let [q, k, v, o, u] = self.views.map(|(_, view)| view.strides[0] as i64);
        [self.pairs() as i64, self.queries as i64, self.keys as i64, q, k, v, o, u]
    }
}

/// Adds a line that defines a name.
pub(super) fn define(text: &mut String, name: &str, value: impl std::fmt::Display) {
    // Writing to a string does not fail.
    _ = writeln!(text, "#define {name} {value}");
}

fn unsupported(what: &str) -> Error {
    Error::new(ErrorKind::Unsupported, format!("attention on a CUDA device does not take {what}"))
}
