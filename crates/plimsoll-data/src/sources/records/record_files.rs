//! Files of records as a source: samples by number, though their records have different lengths.
//!
//! Opening reads the files once, in constant memory, to find where records lie and, where the format says so, to check
//! each of them. After that a sample is parsed each time that it is read, straight into the caller's bytes. Small files
//! are the exception: parsing them over and over takes longer than training on them, so their values are kept.

use super::format::{Format, Out};
use super::index::{Index, Indexed};
use super::input::Input;
use super::key::is_float;
use crate::source::{Promise, field_at};
use crate::{Element, ErrorKind, Field, RamBudget, Record, Result, Source};
use std::path::PathBuf;
use std::sync::Arc;

/// The most bytes of files, and of their values, for these to be kept.
const KEPT_FILE_BYTES: u64 = 4 << 20;
const KEPT_VALUE_BYTES: u64 = 16 << 20;

/// The records of one or several files, in their order, read by number.
///
/// Made by [`Csv::open`](super::super::Csv::open), [`JsonLines::open`](super::super::JsonLines::open) and
/// [`TfRecord::open`](super::super::TfRecord::open). An index of at most a 512th of the files and half a MiB of what was
/// read last stay in memory, or the values if there are few of them.
#[derive(Debug)]
pub struct RecordFiles {
    format: Arc<dyn Format>,
    samples: usize,
    promises: Vec<Promise>,
    place: Records,
}

#[derive(Debug)]
enum Records {
    /// In the files.
    Indexed(Indexed),
    /// In memory: the values of all samples, field by field.
    Kept(Vec<Vec<u8>>),
}

impl RecordFiles {
    /// Finds the records of files.
    pub(crate) fn open(paths: &[PathBuf], format: Arc<dyn Format>, budget: RamBudget) -> Result<RecordFiles> {
        let mut index = Index::default();
        let mut ranges = vec![Range::default(); format.fields().len()];
        let mut record = Record::new(format.fields());
        let mut bytes = 0;
        for path in paths {
            let mut input = Input::open(path, |start| format.recognises(start))?.within(budget);
            if input.is_packed() {
                let reason = "it is packed, so its records can only be had in their order: read it as a stream, or \
                              unpack it";
                let (path, reason) = (path.clone(), reason.to_string());
                return Err(ErrorKind::File { path, sample: None, offset: None, reason }.into());
            }
            format.begin(&mut input)?;
            index.begin_file(path);
            while find(&mut input, &*format, index.records())? {
                if format.is_checked_when_opened() {
                    let parsed = format.parse(input.record(), &mut Out::Record(&mut record));
                    parsed.map_err(|fault| format.error(input.place(index.records()), fault))?;
                    ranges.iter_mut().enumerate().for_each(|(at, range)| range.widen(&record, at));
                }
                index.add(input.offset(), input.end(), budget)?;
            }
            bytes += input.end();
        }
        let samples = index.records();
        if samples == 0 {
            return Err(format.no_records(paths));
        }
        let promise = |(position, range): (usize, &Range)| match format.classes(position) {
            Some(classes) => Promise::Below(classes),
            None if is_float(format.fields()[position].element()) => Promise::Finite,
            None if format.is_checked_when_opened() => range.promise(),
            None => Promise::Nothing,
        };
        let promises = ranges.iter().enumerate().map(promise).collect();
        let place = Records::Indexed(Indexed::new(index, format.framing(), budget)?);
        let mut files = RecordFiles { format, samples, promises, place };
        let each: u64 = files.fields().iter().map(|field| field.bytes() as u64).sum();
        let values = each.saturating_mul(samples as u64);
        let is_fixed = files.fields().iter().all(Field::is_fixed);
        let is_admitted = values <= budget.limit().unwrap_or(u64::MAX).min(KEPT_VALUE_BYTES);
        if is_fixed && bytes <= KEPT_FILE_BYTES && is_admitted && files.format.is_checked_when_opened() {
            files.keep()?;
        }
        Ok(files)
    }

