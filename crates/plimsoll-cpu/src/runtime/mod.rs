//! What runs kernels: the threads, the contract between an executor and its kernels, and which kernel runs what.

mod address;
pub(crate) mod device;
pub(crate) mod executable;
mod initial;
pub mod pool;
pub(crate) mod prepare;
pub(crate) mod routine;
mod spill;

pub(crate) use address::Address;
pub(crate) use pool::Pool;
pub(crate) use routine::{ALIGNMENT, Call, Options, Routine};
