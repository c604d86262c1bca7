//! The crate's one error type.
//!
//! An [`Error`] is opaque: its message says what was wrong, where, and what was expected instead; its
//! [`ErrorKind`] says which part of the crate refused, for callers that want to react.

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

plimsoll_memory::opaque_error! {
    /// Why a problem, a packing, a plan or a file was refused.
    pub struct Error(ErrorKind);
    pub(crate) new;
}
