//! When and where: the order of kernels and the offset of every buffer, as pure functions.
//!
//! The planner sees sizes and times, never values or devices, so it runs anywhere and can plan for a machine
//! it has only read about. What there is to plan is a [`Work`]; what comes out is a [`Plan`], which
//! [`plimsoll_ir::check`] verifies without sharing a line with what made it.
//!
//! [`Work`]: plimsoll_ir::Work
//! [`Plan`]: plimsoll_ir::Plan

mod check;
mod costs;
pub mod csv;
mod efficiency;
mod error;
mod frontier;
pub mod pack;
pub mod packing;
mod plan;
mod recompute;
mod schedule;
mod transfer;

pub use check::{LowerBound, check_remedies, lower_bound, validate};
pub use costs::{Copies, Costs, Profile, Rates};
pub use efficiency::{EfficiencyTable, Measured};
pub use error::{Error, ErrorKind};
pub use frontier::{Fitted, Frontier, Remedies};
pub use pack::Effort;
pub use plan::{Options, plan};
pub use recompute::descent::Offload;
