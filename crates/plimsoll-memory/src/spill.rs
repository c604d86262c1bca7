//! A file for what does not fit in memory.
//!
//! On a CPU there is no other memory to move things to: what leaves the arena must leave RAM. The file has its full size
//! from the start, so that a disk that is too small is known before the first step, and no name, so that it is gone with
//! the process, however that ends.

use crate::{Error, ErrorKind, Result, format_bytes};
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// A file of a fixed size that only this process sees. New, it is zeros.
///
/// ```
/// use plimsoll_memory::SpillFile;
/// let file = SpillFile::reserve(&std::env::temp_dir(), 1 << 20)?;
/// file.write(4096, b"out of the way")?;
/// let mut back = [0; 14];
/// file.read(4096, &mut back)?;
/// assert_eq!(&back, b"out of the way");
/// assert!(file.write(1 << 20, b"beyond its end").is_err());
/// # Ok::<(), plimsoll_memory::Error>(())
/// ```
#[derive(Debug)]
pub struct SpillFile {
    file: File,
    folder: PathBuf,
    bytes: u64,
}

/// What is written and read back to find out how fast a folder is, and the piece that it is written in.
const MEASURED_BYTES: u64 = 32 << 20;
const MEASURED_PIECE: usize = 1 << 20;

impl SpillFile {
    /// A file of so many bytes in a folder.
    ///
    /// # Errors
    /// If it cannot be made there, or there is no room for it.
    pub fn reserve(folder: &Path, bytes: u64) -> Result<SpillFile> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!(".plimsoll-spill-{}-{number}", std::process::id()));
        let refused = |what: &str, error: std::io::Error| {
            let message = format!("{what} in the folder {}: {error}", folder.display());
            Error::new(ErrorKind::Device, message)
        };
        // Nobody else's file is followed or overwritten.
        let made = options().read(true).write(true).create_new(true).open(&path);
        let file = made.map_err(|error| refused("cannot make a file to spill to", error))?;
        // Where a file that is open cannot lose its name it is left behind, empty of meaning.
        let _ = std::fs::remove_file(&path);
        let room = format!("there is no room for the {} that are spilled", format_bytes(bytes));
        allocate(&file, bytes).map_err(|error| refused(&room, error))?;
        Ok(SpillFile { file, folder: folder.to_path_buf(), bytes })
    }

    /// Its size.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Writes bytes at an offset.
    ///
    /// # Errors
    /// If they do not all lie in the file, or the system refuses.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.check(offset, bytes.len())?;
        write_all_at(&self.file, bytes, offset).map_err(|error| self.failed("write", bytes.len(), &error))
    }

    /// Reads bytes from an offset.
    ///
    /// # Errors
    /// If they do not all lie in the file, or the system refuses.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        self.check(offset, bytes.len())?;
        read_exact_at(&self.file, bytes, offset).map_err(|error| self.failed("read", bytes.len(), &error))
    }

    /// The bytes a second that a folder takes and gives back, the slower of both, measured on a file that is removed again.
    ///
    /// # Errors
    /// If nothing can be written there.
    pub fn bandwidth(folder: &Path) -> Result<f64> {
        let file = SpillFile::reserve(folder, MEASURED_BYTES)?;
        let mut piece = vec![0x5a; MEASURED_PIECE];
        let offsets = || (0..MEASURED_BYTES).step_by(MEASURED_PIECE);
        let start = Instant::now();
        offsets().try_for_each(|offset| file.write(offset, &piece))?;
        file.file.sync_data().map_err(|error| file.failed("write", piece.len(), &error))?;
        let written = start.elapsed().as_secs_f64();
        forget_cached(&file.file, MEASURED_BYTES);
        let start = Instant::now();
        offsets().try_for_each(|offset| file.read(offset, &mut piece))?;
        let slower = written.max(start.elapsed().as_secs_f64());
        Ok(MEASURED_BYTES as f64 / slower.max(1e-6))
    }

    fn check(&self, offset: u64, bytes: usize) -> Result<()> {
        match offset.checked_add(bytes as u64).is_some_and(|end| end <= self.bytes) {
            true => Ok(()),
            false => {
                let message =
                    format!("{bytes} bytes at {offset} lie outside a spill file of {} bytes", self.bytes);
                Err(Error::new(ErrorKind::Device, message))
            }
        }
    }

    fn failed(&self, what: &str, bytes: usize, error: &std::io::Error) -> Error {
        let message = format!(
            "cannot {what} {bytes} bytes of what is spilled to the folder {}: {error}",
            self.folder.display()
        );
        Error::new(ErrorKind::Device, message)
    }
}

