//! Bytes that are made as they come and are read by position afterwards: what was unpacked, or tokenised. A few are kept in
//! memory, many in a temporary file without a name, which is gone with whoever reads it.

use super::bytes::Bytes;
use crate::{Error, ErrorKind, Result};
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

/// As many bytes are kept in memory; more go to a file.
const MOST_IN_MEMORY: usize = 16 << 20;

/// Bytes that are not all there yet.
pub(super) struct Collected {
    /// What they are, for who has no room for them.
    what: &'static str,
    memory: Vec<u8>,
    file: Option<File>,
    bytes: u64,
}

impl Collected {
    pub(super) fn new(what: &'static str) -> Collected {
        Collected { what, memory: Vec::new(), file: None, bytes: 0 }
    }

    /// How many there are.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn add(&mut self, bytes: &[u8]) -> Result<()> {
        self.bytes += bytes.len() as u64;
        self.memory.extend_from_slice(bytes);
        if self.memory.len() > MOST_IN_MEMORY { self.spill() } else { Ok(()) }
    }

    fn spill(&mut self) -> Result<()> {
        let failed = |error: io::Error| {
            let folder = std::env::temp_dir();
            let what = format!(
                "{} in a temporary file in {} (TMPDIR names another folder)",
                self.what,
                folder.display()
            );
            Error::from(ErrorKind::Io { what, error })
        };
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(tempfile::tempfile().map_err(failed)?),
        };
        file.write_all(&self.memory).map_err(failed)?;
        self.memory.clear();
        Ok(())
    }

    /// All of them, made from the file at this path.
    pub(super) fn finish(mut self, path: &Path) -> Result<Bytes> {
        if self.file.is_some() {
            self.spill()?;
        }
        match self.file {
            Some(file) => Ok(Bytes::unnamed(path, file, self.bytes)),
            None => {
                self.memory.shrink_to_fit();
                Ok(Bytes::unpacked(path, self.memory))
            }
        }
    }
}
