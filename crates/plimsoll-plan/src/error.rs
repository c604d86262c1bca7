//! The crate's one error type.
//!
//! An [`Error`] is opaque: its message says what was wrong, where, and what was expected instead; its
//! [`ErrorKind`] says which part of the crate refused, for callers that want to react.

use std::fmt;

/// Why a problem, a packing, a plan or a file was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    message: String,
}

/// What kind of input an [`Error`] is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A file is not the CSV that was expected; `line` counts from 1.
    Csv {
        /// The line at fault.
        line: usize,
    },
    /// The items or the alignment do not make a packing problem.
    InvalidProblem,
    /// The offsets of a packing break its promise.
    InvalidPacking,
    /// A plan does not run the work it was made for.
    InvalidPlan,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// What kind of input the error is about.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let ErrorKind::Csv { line } = self.kind {
            write!(f, "line {line}: ")?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
