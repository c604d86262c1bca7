//! The samples of a data set, a batch at a time, in a new order each epoch.
//!
//! A batch is a range of an epoch's order. It owns no data: reading it writes into buffers that the caller keeps for
//! the whole run, so that training's host memory is the same in the first step and the last. Since the order is a
//! function of seed and epoch, a run that resumes finds its place with [`Iterator::nth`] or `skip`, at no cost.

use std::ops::Range;

use crate::random::{Permutation, Purpose, key};
use crate::source::field_at;
use crate::{Dataset, ErrorKind, Result};

/// How a data set is walked: the batch size and the order.
#[derive(Clone, Debug)]
pub struct Batches {
    dataset: Dataset,
    batch: usize,
    seed: Option<u64>,
}

impl Batches {
    pub(crate) fn new(dataset: Dataset, batch: usize) -> Result<Batches> {
        let refuse = |reason: String| Err(ErrorKind::BatchSize { batch, reason }.into());
        if batch == 0 {
            return refuse("a batch needs at least one sample".to_string());
        }
        for field in dataset.fields() {
            if batch.checked_mul(field.bytes()).is_none_or(|bytes| bytes > isize::MAX as usize) {
                return refuse(format!(
                    "a batch of the field `{}` has more bytes than can be addressed",
                    field.name()
                ));
            }
        }
        Ok(Batches { dataset, batch, seed: None })
    }

    /// The same batches, each epoch in an order of its own that depends on this seed and the epoch's number alone.
    pub fn shuffled(self, seed: u64) -> Batches {
        Batches { seed: Some(seed), ..self }
    }

    /// The data set that is walked.
    pub fn dataset(&self) -> &Dataset {
        &self.dataset
    }

    /// Samples of a full batch.
    pub fn batch_size(&self) -> usize {
        self.batch
    }

    /// Batches of one epoch, the last one perhaps partial.
    pub fn per_epoch(&self) -> usize {
        self.dataset.samples().div_ceil(self.batch)
    }

    /// Bytes that a buffer needs for a full batch of the field at this position; 0 if there is no such field.
    pub fn buffer_bytes(&self, field: usize) -> usize {
        self.dataset.fields().get(field).map_or(0, |field| field.bytes() * self.batch)
    }

    /// Bytes of RAM that the pipeline holds: those of its data set. Order and batches occupy none, and the buffers
    /// are the caller's.
    pub fn resident_bytes(&self) -> u64 {
        self.dataset.resident_bytes()
    }

    /// The batches of one epoch. Every sample is in exactly one of them.
    pub fn epoch(&self, epoch: u64) -> Epoch<'_> {
        let permute = |seed| Permutation::new(key(seed, Purpose::Epoch, epoch), self.dataset.samples());
        Epoch { batches: self, order: self.seed.map(permute), range: 0..self.per_epoch() }
    }
}

/// The batches of one epoch, in order.
#[derive(Clone, Debug)]
pub struct Epoch<'a> {
    batches: &'a Batches,
    order: Option<Permutation>,
    range: Range<usize>,
}

impl<'a> Epoch<'a> {
    fn batch(&self, number: usize) -> Batch<'a> {
        let first = number * self.batches.batch;
        let samples = self.batches.batch.min(self.batches.dataset.samples() - first);
        Batch { dataset: &self.batches.dataset, order: self.order, first, samples }
    }
}

impl<'a> Iterator for Epoch<'a> {
    type Item = Batch<'a>;

    fn next(&mut self) -> Option<Batch<'a>> {
        self.nth(0)
    }

    fn nth(&mut self, n: usize) -> Option<Batch<'a>> {
        let number = self.range.nth(n)?;
        Some(self.batch(number))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.range.size_hint()
    }
}

impl ExactSizeIterator for Epoch<'_> {}

/// Some samples of an epoch, to be read field by field.
#[derive(Clone, Debug)]
pub struct Batch<'a> {
    dataset: &'a Dataset,
    order: Option<Permutation>,
    first: usize,
    samples: usize,
}

impl<'a> Batch<'a> {
    /// How many samples it has: the batch size, or what is left for the last batch of an epoch. Never 0.
    pub fn samples(&self) -> usize {
        self.samples
    }

    /// The batch in parts of so many samples (at least 1), the last one perhaps smaller. Nothing is copied.
    pub fn parts(&self, samples: usize) -> impl Iterator<Item = Batch<'a>> {
        let part = move |first| {
            let samples = samples.max(1).min(self.samples - first);
            Batch { first: self.first + first, samples, ..self.clone() }
        };
        (0..self.samples).step_by(samples.max(1)).map(part)
    }

    /// The samples from position `first` on, at most so many. Nothing is copied.
    pub fn part(&self, first: usize, samples: usize) -> Batch<'a> {
        let first = first.min(self.samples);
        Batch { first: self.first + first, samples: samples.min(self.samples - first), ..self.clone() }
    }

    /// Which samples of the data set these are, in the order in which they are read.
    pub fn indices(&self) -> impl ExactSizeIterator<Item = usize> {
        let order = self.order;
        (self.first..self.first + self.samples).map(move |at| order.map_or(at, |order| order.at(at)))
    }

    /// Writes the field at this position, sample after sample, to the start of `out`; returns the bytes written.
    ///
    /// The buffer may be larger than the batch, as it is for a partial one: the rest of it stays as it was.
    pub fn read(&self, field: usize, out: &mut [u8]) -> Result<usize> {
        let found = field_at(self.dataset.fields(), field)?;
        let needed = found.bytes() * self.samples;
        let bytes = out.len();
        let Some(out) = out.get_mut(..needed) else {
            return Err(ErrorKind::Buffer { field: found.name().to_string(), bytes, needed }.into());
        };
        for (sample, out) in self.indices().zip(out.chunks_exact_mut(found.bytes())) {
            self.dataset.source().read(sample, field, out)?;
        }
        Ok(needed)
    }
}
