//! Data sources, batches and the dataset pipeline with its memory budget.
//!
//! Data is where a training run's host memory goes without anyone having decided so: an array is copied into a
//! "dataset", a shuffle buffer fills, prefetching keeps batches alive. Here every step says what it holds.
//!
//! - A [`Source`] reads one field of one sample into bytes the caller owns. It says how much RAM it keeps
//!   ([`Source::resident_bytes`]): [`Columns`] keeps its arrays, [`Synthetic`] computes and keeps nothing,
//!   and [`sources`] reads the files of other programs in place.
//! - A [`Dataset`] is samples and the stages they go through: shuffled, mapped on several threads, filtered, packed,
//!   batched, cached, made ahead. Declaring it reads nothing. [`Dataset::split`] parts it without copying, and without an
//!   index: the shuffle is a function of the seed, not a list.
//! - [`Records`] are the samples of an epoch one after the other. A [`Position`] in them is a few numbers, from which another
//!   process goes on with exactly what was to come.
//! - [`Batches`] walks it in a new order each epoch. Reading a batch of a source writes into the caller's buffers and
//!   allocates nothing.
//! - A [`RamBudget`] bounds what all stages of a data set hold together, and refuses before more is held.
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
pub mod image;
mod picked;
mod pipeline;
mod random;
mod record;
mod records;
mod source;
pub mod sources;
mod survey;

pub use batches::{Batch, Batches, Epoch};
pub use budget::RamBudget;
pub use dataset::{Cache, Dataset, Pack, Split};
pub use error::{Error, ErrorKind, Result};
pub use field::{Element, Field, Scalar};
pub use pipeline::{Depth, PipelineReport, StageReport, Workers};
pub use random::Draws;
pub use record::Record;
pub use records::{Position, Records};
pub use source::{Promise, RecordReader, Source};
pub use sources::{Columns, Csv, Digits, ImageFolder, Synthetic, Value, digits};
pub use survey::{Rate, Survey};
