//! A file that is written piece by piece, and is whole or absent.

use crate::Result;
use crate::save::{DRAFT, io_error};
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// A file under construction, beside its place. If it is dropped before it is published, nothing is left of it.
///
/// A pipe or a terminal has no place beside it, and nothing to keep whole: it is written to as it is.
///
/// ```
/// use plimsoll::WholeFile;
/// # let path = std::env::temp_dir().join(format!("plimsoll-doc-{}.txt", std::process::id()));
/// let mut file = WholeFile::create(&path)?;
/// file.write(b"one, ")?;
/// assert!(!path.exists(), "it is not whole yet");
/// file.write(b"two")?;
/// assert_eq!(file.publish()?, 8);
/// assert!(path.exists());
/// # std::fs::remove_file(&path).ok();
/// # Ok::<(), plimsoll::Error>(())
/// ```
#[derive(Debug)]
pub struct WholeFile {
    file: BufWriter<File>,
    /// Where it is until it is published; `None` once it is, and if it is no file.
    draft: Option<PathBuf>,
    path: PathBuf,
    bytes: u64,
}

impl WholeFile {
    /// Begins a file that is to be at this path. One that is there stays until this one is published.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn create(path: impl AsRef<Path>) -> Result<WholeFile> {
        let path = path.as_ref();
        let is_other = fs::metadata(path).is_ok_and(|found| !found.is_file());
        let draft = (!is_other).then(|| {
            let mut draft = path.as_os_str().to_owned();
            draft.push(format!(".{}{DRAFT}", std::process::id()));
            PathBuf::from(draft)
        });
        let file = File::create(draft.as_deref().unwrap_or(path));
        let file = file.map_err(|error| io_error("cannot write", path, error))?;
        Ok(WholeFile { file: BufWriter::new(file), draft, path: path.to_path_buf(), bytes: 0 })
    }

    /// Writes a file at once.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn save(path: impl AsRef<Path>, bytes: &[u8]) -> Result<()> {
        let mut file = WholeFile::create(path)?;
        file.write(bytes)?;
        file.publish().map(|_| ())
    }

    /// Adds a piece.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&mut self, piece: &[u8]) -> Result<()> {
        self.bytes += piece.len() as u64;
        let written = self.file.write_all(piece);
        written
            .map_err(|error| io_error(&format!("cannot write {} bytes to", piece.len()), &self.path, error))
    }

    /// Makes it visible when all of it is on the disk, and returns how many bytes it has.
    ///
    /// # Errors
    /// If it cannot be written or renamed.
    pub fn publish(mut self) -> Result<u64> {
        let cannot_write = |error| io_error("cannot write", &self.path, error);
        self.file.flush().map_err(cannot_write)?;
        if let Some(draft) = &self.draft {
            let synced = self.file.get_ref().sync_all();
            synced.and_then(|()| fs::rename(draft, &self.path)).map_err(cannot_write)?;
            self.draft = None;
        }
        Ok(self.bytes)
    }
}

impl Drop for WholeFile {
    fn drop(&mut self) {
        if let Some(draft) = &self.draft {
            // There is nothing that could be done about one that cannot be removed.
            let _ = fs::remove_file(draft);
        }
    }
}
