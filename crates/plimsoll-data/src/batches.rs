//! The samples of a data set, a batch at a time, in a new order each epoch.
//!
//! A batch of a source is a range of an epoch's order. It owns no data: reading it writes into buffers that the caller keeps
//! for the whole run, so that training's host memory is the same in the first step and the last. Since the order is a
//! function of seed and epoch, a run that resumes finds its place at no cost. Where stages make the samples, or reading one
//! takes parsing or decoding, threads put the next batches together while this one is trained on.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use crate::check::{are_finite, check_finite};
use crate::pipeline::{PipelineReport, check_batch_size};
use crate::random::{Permutation, Purpose, key};
use crate::source::{Promise, field_at, in_groups};
use crate::{Dataset, Depth, Element, ErrorKind, Field, Position, Record, Records, Result, Source};

/// How a data set is walked: the batch size and the order.
#[derive(Clone, Debug)]
pub struct Batches {
    dataset: Dataset,
    batch: usize,
    seed: Option<u64>,
}

/// How many batches are put together ahead of the one that is used.
const AHEAD: usize = 2;

impl Batches {
    pub(crate) fn new(dataset: Dataset, batch: usize) -> Result<Batches> {
        check_batch_size(dataset.fields(), batch)?;
        if let Some(field) = dataset.fields().iter().find(|field| !field.is_fixed()) {
            let reason = format!(
                "samples of a batch have one shape, and this is {field}: pack them into rows of one length (`pack`), or \
                 make them the same (`map`)"
            );
            return Err(ErrorKind::Field { name: field.name().to_string(), reason }.into());
        }
        Ok(Batches { dataset, batch, seed: None })
    }

    /// The same batches, each epoch in an order of its own that depends on this seed and the epoch's number alone. Samples
    /// that cannot be read by number stay in the order that their stages give them.
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

    /// Batches of one epoch, the last one perhaps partial; 0 where that is not known.
    pub fn per_epoch(&self) -> usize {
        self.dataset.samples().div_ceil(self.batch)
    }

    /// Bytes that a buffer needs for a full batch of the field at this position; 0 if there is no such field.
    pub fn buffer_bytes(&self, field: usize) -> usize {
        self.dataset.fields().get(field).map_or(0, |field| field.bytes() * self.batch)
    }

    /// Bytes of RAM that are held for batches: what the data set keeps, and where stages make the samples the batches that
    /// are put together ahead. Stages may hold more; their budget bounds it ([`Dataset::within`]).
    pub fn resident_bytes(&self) -> u64 {
        self.dataset.resident_bytes().saturating_add(self.ahead_bytes())
    }

    /// Bytes of the batches that are put together ahead.
    pub fn ahead_bytes(&self) -> u64 {
        if self.read_in_place().is_some() {
            return 0;
        }
        let batch: u64 = self.dataset.fields().iter().map(|field| (field.bytes() * self.batch) as u64).sum();
        // Those that are ready, the one that is put together, and the one that is used.
        batch.saturating_mul(AHEAD as u64 + 2)
    }

    /// The source, if its samples are best read where they are needed: nothing is between the file and the caller's buffers.
    /// What is parsed or decoded is made ahead instead.
    fn read_in_place(&self) -> Option<&dyn Source> {
        let is_work = |source: &dyn Source| source.reads_whole_records() || source.reading_bytes() > 0;
        self.dataset.source().filter(|source| !is_work(*source))
    }

    /// The batches of one epoch. Every sample is in exactly one of them.
    pub fn epoch(&self, epoch: u64) -> Epoch<'_> {
        self.open(epoch, None)
    }

    /// The batches of an epoch that follow a position.
    pub fn epoch_from(&self, position: &Position) -> Epoch<'_> {
        self.open(position.epoch, Some(position))
    }

    fn open(&self, epoch: u64, position: Option<&Position>) -> Epoch<'_> {
        let first = position.map_or(0, |position| usize::try_from(position.records).unwrap_or(usize::MAX));
        let range = first.min(self.per_epoch())..self.per_epoch();
        let order = self
            .dataset
            .source()
            .zip(self.seed)
            .map(|(source, seed)| Permutation::new(key(seed, Purpose::Epoch, epoch), source.samples()));
        let walk = match self.read_in_place() {
            Some(source) => Walk::ByNumber { source, order },
            None => {
                let records = self.records(epoch, position);
                Walk::Made { records, order, last: Arc::default(), waited: 0.0 }
            }
        };
        Epoch { batches: self, epoch, range, walk }
    }

    /// Batches that stages make.
    fn records(&self, epoch: u64, position: Option<&Position>) -> Result<Records> {
        let ordered = self.seed.and_then(|seed| self.dataset.shuffle_all(seed).ok());
        let ordered = ordered.as_ref().unwrap_or(&self.dataset);
        let batches = ordered.batch(self.batch, false)?.prefetch(Depth::Records(AHEAD));
        match (position, self.dataset.source()) {
            (None, _) => batches.records(epoch),
            (Some(position), None) => batches.records_from(position),
            (Some(position), Some(source)) => {
                // Of a source, all follows from how many came: what is ahead and what is batched count batches, and the source
                // its samples.
                let made = position.records.min(self.per_epoch() as u64);
                let samples = made.saturating_mul(self.batch as u64).min(source.samples() as u64);
                let numbers = vec![made, made, samples];
                batches.records_from(&Position { epoch, records: made, numbers })
            }
        }
    }
}

