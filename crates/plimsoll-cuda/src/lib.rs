//! The memory of CUDA devices: which there are, addresses on them, pages behind those, and a self-test.
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

mod copy;
mod device;
mod devices;
mod driver;
mod error;
mod ranges;
mod selftest;
mod source;

pub use device::{CudaDevice, DeviceId, MemoryInfo};
pub use devices::{DeviceInfo, devices, driver_version};
pub use error::{Error, ErrorKind, Result};
pub use selftest::{Check, selftest, selftest_host};
pub use source::CudaSource;
