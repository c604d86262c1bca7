//! How much room a file system has.

use serde::Serialize;
use std::path::Path;

/// The room of a file system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Space {
    /// Where it was asked for.
    pub at: String,
    /// All of it.
    pub total_bytes: u64,
    /// What files take.
    pub used_bytes: u64,
    /// What this user may still take; the rest is kept for the system.
    pub free_bytes: u64,
}

impl Space {
    /// The room of the file system that a folder is in, where the system says.
    #[cfg(unix)]
    pub fn read(folder: &Path) -> Option<Space> {
        let found = rustix::fs::statvfs(folder).ok()?;
        let bytes = |blocks: u64| blocks.checked_mul(found.f_frsize);
        Some(Space {
            at: folder.display().to_string(),
            total_bytes: bytes(found.f_blocks)?,
            used_bytes: bytes(found.f_blocks.saturating_sub(found.f_bfree))?,
            free_bytes: bytes(found.f_bavail)?,
        })
    }

    /// The room of the file system that a folder is in, where the system says.
    #[cfg(not(unix))]
    pub fn read(_: &Path) -> Option<Space> {
        None
    }
}
