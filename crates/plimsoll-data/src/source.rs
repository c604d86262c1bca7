//! Where samples come from. The trait asks for one field of one sample at a time, into bytes that belong to the
//! caller, so that a source over a memory map or a stream needs no copy between the file and the batch.

use crate::{ErrorKind, Field, Result};
use std::sync::Arc;

/// Samples that can be read in any order, from any thread.
pub trait Source: Send + Sync {
    /// How many samples there are.
    fn samples(&self) -> usize;

    /// What each sample is made of. Names are unique; positions are what [`read`](Source::read) takes.
    fn fields(&self) -> &[Field];

    /// Writes one field of one sample into `out`, which has exactly [`Field::bytes`] bytes.
    ///
    /// The same sample reads the same each time. On success nothing is allocated.
    fn read(&self, sample: usize, field: usize, out: &mut [u8]) -> Result<()>;

    /// Bytes of RAM that the samples occupy for as long as the source lives.
    fn resident_bytes(&self) -> u64;

    /// The source whose samples these are, where they are kept by another: memory that both occupy is to be counted once.
    fn part_of(&self) -> Option<&Arc<dyn Source>> {
        None
    }

    /// The number that the user knows this sample by: its position in the data it came from.
    fn origin(&self, sample: usize) -> usize {
        sample
    }

    /// The field that a [`read`](Source::read) with these arguments is about, or why there is none. For
    /// implementations to begin with.
    fn locate(&self, sample: usize, field: usize, out: &[u8]) -> Result<&Field> {
        let samples = self.samples();
        if sample >= samples {
            return Err(ErrorKind::NoSuchSample { sample, samples }.into());
        }
        let found = field_at(self.fields(), field)?;
        if out.len() != found.bytes() {
            let (field, bytes, needed) = (found.name().to_string(), out.len(), found.bytes());
            return Err(ErrorKind::Buffer { field, bytes, needed }.into());
        }
        Ok(found)
    }
}

/// The field at a position.
pub(crate) fn field_at(fields: &[Field], position: usize) -> Result<&Field> {
    fields.get(position).ok_or_else(|| no_such_field(format!("number {position}"), fields))
}

/// The position of the field with this name.
pub(crate) fn field_named(fields: &[Field], name: &str) -> Result<usize> {
    let position = fields.iter().position(|field| field.name() == name);
    position.ok_or_else(|| no_such_field(format!("`{name}`"), fields))
}

/// Adds a field, unless its name is taken.
pub(crate) fn add_field(fields: &mut Vec<Field>, field: Field) -> Result<()> {
    if fields.iter().any(|other| other.name() == field.name()) {
        let (name, reason) = (field.name().to_string(), "there already is a field of this name".to_string());
        return Err(ErrorKind::Field { name, reason }.into());
    }
    fields.push(field);
    Ok(())
}

fn no_such_field(asked: String, fields: &[Field]) -> crate::Error {
    let known = fields.iter().map(|field| field.name().to_string()).collect();
    ErrorKind::NoSuchField { asked, known }.into()
}
