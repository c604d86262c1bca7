//! The records of an epoch, one after the other, and where in it one is.

use crate::pipeline::{Cursor, Pass, PipelineReport, Stream};
use crate::{ErrorKind, Field, Record, Result};
use std::sync::Arc;

/// The records of a data set in one epoch. Its threads end with it.
pub struct Records {
    stream: Box<dyn Stream>,
    record: Record,
    pass: Pass,
    made: u64,
}

impl Records {
    pub(crate) fn new(
        mut stream: Box<dyn Stream>,
        fields: &Arc<[Field]>,
        pass: Pass,
        position: Option<&Position>,
    ) -> Result<Records> {
        let mut made = 0;
        if let Some(position) = position {
            let mut cursor = Cursor::new(&position.numbers);
            stream.seek(&mut cursor)?;
            cursor.end()?;
            made = position.records;
        }
        Ok(Records { stream, record: Record::new(fields), pass, made })
    }

    /// The next record, in memory that the one after it will have; nothing at the end of the epoch.
    ///
    /// # Errors
    /// If it could not be made. What follows is the record after it, or the end.
    pub fn read(&mut self) -> Result<Option<&Record>> {
        if !self.stream.next(&mut self.record)? {
            return Ok(None);
        }
        self.made += 1;
        Ok(Some(&self.record))
    }

    /// The next record, exchanged for one whose memory is used again; false at the end of the epoch.
    ///
    /// # Errors
    /// As [`Records::read`].
    pub fn read_into(&mut self, record: &mut Record) -> Result<bool> {
        if record.fields() != self.record.fields() {
            *record = Record::new(self.record.fields());
        }
        let more = self.stream.next(record)?;
        self.made += u64::from(more);
        Ok(more)
    }

    /// How many records have come in this epoch.
    pub fn made(&self) -> u64 {
        self.made
    }

    /// Where one is: [`Dataset::records_from`](crate::Dataset::records_from) goes on after the record that came last.
    pub fn position(&self) -> Position {
        let mut numbers = vec![];
        self.stream.save(&mut numbers);
        Position { epoch: self.pass.epoch, records: self.made, numbers }
    }

    /// What the stages did in this epoch so far, and held.
    pub fn report(&self) -> PipelineReport {
        self.pass.meter.report(&self.pass.account)
    }
}

/// A place in the records of an epoch. It holds a few numbers for each stage, and as many for each record that waits in a
/// buffer, but none of their values.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Position {
    pub(crate) epoch: u64,
    pub(crate) records: u64,
    pub(crate) numbers: Vec<u64>,
}

impl Position {
    /// The epoch.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// How many records came before it in its epoch.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// As numbers, to be kept anywhere.
    pub fn to_numbers(&self) -> Vec<u64> {
        [&[self.epoch, self.records], &self.numbers[..]].concat()
    }

    /// From numbers that were kept. Whether they are a position of a data set is seen when it is opened there.
    pub fn from_numbers(numbers: &[u64]) -> Result<Position> {
        let [epoch, records, numbers @ ..] = numbers else {
            return Err(
                ErrorKind::Position { reason: "a position in the data is too short".to_string() }.into()
            );
        };
        Ok(Position { epoch: *epoch, records: *records, numbers: numbers.to_vec() })
    }
}
