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

mod array;
mod checkpoint;
mod device;
pub mod disk;
mod eager;
mod error;
pub mod exchange;
mod forecast;
pub mod logs;
mod measure;
mod model;
pub mod models;
mod name;
mod run;
mod save;
pub mod selftest;
pub mod spec;
mod tensor_file;
mod trainer;
mod whole_file;

pub use array::{Array, Number};
pub use device::profiles as devices;
pub use device::{DeviceInfo, DeviceName, here, hidden_by};
pub use eager::tape::GradientTape;
pub use eager::{Eager, EagerBuilder};
pub use error::{Error, ErrorKind, Result};
pub use forecast::device_use::{DeviceUse, PredictedVsActual};
pub use forecast::frontier::{FrontierPoint, FrontierReport, MaxBatch};
pub use forecast::host_use::HostUse;
pub use forecast::plan_picture::PlanPicture;
pub use forecast::process_use::ProcessUse;
pub use forecast::remedy::{Class, Remedy, RemedyKind};
pub use forecast::room::Room;
pub use forecast::summary::{LayerSummary, Summary};
pub use forecast::{Forecast, LiveValue, StepForecast};
pub use measure::bench::BenchReport;
pub use measure::kernel_times::{KernelTime, KernelTimes};
pub use model::context::Context;
pub use model::init::Init;
pub use model::precision::Precision;
pub use model::tensor::{Attend, PadMode, Resize, Tensor};
pub use model::{layers, loss, metric};
pub use plimsoll_data as data;
pub use plimsoll_graph::Phase;
pub use plimsoll_graph::optimizer::{Clip, Group, Optimizer, SlotFormat};
pub use plimsoll_graph::schedule::Schedule;
pub use plimsoll_graph::step::{Initial, Step};
pub use plimsoll_graph::{DType, Op, Shape, op};
pub use plimsoll_memory as memory;
pub use plimsoll_plan::Profile;
pub use run::{Input, Inputs, NotFinite, Outputs, Run, RunBuilder, StateInfo, StepOutputs, TakenStates};
pub use save::RunFolder;
pub use spec::Spec;
pub use trainer::{
    Alternative, Buckets, Control, DataWait, EarlyStopping, Ended, Every, Inference, LossScale, Observer,
    Observers, Parameters, Progress, ReduceOnPlateau, RunMemory, Saved, Start, Started, Trained, Trainer,
    Training, TrainingReport, Validation, Watched, Weight,
};
pub use whole_file::WholeFile;
