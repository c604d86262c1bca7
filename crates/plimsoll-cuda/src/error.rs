//! The one error of this crate.

use std::fmt;

/// Why a CUDA device, or memory on it, cannot be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    message: String,
}

/// What kind of failure an [`Error`] reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// There is no NVIDIA driver on this machine, or it cannot be loaded.
    NoDriver,
    /// The driver is older than what is needed, or lacks a function.
    DriverTooOld,
    /// There is no such device.
    NoDevice,
    /// The device, or the driver on this machine, cannot do what is needed.
    Unsupported,
    /// A text that does not name a CUDA device.
    NotADevice,
    /// The device has no more memory to give.
    OutOfMemory,
    /// A range of addresses that is not what was reserved or mapped.
    BadRange,
    /// The driver refused a call for another reason.
    Driver,
    /// A library beside the driver that is needed (NVRTC, cuBLASLt, cuDNN) is missing or too old.
    NoLibrary,
    /// A library beside the driver refused a call.
    Library,
    /// The source of a kernel does not compile.
    Compile,
    /// A plan that does not belong to the program, or does not fit the memory.
    Plan,
}

/// The result of using a CUDA device.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// What kind of failure this is.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl From<Error> for plimsoll_memory::Error {
    fn from(error: Error) -> Self {
        let kind = match error.kind {
            ErrorKind::OutOfMemory => plimsoll_memory::ErrorKind::OutOfMemory,
            _ => plimsoll_memory::ErrorKind::Device,
        };
        plimsoll_memory::Error::new(kind, error.message)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
