//! Samples that lie in files as arrays of numbers, whatever the format: one array of inputs, one of what is to be
//! predicted. A sample is read by its position straight into the batch; the array is never held.
//!
//! Values are checked as they are read, each time. So a file of any size is trained on at once, and a number that is not
//! finite or no class is an error with its file, sample and byte before it comes to a model.

use super::bytes::Bytes;
use super::number::{ByteOrder, Number, Use};
use super::{Answer, Options};
use crate::check::are_finite;
use crate::source::{Promise, field_at, read_each};
use crate::{Element, ErrorKind, Field, Result, Source};

/// An array in a file.
#[derive(Debug)]
pub(super) struct Array {
    pub(super) bytes: Bytes,
    /// Where its first number begins.
    pub(super) offset: u64,
    pub(super) number: Number,
    pub(super) order: ByteOrder,
    /// Samples first.
    pub(super) shape: Vec<usize>,
}

/// What is to be predicted of stored samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Targets {
    /// Classes, whole numbers from 0 of which there are so many: the field `label`, `i32`.
    Classes(usize),
    /// Numbers: the field `target`, `f32`.
    Numbers,
}

/// How the inputs of stored samples are given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inputs {
    /// Bytes become floats from 0 to 1.
    pub scale: bool,
    /// There is an axis of one channel after the others, as convolutions take it.
    pub channels: bool,
}

/// Samples of files that other programs wrote: `features`, and `label` or `target`.
///
/// Made by [`npy`](super::npy), [`idx`](super::idx) and [`safetensors`](super::safetensors). Floats are given as `f32`,
/// bytes as `u8`, other whole numbers as `i32`. Reading refuses floats that are not finite, whole numbers that do not fit,
/// and classes that there are not.
#[derive(Debug)]
pub struct Stored {
    samples: usize,
    fields: Vec<Field>,
    columns: Vec<Column>,
}

#[derive(Debug)]
struct Column {
    array: Array,
    used: Use,
}

/// The most bytes of a file of labels that are kept, and of how many bytes of inputs each may be.
const MOST_KEPT: u64 = 2 << 20;
const KEPT_SHARE: u64 = 16;

/// Numbers are converted by as many bytes at a time.
const CHUNK: usize = 8 << 10;

impl Array {
    /// The bytes that its numbers take, or none if there are more than can be addressed.
    pub(super) fn extent(number: Number, shape: &[usize]) -> Option<u64> {
        let bytes = |product: u64, &extent: &usize| product.checked_mul(extent as u64);
        shape.iter().try_fold(number.bytes() as u64, bytes).filter(|&bytes| i64::try_from(bytes).is_ok())
    }

    fn sample_shape(&self) -> Result<(usize, &[usize])> {
        match self.shape.split_first() {
            Some((&samples, rest)) if samples > 0 => Ok((samples, rest)),
            Some(_) => Err(self.error(format!("its shape {:?} has no samples", self.shape))),
            None => Err(self.error("it is a single number, without an axis of samples")),
        }
    }

    /// Refuses an array that is more than there are bytes for.
    fn check_extent(&self) -> Result<()> {
        let there = self.bytes.len().saturating_sub(self.offset);
        match Array::extent(self.number, &self.shape) {
            Some(needed) if needed <= there => Ok(()),
            Some(needed) => Err(self.error(format!(
                "an array of shape {:?} has {needed} bytes, of which {there} are there: the file is cut off",
                self.shape
            ))),
            None => Err(self.error(format!("{:?} has more bytes than can be addressed", self.shape))),
        }
    }

    fn error(&self, reason: impl Into<String>) -> crate::Error {
        self.bytes.error(None, Some(self.offset), reason)
    }
}

impl Stored {
    /// The samples of an array, with nothing to predict.
    pub(super) fn inputs(inputs: Array, given: Inputs) -> Result<Stored> {
        inputs.check_extent()?;
        let (samples, shape) = inputs.sample_shape()?;
        let mut shape = shape.to_vec();
        if given.channels {
            shape.push(1);
        }
        let used = match (given.scale, inputs.number) {
            (false, _) => Use::Value,
            (true, Number::U8 | Number::Bool) => Use::Share,
            (true, number) => {
                let reason = format!("`scale` is for bytes; these are {number:?}: leave it out");
                return Err(inputs.error(reason));
            }
        };
        let features = field(&inputs, "features", used, &shape)?;
        Ok(Stored { samples, fields: vec![features], columns: vec![Column { array: inputs, used }] })
    }

