//! The one error of this crate.
//!
//! A graph is refused while it is built, at the op that is wrong, so every message can name the op, the
//! shapes and the scope it was built in.

/// What kind of mistake an [`Error`] reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Shapes that do not go together, or an axis that is not there.
    Shape,
    /// An element type an op does not take.
    DType,
    /// An argument outside of its range.
    Argument,
    /// A gradient that does not exist.
    Gradient,
}

/// The result of building or transforming a graph.
pub type Result<T> = std::result::Result<T, Error>;

plimsoll_memory::opaque_error! {
    /// A graph, gradient or lowering that cannot be: what is wrong, where, and what was expected.
    pub struct Error(ErrorKind);
    pub(crate) new;
}

impl Error {
    pub(crate) fn shape(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Shape, message)
    }

    pub(crate) fn dtype(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::DType, message)
    }

    pub(crate) fn argument(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Argument, message)
    }

    pub(crate) fn gradient(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Gradient, message)
    }

    /// Adds where it happened: the op and the scope.
    pub(crate) fn at(mut self, op: &str, scope: &str) -> Self {
        let place = if scope.is_empty() { String::new() } else { format!(" (in scope `{scope}`)") };
        self.message = format!("{op}: {}{place}", self.message);
        self
    }
}
