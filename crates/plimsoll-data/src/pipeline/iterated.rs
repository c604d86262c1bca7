//! Records that come from a reader, which knows nothing but the next one.

use super::{Cursor, Node, Pass, StageMeter, Stream};
use crate::{ErrorKind, Field, Record, RecordReader, Result};
use std::sync::Arc;

/// Opens a reader for an epoch.
pub(crate) type Opener = Arc<dyn Fn(u64) -> Result<Box<dyn RecordReader>> + Send + Sync>;

/// The records of a reader that is opened each epoch.
pub(crate) struct Iterated {
    pub(crate) fields: Arc<[Field]>,
    pub(crate) count: Option<u64>,
    pub(crate) make: Opener,
}

impl Node for Iterated {
    fn fields(&self) -> &Arc<[Field]> {
        &self.fields
    }

    fn count(&self) -> Option<u64> {
        self.count
    }

    fn open(&self, pass: &Pass) -> Result<Box<dyn Stream>> {
        let (make, epoch) = (Arc::clone(&self.make), pass.epoch);
        let meter = pass.meter.stage("read one after the other");
        Ok(Box::new(Iterating {
            reader: make(epoch)?,
            make,
            epoch,
            read: 0,
            scratch: Record::new(&self.fields),
            meter,
        }))
    }

    fn upstream(&self) -> &[Arc<dyn Node>] {
        &[]
    }
}

struct Iterating {
    reader: Box<dyn RecordReader>,
    make: Opener,
    epoch: u64,
    /// How many records it was asked for.
    read: u64,
    scratch: Record,
    meter: Arc<StageMeter>,
}

impl Stream for Iterating {
    fn next(&mut self, out: &mut Record) -> Result<bool> {
        let more = self.meter.work(|| self.reader.next(out));
        self.read += u64::from(!matches!(more, Ok(false)));
        more
    }

    fn save(&self, position: &mut Vec<u64>) {
        position.push(self.read);
    }

    fn seek(&mut self, position: &mut Cursor<'_>) -> Result<()> {
        let wanted = position.take()?;
        if wanted < self.read {
            (self.reader, self.read) = ((self.make)(self.epoch)?, 0);
        }
        while self.read < wanted {
            // What failed then fails again, and was dealt with.
            if matches!(self.reader.next(&mut self.scratch), Ok(false)) {
                let reason = format!("record {wanted} is to come next, but there are {} now", self.read);
                return Err(ErrorKind::Position { reason }.into());
            }
            self.read += 1;
        }
        Ok(())
    }
}
