//! A data set: records with named fields, and what is done to them on their way to a model. Declaring it reads nothing;
//! each stage is a small value, shared by everything that is built on it.
//!
//! Where the records are those of a source, in its order, they can be read by number. Then picking and ordering them is
//! arithmetic: a split is two ranges of one shuffle, and the shuffle is a function, so that splitting copies no sample and
//! holds no index.

use crate::picked::{Computed, Part};
use crate::pipeline::{
    Account, Batched, Bucketed, ByNumber, Cached, Depth, Filtered, Function, InARow, Interleaved, Iterated,
    Mapped, Meter, Node, OneToOne, Packed, Padding, Pass, Prefetched, Range, Repeated, Sharded, Shelf,
    Shuffled, Storage, Tolerant, Workers, Zipped,
};
use crate::random::{Draws, Permutation, Purpose, key};
use crate::source::field_named;
use crate::sources::Concatenated;
use crate::{Batches, ErrorKind, Field, Position, RamBudget, Record, RecordReader, Records, Result, Source};
use std::path::Path;
use std::{fmt, sync::Arc};

/// Samples to train on or to evaluate with, and the stages that make them. Cloning it shares everything.
///
/// ```
/// use plimsoll_data::{Dataset, Depth, Element, Field, Workers, digits};
///
/// let scaled = [Field::new("x", Element::F32, &[64])?, Field::new("label", Element::I32, &[])?];
/// let batches = Dataset::new(digits())?
///     .shuffle_all(7)?
///     .map(Workers::Threads(2), &scaled, |digit, out| {
///         let x: Vec<f32> = digit.get::<f32>("features")?.iter().map(|x| x / 16.0).collect();
///         out.set("x", &[64], &x)?;
///         out.set("label", &[], digit.get::<i32>("label")?)
///     })?
///     .batch(32, true)?
///     .prefetch(Depth::Auto);
/// let mut records = batches.records(0)?;
/// let mut seen = 0;
/// while let Some(batch) = records.read()? {
///     assert_eq!(batch.shape_of("x")?, [32, 64]);
///     seen += 1;
/// }
/// assert_eq!(seen, 1797 / 32);
/// # Ok::<(), plimsoll_data::Error>(())
/// ```
#[derive(Clone)]
pub struct Dataset {
    node: Arc<dyn Node>,
    budget: RamBudget,
}

/// The two parts of a data set: disjoint, and together all of it.
#[derive(Clone, Debug)]
pub struct Split {
    /// The part to train on.
    pub train: Dataset,
    /// The part to evaluate with, never trained on.
    pub held_out: Dataset,
}

/// Where a cache keeps records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cache<'a> {
    /// In RAM.
    Memory,
    /// In this file, which is written over, and removed in the end.
    File(&'a Path),
}

/// What becomes of a sequence that has no room in the row that is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pack {
    /// It begins the next row, and what is left of this one is padding. What is longer than a row is cut.
    Whole,
    /// It is cut, and goes on in the next row: no padding but at the very end.
    Cut,
}

impl Dataset {
    /// The samples of a source, which must have at least one field, and from 1 to `isize::MAX` samples.
    pub fn new(source: impl Source + 'static) -> Result<Dataset> {
        if source.fields().is_empty() {
            return Err(ErrorKind::Empty { what: "the data set has no fields".to_string() }.into());
        }
        if source.samples() == 0 {
            return Err(ErrorKind::Empty { what: "the data set has no samples".to_string() }.into());
        }
        if source.samples() > isize::MAX as usize {
            return Err(ErrorKind::TooManySamples { samples: source.samples() }.into());
        }
        Ok(Dataset::of_source(Arc::new(source)))
    }

    /// Samples that come one after the other: `open` is asked for a reader of each epoch's, which gives the same samples
    /// each time it is asked for the same epoch. `samples` is how many there are, where that is known.
    pub fn from_reader(
        fields: &[Field],
        samples: Option<u64>,
        open: impl Fn(u64) -> Result<Box<dyn RecordReader>> + Send + Sync + 'static,
    ) -> Result<Dataset> {
        if fields.is_empty() {
            return Err(ErrorKind::Empty { what: "the data set has no fields".to_string() }.into());
        }
        let fields = distinct(fields)?;
        Ok(Dataset::of_node(Iterated { fields, count: samples, make: Arc::new(open) }))
    }

