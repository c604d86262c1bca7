//! A file as it is read: unpacked where it is packed, with its position told to whoever shows progress, and never
//! beyond the budget, however long it is and whatever is waited for.

use super::budget::{Budget, Limits};
use crate::error::{Error, ErrorKind, Result};
use flate2::bufread::MultiGzDecoder;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;

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

/// A stream of a recording's bytes, unpacked, and the budget it is read within.
pub struct Input<'a> {
    reader: Box<dyn BufRead + 'a>,
    budget: Budget,
}

const GZIP: [u8; 2] = [0x1f, 0x8b];
const BUFFER: usize = 1 << 16;

impl<'a> Input<'a> {
    /// Opens a file, to be read within the usual limits; gzip is seen by its first bytes.
    ///
    /// # Errors
    /// If it cannot be opened or its first bytes cannot be read.
    pub fn open(path: &Path, progress: &Progress) -> Result<Input<'static>> {
        Input::open_within(path, progress, Budget::new(Limits::default()))
    }

    pub(super) fn open_within(path: &Path, progress: &Progress, budget: Budget) -> Result<Input<'static>> {
        let fail = |e: io::Error| Error::new(ErrorKind::Io, format!("cannot be read: {e}"));
        let path = if path == Path::new("-") { Path::new("/dev/stdin") } else { path };
        let metadata = fs::metadata(path).map_err(fail)?;
        if metadata.is_dir() {
            return Err(Error::new(
                ErrorKind::Io,
                "is a directory without a memory.jsonl of a Plimsoll run; give the files of one run in it",
            ));
        }
        progress.total.fetch_add(metadata.len(), Relaxed);
        let read = progress.read.clone();
        if metadata.is_file() {
            let file = File::open(path).map_err(fail)?;
            return Input::unpacked(BufReader::with_capacity(BUFFER, Counted { file, read }), budget)
                .map_err(fail);
        }
        let awaited = Awaited::open(path.to_owned(), budget.clone(), read);
        Input::unpacked(BufReader::with_capacity(BUFFER, awaited), budget).map_err(fail)
    }

    /// Bytes already in memory, to be read within the usual limits; gzip is seen by its first bytes.
    ///
    /// # Errors
    /// If they begin like gzip and are not.
    pub fn bytes(bytes: &'a [u8]) -> Result<Input<'a>> {
        Input::unpacked(bytes, Budget::new(Limits::default()))
            .map_err(|e| Error::new(ErrorKind::Malformed, format!("cannot be unpacked: {e}")))
    }

    /// The same, to be read within other limits, counted from now.
    #[must_use]
    pub fn within(self, limits: Limits) -> Input<'a> {
        Input { budget: Budget::new(limits), ..self }
    }

    fn unpacked(mut reader: impl BufRead + 'a, budget: Budget) -> io::Result<Input<'a>> {
        if reader.fill_buf()?.starts_with(&GZIP) {
            let unpacked = BufReader::with_capacity(BUFFER, MultiGzDecoder::new(reader));
            return Ok(Input { reader: Box::new(unpacked), budget });
        }
        Ok(Input { reader: Box::new(reader), budget })
    }

    /// The bytes that come next, without taking them: up to a buffer full, at least one unless the stream ends.
    ///
    /// # Errors
    /// If reading fails.
    pub fn peek(&mut self) -> Result<&[u8]> {
        self.fill_buf().map_err(|e| Error::new(ErrorKind::Io, format!("cannot be read: {e}")))
    }

    pub(super) fn budget(&self) -> &Budget {
        &self.budget
    }
}

impl Read for Input<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut next = self.fill_buf()?;
        let count = next.read(buffer)?;
        self.consume(count);
        Ok(count)
    }
}

impl BufRead for Input<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.budget.reads_on() { self.reader.fill_buf() } else { Err(self.budget.error()) }
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

/// A pipe, a terminal or a device: what comes from it may never come, nor may it ever open. A thread waits for it, and
/// this waits for the thread as long as the budget allows. A thread that waits for nothing ends with the program.
struct Awaited {
    pieces: Receiver<io::Result<Vec<u8>>>,
    piece: io::Cursor<Vec<u8>>,
    budget: Budget,
    read: Arc<AtomicU64>,
}

impl Awaited {
    fn open(path: PathBuf, budget: Budget, read: Arc<AtomicU64>) -> Awaited {
        let (send, pieces) = sync_channel(1);
        thread::spawn(move || {
            let mut file = match File::open(path) {
                Ok(file) => file,
                Err(error) => return drop(send.send(Err(error))),
            };
            loop {
                let mut piece = vec![0; BUFFER];
                let next = file.read(&mut piece).map(|count| {
                    piece.truncate(count);
                    piece
                });
                let over = next.as_ref().map_or(true, Vec::is_empty);
                if send.send(next).is_err() || over {
                    return;
                }
            }
        });
        Awaited { pieces, piece: io::Cursor::default(), budget, read }
    }
}

impl Read for Awaited {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.piece.read(buffer)?;
        if count > 0 {
            return Ok(count);
        }
        match self.pieces.recv_timeout(self.budget.time_to_wait()) {
            Ok(piece) => {
                self.piece = io::Cursor::new(piece?);
                let count = self.piece.read(buffer)?;
                self.read.fetch_add(count as u64, Relaxed);
                Ok(count)
            }
            Err(RecvTimeoutError::Disconnected) => Ok(0),
            Err(RecvTimeoutError::Timeout) => {
                self.budget.waited();
                let what = "nothing more came from this pipe or device: is anything writing to it?";
                Err(io::Error::new(io::ErrorKind::TimedOut, format!("{}; {what}", self.budget)))
            }
        }
    }
}
