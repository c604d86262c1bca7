//! Writing results: all of a file or nothing of it, in a folder that one run has to itself.

use crate::disk::{Disk, DiskFile, LocalDisk};
use crate::{Error, ErrorKind, Result};
use sha2::{Digest, Sha256};
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// How the names of files end that are not complete yet.
pub(crate) const DRAFT: &str = ".draft";

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
    disk: Rc<dyn Disk>,
    /// Open and locked for as long as the run has it.
    _lock: Option<File>,
    /// The folders that were made, the innermost first.
    made: Vec<PathBuf>,
    /// Files that are written as soon as something else is.
    beside: Vec<(String, Vec<u8>)>,
    is_used: bool,
}

impl RunFolder {
    /// Makes a folder if it is not there, and takes it. Incomplete files of runs that were ended are removed.
    ///
    /// # Errors
    /// If it cannot be made or written to, or another run has it.
    pub fn open(path: impl AsRef<Path>) -> Result<RunFolder> {
        RunFolder::open_on(Rc::new(LocalDisk), path)
    }

    /// [`RunFolder::open`], with all that is written going through `disk`.
    ///
    /// # Errors
    /// As [`RunFolder::open`].
    pub fn open_on(disk: Rc<dyn Disk>, path: impl AsRef<Path>) -> Result<RunFolder> {
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
            let (disk, path) = (Rc::clone(&disk), path.to_path_buf());
            let folder = RunFolder { path, disk, _lock: lock, made, beside: vec![], is_used: false };
            folder.remove_drafts();
            folder.try_writing()?;
            return Ok(folder);
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where it is written through.
    pub(crate) fn disk(&self) -> &Rc<dyn Disk> {
        &self.disk
    }

    /// Has a file written as soon as there is a result or a checkpoint that it belongs to.
    pub fn beside(&mut self, name: &str, bytes: impl Into<Vec<u8>>) {
        self.beside.push((name.to_string(), bytes.into()));
    }

    /// Notes that something was written which is to stay.
    pub(crate) fn set_used(&mut self) -> Result<()> {
        self.is_used = true;
        let beside = std::mem::take(&mut self.beside);
        if beside.is_empty() {
            return Ok(());
        }
        let mut files = self.files();
        for (name, bytes) in &beside {
            files.write(name, bytes)?;
        }
        files.publish()
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
                let _ = self.disk.remove_file(&entry.path());
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
        Draft::begin(&*self.folder.disk, &draft, &path)
    }

    /// Makes all files visible.
    pub(crate) fn publish(mut self) -> Result<()> {
        let disk = Rc::clone(&self.folder.disk);
        for (draft, path) in std::mem::take(&mut self.written) {
            disk.rename(&draft, &path).map_err(|e| {
                // Already renamed files are complete; this draft is not wanted.
                let _ = disk.remove_file(&draft);
                io_error("cannot write", &path, e)
            })?;
        }
        let path = &self.folder.path;
        disk.sync_folder(path).map_err(|error| io_error("cannot write the names in", path, error))?;
        self.folder.set_used()
    }
}

impl Drop for Files<'_> {
    fn drop(&mut self) {
        for (draft, _) in &self.written {
            // A draft that was never created cannot be removed, and need not be.
            let _ = self.folder.disk.remove_file(draft);
        }
    }
}

/// A file that is being written.
pub(crate) struct Draft {
    file: Box<dyn DiskFile>,
    /// Where it will be.
    path: PathBuf,
    bytes: u64,
    digest: Sha256,
}

impl Draft {
    /// Begins a file at `place`, which errors call by the path that it will have.
    pub(crate) fn begin(disk: &dyn Disk, place: &Path, path: &Path) -> Result<Draft> {
        let file = disk.create(place).map_err(|error| io_error("cannot write", path, error))?;
        Ok(Draft { file, path: path.to_path_buf(), bytes: 0, digest: Sha256::new() })
    }

    /// How many bytes it has so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds a piece.
    pub(crate) fn write(&mut self, piece: &[u8]) -> Result<()> {
        self.digest.update(piece);
        self.bytes += piece.len() as u64;
        let written = self.file.write(piece);
        written.map_err(|e| io_error(&format!("cannot write {} bytes to", piece.len()), &self.path, e))
    }

    /// Ends it when all of it is on the disk, and returns its SHA-256 in hexadecimal digits.
    pub(crate) fn finish(mut self) -> Result<String> {
        self.file.sync().map_err(|error| io_error("cannot write", &self.path, error))?;
        Ok(hexadecimal(self.digest))
    }
}

/// A digest in hexadecimal digits.
pub(crate) fn hexadecimal(digest: Sha256) -> String {
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// An error of the file system, with the path.
pub(crate) fn io_error(what: &str, path: &Path, error: std::io::Error) -> Error {
    Error::new(ErrorKind::File, format!("{what} {}: {error}", path.display())).caused_by(error)
}
