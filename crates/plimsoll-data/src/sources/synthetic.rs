//! Samples that are computed when they are read, for benchmarks, forecasts and tests: as many as one likes, in no
//! memory at all. A value depends on seed, field, sample and position alone.

use super::{Answer, Description, Options, SEED, SourceKind, Tokens, kept};
use crate::random::{Purpose, below, key, normal_pair, word};
use crate::source::{Promise, add_field};
use crate::{Dataset, Element, ErrorKind, Field, Result, Source};

/// Random samples of any shape, the same for the same seed.
///
/// ```
/// use plimsoll_data::{Source, Synthetic};
///
/// let images = Synthetic::new(50_000, 1).normal("features", &[32, 32, 3])?.classes("label", 10)?;
/// let text = Synthetic::new(50_000, 1).tokens("tokens", "next", 128, 4096)?;
/// assert_eq!(images.resident_bytes() + text.resident_bytes(), 0);
/// # Ok::<(), plimsoll_data::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Synthetic {
    samples: usize,
    seed: u64,
    fields: Vec<Field>,
    rules: Vec<Rule>,
}

/// How the elements of a field come about. Two fields with the same key see the same stream.
#[derive(Clone, Debug)]
enum Rule {
    Normal {
        key: u64,
    },
    /// Whole numbers in `0..bound`, read from the stream's `first` element on.
    Below {
        key: u64,
        bound: u32,
        first: u64,
    },
}

impl Synthetic {
    /// So many samples, of no fields yet.
    pub fn new(samples: usize, seed: u64) -> Synthetic {
        Synthetic { samples, seed, fields: Vec::new(), rules: Vec::new() }
    }

    /// Adds a field of independent standard normal `f32`.
    pub fn normal(self, name: &str, shape: &[usize]) -> Result<Synthetic> {
        let key = self.next_key();
        self.add(Field::new(name, Element::F32, shape)?, Rule::Normal { key })
    }

    /// Adds a field of one `i32` per sample, uniform in `0..classes`.
    pub fn classes(self, name: &str, classes: usize) -> Result<Synthetic> {
        let (key, bound) = (self.next_key(), bound(name, classes)?);
        self.add(Field::new(name, Element::I32, &[])?, Rule::Below { key, bound, first: 0 })
    }

    /// Adds two fields of `length` tokens each, `i32`, uniform in `0..vocabulary`: what is read, and what comes next.
    pub fn tokens(self, name: &str, next: &str, length: usize, vocabulary: usize) -> Result<Synthetic> {
        let (key, bound) = (self.next_key(), bound(name, vocabulary)?);
        self.add(Field::new(name, Element::I32, &[length])?, Rule::Below { key, bound, first: 0 })?
            .add(Field::new(next, Element::I32, &[length])?, Rule::Below { key, bound, first: 1 })
    }

    fn next_key(&self) -> u64 {
        key(self.seed, Purpose::Values, self.fields.len() as u64)
    }

    fn add(mut self, field: Field, rule: Rule) -> Result<Synthetic> {
        add_field(&mut self.fields, field)?;
        self.rules.push(rule);
        Ok(self)
    }
}

/// Random samples that a workload describes.
#[derive(Debug)]
struct Described {
    source: Synthetic,
    answer: Answer,
    tokens: Option<Tokens>,
}

pub(super) const KIND: SourceKind =
    SourceKind { name: "synthetic", keys: &["samples", "features", "classes", "target"], describe };

pub(super) const TOKENS: SourceKind = SourceKind {
    name: "synthetic-tokens",
    keys: &["samples", "length", "vocabulary"],
    describe: describe_tokens,
};

fn describe(options: &dyn Options) -> Result<Box<dyn Description>> {
    let (samples, features) = (options.need_count("samples")?, options.need_shape("features")?);
    let source = Synthetic::new(samples, SEED).normal("features", &features)?;
    let (source, answer) = match (options.find_count("classes")?, options.find_shape("target")?) {
        (Some(classes), None) => (source.classes("label", classes)?, Answer::Classes),
        (None, Some(shape)) => (source.normal("target", &shape)?, Answer::Numbers),
        _ => {
            let message = "[data] needs exactly one of `classes`, how many there are to predict, and `target`, the \
                           shape of the numbers to predict";
            return Err(options.refuse(None, message));
        }
    };
    Ok(Box::new(Described { source, answer, tokens: None }))
}

/// Random tokens, and for each the one that follows.
fn describe_tokens(options: &dyn Options) -> Result<Box<dyn Description>> {
    let samples = options.need_count("samples")?;
    let (length, vocabulary) = (options.need_count("length")?, options.need_count("vocabulary")?);
    let source = Synthetic::new(samples, SEED).tokens("tokens", "next", length, vocabulary)?;
    Ok(Box::new(Described { source, answer: Answer::Classes, tokens: Some(Tokens { length, vocabulary }) }))
}

impl Description for Described {
    fn answer(&self) -> Answer {
        self.answer
    }

    fn tokens(&self) -> Option<Tokens> {
        self.tokens
    }

    fn open(&self) -> Result<Dataset> {
        kept::dataset(self.source.clone())
    }
}

fn bound(name: &str, values: usize) -> Result<u32> {
    match i32::try_from(values) {
        Ok(1..) => Ok(values as u32),
        _ => {
            let reason =
                format!("{values} different values cannot be; an i32 has room for 1 to {}", i32::MAX);
            Err(ErrorKind::Field { name: name.to_string(), reason }.into())
        }
    }
}

impl Source for Synthetic {
    fn samples(&self) -> usize {
        self.samples
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn read(&self, sample: usize, field: usize, out: &mut [u8]) -> Result<()> {
        self.locate(sample, field, out)?;
        let elements = out.as_chunks_mut().0;
        match self.rules[field] {
            Rule::Normal { key } => {
                let key = word(key, sample as u64);
                for (pair, elements) in elements.chunks_mut(2).enumerate() {
                    let values = <[f32; 2]>::from(normal_pair(word(key, pair as u64)));
                    for (element, value) in elements.iter_mut().zip(values) {
                        *element = value.to_ne_bytes();
                    }
                }
            }
            Rule::Below { key, bound, first } => {
                let key = word(key, sample as u64);
                for (element, at) in elements.iter_mut().zip(first..) {
                    *element = (below(word(key, at), u64::from(bound)) as i32).to_ne_bytes();
                }
            }
        }
        Ok(())
    }

    fn resident_bytes(&self) -> u64 {
        0
    }

    fn promise(&self, field: usize) -> Promise {
        match self.rules.get(field) {
            Some(Rule::Normal { .. }) => Promise::Finite,
            Some(Rule::Below { bound, .. }) => Promise::Below(*bound as usize),
            None => Promise::Nothing,
        }
    }
}
