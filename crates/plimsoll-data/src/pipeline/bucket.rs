//! Batches of sequences of like length, so that little of a batch is padding. Each is padded to its bucket's length: the
//! shapes that come up are few, and so are the plans that a run makes.

use super::batch::{batch_fields, side_by_side};
use super::pending::{Waiting, in_order_of_upstream, read_positions, save_positions};
use super::{Account, Cursor, Held, Node, Padding, Pass, StageMeter, Stream};
use crate::source::field_named;
use crate::{ErrorKind, Field, Record, Result};
use std::sync::Arc;

/// Batches of records whose length is in the same range.
pub(crate) struct Bucketed {
    upstream: Arc<dyn Node>,
    fields: Arc<[Field]>,
    /// The position of the field whose first axis is the length.
    field: usize,
    /// The longest length of each bucket, rising.
    lengths: Arc<[usize]>,
    size: usize,
    drop_remainder: bool,
    padding: Padding,
}

impl Bucketed {
    pub(crate) fn new(
        upstream: Arc<dyn Node>,
        field: &str,
        lengths: &[usize],
        size: usize,
        drop_remainder: bool,
        padding: Padding,
    ) -> Result<Bucketed> {
        let position = field_named(upstream.fields(), field)?;
        let refuse = |reason: &str| {
            Err(ErrorKind::Field { name: field.to_string(), reason: reason.to_string() }.into())
        };
        if upstream.fields()[position].shape().first() != Some(&Field::OPEN) {
            return refuse("buckets are of lengths, and its first axis is not open");
        }
        if lengths.is_empty() || lengths[0] == 0 || lengths.windows(2).any(|pair| pair[0] >= pair[1]) {
            return refuse("the lengths of buckets must be given, above 0 and rising");
        }
        let fields = batch_fields(upstream.fields(), size, drop_remainder)?;
        let lengths = lengths.into();
        Ok(Bucketed { upstream, fields, field: position, lengths, size, drop_remainder, padding })
    }
}

impl Node for Bucketed {
    fn fields(&self) -> &Arc<[Field]> {
        &self.fields
    }

    fn count(&self) -> Option<u64> {
        None
    }

    fn open(&self, pass: &Pass) -> Result<Box<dyn Stream>> {
        Ok(Box::new(Bucketing {
            upstream: self.upstream.open(pass)?,
            of: Arc::clone(self.upstream.fields()),
            field: self.field,
            lengths: Arc::clone(&self.lengths),
            size: self.size,
            drop_remainder: self.drop_remainder,
            padding: self.padding.clone(),
            buckets: self.lengths.iter().map(|_| vec![]).collect(),
            spare: vec![],
            taken: 0,
            has_ended: false,
            held: Held::nothing(&pass.account),
            account: Arc::clone(&pass.account),
            meter: pass.meter.stage(format!("batches of {} by length", self.size)),
        }))
    }

    fn upstream(&self) -> &[Arc<dyn Node>] {
        std::slice::from_ref(&self.upstream)
    }
}

struct Bucketing {
    upstream: Box<dyn Stream>,
    of: Arc<[Field]>,
    field: usize,
    lengths: Arc<[usize]>,
    size: usize,
    drop_remainder: bool,
    padding: Padding,
    /// The records that wait, by bucket.
    buckets: Vec<Vec<Waiting>>,
    spare: Vec<Waiting>,
    /// How many records were taken in.
    taken: u64,
    has_ended: bool,
    held: Held,
    account: Arc<Account>,
    meter: Arc<StageMeter>,
}

impl Bucketing {
    fn empty(&mut self) -> Waiting {
        self.spare.pop().unwrap_or_else(|| Waiting::new(Record::new(&self.of)))
    }

    /// Puts a record into its bucket, and returns which.
    fn sort_in(&mut self, waiting: Waiting) -> Result<usize> {
        let length = waiting.record.shape(self.field)[0];
        let bucket = self.lengths.partition_point(|&longest| longest < length);
        let element = self.taken;
        self.taken += 1;
        if bucket == self.lengths.len() {
            let longest = self.lengths[bucket - 1];
            let name = self.of[self.field].name();
            let reason = format!(
                "`{name}` has a length of {length}, and the longest bucket is {longest}: add a longer one, or filter or cut \
                 what is longer"
            );
            let stage = "batches by length".to_string();
            return Err(ErrorKind::Stage { stage, element, reason, error: None }.into());
        }
        self.buckets[bucket].push(waiting);
        let records = self.buckets.iter().flatten().chain(&self.spare);
        let bytes = records.map(|waiting| waiting.record.held_bytes()).sum();
        let holder = || "records that wait for their bucket to fill".to_string();
        self.held.set(bytes, &holder, "use fewer buckets or smaller batches, or raise the budget")?;
        self.meter.holds(bytes);
        Ok(bucket)
    }

    /// Gives out what is in a bucket.
    fn empty_bucket(&mut self, bucket: usize, out: &mut Record) -> Result<()> {
        let waiting = std::mem::take(&mut self.buckets[bucket]);
        let (mut rows, positions): (Vec<Record>, Vec<Vec<u64>>) =
            waiting.into_iter().map(|waiting| (waiting.record, waiting.before)).unzip();
        let made =
            self.meter.work(|| side_by_side(&rows, Some(&self.padding), Some(self.lengths[bucket]), out));
        let emptied = rows.drain(..).zip(positions).map(|(record, before)| Waiting { record, before });
        self.spare.extend(emptied);
        made
    }
}

impl Stream for Bucketing {
    fn next(&mut self, out: &mut Record) -> Result<bool> {
        while !self.has_ended {
            let mut waiting = self.empty();
            if !waiting.take_in(&mut *self.upstream)? {
                self.has_ended = true;
                break;
            }
            let bucket = self.sort_in(waiting)?;
            if self.buckets[bucket].len() == self.size {
                self.empty_bucket(bucket, out)?;
                return Ok(true);
            }
        }
        match self.buckets.iter().position(|bucket| !bucket.is_empty()) {
            Some(bucket) if !self.drop_remainder => {
                self.empty_bucket(bucket, out)?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    fn save(&self, position: &mut Vec<u64>) {
        position.push(self.taken);
        let waiting: Vec<&[u64]> = self.buckets.iter().flatten().map(|waiting| &*waiting.before).collect();
        save_positions(position, waiting.into_iter());
        self.upstream.save(position);
    }

    fn seek(&mut self, position: &mut Cursor<'_>) -> Result<()> {
        let taken = position.take()?;
        self.buckets.iter_mut().for_each(Vec::clear);
        self.spare.clear();
        self.held = Held::nothing(&self.account);
        self.has_ended = false;
        let positions = read_positions(position)?;
        let mut taken_again = vec![];
        for place in in_order_of_upstream(&positions) {
            let mut waiting = self.empty();
            waiting.take_again(&mut *self.upstream, positions[place])?;
            taken_again.push((place, waiting));
        }
        taken_again.sort_by_key(|(place, _)| *place);
        for (_, waiting) in taken_again {
            self.sort_in(waiting)?;
        }
        self.taken = taken;
        self.upstream.seek(position)
    }
}