    /// Samples that a function makes of their numbers, `0..samples`.
    pub fn from_function(
        fields: &[Field],
        samples: usize,
        make: impl Fn(usize, &mut Record) -> Result<()> + Send + Sync + 'static,
    ) -> Result<Dataset> {
        Dataset::new(Computed { fields: distinct(fields)?, samples, make })
    }

    fn of_node(node: impl Node + 'static) -> Dataset {
        Dataset { node: Arc::new(node), budget: RamBudget::UNLIMITED }
    }

    fn of_source(source: Arc<dyn Source>) -> Dataset {
        Dataset::of_node(ByNumber::new(source, None))
    }

    /// A stage after all others.
    fn then(&self, node: impl Node + 'static) -> Dataset {
        Dataset { node: Arc::new(node), budget: self.budget }
    }

    /// How many samples there are in an epoch; 0 where that is not known before they are made, as after a filter.
    pub fn samples(&self) -> usize {
        self.node.count().map_or(0, |count| usize::try_from(count).unwrap_or(usize::MAX))
    }

    /// What each sample is made of.
    pub fn fields(&self) -> &[Field] {
        self.node.fields()
    }

    /// The position of the field with this name.
    pub fn field(&self, name: &str) -> Result<usize> {
        field_named(self.fields(), name)
    }

    /// The source, if the samples are those of a source in its own order, which can be read by number.
    pub fn source(&self) -> Option<&dyn Source> {
        self.node.source().map(|source| &**source)
    }

    /// The bytes that one of its records takes in a [shuffle](Dataset::shuffle) buffer, or at least takes if its shape is open.
    pub fn shuffled_record_bytes(&self) -> u64 {
        Shelf::bytes_of_each(&self.fields().into())
    }

    /// Bytes of RAM that its samples occupy. The parts of a split share their samples: count them once, or use
    /// [`Dataset::resident_bytes_with`].
    pub fn resident_bytes(&self) -> u64 {
        self.node.resident_bytes()
    }

    /// Bytes of RAM that its samples and those of another data set occupy, counted once where they are the same.
    pub fn resident_bytes_with(&self, other: Option<&Dataset>) -> u64 {
        let whole = |of: &Dataset| {
            let source = of.node.source()?;
            Some(Arc::clone(source.part_of().unwrap_or(source)))
        };
        let same = |other: &Dataset| match (whole(self), whole(other)) {
            (Some(own), Some(other)) => Arc::ptr_eq(&own, &other),
            _ => Arc::ptr_eq(&self.node, &other.node),
        };
        match other {
            Some(other) if !same(other) => self.resident_bytes().saturating_add(other.resident_bytes()),
            _ => self.resident_bytes(),
        }
    }

    /// Bytes of RAM that this and another data set hold while they are read, one after the other: their budgets, or where they
    /// have none, what their samples occupy and their buffers take.
    pub fn held_bytes_with(&self, other: Option<&Dataset>) -> u64 {
        let stages = |of: &Dataset| match of.budget.limit().filter(|_| of.source().is_none()) {
            Some(limit) => limit.saturating_sub(of.resident_bytes()),
            None => of.node.stage_bytes(),
        };
        let stages = stages(self).max(other.map_or(0, stages));
        self.resident_bytes_with(other).saturating_add(stages)
    }

    /// The same data set, all stages of which together hold no more than the budget: what its source keeps, shuffle buffers,
    /// caches, what is made ahead.
    ///
    /// # Errors
    /// If what the source keeps is more already. What stages hold is known when they run: then it is an error of theirs.
    pub fn within(self, budget: RamBudget) -> Result<Dataset> {
        let remedy =
            "use fewer samples, raise the budget, or read them from a source that does not keep them";
        budget.admit("the data set", self.resident_bytes(), remedy)?;
        Ok(Dataset { budget, ..self })
    }

