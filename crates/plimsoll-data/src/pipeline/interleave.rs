//! Records of several data sets by turns, so that neighbours come from different files.

use super::{Cursor, Node, Pass, Stream};
use crate::{ErrorKind, Field, Record, Result};
use std::sync::Arc;

/// So many records of one, so many of the next; a number of them are open at a time.
pub(crate) struct Interleaved {
    pub(crate) parts: Vec<Arc<dyn Node>>,
    /// How many are open at a time.
    pub(crate) at_once: usize,
    /// How many records one gives at its turn.
    pub(crate) block: u64,
}

impl Node for Interleaved {
    fn fields(&self) -> &Arc<[Field]> {
        self.parts[0].fields()
    }

    fn count(&self) -> Option<u64> {
        self.parts.iter().try_fold(0u64, |sum, part| sum.checked_add(part.count()?))
    }

    fn open(&self, pass: &Pass) -> Result<Box<dyn Stream>> {
        let mut turns = Interleaving {
            parts: self.parts.clone(),
            pass: pass.clone(),
            block: self.block,
            open: vec![],
            following: 0,
            turn: 0,
            given: 0,
        };
        for _ in 0..self.at_once.min(self.parts.len()) {
            let part = turns.open_following()?;
            turns.open.extend(part);
        }
        Ok(Box::new(turns))
    }

    fn upstream(&self) -> &[Arc<dyn Node>] {
        &self.parts
    }
}

struct Interleaving {
    parts: Vec<Arc<dyn Node>>,
    pass: Pass,
    block: u64,
    /// Those that take turns, with their numbers.
    open: Vec<(usize, Box<dyn Stream>)>,
    /// The first that has not been opened.
    following: usize,
    turn: usize,
    /// How many records the one whose turn it is has given.
    given: u64,
}

impl Interleaving {
    fn open_following(&mut self) -> Result<Option<(usize, Box<dyn Stream>)>> {
        let number = self.following;
        let Some(part) = self.parts.get(number) else { return Ok(None) };
        self.following += 1;
        Ok(Some((number, part.open(&self.pass)?)))
    }
}

impl Stream for Interleaving {
    fn next(&mut self, out: &mut Record) -> Result<bool> {
        while !self.open.is_empty() {
            if self.given == self.block || self.turn >= self.open.len() {
                (self.turn, self.given) = ((self.turn + 1) % self.open.len(), 0);
            }
            if self.open[self.turn].1.next(out)? {
                self.given += 1;
                return Ok(true);
            }
            self.given = 0;
            match self.open_following()? {
                Some(part) => self.open[self.turn] = part,
                None => {
                    self.open.remove(self.turn);
                    if self.turn >= self.open.len() {
                        self.turn = 0;
                    }
                }
            }
        }
        Ok(false)
    }

    fn save(&self, position: &mut Vec<u64>) {
        position.extend([self.following as u64, self.turn as u64, self.given, self.open.len() as u64]);
        for (number, part) in &self.open {
            position.push(*number as u64);
            part.save(position);
        }
    }

    fn seek(&mut self, position: &mut Cursor<'_>) -> Result<()> {
        let parts = self.parts.len();
        let wrong = |number: u64| -> crate::Error {
            let reason = format!("part {number} of {parts} is to be read");
            ErrorKind::Position { reason }.into()
        };
        let checked = |number: u64| {
            usize::try_from(number).ok().filter(|&number| number <= parts).ok_or_else(|| wrong(number))
        };
        let (following, turn) = (checked(position.take()?)?, checked(position.take()?)?);
        let (given, open) = (position.take()?, checked(position.take()?)?);
        self.open.clear();
        for _ in 0..open {
            let number = checked(position.take()?)?;
            let Some(part) = self.parts.get(number) else { return Err(wrong(number as u64)) };
            let mut stream = part.open(&self.pass)?;
            stream.seek(position)?;
            self.open.push((number, stream));
        }
        (self.following, self.turn, self.given) = (following, turn, given);
        Ok(())
    }
}
