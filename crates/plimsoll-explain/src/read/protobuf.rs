//! Protocol buffers without a schema: fields, one after another. Profiles are large and only a few of their
//! messages matter here, so those are walked in place and the rest is stepped over.

use crate::error::{Error, ErrorKind, Result};
use crate::read::budget::Charge;
use crate::read::input::Input;
use std::io::{self, BufRead, Read};

/// The value of a field.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum FieldValue<'b> {
    Number(u64),
    Double(f64),
    Bytes(&'b [u8]),
    /// Four bytes: nothing read here has such fields.
    Other,
}

impl<'b> FieldValue<'b> {
    pub(super) fn bytes(self) -> Option<&'b [u8]> {
        if let FieldValue::Bytes(bytes) = self { Some(bytes) } else { None }
    }

    pub(super) fn number(self) -> Option<u64> {
        if let FieldValue::Number(number) = self { Some(number) } else { None }
    }
}

/// The fields of a message in memory. A message that is broken ends where it breaks, and says so.
#[derive(Debug, Clone)]
pub(super) struct MessageFields<'b> {
    rest: &'b [u8],
    broken: bool,
}

impl<'b> MessageFields<'b> {
    pub(super) fn new(message: &'b [u8]) -> Self {
        Self { rest: message, broken: false }
    }

    /// Whether the message broke off before its end.
    pub(super) fn broken(&self) -> bool {
        self.broken
    }

    fn field(&mut self) -> Option<(u64, FieldValue<'b>)> {
        let key = self.varint()?;
        let value = match key & 7 {
            0 => FieldValue::Number(self.varint()?),
            1 => FieldValue::Double(f64::from_le_bytes(self.take(8)?.try_into().ok()?)),
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                FieldValue::Bytes(self.take(length)?)
            }
            5 => {
                self.take(4)?;
                FieldValue::Other
            }
            _ => return None,
        };
        Some((key >> 3, value)).filter(|(field, _)| *field > 0)
    }

    fn take(&mut self, length: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(taken)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for (index, &byte) in self.rest.iter().take(10).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * index).min(63);
            if byte < 0x80 {
                self.rest = &self.rest[index + 1..];
                return Some(value);
            }
        }
        None
    }
}

impl<'b> Iterator for MessageFields<'b> {
    type Item = (u64, FieldValue<'b>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() || self.broken {
            return None;
        }
        let field = self.field();
        self.broken = field.is_none();
        field
    }
}

/// The fields of a message in a stream.
pub(super) struct MessageStream<'i, 'a> {
    input: &'i mut Input<'a>,
    /// Bytes taken so far: where a broken file broke.
    pub(super) position: u64,
}

/// A field in a stream, before its value is taken.
pub(super) enum FieldHeader {
    /// A value of this many bytes follows.
    Bytes(u64, u64),
    /// A number, which is of no interest and has been taken.
    Number,
}

impl<'i, 'a> MessageStream<'i, 'a> {
    pub(super) fn new(input: &'i mut Input<'a>) -> Self {
        Self { input, position: 0 }
    }

    /// The next field: its number and length. `None` at the end of the stream.
    pub(super) fn head(&mut self) -> io::Result<Option<FieldHeader>> {
        let Some(key) = self.varint()? else { return Ok(None) };
        let cut = || io::Error::from(io::ErrorKind::UnexpectedEof);
        match key & 7 {
            0 => {
                self.varint()?.ok_or_else(cut)?;
            }
            1 => self.skip(8)?,
            5 => self.skip(4)?,
            2 => return Ok(Some(FieldHeader::Bytes(key >> 3, self.varint()?.ok_or_else(cut)?))),
            kind => return Err(io::Error::other(format!("a field of kind {kind}, which no profile has"))),
        }
        Ok(Some(FieldHeader::Number))
    }

    /// Steps over `length` bytes.
    pub(super) fn skip(&mut self, mut length: u64) -> io::Result<()> {
        while length > 0 {
            let there = self.input.fill_buf()?.len();
            if there == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let taken = there.min(usize::try_from(length).unwrap_or(usize::MAX));
            self.input.consume(taken);
            self.position += taken as u64;
            length -= taken as u64;
        }
        Ok(())
    }

    /// Takes `length` bytes, or as many as there are and are room for. Memory is taken as bytes arrive, not as they are
    /// promised.
    pub(super) fn take(&mut self, length: u64, held: &mut Charge) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        gather(&mut (&mut *self.input).take(length), &mut bytes, held)?;
        self.position += bytes.len() as u64;
        Ok(bytes)
    }

    fn varint(&mut self) -> io::Result<Option<u64>> {
        let mut value = 0_u64;
        for index in 0..10 {
            let Some(&byte) = self.input.fill_buf()?.first() else {
                return if index == 0 { Ok(None) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
            };
            self.input.consume(1);
            self.position += 1;
            value |= u64::from(byte & 0x7f) << (7 * index).min(63);
            if byte < 0x80 {
                return Ok(Some(value));
            }
        }
        Err(io::Error::other("a number longer than ten bytes"))
    }
}

/// Adds what comes to `bytes`, as far as there is room.
fn gather(from: &mut impl BufRead, bytes: &mut Vec<u8>, held: &mut Charge) -> io::Result<()> {
    loop {
        let next = from.fill_buf()?;
        // Bytes in memory come all at once; room is taken for a part of them at a time.
        let count = next.len().min(1 << 20);
        if count == 0 || !held.take(count as u64) {
            return Ok(());
        }
        bytes.extend_from_slice(&next[..count]);
        from.consume(count);
    }
}

/// Reads a whole message, or as much of it as there is; says whether that was all.
pub(super) fn whole(input: &mut Input<'_>, held: &mut Charge) -> Result<(Vec<u8>, bool)> {
    let mut bytes = Vec::new();
    match gather(input, &mut bytes, held) {
        // What was unpacked before the file broke off may still say something.
        Err(error) if bytes.is_empty() => {
            Err(Error::new(ErrorKind::Malformed, format!("cannot be read: {error}")))
        }
        read => Ok((bytes, read.is_ok() && !input.budget().is_spent())),
    }
}

/// The text of a field, as far as it is text.
pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(4096)]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_walked_and_a_cut_is_told() {
        let message = [0x08, 0x96, 0x01, 0x12, 0x02, b'h', b'i', 0x19, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f];
        let mut fields = MessageFields::new(&message);
        let found: Vec<_> = fields.by_ref().collect();
        assert_eq!(
            found,
            [(1, FieldValue::Number(150)), (2, FieldValue::Bytes(b"hi")), (3, FieldValue::Double(1.0))]
        );
        assert!(!fields.broken());
        for end in 1..message.len() {
            let mut fields = MessageFields::new(&message[..end]);
            let count = fields.by_ref().count();
            assert_eq!(fields.broken(), !matches!(end, 3 | 7), "at {end}");
            assert!(count <= 2);
        }
        assert!(MessageFields::new(&[0xff; 40]).next().is_none());
    }
}
