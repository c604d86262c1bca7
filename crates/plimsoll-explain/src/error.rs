//! The one error of this crate. Its message quotes whatever came from outside: names of files, and texts in them.

use plimsoll_memory::quoted;
use std::fmt;

/// A recording that cannot be read.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
}

/// What kind of failure an [`Error`] reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The file cannot be opened or read.
    Io,
    /// No reader knows what this is.
    UnknownFormat,
    /// It is of a known format but broken, and nothing could be saved of it.
    Malformed,
    /// It asks for what plain data never needs, such as calling a function, or is out of all proportion.
    Hostile,
    /// It was read, but holds nothing about memory.
    Empty,
    /// Files given together are not of one run.
    Mixed,
}

/// The result of reading a recording.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: quoted(&message.into()).into_owned() }
    }

    /// The same failure, with the file it is about in front.
    pub(crate) fn in_file(self, name: &str) -> Self {
        Self { message: format!("{}: {}", quoted(name), self.message), ..self }
    }

    /// What kind of failure this is.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
