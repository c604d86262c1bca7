//! Tensors as plain lists of numbers, and rounding to the precision of a type.

use half::{bf16, f16};
use plimsoll_graph::{DType, Shape};

/// A value of a graph. Elements of every type are kept as `f64`, row-major: floats exactly, bools as 0 and 1,
/// integers exactly up to 2⁵³.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    /// The extents.
    pub shape: Shape,
    /// The element type, whose precision the data have.
    pub dtype: DType,
    /// The elements.
    pub data: Vec<f64>,
}

impl Tensor {
    /// A tensor of these elements, rounded to `dtype`.
    ///
    /// # Panics
    /// If the shape is beyond the limits of [`Shape::new`] or does not hold as many elements.
    pub fn new(shape: &[usize], dtype: DType, data: Vec<f64>) -> Tensor {
        Tensor::rounded(Shape::new(shape).expect("a shape within limits"), dtype, data)
    }

    /// A single number.
    pub fn scalar(value: f64, dtype: DType) -> Tensor {
        Tensor::rounded(Shape::SCALAR, dtype, vec![value])
    }

    pub(crate) fn rounded(shape: Shape, dtype: DType, mut data: Vec<f64>) -> Tensor {
        assert_eq!(data.len(), shape.elements(), "elements of {dtype}{shape}");
        for v in &mut data {
            *v = round(*v, dtype);
        }
        Tensor { shape, dtype, data }
    }

    /// The element at an index.
    pub fn at(&self, index: &[usize]) -> f64 {
        self.data[offset(&self.shape, index)]
    }

    /// The last extent, and 1 for a scalar.
    pub(crate) fn row(&self) -> usize {
        self.shape.last().copied().unwrap_or(1)
    }
}

/// The nearest number of a type: floats round to nearest even, integers wrap.
fn round(v: f64, dtype: DType) -> f64 {
    match dtype {
        DType::F64 => v,
        DType::F32 => f64::from(v as f32),
        // The conversion that may use instructions of the processor rounds twice; this one does not.
        DType::F16 => f16::from_f64_const(v).to_f64(),
        DType::BF16 => bf16::from_f64_const(v).to_f64(),
        DType::I64 | DType::I32 | DType::U8 => wrap(v as i64, dtype),
        DType::Bool => f64::from(v != 0.0),
    }
}

/// An integer taken to the width of a type.
pub(crate) fn wrap(v: i64, dtype: DType) -> f64 {
    match dtype {
        DType::I32 => f64::from(v as i32),
        DType::U8 => f64::from(v as u8),
        DType::Bool => f64::from(v != 0),
        _ => v as f64,
    }
}

/// The position of an index in a row-major list.
pub(crate) fn offset(shape: &[usize], index: &[usize]) -> usize {
    assert_eq!(shape.len(), index.len());
    shape.iter().zip(index).fold(0, |offset, (&dim, &i)| {
        assert!(i < dim, "index {index:?} of {shape:?}");
        offset * dim + i
    })
}

/// Every index of a shape, row-major.
pub(crate) fn indices(shape: &Shape) -> impl Iterator<Item = Vec<usize>> {
    let shape = *shape;
    (0..shape.elements()).map(move |mut position| {
        let mut index = vec![0; shape.rank()];
        for axis in (0..shape.rank()).rev() {
            index[axis] = position % shape[axis];
            position /= shape[axis];
        }
        index
    })
}
