//! Train deep-learning models inside a memory budget: tensors, layers, losses, optimizers.
//!
//! A model is a function of a [`Context`] and a [`Tensor`], written freely or put together from
//! [`layers`]. Tracing it gives a step: a graph in which everything a training loop would do is known before
//! it runs, and with it every byte.
//!
//! ```
//! use plimsoll::layers::{Activation, Dense, Layer, Sequential};
//! use plimsoll::{Context, DType, Optimizer, Precision, loss, metric};
//!
//! let model = Sequential::new()
//!     .then(Dense::new(100).activation(Activation::Relu))
//!     .then(Dense::new(10));
//!
//! let cx = Context::trace(true, Precision::F32);
//! let images = cx.input("images", &[256, 784], DType::F32)?;
//! let labels = cx.target("labels", &[256], DType::I32)?;
//! let logits = model.forward(&cx, &images)?;
//! let loss = loss::sparse_cross_entropy(&logits, &labels)?;
//! cx.output("loss", &loss)?;
//! cx.output("accuracy", &metric::accuracy(&logits, &labels)?)?;
//! cx.minimise(&loss, &Optimizer::adam(1e-3))?;
//!
//! let step = cx.take_step()?;
//! assert_eq!(step.gradients.len(), 4);
//! # Ok::<(), plimsoll::Error>(())
//! ```

mod bench;
mod compile;
mod context;
mod device;
mod device_use;
pub mod devices;
mod eager;
mod error;
mod forecast;
mod frontier;
mod init;
mod kernel_times;
pub mod layers;
pub mod loss;
mod machine;
mod memory_trace;
pub mod metric;
pub mod models;
mod name;
mod precision;
mod remedy;
mod run;
mod save;
pub mod selftest;
mod session;
pub mod spec;
mod tape;
mod target;
mod tensor;
mod trace;
mod trainer;

pub use bench::BenchReport;
pub use compile::{Compiled, work};
pub use context::Context;
pub use device::Device;
pub use device_use::{DeviceUse, PredictedVsActual};
pub use eager::Eager;
pub use error::{Error, ErrorKind, Result};
pub use forecast::{Forecast, LiveValue};
pub use frontier::{FrontierPoint, FrontierReport, MaxBatch};
pub use init::Init;
pub use kernel_times::{KernelTime, KernelTimes};
pub use plimsoll_cpu::CpuDevice;
pub use plimsoll_cuda::DeviceId;
pub use plimsoll_data as data;
pub use plimsoll_graph::optimizer::{Clip, Optimizer};
pub use plimsoll_graph::schedule::Schedule;
pub use plimsoll_graph::step::{Initial, Step};
pub use plimsoll_graph::{DType, Op, Shape, op};
pub use plimsoll_memory as memory;
pub use plimsoll_plan::Profile;
pub use precision::Precision;
pub use remedy::{Class, Remedy, RemedyKind};
pub use run::{LossScale, RunReport, Trained, Weight};
pub use spec::Spec;
pub use tape::GradientTape;
pub use tensor::Tensor;
pub use trainer::{Buckets, Progress, RunMemory, Trainer};