    /// The samples of two arrays.
    pub(super) fn new(
        inputs: Array,
        given: Inputs,
        mut targets: Array,
        predicted: Targets,
    ) -> Result<Stored> {
        let mut stored = Stored::inputs(inputs, given)?;
        let inputs = &stored.columns[0].array;
        targets.check_extent()?;
        // Asking the system for each label by itself would take as long as asking for its inputs.
        targets.bytes.keep_up_to(MOST_KEPT.min(inputs.bytes.len() / KEPT_SHARE))?;
        let (samples, (answers, shape)) = (stored.samples, targets.sample_shape()?);
        if answers != samples {
            let (path, other) = (inputs.bytes.path().display(), &inputs.shape);
            let reason = format!("it has {answers} samples where {path} has {samples}, of shape {other:?}");
            return Err(targets.error(reason));
        }
        let (name, answered, shape) = match (predicted, targets.number.is_float()) {
            (Targets::Classes(classes), false) => ("label", Use::Class { classes }, shape),
            // A column of numbers is what a layer of one unit predicts.
            (Targets::Numbers, true) => {
                ("target", Use::Value, if shape.is_empty() { &[1][..] } else { shape })
            }
            (Targets::Classes(_), true) => {
                let reason = "classes are whole numbers, these are floats: save them as int32, or leave `classes` out to \
                              predict numbers";
                return Err(targets.error(reason));
            }
            (Targets::Numbers, false) => {
                let reason =
                    "these are whole numbers: say how many `classes` there are, or save them as float32";
                return Err(targets.error(reason));
            }
        };
        stored.fields.push(field(&targets, name, answered, shape)?);
        stored.columns.push(Column { array: targets, used: answered });
        Ok(stored)
    }
}

fn field(array: &Array, name: &str, used: Use, shape: &[usize]) -> Result<Field> {
    Field::new(name, array.number.element(used), shape).map_err(|error| array.error(error.to_string()))
}

impl Column {
    /// Whether elements are the file's bytes as they are.
    fn is_plain(&self) -> bool {
        let is_native = self.array.number.bytes() == 1 || self.array.order == ByteOrder::native();
        let is_same = matches!(self.array.number, Number::U8 | Number::F32 | Number::I32);
        is_native && is_same && self.used == Use::Value
    }

    fn read(&self, sample: usize, out: &mut [u8]) -> Result<()> {
        self.read_at(sample, out.len(), out)
    }

    /// Reads from a sample on, which takes so many bytes as elements; `out` may have room for several.
    fn read_at(&self, sample: usize, sample_bytes: usize, out: &mut [u8]) -> Result<()> {
        let Array { bytes, offset, number, order, .. } = &self.array;
        let element = number.element(self.used).bytes();
        let first = offset + sample as u64 * (sample_bytes / element * number.bytes()) as u64;
        if self.is_plain() {
            bytes.read(first, out).map_err(|error| error.of_sample(sample))?;
            if *number != Number::F32 || are_finite(Element::F32, out) {
                return Ok(());
            }
            let values = out.as_chunks().0;
            let is_refused = |&value: &[u8; 4]| !f32::from_ne_bytes(value).is_finite();
            let at = values.iter().position(is_refused).unwrap_or(0);
            return Err(self.refuse(sample, first + 4 * at as u64, &values[at]));
        }
        let convert = |place: u64, stored: &[u8], out: &mut [u8]| {
            let Some(at) = number.convert(*order, self.used, stored, out) else { return Ok(()) };
            let at = at * number.bytes();
            Err(self.refuse(sample, place + at as u64, &stored[at..][..number.bytes()]))
        };
        if let Some(stored) = bytes.held(first, out.len() / element * number.bytes()) {
            return convert(first, stored, out);
        }
        let mut stored = [0; CHUNK];
        let at_once = CHUNK / number.bytes();
        for (chunk, out) in out.chunks_mut(at_once * element).enumerate() {
            let stored = &mut stored[..out.len() / element * number.bytes()];
            let place = first + (chunk * at_once * number.bytes()) as u64;
            bytes.read(place, stored).map_err(|error| error.of_sample(sample))?;
            convert(place, stored, out)?;
        }
        Ok(())
    }

