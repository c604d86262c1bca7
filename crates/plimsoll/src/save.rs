//! Writing results: all of a file or nothing of it, in a folder that one run has to itself.

use crate::{Error, ErrorKind, Result};
use sha2::{Digest, Sha256};
use std::fs::{self, File, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};

/// How the names of files end that are not complete yet.
const DRAFT: &str = ".draft";

/// A folder that one run writes its results into, and no other meanwhile.
///
/// It is made, tried for writing and locked when it is opened, so that what cannot be saved is known before the training
/// and not after. The lock goes with the process, however that ends. A folder that was made and into which nothing was
/// written goes too.
///
/// ```
/// use plimsoll::RunFolder;
/// # let place = std::env::temp_dir().join(format!("plimsoll-doc-{}", std::process::id()));
/// let folder = RunFolder::open(&place)?;
/// assert!(RunFolder::open(&place).is_err(), "it is taken");
/// drop(folder);
/// assert!(!place.exists(), "nothing was written");
/// # Ok::<(), plimsoll::Error>(())
/// ```
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    /// Open and locked for as long as the run has it.
    _lock: Option<File>,
    /// The folders that were made, the innermost first.
    made: Vec<PathBuf>,
    is_used: bool,
}

impl RunFolder {
    /// Makes a folder if it is not there, and takes it. Incomplete files of runs that were ended are removed.
    ///
    /// # Errors
    /// If it cannot be made or written to, or another run has it.
    pub fn open(path: impl AsRef<Path>) -> Result<RunFolder> {
        let path = path.as_ref();
        loop {
            let made: Vec<PathBuf> =
                path.ancestors().take_while(|folder| !folder.exists()).map(Path::to_path_buf).collect();
            fs::create_dir_all(path).map_err(|error| io_error("cannot make the folder", path, error))?;
            // Whoever else has it may have made it just as well, and will remove what is to be removed.
            let lock = take_lock(path)?;
            // A run that ended without a result may have removed it in between.
            if lock.as_ref().map_or(!path.is_dir(), |lock| !is_still_at(lock, path)) {
                continue;
            }
            let folder = RunFolder { path: path.to_path_buf(), _lock: lock, made, is_used: false };
            folder.remove_drafts();
            folder.try_writing()?;
            return Ok(folder);
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Files that are to become visible in it together.
    pub(crate) fn files(&mut self) -> Files<'_> {
        Files { folder: self, written: vec![] }
    }

    /// Writes a file and removes it.
    fn try_writing(&self) -> Result<()> {
        let tried = self.path.join(format!(".{}{DRAFT}", std::process::id()));
        let written = File::create(&tried).and_then(|_| fs::remove_file(&tried));
        written.map_err(|error| io_error("cannot write into the folder", &self.path, error))
    }

    fn remove_drafts(&self) {
        let Ok(entries) = fs::read_dir(&self.path) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.starts_with('.') && name.ends_with(DRAFT) {
                // Whoever wrote it has ended, since the folder is ours.
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        if !self.is_used {
            // The innermost first, and none that has something in it.
            self.made.iter().for_each(|folder| _ = fs::remove_dir(folder));
        }
    }
}

/// Locks the folder itself: there is no file to be left behind by it.
fn take_lock(folder: &Path) -> Result<Option<File>> {
    // Not every system opens folders, and not every file system has locks: there, runs are not told apart.
    let Ok(lock) = File::open(folder) else { return Ok(None) };
    match lock.try_lock() {
        Ok(()) => Ok(Some(lock)),
        Err(TryLockError::WouldBlock) => {
            let message = format!(
                "another run is writing into the folder {}: wait until it has ended, or choose another",
                folder.display()
            );
            Err(Error::new(ErrorKind::File, message))
        }
        Err(TryLockError::Error(_)) => Ok(None),
    }
}

/// Whether a folder that was opened is the one at its path.
#[cfg(unix)]
fn is_still_at(opened: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let identity = |found: fs::Metadata| (found.dev(), found.ino());
    let [opened, at_path] = [opened.metadata(), fs::metadata(path)].map(|found| found.map(identity).ok());
    opened.is_some() && opened == at_path
}

#[cfg(not(unix))]
fn is_still_at(_: &File, _: &Path) -> bool {
    true
}

/// Files that become visible together: each is written beside its place and synced first, then all are
/// renamed. If anything fails before that, what was there stays and nothing new is left behind.
pub(crate) struct Files<'a> {
    folder: &'a mut RunFolder,
    written: Vec<(PathBuf, PathBuf)>,
}

impl Files<'_> {
    /// Writes a file, not yet visible under its name.
    pub(crate) fn write(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        let mut draft = self.draft(name)?;
        draft.write(bytes)?;
        draft.finish()?;
        Ok(())
    }

    /// Begins a file that is written piece by piece, not yet visible under its name.
    pub(crate) fn draft(&mut self, name: &str) -> Result<Draft> {
        let path = self.folder.path.join(name);
        let draft = path.with_file_name(format!(".{name}.{}{DRAFT}", std::process::id()));
        self.written.push((draft.clone(), path.clone()));
        let file = File::create(&draft).map_err(|error| io_error("cannot write", &path, error))?;
        Ok(Draft { file, path, digest: Sha256::new() })
    }

    /// Makes all files visible.
    pub(crate) fn publish(mut self) -> Result<()> {
        for (draft, path) in std::mem::take(&mut self.written) {
            fs::rename(&draft, &path).map_err(|e| {
                // Already renamed files are complete; this draft is not wanted.
                let _ = fs::remove_file(&draft);
                io_error("cannot write", &path, e)
            })?;
            self.folder.is_used = true;
        }
        Ok(())
    }
}

impl Drop for Files<'_> {
    fn drop(&mut self) {
        for (draft, _) in &self.written {
            // A draft that was never created cannot be removed, and need not be.
            let _ = fs::remove_file(draft);
        }
    }
}

/// A file that is being written.
pub(crate) struct Draft {
    file: File,
    /// Where it will be.
    path: PathBuf,
    digest: Sha256,
}

impl Draft {
    /// Adds a piece.
    pub(crate) fn write(&mut self, piece: &[u8]) -> Result<()> {
        self.digest.update(piece);
        let written = self.file.write_all(piece);
        written.map_err(|e| io_error(&format!("cannot write {} bytes to", piece.len()), &self.path, e))
    }

    /// Ends it when all of it is on the disk, and returns its SHA-256 in hexadecimal digits.
    pub(crate) fn finish(self) -> Result<String> {
        self.file.sync_all().map_err(|error| io_error("cannot write", &self.path, error))?;
        Ok(self.digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

/// An error of the file system, with the path.
pub(crate) fn io_error(what: &str, path: &Path, error: std::io::Error) -> Error {
    Error::new(ErrorKind::File, format!("{what} {}: {error}", path.display())).caused_by(error)
}
