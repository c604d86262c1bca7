//! The one error of this crate, and of devices that need no more kinds than these.

/// What kind of failure an [`Error`] reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The device is not there, or cannot be used: no driver, no such device, no threads, or known by its profile alone.
    Unavailable,
    /// The device has no kernel for something in a program.
    Unsupported,
    /// A program or a plan that does not pass its check, or is not one for this device.
    InvalidPlan,
    /// An arena or a block over a limit that the user set.
    OverLimit,
    /// The device, or the system, has no more memory to give.
    OutOfMemory,
    /// An input was not given.
    Input,
    /// The device failed: what came after it in this process cannot be relied on.
    Failed,
}

/// The result of using a device.
pub type Result<T> = std::result::Result<T, Error>;

plimsoll_memory::opaque_error! {
    /// Why a device cannot be had, or refuses a program.
    pub struct Error(ErrorKind);
    pub new;
}

impl Error {
    /// Memory that could not be had, and for what.
    pub fn short_of_memory(what: &str, error: plimsoll_memory::Error) -> Self {
        Self { message: format!("no memory for {what}: {error}"), ..error.into() }
    }
}

impl From<plimsoll_memory::Error> for Error {
    fn from(error: plimsoll_memory::Error) -> Self {
        let kind = match error.kind() {
            plimsoll_memory::ErrorKind::OverLimit => ErrorKind::OverLimit,
            plimsoll_memory::ErrorKind::OutOfMemory => ErrorKind::OutOfMemory,
            _ => ErrorKind::Failed,
        };
        Self::new(kind, error.to_string()).caused_by(error)
    }
}

impl From<plimsoll_ir::Error> for Error {
    fn from(error: plimsoll_ir::Error) -> Self {
        let message = format!("a plan did not pass its check, which is a bug: {error}");
        Self::new(ErrorKind::InvalidPlan, message).caused_by(error)
    }
}

impl From<plimsoll_plan::Error> for Error {
    fn from(error: plimsoll_plan::Error) -> Self {
        let message = format!("the program cannot be planned: {error}");
        Self::new(ErrorKind::OutOfMemory, message).caused_by(error)
    }
}

impl From<plimsoll_graph::Error> for Error {
    fn from(error: plimsoll_graph::Error) -> Self {
        let message = format!("a program did not pass its check, which is a bug: {error}");
        Self::new(ErrorKind::InvalidPlan, message).caused_by(error)
    }
}
