//! What a machine has of memory, who holds it, and what limits it.
//!
//! Programs run out of memory where there is plenty: a container's limit, 64 MiB of shared memory, a commit limit, a
//! process nobody remembers on the GPU. All of it is written somewhere in `/proc` and `/sys`, or said by the driver. This
//! crate reads that, closes the books on it, and says what is suspicious.
//!
//! ```text
//! /proc, /sys ──System::read──▶ System ─┐
//! nvidia-smi ──gpu::read──▶ Gpus ───────┼──find──▶ what is suspicious
//! environment ──▶ Settings ─────────────┘
//! ```
//!
//! Reading is a function of a folder and of text, so that a captured machine is read as this one is:
//!
//! ```
//! use plimsoll_machine::System;
//! let system = System::read(std::path::Path::new("/"));
//! for book in &system.books {
//!     assert_eq!(book.lines.iter().map(|line| line.bytes).sum::<u64>(), book.total_bytes);
//! }
//! ```

mod books;
mod cgroup;
mod finding;
pub mod gpu;
mod settings;
mod space;
mod system;
mod tree;

pub use books::{Book, Line};
pub use cgroup::{Cgroup, Place};
pub use finding::{Finding, find};
pub use settings::{Setting, Settings};
pub use space::Space;
pub use system::{HostMemory, Limits, Overcommit, System};
