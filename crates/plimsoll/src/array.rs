//! Arrays on the host: what goes into a run's steps and comes out of them.

use crate::{DType, Error, ErrorKind, Result, Shape};
use half::{bf16, f16};
use std::fmt;

/// Numbers of one element type in row-major order, in the host's memory.
///
/// ```
/// use plimsoll::{Array, DType};
/// let x = Array::new(&[2, 2], &[1.0f32, 2.0, 3.0, 4.0])?;
/// assert_eq!((x.dtype(), x.shape()), (DType::F32, &[2, 2][..]));
/// assert_eq!(x.to_vec::<f32>()?, [1.0, 2.0, 3.0, 4.0]);
/// assert!(Array::new(&[3], &[1i32]).unwrap_err().to_string().contains("3 elements"));
/// # Ok::<(), plimsoll::Error>(())
/// ```
#[derive(Clone, PartialEq)]
pub struct Array {
    shape: Vec<usize>,
    dtype: DType,
    bytes: Vec<u8>,
}

/// A number that arrays can hold.
pub trait Number: Copy + sealed::Sealed {
    /// Its element type.
    const DTYPE: DType;
    #[doc(hidden)]
    fn write(self, out: &mut Vec<u8>);
    #[doc(hidden)]
    fn read(bytes: &[u8]) -> Self;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! numbers {
    ($($number:ty: $dtype:ident;)*) => {$(
        impl sealed::Sealed for $number {}

        impl Number for $number {
            const DTYPE: DType = DType::$dtype;

            fn write(self, out: &mut Vec<u8>) {
                out.extend(self.to_ne_bytes());
            }

            fn read(bytes: &[u8]) -> Self {
                <$number>::from_ne_bytes(bytes.try_into().unwrap_or_default())
            }
        }
    )*};
}

numbers! {
    f32: F32;
    f64: F64;
    bf16: BF16;
    f16: F16;
    i32: I32;
    i64: I64;
    u8: U8;
}

impl Array {
    /// An array of these numbers.
    ///
    /// # Errors
    /// If there are not as many as the shape has elements.
    pub fn new<T: Number>(shape: &[usize], values: &[T]) -> Result<Array> {
        let elements = Shape::new(shape)?.elements();
        if elements != values.len() {
            let message =
                format!("{}{shape:?} has {elements} elements, was given {}", T::DTYPE, values.len());
            return Err(Error::new(ErrorKind::Shape, message));
        }
        let mut bytes = Vec::with_capacity(elements * T::DTYPE.size());
        values.iter().for_each(|value| value.write(&mut bytes));
        Ok(Array { shape: shape.to_vec(), dtype: T::DTYPE, bytes })
    }

    /// An array of one number.
    pub fn scalar<T: Number>(value: T) -> Array {
        let mut bytes = vec![];
        value.write(&mut bytes);
        Array { shape: vec![], dtype: T::DTYPE, bytes }
    }

    /// An array of zeros.
    ///
    /// # Errors
    /// If the shape is beyond limits.
    pub fn zeros(shape: &[usize], dtype: DType) -> Result<Array> {
        let elements = Shape::new(shape)?.elements();
        Ok(Array { shape: shape.to_vec(), dtype, bytes: vec![0; elements * dtype.size()] })
    }

    /// An array of these bytes, of which there are as many as the shape and type have.
    pub(crate) fn of_bytes(shape: &[usize], dtype: DType, bytes: Vec<u8>) -> Array {
        Array { shape: shape.to_vec(), dtype, bytes }
    }

    /// The extents, outermost axis first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The bytes of all elements, each in the machine's own order.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes, to be written to.
    pub(crate) fn bytes_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// The same memory for an array of another shape and type, to be written to.
    pub(crate) fn reuse(&mut self, shape: &[usize], dtype: DType) -> &mut Vec<u8> {
        self.shape.clear();
        self.shape.extend(shape);
        self.dtype = dtype;
        &mut self.bytes
    }

    /// The numbers, if they are of that type.
    ///
    /// # Errors
    /// If the array has another element type.
    pub fn to_vec<T: Number>(&self) -> Result<Vec<T>> {
        if self.dtype != T::DTYPE {
            let message = format!("{self} was asked for as {}", T::DTYPE);
            return Err(Error::new(ErrorKind::DType, message));
        }
        Ok(self.bytes.chunks_exact(T::DTYPE.size()).map(T::read).collect())
    }

    /// The one number of an array that has one, if it is of that type.
    ///
    /// # Errors
    /// If the array has another element type, or not one element.
    pub fn item<T: Number>(&self) -> Result<T> {
        if self.dtype != T::DTYPE {
            let message = format!("{self} was asked for as {}", T::DTYPE);
            return Err(Error::new(ErrorKind::DType, message));
        }
        if self.bytes.len() != T::DTYPE.size() {
            return Err(Error::new(ErrorKind::Shape, format!("{self} does not have one element")));
        }
        Ok(T::read(&self.bytes))
    }
}

impl fmt::Display for Array {
    /// Element type and shape, as in `f32[32, 10]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", self.dtype, self.shape)
    }
}

impl fmt::Debug for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Array({self})")
    }
}
