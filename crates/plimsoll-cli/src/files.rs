//! What is no file but may be given as one.

use plimsoll_memory::quoted;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

/// Says so on the standard error stream if what is about to be read is a named pipe: it may be that nobody ever writes to
/// it, and until somebody does, nothing else will be seen.
pub(crate) fn tell_of_waiting(path: &Path) {
    if is_named_pipe(path) {
        let line = format!("waiting for what is written to the pipe {}\n", quoted(&path.to_string_lossy()));
        // Where there is nobody to read it, it is waited for all the same.
        let _ = io::stderr().write_all(line.as_bytes());
    }
}

/// Whether a path leads to a pipe in a file system. The pipes of a shell, which have a writer, have no such place.
#[cfg(unix)]
fn is_named_pipe(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    fs::canonicalize(path).and_then(fs::metadata).is_ok_and(|found| found.file_type().is_fifo())
}

#[cfg(not(unix))]
fn is_named_pipe(_: &Path) -> bool {
    false
}
