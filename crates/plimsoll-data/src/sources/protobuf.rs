//! As much of protocol buffers as it takes to read messages that others wrote: their fields, one after the other, as
//! they stand in the bytes.

use super::records::format::Fault;

/// A message, and where it begins in what it is part of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) offset: usize,
}

/// The value of a field.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wire<'a> {
    Varint(u64),
    Fixed64,
    Bytes(Message<'a>),
    Fixed32([u8; 4]),
}

impl<'a> Message<'a> {
    /// Takes the next field from the front, its number and value; none at the end.
    pub(super) fn next_field(&mut self) -> Result<Option<(u64, Wire<'a>)>, Fault> {
        if self.bytes.is_empty() {
            return Ok(None);
        }
        let tag = self.next_varint()?;
        let value = match tag & 7 {
            0 => Wire::Varint(self.next_varint()?),
            1 => {
                self.take(8)?;
                Wire::Fixed64
            }
            2 => {
                let length = self.next_varint()?;
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                Wire::Bytes(self.take(length)?)
            }
            5 => {
                let mut value = [0; 4];
                value.copy_from_slice(self.take(4)?.bytes);
                Wire::Fixed32(value)
            }
            kind => return Err(self.fault(format!("a field is of the unknown wire type {kind}"))),
        };
        Ok(Some((tag >> 3, value)))
    }

    /// Takes a number of one to ten bytes from the front.
    pub(super) fn next_varint(&mut self) -> Result<u64, Fault> {
        let mut value = 0;
        for (at, &byte) in self.bytes.iter().take(10).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * at).min(63);
            if byte < 0x80 {
                self.take(at + 1)?;
                return Ok(value);
            }
        }
        Err(self.fault("a number does not end"))
    }

    fn take(&mut self, length: usize) -> Result<Message<'a>, Fault> {
        let Some((bytes, rest)) = self.bytes.split_at_checked(length) else {
            let reason = format!("a field of {length} bytes has {} left to it", self.bytes.len());
            return Err(self.fault(reason));
        };
        let taken = Message { bytes, offset: self.offset };
        *self = Message { bytes: rest, offset: self.offset + length };
        Ok(taken)
    }

    pub(super) fn fault(&self, reason: impl Into<String>) -> Fault {
        Fault::new(self.offset, reason)
    }
}
