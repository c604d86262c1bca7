//! Data sources, batches and the dataset pipeline with its memory budget.
//!
//! Data is where a training run's host memory goes without anyone having decided so: an array is copied into a
//! "dataset", a shuffle buffer fills, prefetching keeps batches alive. Here every step says what it holds.
//!
//! - A [`Source`] reads one field of one sample into bytes the caller owns. It says how much RAM it keeps
//!   ([`Source::resident_bytes`]): [`Columns`] keeps its arrays, [`Synthetic`] computes and keeps nothing.
//! - A [`Dataset`] is a shared, checked source. [`Dataset::split`] parts it without copying, and without an index:
//!   the shuffle is a function of the seed, not a list.
//! - [`Batches`] walks it in a new order each epoch. Reading a batch writes into the caller's buffers and allocates
//!   nothing.
//! - A [`RamBudget`] refuses what would hold too much, before it is held.
//!
//! ```
//! use plimsoll_data::{Dataset, digits};
//!
//! let split = Dataset::new(digits())?.split(0.8, 7)?;
//! let batches = split.train.batches(32)?.shuffled(7);
//! let features = split.train.field("features")?;
//! let mut buffer = vec![0; batches.buffer_bytes(features)];
//! for epoch in 0..2 {
//!     for batch in batches.epoch(epoch) {
//!         batch.read(features, &mut buffer)?;
//!         // The first `batch.samples()` samples of the buffer are this batch.
//!     }
//! }
//! # Ok::<(), plimsoll_data::Error>(())
//! ```

mod batches;
mod budget;
mod check;
mod dataset;
mod error;
mod field;
mod random;
mod source;
pub mod sources;

pub use batches::{Batch, Batches, Epoch};
pub use budget::RamBudget;
pub use dataset::{Dataset, Split};
pub use error::{Error, ErrorKind, Result};
pub use field::{Element, Field};
pub use source::Source;
pub use sources::{Columns, Csv, Digits, Synthetic, Value, digits};
