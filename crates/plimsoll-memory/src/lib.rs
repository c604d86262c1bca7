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
mod layout;
mod ledger;
mod owners;
mod pool;
mod replay;
mod source;
mod trace;

pub use allocator::{Allocator, BfcSettings, CachingSettings, Model};
pub use arena::{ALIGNMENT, Arena};
pub use bytes::{format_bytes, parse_bytes};
pub use error::{Error, ErrorKind, Result};
pub use layout::{Layout, Piece, PieceState, Segment, SegmentClass};
pub use ledger::{Category, Ledger};
pub use owners::{Frame, OwnerId, Owners};
pub use pool::{Block, Pool, PoolStatistics};
pub use replay::{FailedAt, Moment, Outcome, Start, replay};
pub use source::{CountedDevice, Source};
pub use trace::{Action, Event, Request, RequestId, Trace};
