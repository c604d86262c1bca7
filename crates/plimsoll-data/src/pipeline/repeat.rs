//! All records again and again within one epoch, each round shuffled anew.

use super::{Cursor, Node, Pass, Stream};
use crate::{Field, Record, Result};
use std::sync::Arc;

/// The records so many times, or without end.
pub(crate) struct Repeated {
    pub(crate) upstream: Arc<dyn Node>,
    pub(crate) times: Option<u64>,
}

/// The rounds of a repetition without end that have epochs of their own.
const ENDLESS: u64 = 1 << 32;

impl Node for Repeated {
    fn fields(&self) -> &Arc<[Field]> {
        self.upstream.fields()
    }

    fn count(&self) -> Option<u64> {
        self.upstream.count()?.checked_mul(self.times?)
    }

    fn open(&self, pass: &Pass) -> Result<Box<dyn Stream>> {
        let first_epoch = pass.epoch.wrapping_mul(self.times.unwrap_or(ENDLESS));
        let upstream = self.upstream.open(&pass.of_epoch(first_epoch))?;
        let (node, pass) = (Arc::clone(&self.upstream), pass.of_epoch(first_epoch));
        let times = self.times.unwrap_or(u64::MAX);
        Ok(Box::new(Repeating { node, pass, upstream, times, round: 0, has_any: false }))
    }

    fn upstream(&self) -> &[Arc<dyn Node>] {
        std::slice::from_ref(&self.upstream)
    }

    fn is_endless(&self) -> bool {
        self.times.is_none()
    }
}

struct Repeating {
    node: Arc<dyn Node>,
    /// That of the first round.
    pass: Pass,
    upstream: Box<dyn Stream>,
    times: u64,
    round: u64,
    /// Whether this round has had a record: without any, there would be no end.
    has_any: bool,
}

impl Repeating {
    fn open_round(&mut self, round: u64) -> Result<()> {
        self.round = round;
        self.upstream = self.node.open(&self.pass.of_epoch(self.pass.epoch.wrapping_add(round)))?;
        Ok(())
    }
}

impl Stream for Repeating {
    fn next(&mut self, out: &mut Record) -> Result<bool> {
        if self.round >= self.times {
            return Ok(false);
        }
        loop {
            if self.upstream.next(out)? {
                self.has_any = true;
                return Ok(true);
            }
            if self.round + 1 >= self.times || !self.has_any {
                return Ok(false);
            }
            self.has_any = false;
            self.open_round(self.round + 1)?;
        }
    }

    fn save(&self, position: &mut Vec<u64>) {
        position.extend([self.round, u64::from(self.has_any)]);
        self.upstream.save(position);
    }

    fn seek(&mut self, position: &mut Cursor<'_>) -> Result<()> {
        let round = position.take()?;
        self.has_any = position.take()? != 0;
        self.open_round(round)?;
        self.upstream.seek(position)
    }
}
