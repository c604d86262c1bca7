//! Files that are whole or absent.

use std::fs;
use std::io;
use std::path::Path;

/// Writes a file that is complete or not there: beside its place first, then renamed.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        // A pipe or a terminal has no place beside it.
        return fs::write(path, bytes);
    }
    let mut draft = path.as_os_str().to_owned();
    draft.push(format!(".{}.draft", std::process::id()));
    fs::write(&draft, bytes).and_then(|()| fs::rename(&draft, path)).inspect_err(|_| {
        let _ = fs::remove_file(&draft);
    })
}