    /// Parts the samples at random: `fraction` of them to train on, the rest held out.
    ///
    /// The same seed always gives the same split. Each part gets at least one sample. Samples that cannot be read by number
    /// cannot be split: do that to their source.
    pub fn split(&self, fraction: f64, seed: u64) -> Result<Split> {
        let (samples, train) = self.to_split(fraction)?;
        let order = Some(Permutation::new(key(seed, Purpose::Split, 0), samples));
        let part = |first, samples| {
            let part =
                |whole: &Arc<dyn Source>| Part { whole: Arc::clone(whole), order, first, step: 1, samples };
            self.over_part("split", part)
        };
        Ok(Split { train: part(0, train)?, held_out: part(train, samples - train)? })
    }

    /// The first part of samples that follow one another in time, to train on, and the rest, held out: what comes later is
    /// predicted from what came before.
    ///
    /// # Errors
    /// As those of [`split`](Dataset::split).
    pub fn split_in_order(&self, fraction: f64) -> Result<Split> {
        let (samples, train) = self.to_split(fraction)?;
        let part = |first, samples| {
            let part = |whole: &Arc<dyn Source>| Part {
                whole: Arc::clone(whole),
                order: None,
                first,
                step: 1,
                samples,
            };
            self.over_part("split", part)
        };
        Ok(Split { train: part(0, train)?, held_out: part(train, samples - train)? })
    }

    /// How many samples there are, and how many of them a fraction is.
    fn to_split(&self, fraction: f64) -> Result<(usize, usize)> {
        let samples = self.need_source("split", |node| node.one_to_one())?.samples();
        if !(fraction > 0.0 && fraction < 1.0) || samples < 2 {
            return Err(ErrorKind::Split { fraction, samples }.into());
        }
        Ok((samples, ((samples as f64 * fraction).round() as usize).clamp(1, samples - 1)))
    }

    /// The source at the bottom, and the same stages over another: if all of them are such that it makes no difference whether
    /// samples are picked, or ordered, before or after them.
    fn bottom(&self, passes: Passes) -> Option<&Arc<dyn Source>> {
        let mut node = &self.node;
        while let Some((upstream, _)) = passes(&**node) {
            node = upstream;
        }
        node.source()
    }

    fn need_source(&self, what: &str, passes: Passes) -> Result<&Arc<dyn Source>> {
        self.bottom(passes).ok_or_else(|| {
            let reason = "it needs samples that can be read by number: do it before other stages pick and order them, or to \
                          the files' own data set";
            let (stage, reason) = (what.to_string(), reason.to_string());
            ErrorKind::Stage { stage, element: 0, reason, error: None }.into()
        })
    }

    /// The same stages over some samples of the source at the bottom.
    fn over_part(&self, what: &str, part: impl Fn(&Arc<dyn Source>) -> Part) -> Result<Dataset> {
        let part: Arc<dyn Source> = Arc::new(part(self.need_source(what, |node| node.one_to_one())?));
        let bottom = || Arc::new(ByNumber::new(Arc::clone(&part), None)) as Arc<dyn Node>;
        Ok(Dataset { node: rebuilt(&self.node, |node| node.one_to_one(), &bottom), budget: self.budget })
    }

    /// All samples in an order that is drawn anew each epoch, each order as likely as any other. It holds nothing.
    ///
    /// # Errors
    /// If samples cannot be read by number: [`Dataset::shuffle`] shuffles those with a buffer.
    pub fn shuffle_all(&self, seed: u64) -> Result<Dataset> {
        let source = self.need_source("shuffling all samples", |node| node.each_by_itself())?;
        let shuffled = || Arc::new(ByNumber::new(Arc::clone(source), Some(seed))) as Arc<dyn Node>;
        Ok(Dataset {
            node: rebuilt(&self.node, |node| node.each_by_itself(), &shuffled),
            budget: self.budget,
        })
    }

    /// The samples in an order that is drawn, anew each epoch, from a buffer of so many (at least 1): one that is drawn makes
    /// room for the next.
    pub fn shuffle(&self, buffer: usize, seed: u64) -> Dataset {
        self.then(Shuffled { upstream: Arc::clone(&self.node), buffer: buffer.max(1), seed })
    }

