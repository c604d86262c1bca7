//! Several sources as one: the shards of a data set, each a file or a pair of files.

use super::files::Paths;
use crate::source::{Promise, field_at};
use crate::{Dataset, Error, ErrorKind, Field, Record, Result, Source};
use std::path::Path;
use std::sync::Arc;

/// The samples of sources with the same fields, one source after the other.
///
/// ```
/// use plimsoll_data::sources::Concatenated;
/// use plimsoll_data::{Columns, Source};
/// use std::sync::Arc;
///
/// let first = Arc::new(Columns::new().column("x", &[], vec![1, 2])?);
/// let second = Arc::new(Columns::new().column("x", &[], vec![3])?);
/// let both = Concatenated::new(vec![("first".to_string(), first), ("second".to_string(), second)])?;
/// assert_eq!(both.samples(), 3);
/// # Ok::<(), plimsoll_data::Error>(())
/// ```
pub struct Concatenated {
    parts: Vec<Part>,
    samples: usize,
}

struct Part {
    source: Arc<dyn Source>,
    samples_before: usize,
}

impl Concatenated {
    /// The samples of these sources, each with a name that errors call it by.
    ///
    /// # Errors
    /// If there are none, or their fields differ.
    pub fn new(sources: Vec<(String, Arc<dyn Source>)>) -> Result<Concatenated> {
        let Some((first, expected)) = sources.first().cloned() else {
            return Err(ErrorKind::Empty { what: "the list of sources is empty".to_string() }.into());
        };
        let (mut parts, mut samples) = (Vec::new(), 0usize);
        for (name, source) in sources {
            if source.fields() != expected.fields() {
                return Err(differing(&name, source.fields(), &first, expected.fields()));
            }
            let samples_before = samples;
            samples = samples.saturating_add(source.samples());
            parts.push(Part { source, samples_before });
        }
        Ok(Concatenated { parts, samples })
    }

    /// The source that a sample is in, and its number there.
    fn find(&self, sample: usize) -> Result<(&Part, usize)> {
        if sample >= self.samples {
            return Err(ErrorKind::NoSuchSample { sample, samples: self.samples }.into());
        }
        // The last of the parts that begin at or before it; those without samples begin where the next one does.
        let part = &self.parts[self.parts.partition_point(|part| part.samples_before <= sample) - 1];
        Ok((part, sample - part.samples_before))
    }
}

/// The error for parts of which one has other fields than the first.
pub(super) fn differing(name: &str, fields: &[Field], first: &str, expected: &[Field]) -> Error {
    let list = |fields: &[Field]| fields.iter().map(Field::to_string).collect::<Vec<_>>().join("; ");
    let different = fields.iter().find(|field| !expected.contains(field)).or(fields.first());
    let reason = format!(
        "{name} has ({}) where {first} has ({}): sources that are read as one have the same fields",
        list(fields),
        list(expected)
    );
    ErrorKind::Field { name: different.map_or(String::new(), |field| field.name().to_string()), reason }
        .into()
}

impl Source for Concatenated {
    fn samples(&self) -> usize {
        self.samples
    }

    fn fields(&self) -> &[Field] {
        self.parts.first().map_or(&[], |part| part.source.fields())
    }

    fn read(&self, sample: usize, field: usize, out: &mut [u8]) -> Result<()> {
        let (part, sample) = self.find(sample)?;
        part.source.read(sample, field, out)
    }

    fn read_record(&self, sample: usize, out: &mut Record) -> Result<()> {
        let (part, sample) = self.find(sample)?;
        part.source.read_record(sample, out)
    }

    /// As much of each part at once as there is.
    fn read_range(
        &self,
        mut first: usize,
        mut samples: usize,
        field: usize,
        mut out: &mut [u8],
    ) -> Result<()> {
        let found = field_at(self.fields(), field)?;
        let (bytes, needed) = (out.len(), found.bytes().saturating_mul(samples));
        if bytes != needed {
            return Err(ErrorKind::Buffer { field: found.name().to_string(), bytes, needed }.into());
        }
        let each = found.bytes();
        while samples > 0 {
            let (part, within) = self.find(first)?;
            let count = samples.min(part.source.samples() - within);
            let (room, rest) = out.split_at_mut(count * each);
            part.source.read_range(within, count, field, room)?;
            (first, samples, out) = (first + count, samples - count, rest);
        }
        Ok(())
    }

    fn reads_whole_records(&self) -> bool {
        self.parts.iter().any(|part| part.source.reads_whole_records())
    }

    fn reading_bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.source.reading_bytes()).max().unwrap_or(0)
    }

    fn resident_bytes(&self) -> u64 {
        let parts = (self.parts.capacity() * size_of::<Part>()) as u64;
        self.parts.iter().map(|part| part.source.resident_bytes()).fold(parts, u64::saturating_add)
    }

    fn origin(&self, sample: usize) -> usize {
        match self.find(sample) {
            Ok((part, within)) => part.samples_before + part.source.origin(within),
            Err(_) => sample,
        }
    }

    fn name(&self, sample: usize) -> Option<String> {
        self.find(sample).ok().and_then(|(part, within)| part.source.name(within))
    }

    /// What all of them promise.
    fn promise(&self, field: usize) -> Promise {
        let promises = self.parts.iter().map(|part| part.source.promise(field));
        let both = |one, other| match (one, other) {
            (Promise::Below(one), Promise::Below(other)) => Promise::Below(one.max(other)),
            (one, other) if one == other => one,
            _ => Promise::Nothing,
        };
        promises.reduce(both).unwrap_or(Promise::Nothing)
    }
}

/// The data set of files of inputs and of targets, which may be patterns: the first that matches with the first, and so
/// on.
pub(super) fn open_pairs<S: Source + 'static>(
    inputs: &Path,
    targets: &Path,
    open: impl Fn(&Path, &Path) -> Result<S>,
) -> Result<Dataset> {
    let (inputs, targets) = (Paths::from(inputs).files()?, Paths::from(targets).files()?);
    if inputs.len() != targets.len() {
        let (path, first) = (targets[0].clone(), inputs[0].display());
        let reason = format!(
            "there are {} files of targets where there are {} of inputs, {first} the first",
            targets.len(),
            inputs.len()
        );
        return Err(ErrorKind::File { path, sample: None, offset: None, reason }.into());
    }
    if let ([inputs], [targets]) = (&inputs[..], &targets[..]) {
        return Dataset::new(open(inputs, targets)?);
    }
    let mut sources: Vec<(String, Arc<dyn Source>)> = Vec::new();
    for (inputs, targets) in inputs.iter().zip(&targets) {
        sources.push((inputs.display().to_string(), Arc::new(open(inputs, targets)?)));
    }
    Dataset::new(Concatenated::new(sources)?)
}
