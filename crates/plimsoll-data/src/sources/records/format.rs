//! What the formats of record files have in common: where a record ends, and how what it says comes into the bytes of
//! the one who asks. The reader by number, the reader of streams and the check of a whole file share it, so that they
//! agree.

use super::input::Input;
use crate::{ErrorKind, Field, Record, Result};
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How records lie in a file, and which fields are taken from them.
pub(crate) trait Format: Debug + Send + Sync {
    /// What is taken from a record.
    fn fields(&self) -> &Arc<[Field]>;

    /// Reads what stands in a file before its first record.
    fn begin(&self, input: &mut Input) -> Result<()> {
        let _ = input;
        Ok(())
    }

    /// Finds records.
    fn framing(&self) -> Framing;

    /// Writes what a record says. Allocates nothing unless it fails, or a record is the first so large.
    fn parse(&self, record: &[u8], out: &mut Out<'_>) -> std::result::Result<(), Fault>;

    /// Whether every record is parsed when a file is opened, so that none can turn out to be wrong later.
    fn is_checked_when_opened(&self) -> bool;

    /// The number of classes of the field at this position, if records with any other number are refused.
    fn classes(&self, position: usize) -> Option<usize> {
        let _ = position;
        None
    }

    /// Whether an input that begins so is surely of this format, whatever else it could be taken for.
    fn recognises(&self, start: &[u8]) -> bool {
        let _ = start;
        false
    }

    /// The error for files that have no records.
    fn no_records(&self, paths: &[PathBuf]) -> crate::Error {
        let first = paths.first().map_or(String::new(), |path| path.display().to_string());
        let what = match paths.len() {
            0 | 1 => format!("{first} has no records"),
            files => format!("{first} and {} more files have no records", files - 1),
        };
        ErrorKind::Empty { what }.into()
    }

    /// The error for what is wrong with a record.
    fn error(&self, place: Place<'_>, fault: Fault) -> crate::Error {
        place.file_error(fault)
    }
}

/// The same format, whose records are not looked at before they are read.
#[derive(Debug)]
pub(crate) struct Unchecked(pub(crate) Arc<dyn Format>);

impl Format for Unchecked {
    fn fields(&self) -> &Arc<[Field]> {
        self.0.fields()
    }

    fn begin(&self, input: &mut Input) -> Result<()> {
        self.0.begin(input)
    }

    fn framing(&self) -> Framing {
        self.0.framing()
    }

    fn parse(&self, record: &[u8], out: &mut Out<'_>) -> Parsed<()> {
        self.0.parse(record, out)
    }

    fn is_checked_when_opened(&self) -> bool {
        false
    }

    fn classes(&self, position: usize) -> Option<usize> {
        self.0.classes(position)
    }

    fn recognises(&self, start: &[u8]) -> bool {
        self.0.recognises(start)
    }

    fn no_records(&self, paths: &[PathBuf]) -> crate::Error {
        self.0.no_records(paths)
    }

    fn error(&self, place: Place<'_>, fault: Fault) -> crate::Error {
        self.0.error(place, fault)
    }
}

/// What comes first in some bytes that begin where a record may, and after which the input ends if that is true.
pub(crate) type Framing = fn(&[u8], bool) -> Framed;

/// What comes first in some bytes, or what is wrong with it.
pub(crate) type Framed = std::result::Result<Frame, Fault>;

/// What comes first in some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// A record of the first `end` bytes, which may be more than were given, on so many lines. The next one begins at `next`.
    Record { end: usize, next: usize, lines: u64 },
    /// So many bytes that are no record.
    Filling(usize),
    /// It takes more bytes to tell. The input has not ended.
    More,
    /// Nothing: the input ends here.
    End,
}

/// What was read of a record, or what is wrong with it.
pub(crate) type Parsed<T> = std::result::Result<T, Fault>;

/// What is wrong with a record.
#[derive(Debug)]
pub(crate) struct Fault {
    /// Where in the record.
    pub(crate) offset: usize,
    /// The key or column, if one is to blame.
    pub(crate) key: Option<String>,
    pub(crate) reason: String,
}

impl Fault {
    pub(crate) fn new(offset: usize, reason: impl Into<String>) -> Fault {
        Fault { offset, key: None, reason: reason.into() }
    }

    /// The same fault, of this key if it is of none.
    pub(crate) fn of(mut self, key: &str) -> Fault {
        self.key.get_or_insert_with(|| key.to_string());
        self
    }
}

/// Where a record was found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    pub(crate) path: &'a Path,
    /// Its number among all samples.
    pub(crate) sample: usize,
    /// Its first byte in the file, unpacked.
    pub(crate) offset: u64,
    /// Its line, counted from 1, if all before it were counted.
    pub(crate) line: Option<u64>,
}

impl Place<'_> {
    /// The error that names file, sample and byte.
    pub(crate) fn file_error(self, fault: Fault) -> crate::Error {
        let Fault { offset, key, reason } = fault;
        let reason = match key {
            Some(key) => format!("`{key}`: {reason}"),
            None => reason,
        };
        let (path, sample) = (self.path.to_path_buf(), Some(self.sample));
        ErrorKind::File { path, sample, offset: Some(self.offset + offset as u64), reason }.into()
    }
}

