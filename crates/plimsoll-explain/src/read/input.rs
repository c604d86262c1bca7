//! A file as it is read: unpacked where it is packed, with its position told to whoever shows progress.

use crate::error::{Error, ErrorKind, Result};
use flate2::bufread::MultiGzDecoder;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How much of a file has been read, for a progress bar in another thread or between events.
#[derive(Debug, Clone, Default)]
pub struct Progress {
    read: Arc<AtomicU64>,
    total: Arc<AtomicU64>,
}

impl Progress {
    /// Bytes read so far of the files on disk, packed as they are.
    pub fn read_bytes(&self) -> u64 {
        self.read.load(Relaxed)
    }

    /// Bytes of all files opened so far.
    pub fn total_bytes(&self) -> u64 {
        self.total.load(Relaxed)
    }
}

/// A stream of a recording's bytes, unpacked.
pub struct Input<'a> {
    reader: Box<dyn BufRead + 'a>,
}

const GZIP: [u8; 2] = [0x1f, 0x8b];
const BUFFER: usize = 1 << 16;

impl<'a> Input<'a> {
    /// Opens a file; gzip is seen by its first bytes.
    ///
    /// # Errors
    /// If it cannot be opened or its first bytes cannot be read.
    pub fn open(path: &Path, progress: &Progress) -> Result<Input<'static>> {
        let fail = |e: io::Error| Error::new(ErrorKind::Io, format!("cannot be read: {e}"));
        let file = File::open(path).map_err(fail)?;
        let metadata = file.metadata().map_err(fail)?;
        if metadata.is_dir() {
            return Err(Error::new(
                ErrorKind::Io,
                "is a directory without a memory.jsonl of a Plimsoll run; give the files of one run in it",
            ));
        }
        progress.total.fetch_add(metadata.len(), Relaxed);
        let counted = Counted { file, read: progress.read.clone() };
        Input::unpacked(BufReader::with_capacity(BUFFER, counted)).map_err(fail)
    }

    /// Bytes already in memory; gzip is seen by its first bytes.
    ///
    /// # Errors
    /// If they begin like gzip and are not.
    pub fn bytes(bytes: &'a [u8]) -> Result<Input<'a>> {
        Input::unpacked(bytes)
            .map_err(|e| Error::new(ErrorKind::Malformed, format!("cannot be unpacked: {e}")))
    }

    fn unpacked(mut reader: impl BufRead + 'a) -> io::Result<Input<'a>> {
        if reader.fill_buf()?.starts_with(&GZIP) {
            let unpacked = BufReader::with_capacity(BUFFER, MultiGzDecoder::new(reader));
            return Ok(Input { reader: Box::new(unpacked) });
        }
        Ok(Input { reader: Box::new(reader) })
    }

    /// The bytes that come next, without taking them: up to a buffer full, at least one unless the stream ends.
    ///
    /// # Errors
    /// If reading fails.
    pub fn peek(&mut self) -> Result<&[u8]> {
        self.reader.fill_buf().map_err(|e| Error::new(ErrorKind::Io, format!("cannot be read: {e}")))
    }
}

impl Read for Input<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.reader.read(buffer)
    }
}

impl BufRead for Input<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.reader.fill_buf()
    }

    fn consume(&mut self, amount: usize) {
        self.reader.consume(amount);
    }
}

/// A file that counts what is read of it.
struct Counted {
    file: File,
    read: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buffer)?;
        self.read.fetch_add(count as u64, Relaxed);
        Ok(count)
    }
}
