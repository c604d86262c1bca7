//! Arenas, pools, ledgers, allocation traces and byte sizes: what memory is reserved and what each byte is for.
//!
//! An [`Arena`] is reserved once and never grows; a [`Pool`] serves eager mode, tensor by tensor, under a
//! limit; a [`Ledger`] says what bytes are for, and always sums. A [`Trace`] is what a program asked of a pool,
//! its own or another framework's, and an [`Allocator`] is a policy that such a trace can be replayed under.
//! Nothing here knows kernels or models.

mod allocator;
mod allocators;
mod arena;
mod bytes;
mod error;
mod extents;
mod host;
mod layout;
mod ledger;
mod opaque_error;
mod outside;
mod owners;
mod paged;
mod physical;
mod pool;
mod process;
mod replay;
mod ring;
mod shortage;
mod source;
mod spill;
mod table;
mod trace;
mod trace_file;

pub use allocator::{Allocator, BfcSettings, CachingSettings, Model};
pub use arena::{ALIGNMENT, Arena};
pub use bytes::{format_bytes, parse_bytes};
pub use error::{Error, ErrorKind, Result};
pub use host::HostMemory;
pub use layout::{Layout, Piece, PieceState, Segment, SegmentClass};
pub use ledger::{Category, Ledger};
pub use outside::{is_unprintable, quoted, read_text};
pub use owners::{Frame, OwnerId, Owners};
pub use paged::Paged;
pub use physical::PhysicalDevice;
pub use pool::{Block, OwnerStatistics, Pool, PoolSettings, PoolStatistics};
pub use process::{
    let_go_of_code, machine_bytes, peak_resident_bytes, resident_bytes, return_freed_memory, use_two_heaps,
};
pub use replay::{FailedAt, Moment, Outcome, Start, replay};
pub use shortage::{Cause, Shortage};
pub use source::{CountedDevice, Source};
pub use spill::SpillFile;
pub use table::{Cell, Column, Table, cut_end, cut_middle, wrapped};
pub use trace::{Action, Event, Request, RequestId, Trace};
pub use trace_file::{RunKind, TRACE_VERSION, TraceFile, TraceHeader, TraceLine};