/// The batches of one epoch, in order.
pub struct Epoch<'a> {
    batches: &'a Batches,
    epoch: u64,
    /// The numbers of those to come.
    range: Range<usize>,
    walk: Walk<'a>,
}

enum Walk<'a> {
    ByNumber {
        source: &'a dyn Source,
        order: Option<Permutation>,
    },
    Made {
        records: Result<Records>,
        /// The order of samples, if they are those of a source.
        order: Option<Permutation>,
        /// The batch that came last: its memory is used again when nobody has it any more.
        last: Arc<Made>,
        waited: f64,
    },
}

/// A batch that stages made.
#[derive(Debug, Default)]
struct Made {
    record: Option<Record>,
    /// Why there is none.
    failure: Option<String>,
    first: usize,
}

impl<'a> Epoch<'a> {
    /// Where one is: [`Batches::epoch_from`] goes on after the batch that came last.
    pub fn position(&self) -> Position {
        match &self.walk {
            Walk::Made { records: Ok(records), .. } if self.batches.dataset.source().is_none() => {
                records.position()
            }
            _ => Position { epoch: self.epoch, records: self.range.start as u64, numbers: vec![] },
        }
    }

    /// The seconds that were waited for batches which stages make.
    pub fn waited_seconds(&self) -> f64 {
        match &self.walk {
            Walk::Made { waited, .. } => *waited,
            Walk::ByNumber { .. } => 0.0,
        }
    }

    /// What the stages did in this epoch so far, if stages make the samples.
    pub fn report(&self) -> Option<PipelineReport> {
        match &self.walk {
            Walk::Made { records: Ok(records), .. } => Some(records.report()),
            _ => None,
        }
    }

    fn batch(&mut self, number: usize) -> Batch<'a> {
        let first = number * self.batches.batch;
        let samples = self.batches.batch.min(self.batches.dataset.samples() - first);
        let fields = self.batches.dataset.fields();
        let rows = match &mut self.walk {
            Walk::ByNumber { source, order } => Rows::ByNumber { source: *source, order: *order, first },
            Walk::Made { records, order, last, waited } => {
                let start = Instant::now();
                let source = self.batches.dataset.source();
                if Arc::get_mut(last).is_none() {
                    *last = Arc::default();
                }
                if let Some(made) = Arc::get_mut(last) {
                    made.make(records, source, fields, first, samples);
                }
                *waited += start.elapsed().as_secs_f64();
                Rows::Made { made: Arc::clone(last), order: *order, first: 0 }
            }
        };
        Batch { fields, rows, samples }
    }
}

impl Made {
    /// Takes the next batch, which begins with the sample of that number.
    fn make(
        &mut self,
        records: &mut Result<Records>,
        source: Option<&dyn Source>,
        fields: &[Field],
        first: usize,
        samples: usize,
    ) {
        (self.failure, self.first) = (None, first);
        let made = match records {
            Ok(records) => {
                let record = self.record.get_or_insert_with(|| Record::new(&Arc::from([])));
                records.read_into(record).map_err(|error| error.to_string()).and_then(|more| match more {
                    false => Err(ended_after(first)),
                    true => check(record, source, fields, first, samples),
                })
            }
            Err(error) => Err(error.to_string()),
        };
        self.failure = made.err();
    }
}

fn ended_after(samples: usize) -> String {
    format!("the samples end after {samples}, where more were expected: count them again")
}

