//! How programs run on a device: planned ones as one CUDA graph in one arena, others at once in blocks of a pool.
//!
//! A plan is loaded once: its kernels are prepared, those that are alike become one launch (`launch_groups`), all are
//! put on streams by the bytes they touch (`stream_assignment`), and the whole is captured as a graph (`executable`).
//! Running it is one call; inputs and results travel beside it (`in_flight`, `small_results`).

mod arena;
mod copy_within;
mod eager;
pub(crate) mod executable;
pub(crate) mod in_flight;
pub(crate) mod launch_groups;
pub(crate) mod memory;
mod small_results;
pub(crate) mod stream_assignment;

pub(crate) use eager::Eager;
