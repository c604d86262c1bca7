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
    /// One byte: raw pixels, small labels.
    U8,
}

impl Element {
    /// Bytes of one element.
    pub const fn bytes(self) -> usize {
        match self {
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
        })
    }
}

/// A named part of every sample: its features, its label. All samples have the same shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    name: String,
    element: Element,
    shape: Vec<usize>,
    elements: usize,
}

impl Field {
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

    /// The shape of one sample; empty for a single element.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Elements of one sample.
    pub fn elements(&self) -> usize {
        self.elements
    }

    /// Bytes of one sample.
    pub fn bytes(&self) -> usize {
        self.elements * self.element.bytes()
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} {:?}", self.name, self.element, self.shape)
    }
}
