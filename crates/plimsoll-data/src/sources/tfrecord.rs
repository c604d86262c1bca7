//! TFRecord files of `tf.train.Example` messages, as TensorFlow's programs and many data sets have them.
//!
//! A record is its length, a checksum of that, its bytes, and a checksum of those. Lengths are checked when a file is
//! opened, which reads no more than them; bytes each time that they are read.

use super::files::Paths;
use super::protobuf::{Message, Wire};
use super::records::format::{Fault, Format, Frame, Framed, Framing, Out};
use super::records::key::MOST_AXES;
use super::records::{self, Key, RecordFiles, Streamed};
use super::{Answer, Description, Options, SourceKind, Tokens};
use crate::{Dataset, Element, ErrorKind, Field, RamBudget, Result};
use std::path::PathBuf;
use std::sync::Arc;

type Parsed<T> = std::result::Result<T, Fault>;

/// How to read TFRecord files: which features of their examples are taken, and as what.
///
/// A `float_list` is taken as `f32` or `f64`; an `int64_list` as `i64`, `i32` or `u8`; a `bytes_list` of one value as
/// `u8`. Where one axis of a shape is open, it is as long as there are values. Numbers that are not finite or do not
/// fit are refused.
///
/// ```no_run
/// use plimsoll_data::sources::{Key, TfRecord};
/// use plimsoll_data::{Dataset, Element, Field};
///
/// let image = Key::of(Field::open("image", Element::U8, &[Field::OPEN])?).called("image/encoded");
/// let label = Key::of(Field::new("label", Element::I32, &[])?).called("image/class/label").classes(1000);
/// let images = TfRecord::new(&[image, label])?.open("train-*-of-01024")?;
/// # Ok::<(), plimsoll_data::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct TfRecord {
    keys: Arc<[Key]>,
    fields: Arc<[Field]>,
    budget: RamBudget,
}

pub(super) const KIND: SourceKind = SourceKind {
    name: "tfrecord",
    keys: &[
        "path",
        "features",
        "shape",
        "bytes",
        "label",
        "classes",
        "target",
        "text",
        "length",
        "words",
        "tokenizer",
    ],
    describe,
};

fn describe(options: &dyn Options) -> Result<Box<dyn Description>> {
    let path = options.need_path("path")?;
    let is_bytes = options.find_flag("bytes")?.unwrap_or(false);
    let (keys, answer) = Key::described(options, if is_bytes { Element::U8 } else { Element::F32 })?;
    let tokens = Key::tokens(&keys);
    Ok(Box::new(Described { path, examples: TfRecord::new(&keys)?, answer, tokens }))
}

#[derive(Debug)]
struct Described {
    path: PathBuf,
    examples: TfRecord,
    answer: Answer,
    tokens: Option<Tokens>,
}

impl Description for Described {
    fn answer(&self) -> Answer {
        self.answer
    }

    fn tokens(&self) -> Option<Tokens> {
        self.tokens
    }

    fn open(&self) -> Result<Dataset> {
        records::dataset(&Paths::from(&self.path).files()?, Arc::new(self.examples.clone()), false)
    }
}

impl TfRecord {
    /// Takes these features, at most 64. A shape may have one open axis.
    pub fn new(keys: &[Key]) -> Result<TfRecord> {
        for key in keys {
            if key.field.shape().iter().filter(|&&extent| extent == Field::OPEN).count() > 1 {
                let reason =
                    "the values of an example are a plain list: at most one axis of their shape can be open";
                let (name, reason) = (key.field.name().to_string(), reason.to_string());
                return Err(ErrorKind::Field { name, reason }.into());
            }
        }
        let fields = Key::fields(keys)?;
        Ok(TfRecord { keys: keys.into(), fields, budget: RamBudget::UNLIMITED })
    }

    /// The most RAM that it may take to find the records of files.
    pub fn budget(self, budget: RamBudget) -> TfRecord {
        TfRecord { budget, ..self }
    }

    /// The examples of files, by number. They stay in the files.
    ///
    /// # Errors
    /// If a file cannot be read, is cut off, or is none of this format.
    pub fn open(&self, paths: impl Into<Paths>) -> Result<RecordFiles> {
        RecordFiles::open(&paths.into().files()?, Arc::new(self.clone()), self.budget)
    }

    /// The examples of files in their order, packed or not.
    pub fn stream(&self, paths: impl Into<Paths>) -> Result<Streamed> {
        Ok(Streamed::new(paths.into().files()?, Arc::new(self.clone())))
    }
}

/// Bytes before those of a record, and after them.
const HEAD: usize = 12;
const TAIL: usize = 4;

/// The checksum as it is stored: changed, since that of bytes with their own checksum would say little.
fn masked_checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

