//! Graphs of tensor operations: tracing, gradients, optimizers, lowering to kernels.
//!
//! This crate knows what a training step computes, and nothing of where: no device, no file, no clock.
//! A [`Graph`] is traced op by op, extended with gradients and optimizer updates to a step, and lowered
//! to a program of kernels that declare everything a planner needs.

mod build;
mod check;
mod chunk_loss;
mod cut_updates;
mod dtype;
mod error;
mod examine;
mod gradient;
mod graph;
mod infer;
mod input_staging;
mod lower;
pub mod op;
pub mod optimizer;
pub mod pattern;
mod planning;
mod print;
pub mod products;
pub mod program;
pub mod random;
mod reorder;
pub mod scaling;
pub mod schedule;
mod shape;
pub mod step;
mod window;

pub use chunk_loss::chunk_loss;
pub use cut_updates::{StateParts, cut_updates};
pub use dtype::DType;
pub use error::{Error, ErrorKind, Result};
pub use examine::Phase;
pub use gradient::{gradient, gradients};
pub use graph::{Graph, Node, NodeId, ScopeMark, ValueId};
pub use infer::ValueType;
pub use input_staging::stage_inputs;
pub use lower::lower;
pub use op::Op;
pub use program::Program;
pub use shape::{Axes, MAX_RANK, Shape};
pub use step::{StateTable, Step};
pub use window::WEIGHT;
