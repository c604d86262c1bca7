//! Some of the records: from one on, so many, every nth.

use super::{Cursor, Node, OneToOne, Pass, Stream};
use crate::{Field, Record, Result};
use std::sync::Arc;

/// The records after the first `skip`, and at most `take` of them.
#[derive(Clone)]
pub(crate) struct Range {
    pub(crate) upstream: Arc<dyn Node>,
    pub(crate) skip: u64,
    pub(crate) take: Option<u64>,
    /// Whether `take` is how many there are, and not a limit.
    pub(crate) is_exact: bool,
}

impl Node for Range {
    fn fields(&self) -> &Arc<[Field]> {
        self.upstream.fields()
    }

    fn count(&self) -> Option<u64> {
        match (self.upstream.count(), self.take) {
            (Some(count), take) => {
                let left = count.saturating_sub(self.skip);
                Some(take.map_or(left, |take| take.min(left)))
            }
            (None, take) => take.filter(|_| self.is_exact || self.upstream.is_endless()),
        }
    }

    fn open(&self, pass: &Pass) -> Result<Box<dyn Stream>> {
        let upstream = self.upstream.open(pass)?;
        Ok(Box::new(InRange { upstream, to_skip: self.skip, left: self.take.unwrap_or(u64::MAX) }))
    }

    fn upstream(&self) -> &[Arc<dyn Node>] {
        std::slice::from_ref(&self.upstream)
    }

    fn is_endless(&self) -> bool {
        self.take.is_none() && self.upstream.is_endless()
    }

    fn each_by_itself(&self) -> Option<OneToOne<'_>> {
        // All of them are taken, in any order.
        let over = |upstream| Arc::new(Range { upstream, ..self.clone() }) as Arc<dyn Node>;
        self.is_exact.then(|| (&self.upstream, Box::new(over) as Box<_>))
    }
}

struct InRange {
    upstream: Box<dyn Stream>,
    to_skip: u64,
    left: u64,
}

impl Stream for InRange {
    fn next(&mut self, out: &mut Record) -> Result<bool> {
        while self.to_skip > 0 {
            self.to_skip -= 1;
            if !self.upstream.next(out)? {
                self.left = 0;
            }
        }
        if self.left == 0 {
            return Ok(false);
        }
        self.left -= 1;
        self.upstream.next(out)
    }

    fn save(&self, position: &mut Vec<u64>) {
        position.extend([self.to_skip, self.left]);
        self.upstream.save(position);
    }

    fn seek(&mut self, position: &mut Cursor<'_>) -> Result<()> {
        (self.to_skip, self.left) = (position.take()?, position.take()?);
        self.upstream.seek(position)
    }
}

/// Every `of`-th record, from that of number `index` on.
pub(crate) struct Sharded {
    pub(crate) upstream: Arc<dyn Node>,
    pub(crate) of: u64,
    pub(crate) index: u64,
}

impl Node for Sharded {
    fn fields(&self) -> &Arc<[Field]> {
        self.upstream.fields()
    }

    fn count(&self) -> Option<u64> {
        Some(self.upstream.count()?.saturating_sub(self.index).div_ceil(self.of))
    }

    fn open(&self, pass: &Pass) -> Result<Box<dyn Stream>> {
        let upstream = self.upstream.open(pass)?;
        Ok(Box::new(Sharding { upstream, of: self.of, to_skip: self.index }))
    }

    fn upstream(&self) -> &[Arc<dyn Node>] {
        std::slice::from_ref(&self.upstream)
    }
}

struct Sharding {
    upstream: Box<dyn Stream>,
    of: u64,
    /// How many records come before the next one of this shard.
    to_skip: u64,
}

impl Stream for Sharding {
    fn next(&mut self, out: &mut Record) -> Result<bool> {
        while self.to_skip > 0 {
            self.to_skip -= 1;
            if !self.upstream.next(out)? {
                return Ok(false);
            }
        }
        self.to_skip = self.of - 1;
        self.upstream.next(out)
    }

    fn save(&self, position: &mut Vec<u64>) {
        position.push(self.to_skip);
        self.upstream.save(position);
    }

    fn seek(&mut self, position: &mut Cursor<'_>) -> Result<()> {
        self.to_skip = position.take()?;
        self.upstream.seek(position)
    }
}
