//! Weights in and out: files of other programs read and written, and models that other programs run.
//!
//! A [`TensorFile`] is a safetensors file of any maker. [`load_weights`] puts what is in one into the states of a run,
//! [`save_weights`] and [`convert_weights`] write one; [`Names`] say what tensors are called there and how they lie. Both
//! directions use one description of names and layouts, and neither has a tensor whole: elements are moved in pieces of a
//! few MiB, whatever their order. [`write_onnx`] writes a model with its weights for programs that only run it.

mod load;
mod names;
mod onnx;
mod predictions;
mod save;
mod shared_box;

pub use crate::tensor_file::{StoredTensor, TensorFile};
pub use load::{LoadReport, Mismatch, Missing, Partial, Taken, load_weights};
pub use names::Names;
pub use onnx::{OnnxReport, write_onnx};
pub use predictions::PredictionFile;
pub use save::{SaveReport, convert_weights, save_weights};

/// The most bytes of a tensor that are in memory at a time.
const PIECE_BYTES: usize = 4 << 20;