    /// What a function makes of each sample: it reads one and sets all fields of the other. It runs on so many threads, and
    /// the order stays.
    pub fn map(
        &self,
        workers: impl Into<Workers>,
        fields: &[Field],
        function: impl Fn(&Record, &mut Record) -> Result<()> + Send + Sync + 'static,
    ) -> Result<Dataset> {
        self.mapped(workers.into(), fields, 0, true, without_draws(function))
    }

    /// As [`Dataset::map`], with random numbers for the function: the same for the same seed, epoch and place of the sample,
    /// however many threads there are.
    pub fn map_random(
        &self,
        workers: impl Into<Workers>,
        fields: &[Field],
        seed: u64,
        function: impl Fn(&Record, &mut Record, &mut Draws) -> Result<()> + Send + Sync + 'static,
    ) -> Result<Dataset> {
        self.mapped(workers.into(), fields, seed, true, Arc::new(function))
    }

    /// As [`Dataset::map`], but samples come as soon as they are made, in any order.
    pub fn map_unordered(
        &self,
        workers: impl Into<Workers>,
        fields: &[Field],
        function: impl Fn(&Record, &mut Record) -> Result<()> + Send + Sync + 'static,
    ) -> Result<Dataset> {
        self.mapped(workers.into(), fields, 0, false, without_draws(function))
    }

    fn mapped(
        &self,
        workers: Workers,
        fields: &[Field],
        seed: u64,
        is_ordered: bool,
        function: Function,
    ) -> Result<Dataset> {
        let fields = distinct(fields)?;
        let upstream = Arc::clone(&self.node);
        Ok(self.then(Mapped { upstream, fields, function, seed, workers, is_ordered }))
    }

    /// The samples that a function says yes to.
    pub fn filter(&self, keep: impl Fn(&Record) -> Result<bool> + Send + Sync + 'static) -> Dataset {
        self.then(Filtered { upstream: Arc::clone(&self.node), keep: Arc::new(keep) })
    }

    /// Leaves out samples that cannot be read or made, at most so many an epoch, and counts them in the report.
    pub fn skip_errors(&self, most: u64) -> Dataset {
        self.then(Tolerant { upstream: Arc::clone(&self.node), most })
    }

    /// So many samples as one, in rows; the last ones of an epoch, if they are fewer, as a smaller batch, or not at all.
    /// All rows have the same shape, or it is an error.
    pub fn batch(&self, samples: usize, drop_remainder: bool) -> Result<Dataset> {
        Ok(self.then(Batched::new(Arc::clone(&self.node), samples, drop_remainder, None)?))
    }

    /// So many samples as one, in rows, each open extent filled up to the longest of the batch: with 0, or with what is given
    /// for a field.
    pub fn padded_batch(
        &self,
        samples: usize,
        drop_remainder: bool,
        padding: &[(&str, f64)],
    ) -> Result<Dataset> {
        let padding = Some(self.padding(padding)?);
        Ok(self.then(Batched::new(Arc::clone(&self.node), samples, drop_remainder, padding)?))
    }

    /// Batches of samples of like length, by the first axis of a field: each is filled up to the length of its bucket, the
    /// shortest that holds it. So there are as many shapes as buckets.
    pub fn bucket_by_length(
        &self,
        field: &str,
        lengths: &[usize],
        samples: usize,
        drop_remainder: bool,
        padding: &[(&str, f64)],
    ) -> Result<Dataset> {
        let padding = self.padding(padding)?;
        let upstream = Arc::clone(&self.node);
        Ok(self.then(Bucketed::new(upstream, field, lengths, samples, drop_remainder, padding)?))
    }

    /// Sequences packed into rows of one length along their first axis, with two more fields: `segment`, which numbers the
    /// sequences of a row from 1 (0 is padding), and `position`, where in its sequence each element is.
    pub fn pack(&self, length: usize, pack: Pack, padding: &[(&str, f64)]) -> Result<Dataset> {
        let padding = self.padding(padding)?;
        Ok(self.then(Packed::new(Arc::clone(&self.node), length, pack == Pack::Cut, padding)?))
    }

    fn padding(&self, given: &[(&str, f64)]) -> Result<Padding> {
        let mut values = vec![0.0; self.fields().len()];
        for &(name, value) in given {
            values[self.field(name)?] = value;
        }
        Ok(Padding { values })
    }

