//! One sample with all its fields, in memory that is used again for the next one.
//!
//! A pipeline hands records from stage to stage by exchanging them, so that after the first few samples it takes no memory:
//! a record keeps what its largest sample needed.

use crate::source::field_named;
use crate::{Element, ErrorKind, Field, Result, Scalar};
use std::sync::Arc;

/// The values of a sample, field by field.
///
/// ```
/// use plimsoll_data::{Element, Field, Record};
///
/// let fields = [Field::open("tokens", Element::I32, &[Field::OPEN])?, Field::new("label", Element::U8, &[])?];
/// let mut record = Record::new(&fields.into());
/// record.set("tokens", &[3], &[7, 8, 9])?;
/// record.set("label", &[], &[1u8])?;
/// assert_eq!(record.get::<i32>("tokens")?, [7, 8, 9]);
/// assert!(record.set("label", &[2], &[1u8, 2]).is_err());
/// # Ok::<(), plimsoll_data::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Record {
    fields: Arc<[Field]>,
    values: Vec<Values>,
}

/// The values of one field.
#[derive(Clone, Debug, Default)]
struct Values {
    shape: Vec<usize>,
    bytes: usize,
    /// Whether it has been written since [`Record::begin`].
    is_set: bool,
    /// Whole words, so that elements of every type are aligned in them.
    words: Vec<u64>,
}

const WORD: usize = size_of::<u64>();

impl Values {
    /// Makes room for so many bytes. What was there stays, as far as there is room for it.
    fn resize(&mut self, bytes: usize) {
        self.bytes = bytes;
        self.words.resize(bytes.div_ceil(WORD), 0);
    }

    fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.bytes]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.words)[..self.bytes]
    }
}

impl Record {
    /// A record of these fields: what is fixed is zero, what is open is empty.
    pub fn new(fields: &Arc<[Field]>) -> Record {
        let of = |field: &Field| {
            let mut values = Values { shape: field.shape().to_vec(), ..Values::default() };
            values.resize(field.bytes());
            values
        };
        Record { fields: Arc::clone(fields), values: fields.iter().map(of).collect() }
    }

    /// Its fields.
    pub fn fields(&self) -> &Arc<[Field]> {
        &self.fields
    }

    /// The shape of the field at this position, which must be one of its fields.
    pub fn shape(&self, position: usize) -> &[usize] {
        &self.values[position].shape
    }

    /// The values of the field at this position, which must be one of its fields, in the machine's byte order.
    pub fn bytes(&self, position: usize) -> &[u8] {
        self.values[position].bytes()
    }

    /// The shape of a field.
    pub fn shape_of(&self, field: &str) -> Result<&[usize]> {
        Ok(self.shape(field_named(&self.fields, field)?))
    }

    /// The values of a field, which must be of this type.
    pub fn get<T: Scalar>(&self, field: &str) -> Result<&[T]> {
        let position = field_named(&self.fields, field)?;
        self.check_type::<T>(position)?;
        Ok(bytemuck::cast_slice(self.values[position].bytes()))
    }

    /// The values of a field, to be changed.
    pub fn get_mut<T: Scalar>(&mut self, field: &str) -> Result<&mut [T]> {
        let position = field_named(&self.fields, field)?;
        self.check_type::<T>(position)?;
        self.values[position].is_set = true;
        Ok(bytemuck::cast_slice_mut(self.values[position].bytes_mut()))
    }

    /// Gives a field a shape, and returns its values to be written: those of the shape before it, then zeros.
    pub fn resize<T: Scalar>(&mut self, field: &str, shape: &[usize]) -> Result<&mut [T]> {
        let position = field_named(&self.fields, field)?;
        self.check_type::<T>(position)?;
        Ok(bytemuck::cast_slice_mut(self.reshape(position, shape)?))
    }

    /// Gives a field a shape and values.
    pub fn set<T: Scalar>(&mut self, field: &str, shape: &[usize], values: &[T]) -> Result<()> {
        let room = self.resize::<T>(field, shape)?;
        if room.len() != values.len() {
            let reason = format!(
                "{} values are given for the shape {shape:?}, which has {}",
                values.len(),
                room.len()
            );
            return Err(ErrorKind::Field { name: field.to_string(), reason }.into());
        }
        room.copy_from_slice(values);
        Ok(())
    }