    /// Parses all samples into memory.
    fn keep(&mut self) -> Result<()> {
        let mut record = Record::new(self.format.fields());
        let sizes = self.fields().iter().map(|field| field.bytes() * self.samples);
        let mut values: Vec<Vec<u8>> = sizes.map(Vec::with_capacity).collect();
        for sample in 0..self.samples {
            self.read_record(sample, &mut record)?;
            for (position, values) in values.iter_mut().enumerate() {
                values.extend_from_slice(record.bytes(position));
            }
        }
        self.place = Records::Kept(values);
        Ok(())
    }

    fn parse(&self, records: &Indexed, sample: usize, out: &mut Out<'_>) -> Result<()> {
        records.with(sample, |place, record| {
            self.format.parse(record, out).map_err(|fault| self.format.error(place, fault))
        })
    }
}

/// Goes to the next record, and reads all of it only if it is to be checked.
fn find(input: &mut Input, format: &dyn Format, sample: usize) -> Result<bool> {
    if format.is_checked_when_opened() {
        input.next(format.framing(), sample)
    } else {
        input.skim(format.framing(), sample)
    }
}

impl Source for RecordFiles {
    fn samples(&self) -> usize {
        self.samples
    }

    fn fields(&self) -> &[Field] {
        self.format.fields()
    }

    fn read(&self, sample: usize, field: usize, out: &mut [u8]) -> Result<()> {
        self.locate(sample, field, out)?;
        match &self.place {
            Records::Kept(values) => {
                out.copy_from_slice(&values[field][sample * out.len()..][..out.len()]);
                Ok(())
            }
            Records::Indexed(records) => {
                self.parse(records, sample, &mut Out::Field { position: field, bytes: out })
            }
        }
    }

    fn reads_whole_records(&self) -> bool {
        matches!(self.place, Records::Indexed(_))
    }

    fn read_record(&self, sample: usize, out: &mut Record) -> Result<()> {
        match &self.place {
            Records::Kept(values) => {
                for (position, (field, values)) in self.fields().iter().zip(values).enumerate() {
                    let room = out.reshape(position, field.shape())?;
                    self.locate(sample, position, room)?;
                    room.copy_from_slice(&values[sample * room.len()..][..room.len()]);
                }
                Ok(())
            }
            Records::Indexed(records) if sample < self.samples => {
                self.parse(records, sample, &mut Out::Record(out))
            }
            Records::Indexed(_) => Err(ErrorKind::NoSuchSample { sample, samples: self.samples }.into()),
        }
    }

    fn resident_bytes(&self) -> u64 {
        match &self.place {
            Records::Indexed(records) => records.resident_bytes(),
            Records::Kept(values) => values.iter().map(|values| values.capacity() as u64).sum(),
        }
    }

    fn promise(&self, field: usize) -> Promise {
        match field_at(self.fields(), field) {
            Ok(_) => self.promises[field],
            Err(_) => Promise::Nothing,
        }
    }
}

/// The least and the largest whole number of a field.
#[derive(Clone, Copy, Debug)]
struct Range {
    least: i64,
    most: i64,
}

impl Default for Range {
    fn default() -> Range {
        Range { least: i64::MAX, most: i64::MIN }
    }
}

impl Range {
    fn widen(&mut self, record: &Record, position: usize) {
        let bytes = record.bytes(position);
        match record.fields()[position].element() {
            Element::I32 => {
                bytes.as_chunks().0.iter().for_each(|&value| self.take(i32::from_ne_bytes(value).into()))
            }
            Element::I64 => {
                bytes.as_chunks().0.iter().for_each(|&value| self.take(i64::from_ne_bytes(value)))
            }
            // All bytes are what they can be.
            Element::U8 => (self.least, self.most) = (0, 255),
            Element::F32 | Element::F64 => {}
        }
    }

    fn take(&mut self, value: i64) {
        (self.least, self.most) = (self.least.min(value), self.most.max(value));
    }

    fn promise(self) -> Promise {
        match usize::try_from(self.most) {
            Ok(most) if self.least >= 0 => Promise::Below(most.saturating_add(1)),
            _ => Promise::Nothing,
        }
    }
}
