//! What graphs, planners and devices share: buffers, kernels, roles, plans.
//!
//! A lowered step is [`Work`] for a planner: sizes, lifetimes and costs, without an op or a number. What comes out is a
//! [`Plan`]: an order, and an offset for every buffer. [`check`] runs a plan on paper, sharing no code with whoever made
//! it. This crate knows no mathematics and no device, so that the planner can plan anyone's graph and a device can load
//! anyone's plan.

mod check;
mod error;
mod plan;
mod work;

pub use check::check;
pub use error::{Error, ErrorKind};
pub use plan::{Lifetime, Plan, lifetimes};
pub use work::{
    Arithmetic, Buffer, BufferIndex, Family, Home, Keep, Kernel, KernelIndex, LaunchSource, Role, Work,
};
