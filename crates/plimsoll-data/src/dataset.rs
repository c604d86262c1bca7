//! A source that is known to have something in it, shared by everything that reads it, and its split into a part to
//! train on and a part held out. A split is two ranges of one shuffle, and the shuffle is a function: splitting
//! copies no sample and holds no index.

use std::{fmt, sync::Arc};

use crate::random::{Permutation, Purpose, key};
use crate::source::field_named;
use crate::{Batches, ErrorKind, Field, RamBudget, Result, Source};

/// Samples to train on or to evaluate with. Cloning it shares the samples.
#[derive(Clone)]
pub struct Dataset {
    source: Arc<dyn Source>,
}

/// The two parts of a data set: disjoint, and together all of it.
#[derive(Clone, Debug)]
pub struct Split {
    /// The part to train on.
    pub train: Dataset,
    /// The part to evaluate with, never trained on.
    pub held_out: Dataset,
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
        Ok(Dataset { source: Arc::new(source) })
    }

    /// How many samples there are: at least one.
    pub fn samples(&self) -> usize {
        self.source.samples()
    }

    /// What each sample is made of.
    pub fn fields(&self) -> &[Field] {
        self.source.fields()
    }

    /// The position of the field with this name.
    pub fn field(&self, name: &str) -> Result<usize> {
        field_named(self.fields(), name)
    }

    /// The source behind it.
    pub fn source(&self) -> &dyn Source {
        &*self.source
    }

    /// Bytes of RAM that its samples occupy. The parts of a split share their samples: count them once, or use
    /// [`Dataset::resident_bytes_with`].
    pub fn resident_bytes(&self) -> u64 {
        self.source.resident_bytes()
    }

    /// Bytes of RAM that its samples and those of another data set occupy, counted once where they are the same.
    pub fn resident_bytes_with(&self, other: Option<&Dataset>) -> u64 {
        let whole = |of: &Dataset| Arc::clone(of.source.part_of().unwrap_or(&of.source));
        match other {
            Some(other) if !Arc::ptr_eq(&whole(self), &whole(other)) => {
                self.resident_bytes().saturating_add(other.resident_bytes())
            }
            _ => self.resident_bytes(),
        }
    }

    /// The same data set, if what it holds is within the budget.
    pub fn within(self, budget: RamBudget) -> Result<Dataset> {
        let remedy =
            "use fewer samples, raise the budget, or read them from a source that does not keep them";
        budget.admit("the data set", self.resident_bytes(), remedy)?;
        Ok(self)
    }

    /// Parts the samples at random: `fraction` of them to train on, the rest held out.
    ///
    /// The same seed always gives the same split. Each part gets at least one sample.
    pub fn split(&self, fraction: f64, seed: u64) -> Result<Split> {
        let samples = self.samples();
        if !(fraction > 0.0 && fraction < 1.0) || samples < 2 {
            return Err(ErrorKind::Split { fraction, samples }.into());
        }
        let train = ((samples as f64 * fraction).round() as usize).clamp(1, samples - 1);
        let order = Permutation::new(key(seed, Purpose::Split, 0), samples);
        let part = |first, samples| {
            let source = Arc::new(Part { whole: Arc::clone(&self.source), order, first, samples });
            Dataset { source }
        };
        Ok(Split { train: part(0, train), held_out: part(train, samples - train) })
    }

    /// Its samples in batches of this size, in their own order until [`Batches::shuffled`].
    pub fn batches(&self, batch: usize) -> Result<Batches> {
        Batches::new(self.clone(), batch)
    }
}

impl fmt::Debug for Dataset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dataset").field("samples", &self.samples()).field("fields", &self.fields()).finish()
    }
}

/// A range of a shuffled source.
struct Part {
    whole: Arc<dyn Source>,
    order: Permutation,
    first: usize,
    samples: usize,
}

impl Part {
    fn in_whole(&self, sample: usize) -> usize {
        self.order.at(self.first + sample)
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
        self.locate(sample, field, out)?;
        self.whole.read(self.in_whole(sample), field, out)
    }

    fn resident_bytes(&self) -> u64 {
        self.whole.resident_bytes()
    }

    fn part_of(&self) -> Option<&Arc<dyn Source>> {
        Some(self.whole.part_of().unwrap_or(&self.whole))
    }

    fn origin(&self, sample: usize) -> usize {
        self.whole.origin(self.in_whole(sample))
    }
}
