//! The one error of this crate.

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
    /// An arena over a limit that the user set.
    OverLimit,
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
    /// An input was not given.
    Input,
}

/// The result of using a CUDA device.
pub type Result<T> = std::result::Result<T, Error>;

plimsoll_memory::opaque_error! {
    /// Why a CUDA device, or memory on it, cannot be had.
    pub struct Error(ErrorKind);
    pub(crate) new;
}

impl Error {
    /// Memory that a pool could not give, and for what. Its cause is the pool's error, which has the verdict.
    pub(crate) fn short_of_memory(what: &str, error: plimsoll_memory::Error) -> Self {
        use plimsoll_memory::ErrorKind as Memory;
        let kind = match error.kind() {
            Memory::OverLimit | Memory::OutOfMemory => ErrorKind::OutOfMemory,
            _ => ErrorKind::Driver,
        };
        Self::new(kind, format!("no memory for {what}: {error}")).caused_by(error)
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

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_memory::Pool;
    use std::error::Error as _;

    #[test]
    fn memory_that_a_pool_refuses_is_named_with_what_it_was_for() {
        let refused = Pool::new(Some(10)).allocate(11).expect_err("over the limit");
        let error = Error::short_of_memory("f32[3] of `relu`", refused.clone());
        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
        assert!(error.to_string().starts_with("no memory for f32[3] of `relu`: "), "{error}");
        assert_eq!(error.source().map(ToString::to_string), Some(refused.to_string()));
    }
}
