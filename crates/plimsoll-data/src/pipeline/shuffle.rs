//! Shuffling what comes one after the other: a buffer from which records are drawn and into which the next ones go. What
//! can be read by number is shuffled as a whole instead, and holds nothing.

use super::pending::{Waiting, in_order_of_upstream, read_positions, save_positions};
use super::{Account, Cursor, Held, Node, Pass, StageMeter, Stream};
use crate::random::{Purpose, below, key, word};
use crate::{Field, Record, Result};
use std::sync::Arc;

/// Records in an order that is drawn from a buffer.
pub(crate) struct Shuffled {
    pub(crate) upstream: Arc<dyn Node>,
    pub(crate) buffer: usize,
    pub(crate) seed: u64,
}

impl Node for Shuffled {
    fn fields(&self) -> &Arc<[Field]> {
        self.upstream.fields()
    }

    fn count(&self) -> Option<u64> {
        self.upstream.count()
    }

    fn open(&self, pass: &Pass) -> Result<Box<dyn Stream>> {
        Ok(Box::new(Shuffling {
            upstream: self.upstream.open(pass)?,
            fields: Arc::clone(self.fields()),
            key: key(self.seed, Purpose::Shuffle, pass.epoch),
            drawn: 0,
            size: self.buffer,
            buffer: vec![],
            spare: vec![],
            has_ended: false,
            held: Held::nothing(&pass.account),
            held_bytes: 0,
            account: Arc::clone(&pass.account),
            meter: pass.meter.stage(format!("shuffle with a buffer of {}", self.buffer)),
        }))
    }

    fn upstream(&self) -> &[Arc<dyn Node>] {
        std::slice::from_ref(&self.upstream)
    }

    fn stage_bytes(&self) -> u64 {
        // An open record takes at least this.
        let each = Record::new(self.fields()).held_bytes() + size_of::<Waiting>() as u64;
        let records = self.upstream.count().map_or(self.buffer as u64, |count| count.min(self.buffer as u64));
        self.upstream.stage_bytes().saturating_add(each.saturating_mul(records))
    }
}

struct Shuffling {
    upstream: Box<dyn Stream>,
    fields: Arc<[Field]>,
    key: u64,
    drawn: u64,
    size: usize,
    buffer: Vec<Waiting>,
    /// Records that are empty.
    spare: Vec<Waiting>,
    has_ended: bool,
    held: Held,
    held_bytes: u64,
    account: Arc<Account>,
    meter: Arc<StageMeter>,
}

impl Shuffling {
    /// A record to be filled, and the bytes it has.
    fn empty(&mut self) -> (Waiting, u64) {
        match self.spare.pop() {
            Some(waiting) => {
                let bytes = waiting.record.held_bytes();
                (waiting, bytes)
            }
            None => (Waiting::new(Record::new(&self.fields)), 0),
        }
    }

    /// Puts a record that has been filled into the buffer, within the budget.
    fn keep(&mut self, waiting: Waiting, before_bytes: u64) -> Result<()> {
        let bytes = waiting.record.held_bytes();
        self.held_bytes = self.held_bytes + bytes - before_bytes;
        let (records, size) = (self.buffer.len() + 1, self.size);
        let holder = || format!("a shuffle buffer with {records} of {size} records");
        let remedy = "use a smaller buffer, shuffle before records are made larger, or raise the budget";
        if let Err(error) = self.held.set(self.held_bytes, &holder, remedy) {
            self.held_bytes -= bytes;
            self.held_bytes += before_bytes;
            return Err(error);
        }
        self.meter.holds(self.held_bytes);
        self.buffer.push(waiting);
        Ok(())
    }

    fn fill(&mut self) -> Result<()> {
        while !self.has_ended && self.buffer.len() < self.size {
            let (mut waiting, bytes) = self.empty();
            if waiting.take_in(&mut *self.upstream)? {
                self.keep(waiting, bytes)?;
            } else {
                self.has_ended = true;
            }
        }
        Ok(())
    }
}

impl Stream for Shuffling {
    fn next(&mut self, out: &mut Record) -> Result<bool> {
        self.fill()?;
        if self.buffer.is_empty() {
            return Ok(false);
        }
        self.meter.work(|| {
            let drawn = below(word(self.key, self.drawn), self.buffer.len() as u64) as usize;
            self.drawn += 1;
            let mut waiting = self.buffer.swap_remove(drawn);
            // What the caller's record held before belongs to the buffer now.
            self.held_bytes = self.held_bytes + out.held_bytes() - waiting.record.held_bytes();
            std::mem::swap(out, &mut waiting.record);
            self.spare.push(waiting);
        });
        Ok(true)
    }

    fn save(&self, position: &mut Vec<u64>) {
        position.push(self.drawn);
        save_positions(position, self.buffer.iter().map(|waiting| &*waiting.before));
        self.upstream.save(position);
    }

    fn seek(&mut self, position: &mut Cursor<'_>) -> Result<()> {
        self.drawn = position.take()?;
        self.has_ended = false;
        self.buffer.clear();
        self.spare.clear();
        (self.held, self.held_bytes) = (Held::nothing(&self.account), 0);
        let positions = read_positions(position)?;
        let places = in_order_of_upstream(&positions);
        for &place in &places {
            let (mut waiting, bytes) = self.empty();
            waiting.take_again(&mut *self.upstream, positions[place])?;
            self.keep(waiting, bytes)?;
        }
        // Back to where each was.
        let mut placed: Vec<(usize, Waiting)> = places.into_iter().zip(self.buffer.drain(..)).collect();
        placed.sort_by_key(|(place, _)| *place);
        self.buffer.extend(placed.into_iter().map(|(_, waiting)| waiting));
        self.upstream.seek(position)
    }
}
