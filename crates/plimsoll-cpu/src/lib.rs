//! The CPU device: kernels on a thread pool, run from one arena.
//!
//! Every kernel here declares its workspace before it runs and takes it from the caller, so that a plan can
//! count it. Nothing allocates while it runs, and no result depends on how many threads computed it.

pub mod conv;
mod device;
mod error;
mod executable;
pub mod gemm;
mod kernels;
mod math;
pub mod numbers;
mod runtime;
pub mod simd;
#[cfg(test)]
mod testing;

pub use device::{CpuDevice, category};
pub use error::{Error, ErrorKind, Result};
pub use executable::{Executable, Memory};
pub use runtime::pool;
use runtime::{prepare, routine};

pub use routine::ALIGNMENT;
