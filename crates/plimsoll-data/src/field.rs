//! What one sample is made of. Shapes and element types are declared here once, so that every buffer's size is known
//! before any data is read. The crate has its own element type since it knows nothing of graphs.

use std::fmt;

use crate::{ErrorKind, Result};

/// The type of a field's elements. In buffers they lie in the machine's own byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Element {
    /// 32-bit float: features and targets.
    F32,
    /// 32-bit signed integer: class labels and tokens.
    I32,
    /// One byte: raw pixels, small labels, text.
    U8,
    /// 64-bit float.
    F64,
    /// 64-bit signed integer: identities, times.
    I64,
}

impl Element {
    /// Bytes of one element.
    pub const fn bytes(self) -> usize {
        match self {
            Element::F64 | Element::I64 => 8,
            Element::F32 | Element::I32 => 4,
            Element::U8 => 1,
        }
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Element::F32 => "f32",
            Element::I32 => "i32",
            Element::U8 => "u8",
            Element::F64 => "f64",
            Element::I64 => "i64",
        })
    }
}

/// The Rust types that elements can be: `f32`, `i32`, `u8`, `f64` and `i64`.
pub trait Scalar: sealed::Sealed {
    /// The element type that it is.
    const ELEMENT: Element;
}

mod sealed {
    /// Keeps scalars to those that elements can be.
    pub trait Sealed: bytemuck::Pod {}
}

macro_rules! scalar {
    ($type:ty, $element:ident) => {
        impl Scalar for $type {
            const ELEMENT: Element = Element::$element;
        }
        impl sealed::Sealed for $type {}
    };
}

scalar!(f32, F32);
scalar!(i32, I32);
scalar!(u8, U8);
scalar!(f64, F64);
scalar!(i64, I64);

/// A named part of every sample: its features, its label. All samples have the same shape, or one of which some extents
/// are [`OPEN`](Field::OPEN).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    name: String,
    element: Element,
    shape: Vec<usize>,
    elements: usize,
}

impl Field {
    /// The extent of an axis that is as long in each sample as it happens to be: of a text, of an image before it is
    /// resized.
    pub const OPEN: usize = 0;

    /// A field of which some extents are [`OPEN`](Field::OPEN).
    ///
    /// ```
    /// use plimsoll_data::{Element, Field};
    /// let image = Field::open("image", Element::U8, &[Field::OPEN, Field::OPEN, 3])?;
    /// assert!(!image.is_fixed());
    /// assert_eq!(image.to_string(), "image: u8 [?, ?, 3]");
    /// # Ok::<(), plimsoll_data::Error>(())
    /// ```
    pub fn open(name: &str, element: Element, shape: &[usize]) -> Result<Field> {
        let least: Vec<usize> = shape.iter().map(|&extent| extent.max(1)).collect();
        let mut field = Field::new(name, element, &least)?;
        if shape.contains(&Field::OPEN) {
            (field.shape, field.elements) = (shape.to_vec(), 0);
        }
        Ok(field)
    }

    /// A field of this shape per sample; an empty shape is one element.
    ///
    /// A shape that holds no element, or more bytes than can be addressed, is refused.
    pub fn new(name: &str, element: Element, shape: &[usize]) -> Result<Field> {
        let refuse = |reason: String| Err(ErrorKind::Field { name: name.to_string(), reason }.into());
        if name.is_empty() {
            return refuse("a field needs a name".to_string());
        }
        if shape.contains(&0) {
            return refuse(format!("the shape {shape:?} holds no element; every extent must be at least 1"));
        }
        let elements = shape.iter().try_fold(1usize, |product, &extent| product.checked_mul(extent));
        let bytes = elements.and_then(|elements| elements.checked_mul(element.bytes()));
        match (elements, bytes) {
            (Some(elements), Some(bytes)) if bytes <= isize::MAX as usize => {
                Ok(Field { name: name.to_string(), element, shape: shape.to_vec(), elements })
            }
            _ => refuse(format!("one sample of shape {shape:?} has more bytes than can be addressed")),
        }
    }

    /// The name it is asked for by.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The type of its elements.
    pub fn element(&self) -> Element {
        self.element
    }

    /// Whether all samples have the same shape.
    pub fn is_fixed(&self) -> bool {
        !self.shape.contains(&Field::OPEN)
    }

    /// Whether a sample may have this shape.
    pub fn takes(&self, shape: &[usize]) -> bool {
        let fits = |(&own, &extent): (&usize, &usize)| own == Field::OPEN || own == extent;
        self.shape.len() == shape.len() && self.shape.iter().zip(shape).all(fits)
    }

    /// The same field by another name.
    pub fn named(&self, name: &str) -> Result<Field> {
        Field::open(name, self.element, &self.shape)
    }

    /// So many of them in a row, or as many as there happen to be ([`Field::OPEN`]).
    pub fn rows(&self, rows: usize) -> Result<Field> {
        Field::open(&self.name, self.element, &[&[rows], &self.shape[..]].concat())
    }

    /// The shape of one sample; empty for a single element.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Elements of one sample; 0 where its shape is open.
    pub fn elements(&self) -> usize {
        self.elements
    }

    /// Bytes of one sample; 0 where its shape is open.
    pub fn bytes(&self) -> usize {
        self.elements * self.element.bytes()
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let extent =
            |&extent: &usize| if extent == Field::OPEN { "?".to_string() } else { extent.to_string() };
        let shape: Vec<String> = self.shape.iter().map(extent).collect();
        write!(f, "{}: {} [{}]", self.name, self.element, shape.join(", "))
    }
}