/// That a batch is what was expected, and its floats are finite, unless the source vouches for them.
fn check(
    batch: &Record,
    source: Option<&dyn Source>,
    fields: &[Field],
    first: usize,
    samples: usize,
) -> std::result::Result<(), String> {
    for (position, field) in fields.iter().enumerate() {
        let rows = batch.shape(position)[0];
        if rows != samples {
            return Err(ended_after(first + rows));
        }
        let is_float = matches!(field.element(), Element::F32 | Element::F64);
        let promise = source.map_or(Promise::Nothing, |source| source.promise(position));
        if !is_float || matches!(promise, Promise::Finite | Promise::Meant) {
            continue;
        }
        if are_finite(field.element(), batch.bytes(position)) {
            continue;
        }
        let bytes = batch.bytes(position).chunks_exact(field.bytes());
        for (sample, bytes) in (first..).zip(bytes) {
            check_finite(field, sample, bytes).map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}

impl<'a> Iterator for Epoch<'a> {
    type Item = Batch<'a>;

    fn next(&mut self) -> Option<Batch<'a>> {
        let number = self.range.next()?;
        Some(self.batch(number))
    }

    fn nth(&mut self, n: usize) -> Option<Batch<'a>> {
        if let Walk::Made { records, .. } = &mut self.walk
            && self.batches.dataset.source().is_some()
            && n > 0
        {
            let made = self.range.start.saturating_add(n) as u64;
            let there = Position { epoch: self.epoch, records: made, numbers: vec![] };
            *records = self.batches.records(self.epoch, Some(&there));
        } else if let Walk::Made { .. } = self.walk {
            (0..n).try_for_each(|_| self.next().map(|_| ()))?;
            return self.next();
        }
        let number = self.range.nth(n)?;
        Some(self.batch(number))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.range.size_hint()
    }
}

impl ExactSizeIterator for Epoch<'_> {}

/// Some samples of an epoch, to be read field by field.
#[derive(Clone)]
pub struct Batch<'a> {
    fields: &'a [Field],
    rows: Rows<'a>,
    samples: usize,
}

#[derive(Clone)]
enum Rows<'a> {
    ByNumber { source: &'a dyn Source, order: Option<Permutation>, first: usize },
    Made { made: Arc<Made>, order: Option<Permutation>, first: usize },
}

impl<'a> Batch<'a> {
    /// How many samples it has: the batch size, or what is left for the last batch of an epoch. Never 0.
    pub fn samples(&self) -> usize {
        self.samples
    }

    /// The batch in parts of so many samples (at least 1), the last one perhaps smaller. Nothing is copied.
    pub fn parts(&self, samples: usize) -> impl Iterator<Item = Batch<'a>> {
        (0..self.samples).step_by(samples.max(1)).map(move |first| self.part(first, samples.max(1)))
    }

    /// The samples from position `first` on, at most so many. Nothing is copied.
    pub fn part(&self, first: usize, samples: usize) -> Batch<'a> {
        let more = first.min(self.samples);
        let mut rows = self.rows.clone();
        match &mut rows {
            Rows::ByNumber { first, .. } | Rows::Made { first, .. } => *first += more,
        }
        Batch { fields: self.fields, rows, samples: samples.min(self.samples - more) }
    }

    /// Which samples of the data set these are, in the order in which they are read: their numbers, or where stages make the
    /// samples, their places in the epoch.
    pub fn indices(&self) -> impl ExactSizeIterator<Item = usize> {
        let (order, first) = match &self.rows {
            Rows::ByNumber { order, first, .. } => (*order, *first),
            Rows::Made { made, order, first } => (*order, made.first + first),
        };
        (first..first + self.samples).map(move |at| order.map_or(at, |order| order.at(at)))
    }

    /// Writes the field at this position, sample after sample, to the start of `out`; returns the bytes written.
    ///
    /// The buffer may be larger than the batch, as it is for a partial one: the rest of it stays as it was.
    pub fn read(&self, field: usize, out: &mut [u8]) -> Result<usize> {
        let found = field_at(self.fields, field)?;
        let needed = found.bytes() * self.samples;
        let bytes = out.len();
        let Some(out) = out.get_mut(..needed) else {
            return Err(ErrorKind::Buffer { field: found.name().to_string(), bytes, needed }.into());
        };
        match &self.rows {
            // As much at once as there is: what reads ahead on a disk sees where this goes.
            Rows::ByNumber { source, order: None, first } => {
                source.read_range(*first, self.samples, field, out)?;
            }
            Rows::ByNumber { source, .. } => {
                let each = found.bytes();
                in_groups(self.indices(), |first, samples| {
                    source.read_many(samples, field, &mut out[first * each..][..samples.len() * each])
                })?;
            }
            Rows::Made { made, first, .. } => match (&made.failure, &made.record) {
                (None, Some(record)) => {
                    out.copy_from_slice(&record.bytes(field)[first * found.bytes()..][..needed]);
                }
                (failure, _) => {
                    let reason = failure.clone().unwrap_or_default();
                    let (stage, element) = ("a batch".to_string(), made.first as u64);
                    return Err(ErrorKind::Stage { stage, element, reason, error: None }.into());
                }
            },
        }
        Ok(needed)
    }
}
