//! The one error of this crate.

use std::fmt;

/// Why the CPU device cannot be had, or a plan cannot be loaded on it.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// What kind of failure an [`Error`] reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The system did not start the threads.
    Threads,
    /// A plan that is not one for this program or arena.
    Plan,
    /// Memory that could not be had.
    Memory,
}

/// The result of using the CPU device.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    /// Memory that could not be had, and for what.
    pub(crate) fn short_of_memory(what: &str, error: plimsoll_memory::Error) -> Self {
        Self { message: format!("no memory for {what}: {error}"), ..error.into() }
    }

    /// What kind of failure this is.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl From<plimsoll_memory::Error> for Error {
    fn from(error: plimsoll_memory::Error) -> Self {
        Self { kind: ErrorKind::Memory, message: error.to_string(), source: Some(Box::new(error)) }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|e| &**e as _)
    }
}
