//! The one error of this crate.
//!
//! Whatever goes wrong below (a shape in a graph, a file, a device) reaches people as this type: a message
//! that can be read on its own, a kind to match on, and the cause underneath.

use std::fmt;

/// What went wrong: a message with the shapes, names and limits involved, and where.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
    /// The least budget that would do, where one did not.
    least_bytes: Option<u64>,
}

/// What kind of mistake an [`Error`] reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Shapes that do not go together, or an axis that is not there.
    Shape,
    /// An element type that is not taken.
    DType,
    /// An argument outside of its range.
    Argument,
    /// A name that is unknown, not allowed, or already taken by something else.
    Name,
    /// A gradient that does not exist.
    Gradient,
    /// Tensors of two traces together, or a tensor of a trace that has ended.
    Trace,
    /// Data that cannot be trained on.
    Data,
    /// A budget that nothing fits, or memory over a limit that was set.
    Budget,
    /// Memory that the device or the system does not have.
    OutOfMemory,
    /// A program or plan that did not pass its check, or is not one for the device.
    Plan,
    /// A loss that is no longer a number.
    Diverged,
    /// A file that cannot be read or written.
    File,
    /// A file of a workload or a device that cannot be understood.
    Spec,
    /// A device that cannot be used.
    Device,
    /// A promise of this library that it did not keep: a bug.
    Internal,
}

/// The result of most things here.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error of that kind: for layers, losses and steps that have something to complain about.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Error { kind, message: message.into(), source: None, least_bytes: None }
    }

    /// Adds the cause.
    pub(crate) fn caused_by(mut self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.source = Some(Box::new(source));
        self
    }

    /// Adds where it happened, in the words that graphs use.
    pub(crate) fn in_scope(mut self, scope: &str) -> Self {
        if !scope.is_empty() {
            self.message = format!("{} (in scope `{scope}`)", self.message);
        }
        self
    }

    /// Adds the step it happened in.
    pub(crate) fn in_step(mut self, step: &str) -> Self {
        self.message = format!("step `{step}`: {}", self.message);
        self
    }

    /// Adds the least budget that would do.
    pub(crate) fn at_least(mut self, bytes: u64) -> Self {
        self.least_bytes = Some(bytes);
        self
    }

    /// The least budget that would do, of an error about one that does not.
    pub fn least_bytes(&self) -> Option<u64> {
        self.least_bytes
    }

    /// What kind of mistake this is.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| &**source as _)
    }
}

impl From<plimsoll_graph::Error> for Error {
    fn from(error: plimsoll_graph::Error) -> Self {
        use plimsoll_graph::ErrorKind as Graph;
        let kind = match error.kind() {
            Graph::Shape => ErrorKind::Shape,
            Graph::DType => ErrorKind::DType,
            Graph::Gradient => ErrorKind::Gradient,
            _ => ErrorKind::Argument,
        };
        Error::new(kind, error.to_string()).caused_by(error)
    }
}

impl From<plimsoll_plan::Error> for Error {
    fn from(error: plimsoll_plan::Error) -> Self {
        let (kind, message) = match error.kind() {
            plimsoll_plan::ErrorKind::InvalidPlan => {
                (ErrorKind::Plan, format!("a plan did not pass its check, which is a bug: {error}"))
            }
            _ => (ErrorKind::OutOfMemory, format!("the step cannot be planned: {error}")),
        };
        Error::new(kind, message).caused_by(error)
    }
}

impl From<plimsoll_memory::Error> for Error {
    fn from(error: plimsoll_memory::Error) -> Self {
        plimsoll_device::Error::from(error).into()
    }
}

impl From<plimsoll_device::Error> for Error {
    fn from(error: plimsoll_device::Error) -> Self {
        use plimsoll_device::ErrorKind as Device;
        let kind = match error.kind() {
            Device::OverLimit => ErrorKind::Budget,
            Device::OutOfMemory => ErrorKind::OutOfMemory,
            Device::InvalidPlan => ErrorKind::Plan,
            _ => ErrorKind::Device,
        };
        Error::new(kind, error.to_string()).caused_by(error)
    }
}

impl From<plimsoll_cuda::Error> for Error {
    fn from(error: plimsoll_cuda::Error) -> Self {
        plimsoll_device::Error::from(error).into()
    }
}

impl From<plimsoll_data::Error> for Error {
    fn from(error: plimsoll_data::Error) -> Self {
        Error::new(ErrorKind::Data, error.to_string()).caused_by(error)
    }
}
