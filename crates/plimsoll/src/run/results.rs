//! What comes of a step: the results of its parts put together, and handed out by name.

use super::BatchPart;
use super::compile::OutputType;
use crate::{Array, DType, Error, ErrorKind, Result};
use std::collections::BTreeMap;

/// What a step reports.
#[derive(Default)]
pub(super) struct StepResult {
    pub(super) names: Vec<Box<str>>,
    pub(super) arrays: Vec<Array>,
    /// Whether each is a sum over samples.
    are_sums: Vec<bool>,
    /// The float scalars of the parts so far, weighted.
    means: Vec<f64>,
}

impl StepResult {
    /// Makes room for the outputs of a step of so many samples, of which `part` comes now.
    pub(super) fn prepare(&mut self, outputs: &[OutputType], samples: usize, part: BatchPart, first: bool) {
        if !first {
            return;
        }
        self.arrays.resize(outputs.len(), Array::of_bytes(&[], DType::F32, vec![]));
        self.are_sums.clear();
        self.are_sums.extend(outputs.iter().map(|output| output.is_sum));
        self.means.clear();
        self.means.resize(outputs.len(), 0.0);
        if self.names.len() != outputs.len() {
            self.names = outputs.iter().map(|output| output.name.clone()).collect();
        }
        for (array, OutputType { ty, is_sum, .. }) in self.arrays.iter_mut().zip(outputs) {
            let mut shape = [0; plimsoll_graph::MAX_RANK];
            let shape = &mut shape[..ty.shape.rank()];
            shape.copy_from_slice(&ty.shape);
            if part.samples != samples
                && !is_sum
                && let Some(extent) = shape.first_mut()
            {
                *extent = samples;
            }
            let elements: usize = shape.iter().product();
            array.reuse(shape, ty.dtype).resize(elements * ty.dtype.size(), 0);
        }
    }

    /// Takes an output of a part.
    pub(super) fn take(
        &mut self,
        index: usize,
        bytes: &[u8],
        outputs: &[OutputType],
        part: BatchPart,
        [first, last]: [bool; 2],
    ) {
        let (Some(array), Some(output)) = (self.arrays.get_mut(index), outputs.get(index)) else { return };
        let OutputType { ty, is_sum, .. } = output;
        if *is_sum {
            let all = array.bytes_mut();
            if first {
                all.copy_from_slice(bytes);
            } else {
                add_to(ty.dtype, all, bytes);
            }
            return;
        }
        let whole = first && last;
        if ty.shape.rank() > 0 || whole {
            let at = if whole { 0 } else { bytes.len() / part.samples.max(1) * part.first };
            let all = array.bytes_mut();
            if let Some(room) = all.get_mut(at..at + bytes.len()) {
                room.copy_from_slice(bytes);
            }
            return;
        }
        let value = scalar_of(ty.dtype, bytes);
        self.means[index] += if ty.dtype.is_float() { part.weight * value } else { value };
        write_scalar(ty.dtype, self.means[index], &mut array.bytes_mut()[..]);
    }
}

/// A step that has ended, and the `f32` scalars and sums that it reported.
#[derive(Debug, Clone, Default)]
pub(crate) struct EndedStep {
    scalars: [f32; EndedStep::MOST],
    count: usize,
    /// The elements of all sums, and where those of each end.
    sums: Vec<f64>,
    ends: Vec<usize>,
}

impl EndedStep {
    /// More than these are not noted here; all are among the step's results.
    const MOST: usize = 16;

    /// The results of a step, in the place of another that is no longer needed.
    pub(super) fn note(mut self, of: &StepResult) -> EndedStep {
        let arrays = &of.arrays;
        (self.count, self.scalars) = (0, [0.0; EndedStep::MOST]);
        self.sums.clear();
        self.ends.clear();
        let scalars = arrays.iter().filter(|array| array.shape().is_empty()).filter_map(|a| a.item().ok());
        for (slot, scalar) in self.scalars.iter_mut().zip(scalars) {
            *slot = scalar;
            self.count += 1;
        }
        for (array, _) in arrays.iter().zip(&of.are_sums).filter(|(_, is_sum)| **is_sum) {
            let numbers = array.bytes().chunks_exact(array.dtype().size());
            self.sums.extend(numbers.map(|bytes| scalar_of(array.dtype(), bytes)));
            self.ends.push(self.sums.len());
        }
        self
    }