    /// Gives the field at this position, which must be one of its fields, a shape, and returns its bytes to be written.
    pub fn reshape(&mut self, position: usize, shape: &[usize]) -> Result<&mut [u8]> {
        let field = &self.fields[position];
        if !field.takes(shape) {
            let reason = format!("a sample of shape {shape:?} is not of the field's shape, {field}");
            return Err(ErrorKind::Field { name: field.name().to_string(), reason }.into());
        }
        let elements = shape.iter().try_fold(1usize, |product, &extent| product.checked_mul(extent));
        let bytes = elements.and_then(|elements| elements.checked_mul(field.element().bytes()));
        let Some(bytes) = bytes.filter(|&bytes| bytes <= isize::MAX as usize) else {
            let reason = format!("one sample of shape {shape:?} has more bytes than can be addressed");
            return Err(ErrorKind::Field { name: field.name().to_string(), reason }.into());
        };
        let values = &mut self.values[position];
        values.shape.clear();
        values.shape.extend_from_slice(shape);
        values.is_set = true;
        values.resize(bytes);
        Ok(values.bytes_mut())
    }

    /// Takes over the values of a record with the same fields.
    pub fn copy_from(&mut self, other: &Record) {
        for (own, other) in self.values.iter_mut().zip(&other.values) {
            own.shape.clone_from(&other.shape);
            own.words.clone_from(&other.words);
            (own.bytes, own.is_set) = (other.bytes, true);
        }
    }

    /// Exchanges all values of another record with those of as many fields of this one.
    pub(crate) fn swap_fields(&mut self, first: usize, other: &mut Record) {
        for (own, other) in self.values[first..].iter_mut().zip(&mut other.values) {
            std::mem::swap(own, other);
        }
    }

    /// Bytes of RAM that it holds.
    pub fn held_bytes(&self) -> u64 {
        let of = |values: &Values| {
            values.words.capacity() * WORD
                + values.shape.capacity() * size_of::<usize>()
                + size_of::<Values>()
        };
        self.values.iter().map(of).sum::<usize>() as u64
    }

    /// Bytes of its values alone.
    pub fn value_bytes(&self) -> u64 {
        self.values.iter().map(|values| values.bytes as u64).sum()
    }

    /// Says that all values are of an earlier sample, until they are written.
    pub(crate) fn begin(&mut self) {
        self.values.iter_mut().for_each(|values| values.is_set = false);
    }

    /// The first field that was not written since [`Record::begin`].
    pub(crate) fn unset(&self) -> Option<&Field> {
        self.values.iter().position(|values| !values.is_set).map(|position| &self.fields[position])
    }

    /// Copies a record whose fields are fixed to a row of this one, which has many of them.
    pub(crate) fn copy_row(&mut self, row: usize, from: &Record) {
        for position in 0..from.fields().len() {
            let bytes = from.bytes(position);
            self.row_mut(position, row, bytes.len()).copy_from_slice(bytes);
        }
    }

    /// The bytes of one row of a field that is many in a row.
    pub(crate) fn row_mut(&mut self, position: usize, row: usize, bytes: usize) -> &mut [u8] {
        self.rows_mut(position, row, 1, bytes)
    }

    /// The bytes of so many rows from one on, each of so many bytes.
    pub(crate) fn rows_mut(&mut self, position: usize, first: usize, rows: usize, bytes: usize) -> &mut [u8] {
        &mut self.values[position].bytes_mut()[first * bytes..][..rows * bytes]
    }

    fn check_type<T: Scalar>(&self, position: usize) -> Result<()> {
        let field = &self.fields[position];
        if field.element() == T::ELEMENT {
            return Ok(());
        }
        let reason = format!("its elements are {}, not {}", field.element(), T::ELEMENT);
        Err(ErrorKind::Field { name: field.name().to_string(), reason }.into())
    }
}

/// The zero of an element type, or the value that stands for nothing, as bytes.
pub(crate) fn padding_bytes(element: Element, value: f64) -> ([u8; 8], usize) {
    let mut bytes = [0; 8];
    let size = element.bytes();
    match element {
        Element::F32 => bytes[..4].copy_from_slice(&(value as f32).to_ne_bytes()),
        Element::I32 => bytes[..4].copy_from_slice(&(value as i32).to_ne_bytes()),
        Element::U8 => bytes[0] = value as u8,
        Element::F64 => bytes.copy_from_slice(&value.to_ne_bytes()),
        Element::I64 => bytes.copy_from_slice(&(value as i64).to_ne_bytes()),
    }
    (bytes, size)
}
