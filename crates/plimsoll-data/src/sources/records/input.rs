//! A file of records read from its start to its end, through one buffer that grows to the longest record. Nothing is
//! taken for a length that a file merely claims: the buffer grows as bytes come.

use super::format::{Fault, Frame, Framing, Place};
use super::packing::Packing;
use crate::{Error, ErrorKind, RamBudget, Result};
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// As much is read at a time.
const CHUNK: usize = 64 << 10;
/// As much is read where records are passed over, which are found by their first bytes.
const GLANCE: usize = 4 << 10;
/// The most bytes that a record may have.
const MOST_RECORD_BYTES: u64 = 1 << 30;

pub(crate) struct Input {
    path: PathBuf,
    reader: Reader,
    buffer: Vec<u8>,
    /// The part of the buffer that was read and not passed.
    unread: Range<usize>,
    /// Where in the input the unread part begins.
    offset: u64,
    is_end: bool,
    /// The record that was found last: how much of the unread part it is, and where the next one begins.
    record: usize,
    next: usize,
    line: u64,
    /// The lines of the record beyond its first.
    more_lines: u64,
    most_bytes: u64,
}

enum Reader {
    Plain { file: File, length: u64 },
    Unpacked(Box<dyn Read + Send>),
}

impl Input {
    /// Opens a file, which `is_plain` may know not to be packed by its first bytes.
    pub(crate) fn open(path: &Path, is_plain: impl Fn(&[u8]) -> bool) -> Result<Input> {
        let failed = |error| Error::from(ErrorKind::Io { what: path.display().to_string(), error });
        // Opening a pipe would wait for somebody who writes.
        let found = std::fs::metadata(path).map_err(failed)?;
        if !found.is_file() {
            return Err(failed(io::Error::other("it is no regular file")));
        }
        let mut file = File::open(path).map_err(failed)?;
        let mut start = Vec::new();
        (&file).take(16).read_to_end(&mut start).map_err(failed)?;
        file.seek(SeekFrom::Start(0)).map_err(failed)?;
        let packing = Packing::of(&start).filter(|_| !is_plain(&start));
        let reader = match packing {
            Some(packing) => {
                Reader::Unpacked(packing.unpack(BufReader::with_capacity(CHUNK, file)).map_err(failed)?)
            }
            None => Reader::Plain { length: found.len(), file },
        };
        Ok(Input {
            path: path.to_path_buf(),
            reader,
            buffer: Vec::new(),
            unread: 0..0,
            offset: 0,
            is_end: false,
            record: 0,
            next: 0,
            line: 0,
            more_lines: 0,
            most_bytes: MOST_RECORD_BYTES,
        })
    }

    /// The same input, whose records may take no more memory than this.
    pub(crate) fn within(mut self, budget: RamBudget) -> Input {
        self.most_bytes = self.most_bytes.min(budget.limit().unwrap_or(u64::MAX));
        self
    }

    /// Whether the file is packed as a whole.
    pub(crate) fn is_packed(&self) -> bool {
        matches!(self.reader, Reader::Unpacked(_))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Goes to the next record and has its bytes; false if there is none.
    pub(crate) fn next(&mut self, framing: Framing, sample: usize) -> Result<bool> {
        if !self.find(framing, sample)? {
            return Ok(false);
        }
        let needed = self.record;
        while self.unread.len() < needed {
            if self.is_end {
                return Err(self.cut_off(sample, needed, self.unread.len() as u64));
            }
            self.fill(sample, usize::MAX)?;
        }
        Ok(true)
    }

    /// Goes to the next record without reading more of it than where it ends; false if there is none.
    pub(crate) fn skim(&mut self, framing: Framing, sample: usize) -> Result<bool> {
        if !self.find(framing, sample)? {
            return Ok(false);
        }
        let left = match &self.reader {
            Reader::Plain { length, .. } => length.saturating_sub(self.offset),
            Reader::Unpacked(_) => u64::MAX,
        };
        if left < self.record as u64 {
            return Err(self.cut_off(sample, self.record, left));
        }
        Ok(true)
    }

    /// The bytes of the record that [`next`](Input::next) went to.
    pub(crate) fn record(&self) -> &[u8] {
        &self.buffer[self.unread.start..][..self.record]
    }

    /// Where the record that was found last begins.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Where the record that was found last ends.
    pub(crate) fn end(&self) -> u64 {
        self.offset + self.next as u64
    }

    /// The line of the record that was found last, if records are lines: from 1.
    pub(crate) fn line(&self) -> u64 {
        self.line
    }

    /// The place of the record that was found last, if this is its number.
    pub(crate) fn place(&self, sample: usize) -> Place<'_> {
        Place { path: &self.path, sample, offset: self.offset, line: Some(self.line) }
    }

