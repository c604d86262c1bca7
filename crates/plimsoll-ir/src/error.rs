//! The one error of this crate.

/// What kind of mistake an [`Error`] reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A plan does not run the work it was made for.
    InvalidPlan,
}

plimsoll_memory::opaque_error! {
    /// Why a plan was refused.
    pub struct Error(ErrorKind);
    pub(crate) new;
}