fn checksum_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn frame(bytes: &[u8], is_end: bool) -> Framed {
    let Some(length) = bytes.first_chunk::<8>().filter(|_| bytes.len() >= HEAD) else {
        return match bytes.len() {
            _ if !is_end => Ok(Frame::More),
            0 => Ok(Frame::End),
            there => Err(Fault::new(
                0,
                format!("{there} bytes are left where a record begins with {HEAD}: the file is cut off"),
            )),
        };
    };
    if checksum_at(bytes, 8) != Some(masked_checksum(length)) {
        let reason = "the checksum of a record's length is wrong: the file is damaged, or no TFRecord file";
        return Err(Fault::new(0, reason));
    }
    let length = u64::from_le_bytes(*length);
    match usize::try_from(length).ok().and_then(|length| length.checked_add(HEAD + TAIL)) {
        Some(end) => Ok(Frame::Record { end, next: end, lines: 1 }),
        None => Err(Fault::new(0, format!("a record of {length} bytes cannot be addressed"))),
    }
}

impl Format for TfRecord {
    fn fields(&self) -> &Arc<[Field]> {
        &self.fields
    }

    fn framing(&self) -> Framing {
        frame
    }

    fn parse(&self, record: &[u8], out: &mut Out<'_>) -> Parsed<()> {
        let end = record.len().saturating_sub(TAIL);
        let example = Message { bytes: record.get(HEAD..end).unwrap_or_default(), offset: HEAD };
        if checksum_at(record, end) != Some(masked_checksum(example.bytes)) {
            return Err(Fault::new(HEAD, "the checksum of the record is wrong: the file is damaged"));
        }
        let mut seen = 0u64;
        features(example, |name, feature| {
            let found = self.keys.iter().position(|key| key.name.as_bytes() == name);
            let Some(position) = found.filter(|&position| out.wants(position)) else { return Ok(()) };
            seen |= 1 << position;
            let key = &self.keys[position];
            take(feature, key, position, out).map_err(|fault| fault.of(&key.name))
        })?;
        match (0..self.keys.len()).find(|&position| out.wants(position) && seen & (1 << position) == 0) {
            Some(position) => {
                let mut known = Vec::new();
                features(example, |name, _| {
                    known.push(String::from_utf8_lossy(name).into_owned());
                    Ok(())
                })?;
                Err(self.keys[position].missing(known.iter().map(String::as_str)))
            }
            None => Ok(()),
        }
    }

    fn is_checked_when_opened(&self) -> bool {
        false
    }

    fn classes(&self, position: usize) -> Option<usize> {
        self.keys[position].classes
    }

    fn recognises(&self, start: &[u8]) -> bool {
        matches!(frame(start, false), Ok(Frame::Record { .. }))
    }
}

/// Shows the features of an example, each with its name.
fn features<'a>(
    mut example: Message<'a>,
    mut look: impl FnMut(&'a [u8], Message<'a>) -> Parsed<()>,
) -> Parsed<()> {
    while let Some(field) = example.next_field()? {
        let (1, Wire::Bytes(mut map)) = field else { continue };
        while let Some(field) = map.next_field()? {
            let (1, Wire::Bytes(mut entry)) = field else { continue };
            let (mut name, mut feature) = (&[][..], Message { bytes: &[], offset: entry.offset });
            while let Some(field) = entry.next_field()? {
                match field {
                    (1, Wire::Bytes(value)) => name = value.bytes,
                    (2, Wire::Bytes(value)) => feature = value,
                    _ => {}
                }
            }
            look(name, feature)?;
        }
    }
    Ok(())
}

/// The lists that a feature may be, by the numbers of their fields.
const BYTES: u64 = 1;
const FLOATS: u64 = 2;
const WHOLES: u64 = 3;