    /// The elements of each sum, in the order in which they were reported.
    pub(crate) fn sums(&self) -> impl Iterator<Item = &[f64]> {
        let start = |index: usize| index.checked_sub(1).map_or(0, |before| self.ends[before]);
        (0..self.ends.len()).map(move |index| &self.sums[start(index)..self.ends[index]])
    }

    /// The scalars, in the order in which they were reported.
    pub(crate) fn scalars(&self) -> &[f32] {
        &self.scalars[..self.count]
    }
}

/// Adds the elements of some bytes to others.
fn add_to(dtype: DType, sums: &mut [u8], bytes: &[u8]) {
    let size = dtype.size();
    for (sum, more) in sums.chunks_exact_mut(size).zip(bytes.chunks_exact(size)) {
        write_scalar(dtype, scalar_of(dtype, sum) + scalar_of(dtype, more), sum);
    }
}

/// A scalar as a number.
fn scalar_of(dtype: DType, bytes: &[u8]) -> f64 {
    fn read<const N: usize>(bytes: &[u8]) -> [u8; N] {
        bytes.try_into().unwrap_or([0; N])
    }
    match dtype {
        DType::F32 => f64::from(f32::from_ne_bytes(read(bytes))),
        DType::F64 => f64::from_ne_bytes(read(bytes)),
        DType::BF16 => half::bf16::from_ne_bytes(read(bytes)).to_f64(),
        DType::F16 => half::f16::from_ne_bytes(read(bytes)).to_f64(),
        DType::I32 => f64::from(i32::from_ne_bytes(read(bytes))),
        DType::I64 => i64::from_ne_bytes(read(bytes)) as f64,
        DType::U8 | DType::Bool => bytes.first().map_or(0.0, |&byte| f64::from(byte)),
    }
}

/// Writes a number as a scalar.
fn write_scalar(dtype: DType, value: f64, out: &mut [u8]) {
    match dtype {
        DType::F32 => out.copy_from_slice(&(value as f32).to_ne_bytes()),
        DType::F64 => out.copy_from_slice(&value.to_ne_bytes()),
        DType::BF16 => out.copy_from_slice(&half::bf16::from_f64(value).to_ne_bytes()),
        DType::F16 => out.copy_from_slice(&half::f16::from_f64(value).to_ne_bytes()),
        DType::I32 => out.copy_from_slice(&(value as i32).to_ne_bytes()),
        DType::I64 => out.copy_from_slice(&(value as i64).to_ne_bytes()),
        DType::U8 | DType::Bool => out.copy_from_slice(&[value as u8]),
    }
}

/// What a step reported, by name.
#[derive(Debug, Clone, PartialEq)]
pub struct StepOutputs {
    pub(super) named: BTreeMap<String, Array>,
}

impl StepOutputs {
    /// The output of that name.
    ///
    /// # Errors
    /// If there is none.
    pub fn get(&self, name: &str) -> Result<&Array> {
        self.named.get(name).ok_or_else(|| {
            let known: Vec<&str> = self.named.keys().map(String::as_str).collect();
            let message = format!("the step reports no `{name}`; it reports: {}", known.join(", "));
            Error::new(ErrorKind::Name, message)
        })
    }

    /// All outputs by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Array)> {
        self.named.iter().map(|(name, array)| (name.as_str(), array))
    }
}

impl std::ops::Index<&str> for StepOutputs {
    type Output = Array;

    /// The output of that name.
    ///
    /// # Panics
    /// If there is none; [`StepOutputs::get`] returns an error instead.
    fn index(&self, name: &str) -> &Array {
        &self.named[name]
    }
}
