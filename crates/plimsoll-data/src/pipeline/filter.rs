//! Records that are left out: those that a function refuses, and those that could not be made.

use super::{Cursor, Node, OneToOne, Pass, StageMeter, Stream};
use crate::{Error, ErrorKind, Field, Record, Result};
use std::sync::Arc;

/// Whether a record stays.
pub(crate) type Predicate = Arc<dyn Fn(&Record) -> Result<bool> + Send + Sync>;

/// The records that a function keeps.
#[derive(Clone)]
pub(crate) struct Filtered {
    pub(crate) upstream: Arc<dyn Node>,
    pub(crate) keep: Predicate,
}

impl Node for Filtered {
    fn fields(&self) -> &Arc<[Field]> {
        self.upstream.fields()
    }

    fn count(&self) -> Option<u64> {
        None
    }

    fn open(&self, pass: &Pass) -> Result<Box<dyn Stream>> {
        let upstream = self.upstream.open(pass)?;
        Ok(Box::new(Filtering { upstream, keep: Arc::clone(&self.keep), meter: pass.meter.stage("filter") }))
    }

    fn upstream(&self) -> &[Arc<dyn Node>] {
        std::slice::from_ref(&self.upstream)
    }

    fn each_by_itself(&self) -> Option<OneToOne<'_>> {
        Some((&self.upstream, Box::new(|upstream| Arc::new(Filtered { upstream, ..self.clone() }))))
    }
}

struct Filtering {
    upstream: Box<dyn Stream>,
    keep: Predicate,
    meter: Arc<StageMeter>,
}

impl Stream for Filtering {
    fn next(&mut self, out: &mut Record) -> Result<bool> {
        while self.upstream.next(out)? {
            if self.meter.work(|| (self.keep)(out))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn save(&self, position: &mut Vec<u64>) {
        self.upstream.save(position);
    }

    fn seek(&mut self, position: &mut Cursor<'_>) -> Result<()> {
        self.upstream.seek(position)
    }
}

/// The records that can be made; those that cannot are left out and counted, up to a number.
#[derive(Clone)]
pub(crate) struct Tolerant {
    pub(crate) upstream: Arc<dyn Node>,
    pub(crate) most: u64,
}

impl Node for Tolerant {
    fn fields(&self) -> &Arc<[Field]> {
        self.upstream.fields()
    }

    fn count(&self) -> Option<u64> {
        None
    }

    fn open(&self, pass: &Pass) -> Result<Box<dyn Stream>> {
        let upstream = self.upstream.open(pass)?;
        let meter = pass.meter.stage(format!("leave out at most {} records with errors", self.most));
        Ok(Box::new(Tolerating { upstream, most: self.most, skipped: 0, meter }))
    }

    fn upstream(&self) -> &[Arc<dyn Node>] {
        std::slice::from_ref(&self.upstream)
    }

    fn each_by_itself(&self) -> Option<OneToOne<'_>> {
        Some((&self.upstream, Box::new(|upstream| Arc::new(Tolerant { upstream, ..self.clone() }))))
    }
}

struct Tolerating {
    upstream: Box<dyn Stream>,
    most: u64,
    skipped: u64,
    meter: Arc<StageMeter>,
}

impl Tolerating {
    /// Whether an error is about one record, and another may be made.
    fn is_of_a_record(error: &Error) -> bool {
        !matches!(
            error.kind(),
            ErrorKind::OverBudget { .. } | ErrorKind::OutOfMemory { .. } | ErrorKind::Position { .. }
        )
    }
}

impl Stream for Tolerating {
    fn next(&mut self, out: &mut Record) -> Result<bool> {
        loop {
            match self.upstream.next(out) {
                Err(error) if Tolerating::is_of_a_record(&error) && self.skipped < self.most => {
                    self.skipped += 1;
                    self.meter.skips();
                }
                Ok(true) => {
                    self.meter.work(|| ());
                    return Ok(true);
                }
                ended => return ended,
            }
        }
    }

    fn save(&self, position: &mut Vec<u64>) {
        position.push(self.skipped);
        self.upstream.save(position);
    }

    fn seek(&mut self, position: &mut Cursor<'_>) -> Result<()> {
        self.skipped = position.take()?;
        self.upstream.seek(position)
    }
}
