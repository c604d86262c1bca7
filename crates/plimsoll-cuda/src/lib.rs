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

mod arena;
mod attention;
mod blas;
mod cache;
mod compiler;
mod conv;
mod copy;
mod copy_within;
mod device;
mod devices;
mod dnn;
mod dot;
mod driver;
mod engine;
mod epilogue;
mod error;
mod executable;
mod function;
mod hopper_product;
mod lanes;
#[cfg(test)]
mod lengths;
mod library;
mod loops;
mod memory;
mod number;
mod ops;
mod outbox;
mod pack;
mod past_caches;
mod pinned;
mod prepare;
mod product;
mod queue;
mod ranges;
mod recurrent;
mod routine;
mod runtime;
mod scratch;
mod selftest;
mod small;
mod source;
mod stream;
mod tensor_map;
mod together;
mod trial;

pub use device::{CudaDevice, DeviceId, MemoryInfo};
pub use devices::{DeviceInfo, devices, driver_version};
pub use error::{Error, ErrorKind, Result};
pub use executable::Executable;
pub use memory::{Books, Memory};
pub use past_caches::write_past_caches;
pub use queue::UNDER_WAY;
pub use routine::ALIGNMENT;
pub use selftest::{Check, selftest, selftest_host};
pub use source::CudaSource;
