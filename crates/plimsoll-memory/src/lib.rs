//! Arenas, ledgers and byte sizes: what memory is reserved and what each byte is for.
//!
//! An [`Arena`] is reserved once and never grows; a [`Pool`] serves eager mode, tensor by tensor, under a
//! limit; a [`Ledger`] says what bytes are for, and always sums. Nothing here knows kernels or models.

mod arena;
mod bytes;
mod error;
mod ledger;
mod pool;

pub use arena::{ALIGNMENT, Arena};
pub use bytes::{format_bytes, parse_bytes};
pub use error::{Error, ErrorKind, Result};
pub use ledger::{Category, Ledger};
pub use pool::{Block, Pool, PoolStatistics};