    /// The samples of several by turns, `block` of each (at least 1), with at most so many open at once.
    pub fn interleave(parts: &[Dataset], at_once: usize, block: u64) -> Result<Dataset> {
        let (first, parts) = joined(parts)?;
        Ok(first.then(Interleaved { parts, at_once: at_once.max(1), block: block.max(1) }))
    }

    /// The samples of one after those of the other. What can be read by number stays so.
    pub fn concat(parts: &[Dataset]) -> Result<Dataset> {
        let (first, nodes) = joined(parts)?;
        let sources: Option<Vec<Arc<dyn Source>>> = nodes.iter().map(|node| node.source().cloned()).collect();
        Ok(match sources {
            Some(sources) => {
                let named = sources
                    .into_iter()
                    .enumerate()
                    .map(|(number, source)| (format!("data set {number}"), source));
                let both = Concatenated::new(named.collect())?;
                Dataset { budget: first.budget, ..Dataset::of_source(Arc::new(both)) }
            }
            None => first.then(InARow { parts: nodes }),
        })
    }

    /// The fields of several side by side, as many samples as the shortest has.
    pub fn zip(parts: &[Dataset]) -> Result<Dataset> {
        let Some(first) = parts.first() else {
            return Err(ErrorKind::Empty {
                what: "there are no data sets to be put side by side".to_string(),
            }
            .into());
        };
        Ok(first.then(Zipped::new(parts.iter().map(|part| Arc::clone(&part.node)).collect())?))
    }

    /// All samples so many times in an epoch, shuffled anew each time.
    pub fn repeat(&self, times: u64) -> Dataset {
        self.then(Repeated { upstream: Arc::clone(&self.node), times: Some(times) })
    }

    /// All samples again and again, shuffled anew each time. An epoch never ends.
    pub fn repeat_forever(&self) -> Dataset {
        self.then(Repeated { upstream: Arc::clone(&self.node), times: None })
    }

    /// The first so many samples.
    pub fn take(&self, samples: usize) -> Dataset {
        self.range(0, Some(samples))
    }

    /// The samples after the first so many.
    pub fn skip(&self, samples: usize) -> Dataset {
        self.range(samples, None)
    }

    fn range(&self, skip: usize, take: Option<usize>) -> Dataset {
        let part = |whole: &Arc<dyn Source>| {
            let first = skip.min(whole.samples());
            let samples = take.unwrap_or(usize::MAX).min(whole.samples() - first);
            Part { whole: Arc::clone(whole), order: None, first, step: 1, samples }
        };
        self.over_part("take", part).unwrap_or_else(|_| {
            let (upstream, take) = (Arc::clone(&self.node), take.map(|take| take as u64));
            self.then(Range { upstream, skip: skip as u64, take, is_exact: false })
        })
    }

    /// Every `of`-th sample, from that of number `index` on: the part of one of several readers.
    pub fn shard(&self, of: usize, index: usize) -> Result<Dataset> {
        if index >= of {
            let reason = format!("there is no shard {index} of {of}: they are numbered from 0");
            return Err(
                ErrorKind::Stage { stage: "shard".to_string(), element: 0, reason, error: None }.into()
            );
        }
        let part = |whole: &Arc<dyn Source>| {
            let samples = whole.samples().saturating_sub(index).div_ceil(of);
            Part { whole: Arc::clone(whole), order: None, first: index, step: of, samples }
        };
        Ok(self.over_part("shard", part).unwrap_or_else(|_| {
            self.then(Sharded { upstream: Arc::clone(&self.node), of: of as u64, index: index as u64 })
        }))
    }

    /// Keeps the samples of the first epoch for those after it, if they take at most so many bytes. All epochs then have
    /// them in the same order: shuffle, and draw at random, after it.
    pub fn cache(&self, place: Cache<'_>, limit: u64) -> Dataset {
        let storage = match place {
            Cache::Memory => Storage::Memory,
            Cache::File(path) => Storage::File(path.to_path_buf()),
        };
        self.then(Cached::new(Arc::clone(&self.node), storage, limit))
    }

    /// Makes samples ahead of time, on a thread of its own.
    pub fn prefetch(&self, depth: impl Into<Depth>) -> Dataset {
        self.then(Prefetched { upstream: Arc::clone(&self.node), depth: depth.into() })
    }

