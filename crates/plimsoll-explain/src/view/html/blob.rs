//! Columns of numbers inside a page: little-endian arrays, compressed, as base64.
//!
//! A script reads them as typed arrays without parsing. Numbers of bytes are doubles, exact to 2^53, because
//! that is what a page can calculate with.

use flate2::Compression;
use flate2::write::ZlibEncoder;
use plimsoll_page::base64_group;
use serde::Serialize;
use std::io::{self, Write};

/// All columns of a page, one after the other.
#[derive(Default)]
pub(super) struct Blob {
    bytes: Vec<u8>,
}

/// Where a column lies: its type, its first byte and how many numbers it has.
#[derive(Serialize)]
pub(super) struct Column(&'static str, usize, usize);

impl Blob {
    /// Adds a column of doubles.
    pub(super) fn f64s(&mut self, numbers: impl Iterator<Item = u64>) -> Column {
        self.column("f64", 8, numbers.map(|n| (n as f64).to_le_bytes()))
    }

    /// Adds a column of 32-bit numbers.
    pub(super) fn u32s(&mut self, numbers: impl Iterator<Item = u32>) -> Column {
        self.column("u32", 4, numbers.map(u32::to_le_bytes))
    }

    /// Adds a column of bytes.
    pub(super) fn u8s(&mut self, numbers: impl Iterator<Item = u8>) -> Column {
        self.column("u8", 1, numbers.map(u8::to_le_bytes))
    }

    fn column<const N: usize>(
        &mut self,
        name: &'static str,
        width: usize,
        numbers: impl Iterator<Item = [u8; N]>,
    ) -> Column {
        // Typed arrays begin at multiples of their width.
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        let start = self.bytes.len();
        self.bytes.extend(numbers.flatten());
        Column(name, start, (self.bytes.len() - start) / width)
    }

    /// Writes all columns.
    pub(super) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut encoder = ZlibEncoder::new(Base64 { out, held: Vec::new() }, Compression::fast());
        encoder.write_all(&self.bytes)?;
        encoder.finish()?.finish()
    }
}

/// A writer of base64.
struct Base64<'a> {
    out: &'a mut dyn Write,
    /// Bytes that do not fill a group of three yet.
    held: Vec<u8>,
}

impl Base64<'_> {
    fn finish(self) -> io::Result<()> {
        if self.held.is_empty() { Ok(()) } else { self.out.write_all(&base64_group(&self.held)) }
    }
}

impl Write for Base64<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.held.extend_from_slice(bytes);
        let whole = self.held.len() - self.held.len() % 3;
        let text: Vec<u8> = self.held[..whole].chunks(3).flat_map(base64_group).collect();
        self.held.drain(..whole);
        self.out.write_all(&text)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_the_same_written_byte_by_byte() {
        for (plain, encoded) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")]
        {
            let mut out = Vec::new();
            let mut writer = Base64 { out: &mut out, held: Vec::new() };
            for byte in plain.bytes() {
                writer.write_all(&[byte]).unwrap();
            }
            writer.finish().unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), encoded);
        }
    }
}