/// Writes the values of a feature.
fn take(mut feature: Message<'_>, key: &Key, position: usize, out: &mut Out<'_>) -> Parsed<()> {
    let start = feature.offset;
    // A feature without values may have no list at all.
    let (mut kind, mut list) = (0, Message { bytes: &[], offset: start });
    while let Some(field) = feature.next_field()? {
        if let (BYTES..=WHOLES, Wire::Bytes(values)) = field {
            (kind, list) = (field.0, values);
        }
    }
    let element = key.field.element();
    let size = element.bytes();
    let fault = |reason| Fault::new(start, reason);
    let text = || {
        let value = std::str::from_utf8(only_value(list)?.bytes);
        value.map_err(|_| fault("it is not UTF-8 text".to_string()))
    };
    if let Some(tokens) = &key.text {
        if kind != BYTES {
            return Err(fault("a text is expected, as a list of one value of bytes".to_string()));
        }
        let room = room(out, key, position, key.field.elements(), start)?;
        return tokens.write(text()?, room.as_chunks_mut().0).map_err(fault);
    }
    if let (BYTES, Some(names)) = (kind, &key.names) {
        let name = text()?;
        let class = names.find(name.trim()).map_err(fault)?;
        return key.write_whole(class as i64, room(out, key, position, 1, start)?).map_err(fault);
    }
    match (kind, element) {
        (BYTES, Element::U8) => {
            let value = only_value(list)?;
            room(out, key, position, value.bytes.len(), start)?.copy_from_slice(value.bytes);
            Ok(())
        }
        (FLOATS, Element::F32 | Element::F64) => {
            let mut count = 0;
            floats(list, |values, _| {
                count += values.len();
                Ok(())
            })?;
            let mut room = room(out, key, position, count, start)?.chunks_exact_mut(size);
            floats(list, |values, offset| {
                for (at, (value, out)) in values.iter().zip(&mut room).enumerate() {
                    let value = f32::from_le_bytes(*value);
                    if !value.is_finite() {
                        let reason = format!("{value} is not finite: replace it, or remove the record");
                        return Err(Fault::new(offset + 4 * at, reason));
                    }
                    match element {
                        Element::F32 => out.copy_from_slice(&value.to_ne_bytes()),
                        _ => out.copy_from_slice(&f64::from(value).to_ne_bytes()),
                    }
                }
                Ok(())
            })
        }
        (WHOLES, Element::U8 | Element::I32 | Element::I64) => {
            let mut count = 0;
            wholes(list, |_, _| {
                count += 1;
                Ok(())
            })?;
            let mut room = room(out, key, position, count, start)?.chunks_exact_mut(size);
            wholes(list, |value, offset| match room.next() {
                Some(out) => key.write_whole(value, out).map_err(|reason| Fault::new(offset, reason)),
                None => Ok(()),
            })
        }
        (0, _) => room(out, key, position, 0, start).map(|_| ()),
        (kind, _) => {
            let (found, usable) = match kind {
                BYTES => ("a bytes_list", "u8"),
                FLOATS => ("a float_list", "f32 or f64"),
                _ => ("an int64_list", "i64, i32 or u8"),
            };
            Err(Fault::new(
                start,
                format!("it is {found}, which can be taken as {usable} and not as {element}"),
            ))
        }
    }
}

/// The bytes for so many values.
fn room<'a>(
    out: &'a mut Out<'_>,
    key: &Key,
    position: usize,
    count: usize,
    at: usize,
) -> Parsed<&'a mut [u8]> {
    let declared = key.field.shape();
    let mut shape = [0; MOST_AXES];
    let shape = &mut shape[..declared.len()];
    shape.copy_from_slice(declared);
    let fixed: usize = declared.iter().filter(|&&extent| extent != Field::OPEN).product();
    if let Some(open) = shape.iter_mut().find(|extent| **extent == Field::OPEN) {
        *open = count / fixed;
    }
    if shape.iter().product::<usize>() != count {
        return Err(Fault::new(
            at,
            format!("it has {count} values, which is no sample of its field, {}", key.field),
        ));
    }
    out.room(position, shape).map_err(|error| Fault::new(at, error.to_string()))
}

/// The one value of a list of bytes.
fn only_value(mut list: Message<'_>) -> Parsed<Message<'_>> {
    let (start, mut found, mut count) = (list.offset, None, 0);
    while let Some(field) = list.next_field()? {
        if let (1, Wire::Bytes(value)) = field {
            (found, count) = (Some(value), count + 1);
        }
    }
    found
        .filter(|_| count == 1)
        .ok_or_else(|| Fault::new(start, format!("it has {count} values of bytes, not one")))
}

/// Shows the values of a list of floats, packed or not, and where they begin.
fn floats(mut list: Message<'_>, mut look: impl FnMut(&[[u8; 4]], usize) -> Parsed<()>) -> Parsed<()> {
    while let Some(field) = list.next_field()? {
        match field {
            (1, Wire::Bytes(packed)) => match packed.bytes.as_chunks() {
                (values, []) => look(values, packed.offset)?,
                _ => return Err(packed.fault("a list of floats has a part of one")),
            },
            (1, Wire::Fixed32(value)) => look(&[value], list.offset - 4)?,
            _ => {}
        }
    }
    Ok(())
}

/// Shows the values of a list of whole numbers, packed or not, and where each begins.
fn wholes(mut list: Message<'_>, mut look: impl FnMut(i64, usize) -> Parsed<()>) -> Parsed<()> {
    loop {
        let offset = list.offset;
        match list.next_field()? {
            Some((1, Wire::Bytes(mut packed))) => {
                while !packed.bytes.is_empty() {
                    let offset = packed.offset;
                    look(packed.next_varint()? as i64, offset)?;
                }
            }
            Some((1, Wire::Varint(value))) => look(value as i64, offset)?,
            Some(_) => {}
            None => return Ok(()),
        }
    }
}
