//! Shuffling what comes one after the other: a buffer from which records are drawn and into which the next ones go. What
//! can be read by number is shuffled as a whole instead, and holds nothing.

use super::pending::{Waiting, in_order_of_upstream, read_positions, save_positions};
use super::shelf::Shelf;
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
            taken_in: Waiting::new(Record::new(self.fields())),
            key: key(self.seed, Purpose::Shuffle, pass.epoch),
            drawn: 0,
            size: self.buffer,
            buffer: Shelf::new(self.fields(), self.buffer),
            has_ended: false,
            held: Held::nothing(&pass.account),
            account: Arc::clone(&pass.account),
            meter: pass.meter.stage(format!("shuffle with a buffer of {}", self.buffer)),
        }))
    }

    fn upstream(&self) -> &[Arc<dyn Node>] {
        std::slice::from_ref(&self.upstream)
    }

    fn stage_bytes(&self) -> u64 {
        let each = Shelf::bytes_of_each(self.fields());
        let records = self.upstream.count().map_or(self.buffer as u64, |count| count.min(self.buffer as u64));
        self.upstream.stage_bytes().saturating_add(each.saturating_mul(records))
    }
}

struct Shuffling {
    upstream: Box<dyn Stream>,
    /// The record that goes into the buffer next.
    taken_in: Waiting,
    key: u64,
    drawn: u64,
    size: usize,
    buffer: Shelf,
    has_ended: bool,
    held: Held,
    account: Arc<Account>,
    meter: Arc<StageMeter>,
}

impl Shuffling {
    /// Puts the record that was taken in at a place of the buffer, within the budget.
    fn put(&mut self, at: usize) -> Result<()> {
        self.buffer.put(at, &mut self.taken_in);
        let (bytes, records, size) = (self.buffer.held_bytes(), self.buffer.len(), self.size);
        let holder = || format!("a shuffle buffer with {records} of {size} records");
        let remedy = "use a smaller buffer, shuffle before records are made larger, or raise the budget";
        self.held.set(bytes, &holder, remedy)?;
        self.meter.holds(bytes);
        Ok(())
    }

    fn fill(&mut self) -> Result<()> {
        while !self.has_ended && self.buffer.len() < self.size {
            if !self.taken_in.take_in(&mut *self.upstream)? {
                self.has_ended = true;
                break;
            }
            self.buffer.add_places(1);
            if let Err(error) = self.put(self.buffer.len() - 1) {
                self.buffer.remove_last_place();
                return Err(error);
            }
        }
        Ok(())
    }
}

impl Stream for Shuffling {
    fn next(&mut self, out: &mut Record) -> Result<bool> {
        self.fill()?;
        if self.buffer.len() == 0 {
            return Ok(false);
        }
        self.meter.work(|| {
            let drawn = below(word(self.key, self.drawn), self.buffer.len() as u64) as usize;
            self.drawn += 1;
            self.buffer.draw(drawn, out);
        });
        Ok(true)
    }

    fn save(&self, position: &mut Vec<u64>) {
        position.push(self.drawn);
        save_positions(position, (0..self.buffer.len()).map(|at| self.buffer.before(at)));
        self.upstream.save(position);
    }

    fn seek(&mut self, position: &mut Cursor<'_>) -> Result<()> {
        self.drawn = position.take()?;
        self.has_ended = false;
        self.buffer = Shelf::new(self.taken_in.record.fields(), self.size);
        self.held = Held::nothing(&self.account);
        let positions = read_positions(position)?;
        for place in in_order_of_upstream(&positions) {
            self.taken_in.take_again(&mut *self.upstream, positions[place])?;
            self.buffer.add_places((place + 1).saturating_sub(self.buffer.len()));
            self.put(place)?;
        }
        self.upstream.seek(position)
    }
}
