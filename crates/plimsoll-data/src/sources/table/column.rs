//! A column of a table as a field, and its unpacked values.

use crate::record::padding_bytes;
use crate::{Element, ErrorKind, Field, Result};
use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    UInt8Type, UInt16Type, UInt32Type,
};
use arrow_array::{Array, ArrayRef};
use arrow_buffer::{Buffer, NullBuffer};
use arrow_schema::DataType;
use std::ops::Range;

/// A column that is read.
#[derive(Clone, Debug)]
pub(super) struct Column {
    pub(super) name: String,
    /// Where it is among the columns that are unpacked.
    pub(super) unpacked: usize,
    /// What stands for a null.
    pub(super) fill: Option<f64>,
    kind: DataType,
    shape: Option<Vec<usize>>,
}

impl Column {
    /// A column that is the one at this position among those that are unpacked.
    pub(super) fn new(unpacked: usize, field: &arrow_schema::Field) -> Column {
        let (name, kind) = (field.name().clone(), plain(field.data_type()).clone());
        Column { name, unpacked, fill: None, kind, shape: None }
    }

    /// The field that it is.
    pub(super) fn field(&self) -> Result<Field> {
        let refuse = |reason: String| ErrorKind::Field { name: self.name.clone(), reason }.into();
        let Some((element, own)) = layout(&self.kind) else {
            return Err(refuse(format!(
                "a column of {} cannot be a field: choose the columns that can (numbers, truth values, strings, binary and \
                 lists of numbers)",
                self.kind
            )));
        };
        Field::open(&self.name, element, self.shape.as_deref().unwrap_or(&own))
    }

    /// Whether a row is numbers, as many in each.
    pub(super) fn is_numbers(&self) -> bool {
        let is_fixed = layout(&self.kind).is_some_and(|(_, shape)| !shape.contains(&Field::OPEN));
        is_fixed && !matches!(self.kind, DataType::FixedSizeBinary(_))
    }

    pub(super) fn set_shape(&mut self, shape: &[usize]) -> Result<()> {
        let own = layout(&self.kind).map(|(_, own)| own);
        if own.as_deref() != Some(&[Field::OPEN]) || shape.contains(&Field::OPEN) {
            let reason = format!("a column of {} cannot be given the shape {shape:?}", self.kind);
            return Err(ErrorKind::Field { name: self.name.clone(), reason }.into());
        }
        self.shape = Some(shape.to_vec());
        Ok(())
    }

    /// How many elements a row has.
    pub(super) fn length(&self, values: &Values, row: usize) -> usize {
        values.range(row).len()
    }

    /// Writes the elements of a row, as many as there is room for.
    pub(super) fn write(
        &self,
        values: &Values,
        row: usize,
        out: &mut [u8],
    ) -> std::result::Result<(), String> {
        let Some((element, _)) = layout(&self.kind) else { return Err("it is no field".to_string()) };
        let fill = self.fill.map(|fill| padding_bytes(element, fill));
        let size = element.bytes();
        if values.is_null(row) {
            let (bytes, _) = fill.ok_or_else(|| format!("the row is null; {REMEDY}"))?;
            out.chunks_exact_mut(size).for_each(|out| out.copy_from_slice(&bytes[..size]));
            return Ok(());
        }
        let range = values.range(row);
        if range.len() * size != out.len() {
            let needed = out.len() / size;
            return Err(format!("the row has {} values where {needed} are expected", range.len()));
        }
        let bytes = &values.elements[range.start * size..range.end * size];
        out.copy_from_slice(bytes);
        let Some(nulls) = &values.element_nulls else { return Ok(()) };
        for (at, out) in out.chunks_exact_mut(size).enumerate() {
            if nulls.is_null(range.start + at) {
                let (bytes, _) = fill.ok_or_else(|| format!("element {at} is null; {REMEDY}"))?;
                out.copy_from_slice(&bytes[..size]);
            }
        }
        Ok(())
    }
}

/// The most elements of rows that are all as long.
const MOST_FIXED: usize = 16 << 20;
const REMEDY: &str = "leave the row out, or say what stands for it with `fill`";

/// What a column holds, dictionaries looked up.
fn plain(kind: &DataType) -> &DataType {
    match kind {
        DataType::Dictionary(_, values) => values,
        kind => kind,
    }
}

/// The elements and shape of a column's rows, if it can be a field.
fn layout(kind: &DataType) -> Option<(Element, Vec<usize>)> {
    let element = |kind: &DataType| {
        Some(match kind {
            DataType::Float16 | DataType::Float32 => Element::F32,
            DataType::Float64 => Element::F64,
            DataType::Boolean | DataType::UInt8 => Element::U8,
            DataType::Int8 | DataType::Int16 | DataType::UInt16 | DataType::Int32 => Element::I32,
            DataType::UInt32 | DataType::Int64 => Element::I64,
            _ => return None,
        })
    };
    match kind {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Binary | DataType::LargeBinary => {
            Some((Element::U8, vec![Field::OPEN]))
        }
        DataType::FixedSizeBinary(length) => Some((Element::U8, vec![extent(*length)?])),
        DataType::List(of) | DataType::LargeList(of) => Some((element(of.data_type())?, vec![Field::OPEN])),
        DataType::FixedSizeList(of, length) => Some((element(of.data_type())?, vec![extent(*length)?])),
        kind => Some((element(kind)?, vec![])),
    }
}

/// A length that a file claims all rows have, if it is one that memory may be taken for.
fn extent(length: i32) -> Option<usize> {
    usize::try_from(length).ok().filter(|length| (1..=MOST_FIXED).contains(length))
}

/// The values of a column in a block.
#[derive(Debug)]
pub(super) struct Values {
    /// Elements as fields have them.
    elements: Buffer,
    element_nulls: Option<NullBuffer>,
    nulls: Option<NullBuffer>,
    rows: Rows,
}

