//! Writing results: all of a file or nothing of it.

use crate::{Error, ErrorKind, Result};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Files that become visible together: each is written beside its place and synced first, then all are
/// renamed. If anything fails before that, what was there stays and nothing new is left behind.
pub(crate) struct Files {
    written: Vec<(PathBuf, PathBuf)>,
}

impl Files {
    /// None yet, for a directory, which is made if it is not there.
    pub(crate) fn in_directory(directory: &Path) -> Result<Files> {
        fs::create_dir_all(directory).map_err(|e| io_error("cannot make the directory", directory, e))?;
        Ok(Files { written: vec![] })
    }

    /// Writes a file, not yet visible under its name.
    pub(crate) fn write(&mut self, path: PathBuf, bytes: &[u8]) -> Result<()> {
        let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let draft = path.with_file_name(format!(".{name}.{}.draft", std::process::id()));
        self.written.push((draft.clone(), path.clone()));
        let write = || {
            let mut file = File::create(&draft)?;
            file.write_all(bytes)?;
            file.sync_all()
        };
        write().map_err(|e| io_error(&format!("cannot write {} bytes to", bytes.len()), &path, e))
    }

    /// Makes all files visible.
    pub(crate) fn publish(mut self) -> Result<()> {
        for (draft, path) in std::mem::take(&mut self.written) {
            fs::rename(&draft, &path).map_err(|e| {
                // Already renamed files are complete; this draft is not wanted.
                let _ = fs::remove_file(&draft);
                io_error("cannot write", &path, e)
            })?;
        }
        Ok(())
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        for (draft, _) in &self.written {
            // A draft that was never created cannot be removed, and need not be.
            let _ = fs::remove_file(draft);
        }
    }
}

/// An error of the file system, with the path.
pub(crate) fn io_error(what: &str, path: &Path, error: std::io::Error) -> Error {
    Error::new(ErrorKind::File, format!("{what} {}: {error}", path.display())).caused_by(error)
}
