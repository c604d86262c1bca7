//! What saving needs of a disk, as one small interface.
//!
//! A run can be ended at any moment: between two writes, before a rename, while a full disk refuses. What is left behind then
//! must be what was complete before. All that runs write goes through a [`Disk`], so that tests can end it at every single
//! call and look at what is there.

use std::fmt::Debug;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// Where runs write their files. [`LocalDisk`] is the file system of this machine.
pub trait Disk: Debug {
    /// Begins a file that is empty, whatever was there.
    ///
    /// # Errors
    /// If the system refuses, as all of these.
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;

    /// Makes a folder in one that is there.
    ///
    /// # Errors
    /// If the system refuses, or it is there.
    fn make_folder(&self, path: &Path) -> io::Result<()>;

    /// Gives a file or a folder another name. A file that has it already is replaced, in one moment.
    ///
    /// # Errors
    /// If the system refuses.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// If the system refuses.
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Removes a folder that is empty.
    ///
    /// # Errors
    /// If the system refuses.
    fn remove_folder(&self, path: &Path) -> io::Result<()>;

    /// Returns when the names in a folder are as they are even after the machine has lost its power.
    ///
    /// # Errors
    /// If the system refuses.
    fn sync_folder(&self, path: &Path) -> io::Result<()>;
}

/// A file that is being written.
pub trait DiskFile {
    /// Adds all of these bytes.
    ///
    /// # Errors
    /// If the system refuses; some of them may be there then.
    fn write(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Returns when all that was written is on the disk.
    ///
    /// # Errors
    /// If the system refuses.
    fn sync(&mut self) -> io::Result<()>;
}

/// The file system of this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct LocalDisk;

impl Disk for LocalDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(File::create(path)?))
    }

    fn make_folder(&self, path: &Path) -> io::Result<()> {
        fs::create_dir(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_folder(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn sync_folder(&self, path: &Path) -> io::Result<()> {
        // Not every system opens folders; there, names are as durable as it makes them.
        File::open(path).map_or(Ok(()), |folder| folder.sync_all())
    }
}

impl DiskFile for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }
}
