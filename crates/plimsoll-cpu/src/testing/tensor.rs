//! Tensors of any type as plain numbers, and how far results may be from them.

use super::scalar::Scalar;
use plimsoll_graph::program::{BufferId, Operand, View};
use plimsoll_graph::{DType, Shape};

/// The float types that kernels work on.
pub(crate) const FLOATS: [DType; 4] = [DType::F32, DType::F64, DType::F16, DType::BF16];

/// Half a unit in the last place of one: how far rounding to the type moves a number near one.
pub(crate) fn unit(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 2f64.powi(-53),
        DType::F32 => 2f64.powi(-24),
        DType::F16 => 2f64.powi(-11),
        _ => 2f64.powi(-8),
    }
}

/// The numbers that tests are made of, the same for each seed.
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `-1..1`.
    pub(crate) fn float(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }

    /// A number below `limit`.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    /// A dense tensor of numbers in `-1..1`.
    pub(crate) fn tensor(&mut self, dtype: DType, dims: &[usize]) -> Tensor {
        let count = dims.iter().product();
        Tensor::new(dtype, dims, (0..count).map(|_| self.float()).collect())
    }

    /// A tensor of numbers in `-1..1` whose axes lie in memory in the given order, with gaps and an offset.
    pub(crate) fn strided(&mut self, dtype: DType, dims: &[usize], order: &[usize]) -> Tensor {
        let mut view = View::dense(Shape::new(dims).unwrap());
        let mut step = 1;
        for &axis in order.iter().rev() {
            view.strides[axis] = step;
            step = step * dims[axis] + self.below(3);
        }
        view.offset = self.below(5);
        let buffer = (0..view.offset + step).map(|_| nearest(dtype, self.float())).collect();
        Tensor { dtype, view, buffer }
    }
}

/// A value: a buffer of numbers, rounded to the element type, and the view of it.
#[derive(Clone)]
pub(crate) struct Tensor {
    dtype: DType,
    view: View,
    buffer: Vec<f64>,
}

impl Tensor {
    /// A dense tensor of these numbers.
    pub(crate) fn new(dtype: DType, dims: &[usize], values: Vec<f64>) -> Self {
        let view = View::dense(Shape::new(dims).unwrap());
        assert_eq!(view.shape.elements(), values.len());
        Self { dtype, view, buffer: values.into_iter().map(|value| nearest(dtype, value)).collect() }
    }

    /// It, repeated along new leading axes.
    pub(crate) fn broadcast(&self, dims: &[usize]) -> Self {
        let mut view = View::dense(Shape::new(dims).unwrap());
        let new = dims.len() - self.view.shape.rank();
        view.strides[..new].fill(0);
        view.strides[new..dims.len()].copy_from_slice(&self.view.strides[..dims.len() - new]);
        Self { view, ..self.clone() }
    }

    /// The element type.
    pub(crate) fn dtype(&self) -> DType {
        self.dtype
    }

    /// The bytes of its buffer.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let element = |&value| Scalar::Double(value).cast(DType::F64, self.dtype).store(self.dtype);
        self.buffer.iter().flat_map(element).collect()
    }

    /// The view of it, as a kernel's read.
    pub(crate) fn operand(&self) -> Operand {
        Operand { buffer: BufferId(0), dtype: self.dtype, view: self.view }
    }

    /// The element at an index.
    pub(crate) fn at(&self, index: &[usize]) -> f64 {
        let walk: usize = index.iter().zip(&self.view.strides).map(|(i, stride)| i * stride).sum();
        self.buffer[self.view.offset + walk]
    }

    /// All elements, row by row.
    pub(crate) fn values(&self) -> Vec<f64> {
        let shape = self.view.shape;
        let dense = shape.strides();
        let index = |position: usize| (0..shape.rank()).map(move |axis| position / dense[axis] % shape[axis]);
        (0..shape.elements()).map(|position| self.at(&index(position).collect::<Vec<_>>())).collect()
    }
}

/// Rounds a number to an element type.
pub(crate) fn nearest(dtype: DType, value: f64) -> f64 {
    Scalar::Double(value).cast(DType::F64, dtype).to_f64()
}

/// The numbers that some bytes are.
pub(super) fn decode(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    (0..bytes.len() / dtype.size()).map(|index| Scalar::load(bytes, index, dtype).to_f64()).collect()
}

/// Checks that numbers differ by no more than `tolerance`, relative for numbers above one; NaN equals NaN.
#[track_caller]
pub(crate) fn assert_close(actual: &[f64], expected: &[f64], tolerance: f64, what: &str) {
    assert_eq!(actual.len(), expected.len(), "{what}");
    for (position, (&actual, &expected)) in actual.iter().zip(expected).enumerate() {
        let same = actual == expected || (actual.is_nan() && expected.is_nan());
        let close = (actual - expected).abs() <= tolerance * expected.abs().max(1.0);
        assert!(
            same || close,
            "{what} at {position}: {actual} instead of {expected}, tolerance {tolerance:e}"
        );
    }
}
