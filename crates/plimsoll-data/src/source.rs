//! Where samples come from. The trait asks for one field of one sample at a time, into bytes that belong to the
//! caller, so that a source over a memory map or a stream needs no copy between the file and the batch. Samples whose
//! shape is open are read whole, into a record that takes on their shape.

use crate::{ErrorKind, Field, Record, Result};
use std::sync::Arc;

/// Samples that can be read in any order, from any thread.
pub trait Source: Send + Sync {
    /// How many samples there are.
    fn samples(&self) -> usize;

    /// What each sample is made of. Names are unique; positions are what [`read`](Source::read) takes.
    fn fields(&self) -> &[Field];

    /// Writes one field of one sample into `out`, which has exactly [`Field::bytes`] bytes. A source with an open field
    /// is asked for whole records instead, and refuses this.
    ///
    /// The same sample reads the same each time. On success nothing is allocated.
    fn read(&self, sample: usize, field: usize, out: &mut [u8]) -> Result<()>;

    /// Writes one sample into a record that has the [`fields`](Source::fields) of this source.
    ///
    /// A record that has held a sample as large before takes no memory for it.
    fn read_record(&self, sample: usize, out: &mut Record) -> Result<()> {
        for (position, field) in self.fields().iter().enumerate() {
            self.read(sample, position, out.reshape(position, field.shape())?)?;
        }
        Ok(())
    }

    /// Writes one field of samples that follow one another into `out`, one after the other. For sources that read many in a
    /// row faster than each by itself.
    fn read_range(&self, first: usize, samples: usize, field: usize, out: &mut [u8]) -> Result<()> {
        let bytes = field_at(self.fields(), field)?.bytes();
        read_each(first..first + samples, bytes, out, |sample, out| self.read(sample, field, out))
    }

    /// Writes one field of samples in any order into `out`, one after the other: [`Field::bytes`] each. For sources that read
    /// many faster than each by itself.
    fn read_many(&self, samples: &[usize], field: usize, out: &mut [u8]) -> Result<()> {
        let bytes = field_at(self.fields(), field)?.bytes();
        read_each(samples.iter().copied(), bytes, out, |sample, out| self.read(sample, field, out))
    }

    /// Whether reading one field takes as long as reading the whole record: then it is read as one.
    fn reads_whole_records(&self) -> bool {
        false
    }

    /// Bytes of RAM that reading a sample takes for a while beside the record, on each thread that reads: what a decoder
    /// unpacks first.
    fn reading_bytes(&self) -> u64 {
        0
    }

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

    /// What the user calls this sample, if it has a name of its own: the file that it is.
    fn name(&self, sample: usize) -> Option<String> {
        let _ = sample;
        None
    }

    /// What is known of the values of a field without reading them all.
    fn promise(&self, field: usize) -> Promise {
        let _ = field;
        Promise::Nothing
    }

    /// The field that a [`read`](Source::read) with these arguments is about, or why there is none. For
    /// implementations to begin with.
    fn locate(&self, sample: usize, field: usize, out: &[u8]) -> Result<&Field> {
        let samples = self.samples();
        if sample >= samples {
            return Err(ErrorKind::NoSuchSample { sample, samples }.into());
        }
        let found = field_at(self.fields(), field)?;
        if !found.is_fixed() {
            let reason = format!("its shape is open ({found}): it is read with the whole record");
            return Err(ErrorKind::Field { name: found.name().to_string(), reason }.into());
        }
        if out.len() != found.bytes() {
            let (field, bytes, needed) = (found.name().to_string(), out.len(), found.bytes());
            return Err(ErrorKind::Buffer { field, bytes, needed }.into());
        }
        Ok(found)
    }
}

/// Samples that come one after the other and cannot be read by number: of a compressed file, of a program.
pub trait RecordReader: Send {
    /// Writes the next sample to `out`; false when there are no more.
    ///
    /// After an error, what follows is the sample after the one that failed, or the end.
    fn next(&mut self, out: &mut Record) -> Result<bool>;
}

/// What holds for every value that [`Source::read`] gives of a field: it makes no others, or refuses them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// Nothing: who needs to know looks at all samples.
    Nothing,
    /// Floats are finite.
    Finite,
    /// Whole numbers lie in `0..` this.
    Below(usize),
    /// Values are meant as they are and not to be looked at, as labels of which some stand for no class.
    Meant,
}

/// Reads samples one by one, each to its bytes of `out`.
pub(crate) fn read_each(
    samples: impl IntoIterator<Item = usize>,
    bytes: usize,
    out: &mut [u8],
    read: impl Fn(usize, &mut [u8]) -> Result<()>,
) -> Result<()> {
    samples
        .into_iter()
        .zip(out.chunks_exact_mut(bytes.max(1)))
        .try_for_each(|(sample, out)| read(sample, out))
}

/// So many samples are asked for at once.
const AT_ONCE: usize = 64;

/// Calls `read` with the numbers of samples, some at a time and without memory for all of them, and the place of the first.
pub(crate) fn in_groups(
    samples: impl Iterator<Item = usize>,
    mut read: impl FnMut(usize, &[usize]) -> Result<()>,
) -> Result<()> {
    let (mut group, mut length, mut first) = ([0; AT_ONCE], 0, 0);
    for sample in samples {
        group[length] = sample;
        length += 1;
        if length == AT_ONCE {
            read(first, &group)?;
            (first, length) = (first + length, 0);
        }
    }
    if length > 0 { read(first, &group[..length]) } else { Ok(()) }
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
