//! The bytes of a file, read by position: any number of threads read at once, none moves the others' place, and none of
//! the file is kept. What is packed is unpacked into memory first, and says so.

use crate::{Error, ErrorKind, Result};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// A file that is read by position.
#[derive(Debug)]
pub(super) struct Bytes {
    path: PathBuf,
    length: u64,
    place: Place,
}

#[derive(Debug)]
enum Place {
    File(File),
    Memory(Vec<u8>),
}

impl Bytes {
    /// Opens a regular file.
    pub(super) fn open(path: &Path) -> Result<Bytes> {
        let failed = |error| Error::from(ErrorKind::Io { what: path.display().to_string(), error });
        // Opening a pipe would wait for somebody who writes.
        let found = std::fs::metadata(path).map_err(failed)?;
        if !found.is_file() {
            return Err(failed(io::Error::other("it is no regular file")));
        }
        let file = File::open(path).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        Ok(Bytes { path: path.to_path_buf(), length, place: Place::File(file) })
    }

    /// What was made from a file and lies in another, which has no name.
    pub(super) fn unnamed(path: &Path, file: File, length: u64) -> Bytes {
        Bytes { path: path.to_path_buf(), length, place: Place::File(file) }
    }

    /// What was unpacked from a file.
    pub(super) fn unpacked(path: &Path, bytes: Vec<u8>) -> Bytes {
        Bytes { path: path.to_path_buf(), length: bytes.len() as u64, place: Place::Memory(bytes) }
    }

    /// Takes all of the file into memory, if it has at most so many bytes.
    pub(super) fn keep_up_to(&mut self, most: u64) -> Result<()> {
        if matches!(self.place, Place::File(_)) && self.length <= most {
            self.place = Place::Memory(self.read_vec(0, self.length)?);
        }
        Ok(())
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn len(&self) -> u64 {
        self.length
    }

    /// Bytes of RAM that are held.
    pub(super) fn resident_bytes(&self) -> u64 {
        match &self.place {
            Place::File(_) => 0,
            Place::Memory(bytes) => bytes.capacity() as u64,
        }
    }

    /// So many bytes from `offset` on, if they are held.
    pub(super) fn held(&self, offset: u64, length: usize) -> Option<&[u8]> {
        match &self.place {
            Place::File(_) => None,
            Place::Memory(bytes) => bytes.get(usize::try_from(offset).ok()?..)?.get(..length),
        }
    }

    /// Fills `out` with what begins at `offset`. Allocates nothing unless it fails.
    pub(super) fn read(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        self.check_within(offset, out.len() as u64)?;
        match &self.place {
            Place::Memory(bytes) => out.copy_from_slice(&bytes[offset as usize..][..out.len()]),
            Place::File(file) => {
                let failed = |error| self.error(None, Some(offset), format!("it cannot be read: {error}"));
                read_at(file, offset, out).map_err(failed)?;
            }
        }
        Ok(())
    }

    /// So many bytes from `offset` on, which must be within the file before memory is taken for them.
    pub(super) fn read_vec(&self, offset: u64, length: u64) -> Result<Vec<u8>> {
        self.check_within(offset, length)?;
        let mut bytes = vec![0; length as usize];
        self.read(offset, &mut bytes)?;
        Ok(bytes)
    }

    /// Refuses what is beyond the end of the file.
    fn check_within(&self, offset: u64, length: u64) -> Result<()> {
        match offset.checked_add(length) {
            Some(end) if end <= self.length => Ok(()),
            _ => {
                let reason = format!("{length} bytes are missing: the file ends after {}", self.length);
                Err(self.error(None, Some(offset), reason))
            }
        }
    }

    /// The error about this file, of a sample and at a byte if they are known.
    pub(super) fn error(
        &self,
        sample: Option<usize>,
        offset: Option<u64>,
        reason: impl Into<String>,
    ) -> Error {
        let path = self.path.clone();
        ErrorKind::File { path, sample, offset, reason: reason.into() }.into()
    }
}

#[cfg(unix)]
fn read_at(file: &File, offset: u64, out: &mut [u8]) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, out, offset)
}

#[cfg(windows)]
fn read_at(file: &File, mut offset: u64, mut out: &mut [u8]) -> io::Result<()> {
    while !out.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, out, offset) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => {
                out = &mut out[read..];
                offset += read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
