//! The stages of a data set, from its sources to the batches that a run takes.
//!
//! A [`Node`] is a stage as it is declared: immutable, shared, without data. Opening it for an epoch gives a [`Stream`],
//! which makes one record after another into memory that the caller lends. All randomness is a function of seeds, the epoch
//! and the number of a record, so that an epoch is the same however many threads work on it, and a place in it is a few
//! numbers: [`Stream::save`] writes them, [`Stream::seek`] goes there without making again what was made before.

mod account;
mod batch;
mod bucket;
mod by_number;
mod cache;
mod claim;
mod depth;
mod filter;
mod interleave;
mod iterated;
mod join;
mod map;
mod meter;
mod pack;
mod pending;
mod range;
mod repeat;
mod rows_ahead;
mod shelf;
mod shuffle;
mod workers;

pub(crate) use account::{Account, Held};
pub(crate) use batch::{Batched, Padding, check_batch_size};
pub(crate) use bucket::Bucketed;
pub(crate) use by_number::ByNumber;
pub(crate) use cache::{Cached, Storage};
pub(crate) use claim::Claim;
pub use depth::{Depth, Workers};
pub(crate) use filter::{Filtered, Tolerant};
pub(crate) use interleave::Interleaved;
pub(crate) use iterated::Iterated;
pub(crate) use join::{InARow, Zipped};
pub(crate) use map::{Function, Mapped};
pub(crate) use meter::{Meter, StageMeter};
pub use meter::{PipelineReport, StageReport};
pub(crate) use pack::Packed;
pub(crate) use range::{Range, Sharded};
pub(crate) use repeat::Repeated;
pub(crate) use rows_ahead::{RowsAhead, rows_ahead};
pub(crate) use shelf::Shelf;
pub(crate) use shuffle::Shuffled;
pub(crate) use workers::Prefetched;

use crate::{ErrorKind, Field, Record, Result, Source};
use std::sync::Arc;

/// A stage as it is declared.
pub(crate) trait Node: Send + Sync {
    /// What its records are made of.
    fn fields(&self) -> &Arc<[Field]>;

    /// How many records an epoch has, where that is known before they are made.
    fn count(&self) -> Option<u64>;

    /// The stages that it is over.
    fn upstream(&self) -> &[Arc<dyn Node>];

    /// Whether an epoch has no end, if it has any records.
    fn is_endless(&self) -> bool {
        matches!(self.upstream(), [only] if only.is_endless())
    }

    /// Its records of one epoch, from the first.
    fn open(&self, pass: &Pass) -> Result<Box<dyn Stream>>;

    /// Bytes of RAM that it occupies as long as it lives, whether or not it is open.
    fn resident_bytes(&self) -> u64 {
        self.upstream().iter().map(|of| of.resident_bytes()).sum()
    }

    /// Bytes of RAM that its stages are known to hold while they are open, beside what they make ahead.
    fn stage_bytes(&self) -> u64 {
        self.upstream().iter().map(|of| of.stage_bytes()).sum()
    }

    /// The source, if its records are those of a source, in the source's order.
    fn source(&self) -> Option<&Arc<dyn Source>> {
        None
    }

    /// The same stage over another, for a stage that makes one record of each: what picks and orders records can go
    /// before it, where less is thrown away. Returns what it is over as well.
    fn one_to_one(&self) -> Option<OneToOne<'_>> {
        None
    }

    /// The same stage over another, for a stage that treats each record by itself: the order of records can be chosen before
    /// it.
    fn each_by_itself(&self) -> Option<OneToOne<'_>> {
        self.one_to_one()
    }
}

/// What a stage is over, and how to have it over another.
pub(crate) type OneToOne<'a> = (&'a Arc<dyn Node>, Box<dyn Fn(Arc<dyn Node>) -> Arc<dyn Node> + 'a>);

/// What all stages of a pipeline share while it runs.
#[derive(Clone)]
pub(crate) struct Pass {
    pub(crate) epoch: u64,
    pub(crate) account: Arc<Account>,
    pub(crate) meter: Arc<Meter>,
}

impl Pass {
    /// The same, for a stage that goes through another more than once in an epoch.
    pub(crate) fn of_epoch(&self, epoch: u64) -> Pass {
        Pass { epoch, ..self.clone() }
    }
}

/// A stage under way.
pub(crate) trait Stream: Send {
    /// Writes the next record to `out`, which has the node's fields; false when there are no more.
    ///
    /// After an error, what follows is the record after the one that failed, or the end.
    fn next(&mut self, out: &mut Record) -> Result<bool>;

    /// Writes the next record, whose fields are fixed, as a row of a record of many; `scratch` has the node's fields.
    fn next_row(&mut self, rows: &mut Record, row: usize, scratch: &mut Record) -> Result<bool> {
        if !self.next(scratch)? {
            return Ok(false);
        }
        rows.copy_row(row, scratch);
        Ok(true)
    }

    /// Whether records can be claimed.
    fn can_be_claimed(&self) -> bool {
        false
    }

    /// Claims the next record, or as many as the rows of one: it counts as having come, and is read by whoever claimed it, on
    /// any thread, beside others. Nothing where that cannot be.
    fn claim(&mut self, records: usize) -> Option<Claim> {
        let _ = records;
        None
    }

    /// Passes over so many records of which each can be claimed.
    fn skip(&mut self, records: usize) {
        self.claim(records);
    }

    /// Appends where it is: after the record that came last.
    fn save(&self, position: &mut Vec<u64>);

    /// Goes to where a stream of the same node was when it was saved.
    fn seek(&mut self, position: &mut Cursor<'_>) -> Result<()>;
}

/// A saved position that is read back.
#[derive(Clone)]
pub(crate) struct Cursor<'a> {
    numbers: &'a [u64],
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(numbers: &'a [u64]) -> Cursor<'a> {
        Cursor { numbers }
    }

    /// The next number.
    pub(crate) fn take(&mut self) -> Result<u64> {
        let Some((&first, rest)) = self.numbers.split_first() else {
            return Err(
                ErrorKind::Position { reason: "a position in the data is too short".to_string() }.into()
            );
        };
        self.numbers = rest;
        Ok(first)
    }

    /// The next so many numbers.
    pub(crate) fn take_many(&mut self, count: u64) -> Result<&'a [u64]> {
        match usize::try_from(count).ok().and_then(|count| self.numbers.split_at_checked(count)) {
            Some((taken, rest)) => {
                self.numbers = rest;
                Ok(taken)
            }
            None => {
                Err(ErrorKind::Position { reason: "a position in the data is too short".to_string() }.into())
            }
        }
    }

    /// All numbers that are left.
    pub(crate) fn rest(self) -> &'a [u64] {
        self.numbers
    }

    /// That nothing is left.
    pub(crate) fn end(&self) -> Result<()> {
        match self.numbers.len() {
            0 => Ok(()),
            more => {
                let reason = format!("a position in the data has {more} numbers too many");
                Err(ErrorKind::Position { reason }.into())
            }
        }
    }
}
