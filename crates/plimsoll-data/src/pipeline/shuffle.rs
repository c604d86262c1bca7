//! Shuffling what comes one after the other: a buffer from which records are drawn and into which the next ones go. What
//! can be read by number is shuffled as a whole instead, and holds nothing.

use super::pending::{Waiting, in_order_of_upstream, read_positions, save_positions};
use super::shelf::Shelf;
use super::{Account, Cursor, Held, Node, Pass, RowsAhead, StageMeter, Stream, rows_ahead};
use crate::random::{Purpose, below, key, word};
use crate::{ErrorKind, Field, Record, Result};
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
        // Beside the buffer there may be no room for it.
        let ahead = rows_ahead(&*self.upstream)
            .filter(|(_, bytes)| pass.account.has_room(self.buffer_bytes() + bytes));
        let upstream: Box<dyn Stream> = match ahead {
            Some((rows, _)) => Box::new(RowsAhead::open(&self.upstream, rows, pass)?),
            None => self.upstream.open(pass)?,
        };
        Ok(Box::new(Shuffling {
            upstream,
            count: self.upstream.count(),
            taken: Some(0),
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
        let ahead = rows_ahead(&*self.upstream).map_or(0, |(_, bytes)| bytes);
        self.upstream.stage_bytes().saturating_add(self.buffer_bytes()).saturating_add(ahead)
    }
}

impl Shuffled {
    /// The bytes of the full buffer, as far as they are known.
    fn buffer_bytes(&self) -> u64 {
        let each = Shelf::bytes_of_each(self.fields());
        let records = self.upstream.count().map_or(self.buffer as u64, |count| count.min(self.buffer as u64));
        each.saturating_mul(records)
    }
}

/// In place of how many records wait: which ones follows from what was drawn.
const AS_DRAWN: u64 = u64::MAX;

struct Shuffling {
    upstream: Box<dyn Stream>,
    /// How many records upstream has, where that is known.
    count: Option<u64>,
    /// How many records were taken in, as long as upstream's position is nothing but that number. Then it is not needed to
    /// know which ones wait.
    taken: Option<u64>,
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
        if bytes == self.held.bytes() {
            return Ok(());
        }
        let holder = || format!("a shuffle buffer with {records} of {size} records");
        let remedy = "use a smaller buffer, shuffle before records are made larger, or raise the budget";
        self.held.set(bytes, &holder, remedy)?;
        self.meter.holds(bytes);
        Ok(())
    }

    /// Draws the place of the next record, if there is one, for `take` to take it from there.
    fn draw(&mut self, take: impl FnOnce(&mut Shelf, usize)) -> Result<bool> {
        self.fill()?;
        if self.buffer.len() == 0 {
            return Ok(false);
        }
        self.meter.work(|| {
            let drawn = below(word(self.key, self.drawn), self.buffer.len() as u64) as usize;
            self.drawn += 1;
            take(&mut self.buffer, drawn);
        });
        Ok(true)
    }

    fn fill(&mut self) -> Result<()> {
        while !self.has_ended && self.buffer.len() < self.size {
            let taken = self.taken.take();
            if !self.taken_in.take_in(&mut *self.upstream)? {
                (self.has_ended, self.taken) = (true, taken);
                break;
            }
            let before = &self.taken_in.before;
            let is_plain = |taken: &u64| !before.is_empty() && before.iter().all(|number| number == taken);
            self.taken = taken.filter(is_plain).map(|taken| taken + 1);
            self.buffer.add_places(1);
            if let Err(error) = self.put(self.buffer.len() - 1) {
                self.buffer.remove_last_place();
                self.taken = None;
                return Err(error);
            }
        }
        Ok(())
    }

    /// Which of the records that were taken in wait after so many were drawn: by their places in the buffer.
    fn waiting(&self, taken: u64, drawn: u64) -> Result<Vec<u64>> {
        if drawn > taken || self.count.is_some_and(|count| taken > count) {
            let reason =
                format!("{drawn} records were drawn of {taken} that were taken in, of {:?}", self.count);
            return Err(ErrorKind::Position { reason }.into());
        }
        let mut coming = 0..taken;
        let mut waiting = vec![];
        for number in 0..drawn {
            waiting.extend(coming.by_ref().take(self.size - waiting.len()));
            waiting.swap_remove(below(word(self.key, number), waiting.len() as u64) as usize);
        }
        Ok(waiting)
    }

    /// Takes in the records again that waited, and goes on where upstream was.
    fn take_in_again(&mut self, positions: &[&[u64]], then: &mut Cursor<'_>) -> Result<()> {
        for place in in_order_of_upstream(positions) {
            self.taken_in.take_again(&mut *self.upstream, positions[place])?;
            self.buffer.add_places((place + 1).saturating_sub(self.buffer.len()));
            self.put(place)?;
        }
        self.upstream.seek(then)
    }
}

impl Stream for Shuffling {
    fn next(&mut self, out: &mut Record) -> Result<bool> {
        self.draw(|buffer, at| buffer.draw(at, out))
    }

    fn next_row(&mut self, rows: &mut Record, row: usize, scratch: &mut Record) -> Result<bool> {
        self.draw(|buffer, at| buffer.draw_row(at, rows, row, scratch))
    }

    fn save(&self, position: &mut Vec<u64>) {
        position.push(self.drawn);
        let start = position.len();
        if let Some(taken) = self.taken {
            position.extend([AS_DRAWN, taken, 0]);
            self.upstream.save(position);
            position[start + 2] = (position.len() - start - 3) as u64;
            return;
        }
        save_positions(position, (0..self.buffer.len()).map(|at| self.buffer.before(at)));
        self.upstream.save(position);
    }

    fn seek(&mut self, position: &mut Cursor<'_>) -> Result<()> {
        self.drawn = position.take()?;
        self.has_ended = false;
        self.buffer = Shelf::new(self.taken_in.record.fields(), self.size);
        self.held = Held::nothing(&self.account);
        let mut as_drawn = position.clone();
        if as_drawn.take()? != AS_DRAWN {
            self.taken = None;
            let positions = read_positions(position)?;
            return self.take_in_again(&positions, position);
        }
        *position = as_drawn;
        let (taken, numbers) = (position.take()?, position.take()?);
        self.taken = Some(taken);
        let waiting = self.waiting(taken, self.drawn)?;
        // Upstream's position has so many numbers, which are all the same.
        let numbers = position.clone().take_many(numbers)?.len();
        let all: Vec<u64> = waiting.iter().flat_map(|&number| std::iter::repeat_n(number, numbers)).collect();
        let positions: Vec<&[u64]> = all.chunks_exact(numbers.max(1)).collect();
        self.take_in_again(&positions, position)
    }
}