/// Which elements a row has.
#[derive(Debug)]
enum Rows {
    /// As many each, from this one on.
    Fixed { first: usize, length: usize },
    /// Row `r` has those from `offsets[r]` to `offsets[r + 1]`.
    Open { offsets: Vec<usize> },
}

impl Values {
    pub(super) fn new(array: &ArrayRef) -> std::result::Result<Values, String> {
        if let Some(dictionary) = array.as_any_dictionary_opt() {
            let values = arrow_select::take::take(dictionary.values(), dictionary.keys(), None);
            return Values::new(&values.map_err(|error| error.to_string())?);
        }
        let nulls = array.logical_nulls().filter(|nulls| nulls.null_count() > 0);
        let open = |elements: Buffer, offsets: Vec<usize>| Values {
            elements,
            element_nulls: None,
            nulls: nulls.clone(),
            rows: Rows::Open { offsets },
        };
        let short = |offsets: &[i32]| offsets.iter().map(|&offset| offset as usize).collect::<Vec<_>>();
        let long = |offsets: &[i64]| offsets.iter().map(|&offset| offset as usize).collect::<Vec<_>>();
        let within = |child: &ArrayRef, rows: Rows| -> std::result::Result<Values, String> {
            let child_nulls = child.logical_nulls().filter(|nulls| nulls.null_count() > 0);
            Ok(Values { elements: elements(child)?, element_nulls: child_nulls, nulls: nulls.clone(), rows })
        };
        match array.data_type() {
            DataType::Utf8 => {
                let array = array.as_string::<i32>();
                Ok(open(array.values().clone(), short(array.value_offsets())))
            }
            DataType::LargeUtf8 => {
                let array = array.as_string::<i64>();
                Ok(open(array.values().clone(), long(array.value_offsets())))
            }
            DataType::Binary => {
                let array = array.as_binary::<i32>();
                Ok(open(array.values().clone(), short(array.value_offsets())))
            }
            DataType::LargeBinary => {
                let array = array.as_binary::<i64>();
                Ok(open(array.values().clone(), long(array.value_offsets())))
            }
            DataType::List(_) => {
                let array = array.as_list::<i32>();
                within(array.values(), Rows::Open { offsets: short(array.value_offsets()) })
            }
            DataType::LargeList(_) => {
                let array = array.as_list::<i64>();
                within(array.values(), Rows::Open { offsets: long(array.value_offsets()) })
            }
            DataType::FixedSizeList(_, length) => {
                let array = array.as_fixed_size_list();
                let first = array.value_offset_at(0);
                within(array.values(), Rows::Fixed { first, length: *length as usize })
            }
            DataType::FixedSizeBinary(length) => {
                let array = array.as_fixed_size_binary();
                let elements = Buffer::from(array.value_data());
                let rows = Rows::Fixed { first: 0, length: *length as usize };
                Ok(Values { elements, element_nulls: None, nulls, rows })
            }
            _ => {
                let rows = Rows::Fixed { first: 0, length: 1 };
                Ok(Values { elements: elements(array)?, element_nulls: None, nulls, rows })
            }
        }
    }

    pub(super) fn is_null(&self, row: usize) -> bool {
        self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row))
    }

    fn range(&self, row: usize) -> Range<usize> {
        match &self.rows {
            Rows::Fixed { first, length } => first + row * length..first + (row + 1) * length,
            Rows::Open { .. } if self.is_null(row) => 0..0,
            Rows::Open { offsets } => offsets[row]..offsets[row + 1],
        }
    }

    /// Bytes of RAM that are held.
    pub(super) fn held_bytes(&self) -> u64 {
        let offsets = match &self.rows {
            Rows::Fixed { .. } => 0,
            Rows::Open { offsets } => offsets.capacity() * size_of::<usize>(),
        };
        let nulls = |nulls: &Option<NullBuffer>| nulls.as_ref().map_or(0, |nulls| nulls.buffer().len());
        (self.elements.len() + offsets + nulls(&self.nulls) + nulls(&self.element_nulls)) as u64
    }
}

/// Numbers as fields have them, without a copy where they are so already.
fn elements(array: &ArrayRef) -> std::result::Result<Buffer, String> {
    fn as_is<T: ArrowPrimitiveType>(array: &ArrayRef) -> Buffer {
        array.as_primitive::<T>().values().inner().clone()
    }
    fn into<T: ArrowPrimitiveType, To: arrow_buffer::ArrowNativeType>(
        array: &ArrayRef,
        to: impl Fn(T::Native) -> To,
    ) -> Buffer {
        Buffer::from_vec(array.as_primitive::<T>().values().iter().map(|&value| to(value)).collect())
    }
    Ok(match array.data_type() {
        DataType::Float32 => as_is::<Float32Type>(array),
        DataType::Float64 => as_is::<Float64Type>(array),
        DataType::Int32 => as_is::<Int32Type>(array),
        DataType::Int64 => as_is::<Int64Type>(array),
        DataType::UInt8 => as_is::<UInt8Type>(array),
        DataType::Float16 => into::<Float16Type, f32>(array, f32::from),
        DataType::Int8 => into::<Int8Type, i32>(array, i32::from),
        DataType::Int16 => into::<Int16Type, i32>(array, i32::from),
        DataType::UInt16 => into::<UInt16Type, i32>(array, i32::from),
        DataType::UInt32 => into::<UInt32Type, i64>(array, i64::from),
        DataType::Boolean => {
            Buffer::from_vec(array.as_boolean().values().iter().map(u8::from).collect::<Vec<u8>>())
        }
        other => return Err(format!("values of {other} are no numbers")),
    })
}
