//! Sources that are made of others: some samples of one, in another order; and samples that a function makes.

use crate::random::Permutation;
use crate::source::{Promise, field_at, in_groups, read_each};
use crate::{ErrorKind, Field, Record, Result, Source};
use std::sync::Arc;

/// A range of a source, perhaps a shuffled one, or every nth of its samples.
pub(crate) struct Part {
    pub(crate) whole: Arc<dyn Source>,
    pub(crate) order: Option<Permutation>,
    pub(crate) first: usize,
    pub(crate) step: usize,
    pub(crate) samples: usize,
}

impl Part {
    fn in_whole(&self, sample: usize) -> usize {
        let at = self.first + sample * self.step;
        self.order.map_or(at, |order| order.at(at))
    }

    fn check(&self, sample: usize) -> Result<()> {
        match sample < self.samples {
            true => Ok(()),
            false => Err(ErrorKind::NoSuchSample { sample, samples: self.samples }.into()),
        }
    }
}

impl Source for Part {
    fn samples(&self) -> usize {
        self.samples
    }

    fn fields(&self) -> &[Field] {
        self.whole.fields()
    }

    fn read(&self, sample: usize, field: usize, out: &mut [u8]) -> Result<()> {
        self.check(sample)?;
        self.whole.read(self.in_whole(sample), field, out)
    }

    fn read_record(&self, sample: usize, out: &mut Record) -> Result<()> {
        self.check(sample)?;
        self.whole.read_record(self.in_whole(sample), out)
    }

    fn read_range(&self, first: usize, samples: usize, field: usize, out: &mut [u8]) -> Result<()> {
        if self.order.is_none() && self.step == 1 && samples > 0 {
            self.check(first + samples - 1)?;
            return self.whole.read_range(self.first + first, samples, field, out);
        }
        let bytes = field_at(self.fields(), field)?.bytes();
        read_each(first..first + samples, bytes, out, |sample, out| self.read(sample, field, out))
    }

    fn read_many(&self, samples: &[usize], field: usize, out: &mut [u8]) -> Result<()> {
        let bytes = field_at(self.fields(), field)?.bytes();
        samples.iter().try_for_each(|&sample| self.check(sample))?;
        in_groups(samples.iter().map(|&sample| self.in_whole(sample)), |first, samples| {
            let out = &mut out[first * bytes..][..samples.len() * bytes];
            self.whole.read_many(samples, field, out)
        })
    }

    fn reads_whole_records(&self) -> bool {
        self.whole.reads_whole_records()
    }

    fn reading_bytes(&self) -> u64 {
        self.whole.reading_bytes()
    }

    fn resident_bytes(&self) -> u64 {
        self.whole.resident_bytes()
    }

    fn promise(&self, field: usize) -> Promise {
        self.whole.promise(field)
    }

    fn part_of(&self) -> Option<&Arc<dyn Source>> {
        Some(self.whole.part_of().unwrap_or(&self.whole))
    }

    fn origin(&self, sample: usize) -> usize {
        self.whole.origin(self.in_whole(sample))
    }

    fn name(&self, sample: usize) -> Option<String> {
        self.whole.name(self.in_whole(sample))
    }
}

/// Samples that a function makes.
pub(crate) struct Computed<F> {
    pub(crate) fields: Arc<[Field]>,
    pub(crate) samples: usize,
    pub(crate) make: F,
}

impl<F: Fn(usize, &mut Record) -> Result<()> + Send + Sync> Source for Computed<F> {
    fn samples(&self) -> usize {
        self.samples
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn read(&self, sample: usize, field: usize, out: &mut [u8]) -> Result<()> {
        self.locate(sample, field, out)?;
        let mut record = Record::new(&self.fields);
        self.read_record(sample, &mut record)?;
        out.copy_from_slice(record.bytes(field));
        Ok(())
    }

    fn reads_whole_records(&self) -> bool {
        true
    }

    fn read_record(&self, sample: usize, out: &mut Record) -> Result<()> {
        let stage = || "the function that makes samples".to_string();
        out.begin();
        (self.make)(sample, out).map_err(|error| {
            let (element, reason) = (sample as u64, error.to_string());
            ErrorKind::Stage { stage: stage(), element, reason, error: Some(error) }
        })?;
        match out.unset() {
            None => Ok(()),
            Some(field) => {
                let reason = format!("it did not set the field `{}`", field.name());
                Err(ErrorKind::Stage { stage: stage(), element: sample as u64, reason, error: None }.into())
            }
        }
    }

    fn resident_bytes(&self) -> u64 {
        0
    }
}
