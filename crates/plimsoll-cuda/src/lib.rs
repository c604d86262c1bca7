//! CUDA devices: which there are, their memory, and programs run on them.
//!
//! The NVIDIA driver is loaded at run time, so that this builds and runs where there is none; then every call
//! answers with an [`Error`] that says what is missing.
//!
//! ```
//! match plimsoll_cuda::devices() {
//!     Ok(devices) => assert!(devices.iter().all(|device| device.total_bytes > 0)),
//!     Err(error) => assert!(!error.to_string().is_empty()),
//! }
//! ```

mod attention;
mod backend;
mod codegen;
mod conv;
mod driver;
mod epilogue;
mod error;
mod gemm;
mod ops;
mod prepare;
mod recurrent;
mod routine;
mod runtime;
mod selftest;
#[cfg(test)]
mod shape_generic;

pub use driver::device::{CudaDevice, DeviceId, MemoryInfo};
pub use driver::devices::{DeviceInfo, devices, driver_version};
pub use driver::source::CudaSource;
pub use error::{Error, ErrorKind, Result};