    /// The error for a number that cannot be an element.
    fn refuse(&self, sample: usize, offset: u64, stored: &[u8]) -> crate::Error {
        let Array { bytes, number, order, .. } = &self.array;
        let value = number.show(*order, stored);
        let reason = match (self.used, number.element(self.used)) {
            (Use::Class { classes }, _) => format!(
                "the label {value} is outside of 0..{classes}; number the classes from 0, or declare more of them"
            ),
            (_, Element::F32) => format!(
                "{value} is not a finite f32: one such value makes every weight NaN; remove the sample or replace the value"
            ),
            (_, Element::U8) => format!("{value} is neither 0 nor 1, as truth values are"),
            (_, element) => format!("{value} does not fit an {element}; save the array as float32"),
        };
        bytes.error(Some(sample), Some(offset), reason)
    }
}

impl Source for Stored {
    fn samples(&self) -> usize {
        self.samples
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn read(&self, sample: usize, field: usize, out: &mut [u8]) -> Result<()> {
        self.locate(sample, field, out)?;
        self.columns[field].read(sample, out)
    }

    fn read_range(&self, first: usize, samples: usize, field: usize, out: &mut [u8]) -> Result<()> {
        let bytes = field_at(&self.fields, field)?.bytes();
        let column = &self.columns[field];
        if samples == 0 || first.checked_add(samples).is_none_or(|end| end > self.samples) {
            let sample = first.saturating_add(samples.saturating_sub(1));
            return Err(ErrorKind::NoSuchSample { sample, samples: self.samples }.into());
        }
        // All at once; what is refused is looked for sample by sample.
        if out.len() == bytes * samples && column.read_at(first, bytes, out).is_ok() {
            return Ok(());
        }
        read_each(first..first + samples, bytes, out, |sample, out| column.read(sample, out))
    }

    /// One column after the other: what is kept is then looked up many times in a row, and the processor waits for several
    /// of its memory's lines at once.
    fn read_many(&self, samples: &[usize], field: usize, out: &mut [u8]) -> Result<()> {
        let found = field_at(&self.fields, field)?;
        let (bytes, needed) = (out.len(), found.bytes() * samples.len());
        if bytes != needed {
            let field = found.name().to_string();
            return Err(ErrorKind::Buffer { field, bytes, needed }.into());
        }
        if let Some(&sample) = samples.iter().find(|&&sample| sample >= self.samples) {
            return Err(ErrorKind::NoSuchSample { sample, samples: self.samples }.into());
        }
        let column = &self.columns[field];
        read_each(samples.iter().copied(), found.bytes(), out, |sample, out| column.read(sample, out))
    }

    fn resident_bytes(&self) -> u64 {
        self.columns.iter().map(|column| column.array.bytes.resident_bytes()).sum()
    }

    fn promise(&self, field: usize) -> Promise {
        match self.columns.get(field).map(|column| column.used) {
            Some(Use::Class { classes }) => Promise::Below(classes),
            _ => Promise::Finite,
        }
    }
}

impl Targets {
    /// What a workload says is to be predicted.
    pub(super) fn read(options: &dyn Options) -> Result<Targets> {
        Ok(options.find_count("classes")?.map_or(Targets::Numbers, Targets::Classes))
    }

    pub(super) fn answer(self) -> Answer {
        match self {
            Targets::Classes(_) => Answer::Classes,
            Targets::Numbers => Answer::Numbers,
        }
    }
}

impl Inputs {
    /// How a workload says that inputs are given.
    pub(super) fn read(options: &dyn Options) -> Result<Inputs> {
        let scale = options.find_flag("scale")?.unwrap_or(false);
        Ok(Inputs { scale, channels: options.find_flag("channels")?.unwrap_or(false) })
    }
}
