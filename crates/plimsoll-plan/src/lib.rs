//! When and where: the order of kernels and the offset of every buffer, as pure functions.
//!
//! The planner sees sizes and times, never values or devices, so it runs anywhere and can plan for a machine
//! it has only read about. What there is to plan is a [`Work`]; what comes out is a [`Plan`], and
//! [`check`] verifies it without sharing a line with what made it.

mod check;
mod costs;
pub mod csv;
mod descend;
mod error;
mod expand;
mod faithful;
mod fit;
mod live;
mod offers;
mod order;
pub mod pack;
pub mod packing;
mod plan;
mod recipe;
mod schedule;
mod setting;
mod simulate;
mod trips;
mod validate;
mod work;

pub use check::check;
pub use costs::{Copies, Costs, Profile, Rates};
pub use descend::Offload;
pub use error::{Error, ErrorKind};
pub use faithful::check_remedies;
pub use fit::{Fitted, Floor, Frontier, Remedies, floor};
pub use pack::Effort;
pub use plan::{Options, Plan, plan};
pub use schedule::Source;
pub use validate::validate;
pub use work::{Arithmetic, Buffer, BufferIndex, Home, Keep, Kernel, KernelIndex, Work};
