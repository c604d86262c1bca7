//! Kernels as CUDA C++ that is written for the shapes and types at hand, compiled where it runs, and kept.

pub(crate) mod cache;
pub(crate) mod compiler;
pub(crate) mod dtype_defines;
pub(crate) mod engine;
pub(crate) mod function;
pub(crate) mod launches;
pub(crate) mod loops;
