//! The CPU device: kernels on a thread pool, run from one arena.
//!
//! Every kernel here declares its workspace before it runs and takes it from the caller, so that a plan can
//! count it. Nothing allocates while it runs, and no result depends on how many threads computed it.

pub mod conv;
pub mod gemm;
mod kernels;
mod math;
pub mod numbers;
mod runtime;
pub mod simd;
#[cfg(test)]
mod testing;

pub use plimsoll_device::{Error, ErrorKind, Result};
pub use runtime::device::CpuDevice;
pub use runtime::pool;
pub use runtime::routine::ALIGNMENT;