    /// The samples of an epoch, one after the other.
    pub fn records(&self, epoch: u64) -> Result<Records> {
        self.open(epoch, None)
    }

    /// The samples that follow a position.
    pub fn records_from(&self, position: &Position) -> Result<Records> {
        self.open(position.epoch, Some(position))
    }

    fn open(&self, epoch: u64, position: Option<&Position>) -> Result<Records> {
        let account = Arc::new(Account::new(self.budget, self.resident_bytes()));
        let pass = Pass { epoch, account, meter: Arc::new(Meter::default()) };
        Records::new(self.node.open(&pass)?, self.node.fields(), pass, position)
    }

    /// How many samples an epoch has, by going through one where that is not known.
    pub fn count(&self) -> Result<u64> {
        if let Some(count) = self.node.count() {
            return Ok(count);
        }
        let mut records = self.records(0)?;
        while records.read()?.is_some() {}
        Ok(records.made())
    }

    /// The same samples, counted: an epoch is gone through once if that is not known. Every epoch must have as many.
    pub fn counted(&self) -> Result<Dataset> {
        match self.node.count() {
            Some(_) => Ok(self.clone()),
            None => {
                let (upstream, count) = (Arc::clone(&self.node), self.count()?);
                Ok(self.then(Range { upstream, skip: 0, take: Some(count), is_exact: true }))
            }
        }
    }

    /// Some of the fields, in this order.
    pub fn select(&self, names: &[&str]) -> Result<Dataset> {
        let positions: Vec<usize> = names.iter().map(|name| self.field(name)).collect::<Result<_>>()?;
        let fields: Vec<Field> = positions.iter().map(|&position| self.fields()[position].clone()).collect();
        let copy = move |from: &Record, to: &mut Record| {
            positions.iter().enumerate().try_for_each(|(at, &position)| {
                to.reshape(at, from.shape(position))?.copy_from_slice(from.bytes(position));
                Ok(())
            })
        };
        self.map(0, &fields, copy)
    }

    /// Its samples in batches of this size, in their own order until [`Batches::shuffled`].
    pub fn batches(&self, batch: usize) -> Result<Batches> {
        Batches::new(self.clone(), batch)
    }
}

/// A function that needs no random numbers.
fn without_draws(function: impl Fn(&Record, &mut Record) -> Result<()> + Send + Sync + 'static) -> Function {
    Arc::new(move |from, to, _: &mut Draws| function(from, to))
}

/// Fields with a name each.
fn distinct(fields: &[Field]) -> Result<Arc<[Field]>> {
    let mut distinct = vec![];
    fields.iter().try_for_each(|field| crate::source::add_field(&mut distinct, field.clone()))?;
    Ok(distinct.into())
}

/// Data sets that have the same fields, as their stages.
fn joined(parts: &[Dataset]) -> Result<(&Dataset, Vec<Arc<dyn Node>>)> {
    let Some(first) = parts.first() else {
        return Err(ErrorKind::Empty { what: "there are no data sets to be joined".to_string() }.into());
    };
    for (number, part) in parts.iter().enumerate() {
        if part.fields() != first.fields() {
            let show = |of: &Dataset| of.fields().iter().map(Field::to_string).collect::<Vec<_>>().join(", ");
            let reason =
                format!("data set {number} has the fields {}; the first has {}", show(part), show(first));
            return Err(ErrorKind::Field { name: part.fields()[0].name().to_string(), reason }.into());
        }
    }
    Ok((first, parts.iter().map(|part| Arc::clone(&part.node)).collect()))
}

/// What a stage is over, if something may as well be done before it.
type Passes = fn(&dyn Node) -> Option<OneToOne<'_>>;

/// The same stages over another bottom.
fn rebuilt(node: &Arc<dyn Node>, passes: Passes, bottom: &dyn Fn() -> Arc<dyn Node>) -> Arc<dyn Node> {
    match passes(&**node) {
        Some((upstream, over)) => over(rebuilt(upstream, passes, bottom)),
        None => bottom(),
    }
}

impl fmt::Debug for Dataset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dataset").field("samples", &self.samples()).field("fields", &self.fields()).finish()
    }
}
