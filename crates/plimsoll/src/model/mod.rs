//! What models are written with: tensors, the context that names their parameters, layers, losses.
//!
//! A model is a description without weights. The same function is traced into a step of a run, or run at once in eager
//! mode; nothing here knows which.

pub(crate) mod context;
pub(crate) mod frozen;
pub(crate) mod init;
pub mod layers;
pub mod loss;
pub mod metric;
pub(crate) mod precision;
pub(crate) mod tensor;
pub(crate) mod trace;
