//! Records of a source that are read by their number: in its own order, or in one that is drawn anew each epoch. The order
//! is a function, so that a shuffle of everything holds nothing.

use super::claim::read_row;
use super::{Claim, Cursor, Node, Pass, StageMeter, Stream};
use crate::random::{Permutation, Purpose, key};
use crate::{ErrorKind, Field, Record, Result, Source};
use std::sync::Arc;

/// The records of a source.
pub(crate) struct ByNumber {
    source: Arc<dyn Source>,
    fields: Arc<[Field]>,
    /// The seed of its order, if it is shuffled.
    seed: Option<u64>,
}

impl ByNumber {
    pub(crate) fn new(source: Arc<dyn Source>, seed: Option<u64>) -> ByNumber {
        let fields = source.fields().into();
        ByNumber { source, fields, seed }
    }
}

impl Node for ByNumber {
    fn fields(&self) -> &Arc<[Field]> {
        &self.fields
    }

    fn count(&self) -> Option<u64> {
        Some(self.source.samples() as u64)
    }

    fn open(&self, pass: &Pass) -> Result<Box<dyn Stream>> {
        let permute = |seed| Permutation::new(key(seed, Purpose::Epoch, pass.epoch), self.source.samples());
        let name = if self.seed.is_some() { "read in a shuffled order" } else { "read" };
        Ok(Box::new(Reading {
            source: Arc::clone(&self.source),
            order: self.seed.map(permute),
            next: 0,
            meter: pass.meter.stage(name),
        }))
    }

    fn upstream(&self) -> &[Arc<dyn Node>] {
        &[]
    }

    fn resident_bytes(&self) -> u64 {
        self.source.resident_bytes()
    }

    fn source(&self) -> Option<&Arc<dyn Source>> {
        self.seed.is_none().then_some(&self.source)
    }
}

struct Reading {
    source: Arc<dyn Source>,
    order: Option<Permutation>,
    next: usize,
    meter: Arc<StageMeter>,
}

impl Reading {
    /// The number of the sample that is next.
    fn advance(&mut self) -> Option<usize> {
        let at = self.next;
        if at >= self.source.samples() {
            return None;
        }
        self.next += 1;
        Some(self.order.map_or(at, |order| order.at(at)))
    }
}

impl Stream for Reading {
    fn next(&mut self, out: &mut Record) -> Result<bool> {
        let Some(sample) = self.advance() else { return Ok(false) };
        self.meter.work(|| self.source.read_record(sample, out))?;
        Ok(true)
    }

    fn next_row(&mut self, rows: &mut Record, row: usize, scratch: &mut Record) -> Result<bool> {
        let Some(sample) = self.advance() else { return Ok(false) };
        self.meter.work(|| read_row(&*self.source, sample, rows, row, scratch))?;
        Ok(true)
    }

    fn can_be_claimed(&self) -> bool {
        true
    }

    fn claim(&mut self, records: usize) -> Option<Claim> {
        let samples = records.min(self.source.samples() - self.next);
        let first = self.next;
        self.next += samples;
        let (source, meter) = (Arc::clone(&self.source), Arc::clone(&self.meter));
        Some(Claim { source, order: self.order, first, samples, are_rows: false, meter })
    }

    fn skip(&mut self, records: usize) {
        self.next += records.min(self.source.samples() - self.next);
    }

    fn save(&self, position: &mut Vec<u64>) {
        position.push(self.next as u64);
    }

    fn seek(&mut self, position: &mut Cursor<'_>) -> Result<()> {
        let (next, samples) = (position.take()?, self.source.samples());
        match usize::try_from(next).ok().filter(|&next| next <= samples) {
            Some(next) => self.next = next,
            None => {
                let reason = format!("sample {next} of {samples} is to come next");
                return Err(ErrorKind::Position { reason }.into());
            }
        }
        Ok(())
    }
}