#[cfg(unix)]
fn options() -> OpenOptions {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = OpenOptions::new();
    options.mode(0o600);
    options
}

#[cfg(not(unix))]
fn options() -> OpenOptions {
    OpenOptions::new()
}

#[cfg(unix)]
fn write_all_at(file: &File, bytes: &[u8], offset: u64) -> std::io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, offset)
}

#[cfg(unix)]
fn read_exact_at(file: &File, bytes: &mut [u8], offset: u64) -> std::io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, offset)
}

#[cfg(windows)]
fn write_all_at(file: &File, bytes: &[u8], offset: u64) -> std::io::Result<()> {
    use std::os::windows::fs::FileExt;
    let mut done = 0;
    while done < bytes.len() {
        done += file.seek_write(&bytes[done..], offset + done as u64)?;
    }
    Ok(())
}

#[cfg(windows)]
fn read_exact_at(file: &File, bytes: &mut [u8], offset: u64) -> std::io::Result<()> {
    use std::os::windows::fs::FileExt;
    let mut done = 0;
    while done < bytes.len() {
        match file.seek_read(&mut bytes[done..], offset + done as u64)? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            read => done += read,
        }
    }
    Ok(())
}

/// Gives a file its size, with the room for it where the system can promise that.
fn allocate(file: &File, bytes: u64) -> std::io::Result<()> {
    #[cfg(target_os = "linux")]
    if bytes > 0 {
        use std::os::fd::AsRawFd;
        let size = libc::off_t::try_from(bytes).map_err(|_| std::io::ErrorKind::FileTooLarge)?;
        // SAFETY: the descriptor is open for as long as the file is borrowed.
        let error = unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, size) };
        // Some file systems cannot promise room; they say so when it runs out.
        if error != 0 && error != libc::EOPNOTSUPP && error != libc::EINVAL {
            return Err(std::io::Error::from_raw_os_error(error));
        }
    }
    file.set_len(bytes)
}

/// Has the system forget what it has of a file in memory, so that reading it is reading the disk.
fn forget_cached(file: &File, bytes: u64) {
    #[cfg(target_os = "linux")]
    {
        use std::os::fd::AsRawFd;
        // SAFETY: the descriptor is open for as long as the file is borrowed. It is advice: refusing it harms nothing.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, bytes as libc::off_t, libc::POSIX_FADV_DONTNEED) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (file, bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_spilled_to_has_no_name_and_begins_as_zeros() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = SpillFile::reserve(folder.path(), 10_000).expect("a file");
        assert_eq!(std::fs::read_dir(folder.path()).expect("its entries").count(), 0);
        let mut bytes = [7; 100];
        file.read(9_900, &mut bytes).expect("its end");
        assert_eq!(bytes, [0; 100]);
    }

    #[test]
    fn a_folder_that_is_not_there_or_has_no_room_is_an_error_that_names_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let missing = folder.path().join("missing");
        let error = SpillFile::reserve(&missing, 1).expect_err("no folder").to_string();
        assert!(error.contains("missing"), "{error}");
        let error = SpillFile::reserve(folder.path(), 1 << 60).expect_err("no such disk").to_string();
        assert!(error.contains("no room for the 1048576 TiB"), "{error}");
    }

    #[test]
    fn a_folder_has_a_bandwidth() {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(SpillFile::bandwidth(folder.path()).expect("a figure") > 1e5);
    }
}
