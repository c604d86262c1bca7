//! Samples that lie in memory, one array per field. The arrays are moved in, never copied, and a budget is asked
//! before each.

use crate::source::add_field;
use crate::{ErrorKind, Field, RamBudget, Result, Scalar, Source};

/// In-memory samples.
///
/// ```
/// use plimsoll_data::{Columns, Dataset};
///
/// let columns = Columns::new()
///     .column("features", &[2], vec![0.0, 0.5, 1.0, 1.5, 2.0, 2.5])?
///     .column("label", &[], vec![0, 1, 0])?;
/// assert_eq!(Dataset::new(columns)?.samples(), 3);
/// # Ok::<(), plimsoll_data::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Columns {
    budget: RamBudget,
    samples: usize,
    fields: Vec<Field>,
    arrays: Vec<Array>,
}

impl Columns {
    /// No columns yet, and no limit on what they will hold.
    pub fn new() -> Columns {
        Columns::default()
    }

    /// No columns yet; together they may hold no more than the budget.
    pub fn within(budget: RamBudget) -> Columns {
        Columns { budget, ..Columns::default() }
    }

    /// Adds a field: the values of all samples, one sample after the other, each of this shape.
    ///
    /// The first column decides how many samples there are.
    pub fn column<T: Value>(mut self, name: &str, shape: &[usize], values: Vec<T>) -> Result<Columns> {
        let field = Field::new(name, T::ELEMENT, shape)?;
        let refuse = |reason| Err(ErrorKind::Field { name: name.to_string(), reason }.into());
        let samples = values.len() / field.elements();
        if samples * field.elements() != values.len() {
            let (values, elements) = (values.len(), field.elements());
            return refuse(format!(
                "{values} values do not divide into samples of shape {shape:?}, {elements} elements each"
            ));
        }
        if !self.fields.is_empty() && samples != self.samples {
            let (first, others) = (self.fields[0].name(), self.samples);
            return refuse(format!("it has {samples} samples where `{first}` has {others}"));
        }
        let array = T::array(values);
        let remedy = "use fewer samples or columns, keep bytes as u8 instead of f32, raise the budget, or read the \
                      samples from a source that does not keep them";
        self.budget.admit(
            "the columns",
            self.resident_bytes().saturating_add(array.resident_bytes()),
            remedy,
        )?;
        add_field(&mut self.fields, field)?;
        self.arrays.push(array);
        self.samples = samples;
        Ok(self)
    }
}

impl Source for Columns {
    fn samples(&self) -> usize {
        self.samples
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn read(&self, sample: usize, field: usize, out: &mut [u8]) -> Result<()> {
        let elements = self.locate(sample, field, out)?.elements();
        self.arrays[field].read(sample * elements, elements, out);
        Ok(())
    }

    fn resident_bytes(&self) -> u64 {
        self.arrays.iter().map(Array::resident_bytes).sum()
    }
}

/// The values of one field of all samples. Public in name only: [`Value`] is sealed with it.
#[derive(Clone, Debug)]
pub enum Array {
    /// Floats.
    F32(Vec<f32>),
    /// Integers.
    I32(Vec<i32>),
    /// Bytes.
    U8(Vec<u8>),
}

impl Array {
    fn read(&self, first: usize, elements: usize, out: &mut [u8]) {
        let range = first..first + elements;
        out.copy_from_slice(match self {
            Array::F32(values) => bytemuck::cast_slice(&values[range]),
            Array::I32(values) => bytemuck::cast_slice(&values[range]),
            Array::U8(values) => &values[range],
        });
    }

    /// What the allocation holds, which may be more than the values fill.
    fn resident_bytes(&self) -> u64 {
        let bytes = match self {
            Array::F32(values) => values.capacity() * 4,
            Array::I32(values) => values.capacity() * 4,
            Array::U8(values) => values.capacity(),
        };
        bytes as u64
    }
}

/// The Rust types that a column can be made of: `f32`, `i32` and `u8`. Longer ones are left out so that the type of
/// `vec![0.5, 1.0]` is `f32`, as models take it; a [`Record`](crate::Record) has them.
pub trait Value: Scalar + sealed::Sealed {}

mod sealed {
    /// Keeps the values that columns are made of to those that models take.
    pub trait Sealed: Sized {
        /// Takes the values as they are.
        fn array(values: Vec<Self>) -> super::Array;
    }
}

macro_rules! value {
    ($type:ty, $element:ident) => {
        impl Value for $type {}
        impl sealed::Sealed for $type {
            fn array(values: Vec<$type>) -> Array {
                Array::$element(values)
            }
        }
    };
}

value!(f32, F32);
value!(i32, I32);
value!(u8, U8);