/// Where the values of a record go: all of them into a record, or one field of fixed shape into the caller's bytes.
pub(crate) enum Out<'a> {
    Record(&'a mut Record),
    Field { position: usize, bytes: &'a mut [u8] },
}

impl Out<'_> {
    /// Whether the field at this position is asked for.
    pub(crate) fn wants(&self, asked: usize) -> bool {
        match self {
            Out::Record(_) => true,
            Out::Field { position, .. } => *position == asked,
        }
    }

    /// The bytes of the field at this position, which is asked for, in a sample where it has this shape.
    pub(crate) fn room(&mut self, position: usize, shape: &[usize]) -> Result<&mut [u8]> {
        match self {
            Out::Record(record) => record.reshape(position, shape),
            Out::Field { bytes, .. } => Ok(bytes),
        }
    }
}

/// Finds lines: a record is one that holds more than white space, without what ends it.
pub(crate) fn frame_line(bytes: &[u8], is_end: bool) -> Framed {
    match memchr::memchr(b'\n', bytes) {
        Some(at) => Ok(line(bytes, at, at + 1, 1)),
        None if !is_end => Ok(Frame::More),
        None if bytes.is_empty() => Ok(Frame::End),
        None => Ok(line(bytes, bytes.len(), bytes.len(), 1)),
    }
}

/// A row whose quotes do not end within so many bytes ends with its first line: they are a mistake.
pub(crate) const MOST_QUOTED_BYTES: usize = 1 << 20;

/// Finds the rows of a table: lines, but for those that end within quotes, which go on to the line that ends them.
pub(crate) fn frame_row(bytes: &[u8], is_end: bool) -> Framed {
    // Most rows have no quotes.
    match memchr::memchr2(b'\n', b'"', bytes) {
        Some(at) if bytes[at] == b'\n' => return Ok(line(bytes, at, at + 1, 1)),
        Some(_) => {}
        None => return frame_line(bytes, is_end),
    }
    let within = &bytes[..bytes.len().min(MOST_QUOTED_BYTES)];
    let (mut is_quoted, mut lines) = (false, 1);
    for at in memchr::memchr2_iter(b'"', b'\n', within) {
        match within[at] {
            b'"' => is_quoted = !is_quoted,
            _ if is_quoted => lines += 1,
            _ => return Ok(line(bytes, at, at + 1, lines)),
        }
    }
    match within.len() == bytes.len() {
        true if !is_end => Ok(Frame::More),
        true if is_end && !is_quoted => Ok(line(bytes, bytes.len(), bytes.len(), lines)),
        _ => frame_line(bytes, is_end),
    }
}

/// What the first `end` bytes are.
fn line(bytes: &[u8], end: usize, next: usize, lines: u64) -> Frame {
    let line = &bytes[..end];
    let ends = line.iter().rev().take_while(|&&byte| byte == b'\r').count();
    if line.first().is_none_or(u8::is_ascii_whitespace) && line.trim_ascii().is_empty() {
        return Frame::Filling(next);
    }
    Frame::Record { end: end - ends, next, lines }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rows of a text that comes so many bytes at a time, and the line that each begins on.
    fn rows(text: &[u8], at_once: usize) -> Vec<(Vec<u8>, u64)> {
        let (mut rows, mut start, mut known, mut number) = (Vec::new(), 0, 0, 1);
        loop {
            match frame_row(&text[start..known], known == text.len()).expect("rows have no faults") {
                Frame::Record { end, next, lines } => {
                    rows.push((text[start..start + end].to_vec(), number));
                    (start, number) = (start + next, number + lines);
                }
                Frame::Filling(bytes) => (start, number) = (start + bytes, number + 1),
                Frame::More => known = (known + at_once).min(text.len()),
                Frame::End => return rows,
            }
        }
    }

    #[test]
    fn a_row_ends_where_its_quotes_are_closed_however_it_comes() {
        let text = b"a,\"one\ntwo \"\"three\"\"\r\n\",1\r\n\n\"\n\",2\n5,\"x\",\"\n";
        let expected: [(&[u8], u64); 3] =
            [(b"a,\"one\ntwo \"\"three\"\"\r\n\",1", 1), (b"\"\n\",2", 5), (b"5,\"x\",\"", 7)];
        for at_once in [1, 2, 3, 7, 100] {
            let rows = rows(text, at_once);
            let shown: Vec<(&[u8], u64)> = rows.iter().map(|(row, line)| (&row[..], *line)).collect();
            assert_eq!(shown, expected, "{at_once} bytes at a time");
        }
    }

    #[test]
    fn quotes_that_are_never_closed_spoil_one_line() {
        let mut text = b"5\" pipe,1\n".to_vec();
        (0..MOST_QUOTED_BYTES / 4).for_each(|_| text.extend_from_slice(b"1,2\n"));
        let (whole, in_parts) = (rows(&text, text.len()), rows(&text, 1 << 16));
        assert_eq!(whole.len(), MOST_QUOTED_BYTES / 4 + 1);
        assert!(whole == in_parts);
        assert_eq!(whole[1], (b"1,2".to_vec(), 2));
    }
}
