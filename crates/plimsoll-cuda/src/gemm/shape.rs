//! What a matrix product is: extents, strides and types, and what can be said of it without a device.

use crate::routine::ALIGNMENT;
use plimsoll_graph::DType;

/// A batch of products `c = a b`, or `c += a b`: `m × k` by `k × n`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Gemm {
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
    pub(crate) batch: usize,
    /// The strides between rows, columns and matrices, in elements.
    pub(crate) a: [usize; 3],
    pub(crate) b: [usize; 3],
    /// The strides between rows and between matrices; columns are contiguous.
    pub(crate) c: [usize; 2],
    /// The type of a and b. Sums are in its accumulator.
    pub(crate) dtype: DType,
    /// The type of c: that of a and b, or its accumulator.
    pub(crate) result: DType,
    /// Whether c is added to.
    pub(crate) accumulate: bool,
    /// What the addresses of a, b and c are multiples of, in bytes.
    pub(crate) alignment: [u64; 3],
}

impl Gemm {
    /// One product of aligned matrices, `m × k` by `k × n`, whose rows and columns are so far apart, with a dense result of
    /// the operands' type.
    pub(crate) fn new(dtype: DType, [m, n, k]: [usize; 3], a: [usize; 2], b: [usize; 2]) -> Gemm {
        Gemm {
            m,
            n,
            k,
            batch: 1,
            a: [a[0], a[1], 0],
            b: [b[0], b[1], 0],
            c: [n, 0],
            dtype,
            result: dtype,
            accumulate: false,
            alignment: [ALIGNMENT; 3],
        }
    }

    /// A product of dense matrices, for tests of who computes it and how.
    #[cfg(test)]
    pub(crate) fn dense(m: usize, n: usize, k: usize, dtype: DType) -> Gemm {
        Gemm::new(dtype, [m, n, k], [k, 1], [n, 1])
    }

    /// The bytes from the first element of a, b and c to their last.
    pub(crate) fn bytes(&self) -> [u64; 3] {
        let Gemm { m, n, k, batch, a, b, c, .. } = *self;
        let span = |rows: usize, columns: usize, [row, column, step]: [usize; 3], dtype: DType| {
            let last = |count: usize, step: usize| count.saturating_sub(1) * step;
            ((last(rows, row) + last(columns, column) + last(batch, step) + 1) * dtype.size()) as u64
        };
        [span(m, k, a, self.dtype), span(k, n, b, self.dtype), span(m, n, [c[0], 1, c[1]], self.result)]
    }

    /// By what factor the number of samples differs from another product's, if nothing else does and it is at most two.
    /// Samples are the rows of a, or the depth where a is transposed, as for the gradient of a weight.
    pub(crate) fn unlike(&self, other: &Gemm) -> Option<f64> {
        const MOST: f64 = 2.0;
        let factor = self.samples_over(other)?;
        let factor = factor.max(1.0 / factor);
        (factor <= MOST).then_some(factor)
    }

    /// The number of samples over that of another product, if nothing else differs.
    pub(super) fn samples_over(&self, other: &Gemm) -> Option<f64> {
        let transposed = self.a[0] == 1 && self.a[1] != 1;
        let samples = |gemm: &Gemm| if transposed { gemm.k } else { gemm.m } as f64;
        let same = if transposed { Gemm { k: self.k, ..*other } } else { Gemm { m: self.m, ..*other } };
        (same == *self).then(|| samples(self) / samples(other))
    }

    /// The bytes of the operands, each in whole units of the alignment.
    pub(super) fn operand_bytes(&self) -> u64 {
        self.bytes().iter().map(|bytes| bytes.next_multiple_of(ALIGNMENT)).sum()
    }
}