    fn find(&mut self, framing: Framing, sample: usize) -> Result<bool> {
        self.pass(self.next, sample)?;
        (self.record, self.next) = (0, 0);
        self.line += std::mem::take(&mut self.more_lines);
        loop {
            let bytes = &self.buffer[self.unread.clone()];
            match framing(bytes, self.is_end).map_err(|fault| self.place(sample).file_error(fault))? {
                Frame::End => return Ok(false),
                Frame::More => self.fill(sample, usize::MAX)?,
                Frame::Filling(bytes) => {
                    self.line += 1;
                    self.pass(bytes, sample)?;
                }
                Frame::Record { end, next, lines } => {
                    self.line += 1;
                    (self.record, self.next, self.more_lines) = (end, next, lines - 1);
                    return if end as u64 > self.most_bytes { Err(self.too_long(sample)) } else { Ok(true) };
                }
            }
        }
    }

    /// Passes over so many bytes.
    fn pass(&mut self, bytes: usize, sample: usize) -> Result<()> {
        self.offset += bytes as u64;
        if bytes <= self.unread.len() {
            self.unread.start += bytes;
            return Ok(());
        }
        let beyond = (bytes - self.unread.len()) as u64;
        self.unread = 0..0;
        match &mut self.reader {
            Reader::Plain { file, .. } => file.seek_relative(beyond as i64),
            Reader::Unpacked(reader) => io::copy(&mut reader.take(beyond), &mut io::sink()).map(|_| ()),
        }
        .map_err(|error| self.failed(error))?;
        self.fill(sample, GLANCE)
    }

    /// Reads what there is room for, and makes some if there is none, but no more than `most` bytes.
    fn fill(&mut self, sample: usize, most: usize) -> Result<()> {
        if self.unread.start > 0 {
            self.buffer.copy_within(self.unread.clone(), 0);
            self.unread = 0..self.unread.len();
        }
        if self.unread.end == self.buffer.len() {
            let bytes = self.buffer.len() as u64;
            if bytes > self.most_bytes {
                return Err(self.too_long(sample));
            }
            let more = self.buffer.len().max(CHUNK);
            if self.buffer.try_reserve_exact(more).is_err() {
                let holder = self.path.display().to_string();
                return Err(ErrorKind::OutOfMemory { holder, bytes: bytes + more as u64 }.into());
            }
            self.buffer.resize(self.buffer.len() + more, 0);
        }
        let end = self.buffer.len().min(self.unread.end.saturating_add(most));
        while self.unread.end < end {
            let room = &mut self.buffer[self.unread.end..end];
            let read = match &mut self.reader {
                Reader::Plain { file, .. } => file.read(room),
                Reader::Unpacked(reader) => reader.read(room),
            };
            match read {
                Ok(0) => {
                    self.is_end = true;
                    break;
                }
                Ok(read) => self.unread.end += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed(error)),
            }
        }
        Ok(())
    }

    fn failed(&self, error: io::Error) -> Error {
        let reason = format!("it cannot be read: {error}");
        let offset = self.offset + self.unread.len() as u64;
        ErrorKind::File { path: self.path.clone(), sample: None, offset: Some(offset), reason }.into()
    }

    fn too_long(&self, sample: usize) -> Error {
        let reason =
            format!("the record has more than {} bytes, the most that one may have", self.most_bytes);
        self.place(sample).file_error(Fault::new(0, reason))
    }

    fn cut_off(&self, sample: usize, needed: usize, there: u64) -> Error {
        let reason =
            format!("the record has {needed} bytes, of which {there} are there: the file is cut off");
        self.place(sample).file_error(Fault::new(0, reason))
    }
}
