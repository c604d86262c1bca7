//! Samples that were claimed from a source to be read beside others: what is slow about a record, such as decoding an image,
//! is then done by several threads at once, although its place in the order is given out to one after the other.

use super::StageMeter;
use crate::random::Permutation;
use crate::source::in_groups;
use crate::{Field, Record, Result, Source};
use std::sync::Arc;

/// Samples that whoever has this is to read.
pub(crate) struct Claim {
    pub(crate) source: Arc<dyn Source>,
    pub(crate) order: Option<Permutation>,
    pub(crate) first: usize,
    /// How many there are: none at the end.
    pub(crate) samples: usize,
    /// Whether they are the rows of one record.
    pub(crate) are_rows: bool,
    pub(crate) meter: Arc<StageMeter>,
}

impl Claim {
    /// Reads what was claimed; false if that is nothing.
    pub(crate) fn read(&self, out: &mut Record) -> Result<bool> {
        if self.samples == 0 {
            return Ok(false);
        }
        if !self.are_rows {
            self.meter.work(|| self.source.read_record(self.number(0), out))?;
            return Ok(true);
        }
        let fields = self.source.fields();
        set_rows(out, self.samples, fields)?;
        if self.order.is_none() && !self.source.reads_whole_records() {
            self.meter.work_on(self.samples as u64, || {
                fields.iter().enumerate().try_for_each(|(position, field)| {
                    let rows = out.rows_mut(position, 0, self.samples, field.bytes());
                    self.source.read_range(self.first, self.samples, position, rows)
                })
            })?;
            return Ok(true);
        }
        // Looking at a clock for each row would take a good part of what reading a small one does.
        self.meter.work_on(self.samples as u64, || {
            if !self.source.reads_whole_records() {
                return in_groups((0..self.samples).map(|row| self.number(row)), |first, samples| {
                    fields.iter().enumerate().try_for_each(|(position, field)| {
                        let rows = out.rows_mut(position, first, samples.len(), field.bytes());
                        self.source.read_many(samples, position, rows)
                    })
                });
            }
            let mut scratch = Record::new(&fields.into());
            let mut rows = 0..self.samples;
            rows.try_for_each(|row| read_row(&*self.source, self.number(row), out, row, &mut scratch))
        })?;
        Ok(true)
    }

    fn number(&self, at: usize) -> usize {
        let at = self.first + at;
        self.order.map_or(at, |order| order.at(at))
    }
}

/// Reads a sample whose fields are fixed to a row of a record of many; `scratch` has the source's fields.
pub(crate) fn read_row(
    source: &dyn Source,
    sample: usize,
    rows: &mut Record,
    row: usize,
    scratch: &mut Record,
) -> Result<()> {
    if source.reads_whole_records() {
        source.read_record(sample, scratch)?;
        rows.copy_row(row, scratch);
        return Ok(());
    }
    let mut fields = source.fields().iter().enumerate();
    fields.try_for_each(|(position, field)| {
        source.read(sample, position, rows.row_mut(position, row, field.bytes()))
    })
}

/// Gives a record so many rows of fields whose shape is fixed.
pub(crate) fn set_rows(out: &mut Record, rows: usize, of: &[Field]) -> Result<()> {
    for (position, field) in of.iter().enumerate() {
        let mut shape = [rows; 9];
        let rank = field.shape().len();
        match shape.get_mut(1..=rank) {
            Some(rest) => {
                rest.copy_from_slice(field.shape());
                out.reshape(position, &shape[..=rank])?;
            }
            None => {
                out.reshape(position, &[&[rows], field.shape()].concat())?;
            }
        }
    }
    Ok(())
}
