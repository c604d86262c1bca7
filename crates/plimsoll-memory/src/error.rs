//! The one error of this crate.

use crate::shortage::Shortage;
use std::fmt;

/// Memory that cannot be had, or a size that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    shortage: Option<Box<Shortage>>,
}

/// What kind of failure an [`Error`] reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A limit set by the user would be passed.
    OverLimit,
    /// The system has no more memory to give.
    OutOfMemory,
    /// A text that is not a size in bytes.
    NotASize,
    /// A device, or the system, refused for another reason.
    Device,
    /// A text that names no allocator.
    UnknownAllocator,
}

/// The result of asking for memory.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error of that kind; for those who implement [`Source`](crate::Source).
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), shortage: None }
    }

    pub(crate) fn short_of_memory(kind: ErrorKind, shortage: Shortage) -> Self {
        Self { kind, message: shortage.to_string(), shortage: Some(Box::new(shortage)) }
    }

    /// What kind of failure this is.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Why a pool refused a request, if that is what this is about.
    pub fn shortage(&self) -> Option<&Shortage> {
        self.shortage.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
