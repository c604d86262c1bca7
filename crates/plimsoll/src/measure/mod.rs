//! Measuring: the time of a training step and the memory it takes in the end, and the time of each of its kernels.

pub(crate) mod bench;
pub(crate) mod kernel_times;
