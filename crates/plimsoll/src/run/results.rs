//! What comes of a step: the results of its parts put together, and handed out by name.

use super::BatchPart;
use crate::{Array, DType, Error, ErrorKind, Result};
use std::collections::BTreeMap;

/// What a step reports.
#[derive(Default)]
pub(super) struct StepResult {
    pub(super) names: Vec<Box<str>>,
    pub(super) arrays: Vec<Array>,
    /// The float scalars of the parts so far, weighted.
    means: Vec<f64>,
}

impl StepResult {
    /// Makes room for the outputs of a step of so many samples, of which `part` comes now.
    pub(super) fn prepare(
        &mut self,
        outputs: &[(Box<str>, plimsoll_graph::ValueType)],
        samples: usize,
        part: BatchPart,
        first: bool,
    ) {
        if !first {
            return;
        }
        self.arrays.resize(outputs.len(), Array::of_bytes(&[], DType::F32, vec![]));
        self.means.clear();
        self.means.resize(outputs.len(), 0.0);
        if self.names.len() != outputs.len() {
            self.names = outputs.iter().map(|(name, _)| name.clone()).collect();
        }
        for (array, (_, ty)) in self.arrays.iter_mut().zip(outputs) {
            let mut shape = [0; plimsoll_graph::MAX_RANK];
            let shape = &mut shape[..ty.shape.rank()];
            shape.copy_from_slice(&ty.shape);
            if part.samples != samples
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
        outputs: &[(Box<str>, plimsoll_graph::ValueType)],
        part: BatchPart,
        [first, last]: [bool; 2],
    ) {
        let (Some(array), Some((_, ty))) = (self.arrays.get_mut(index), outputs.get(index)) else { return };
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
        write_scalar(ty.dtype, self.means[index], array.bytes_mut());
    }
}

/// A step that has ended, and the `f32` scalars that it reported.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EndedStep {
    scalars: [f32; EndedStep::MOST],
    count: usize,
}

impl EndedStep {
    /// More than these are not noted here; all are among the step's results.
    const MOST: usize = 16;

    pub(super) fn new(arrays: &[Array]) -> EndedStep {
        let mut ended = EndedStep { scalars: [0.0; EndedStep::MOST], count: 0 };
        let scalars = arrays.iter().filter(|array| array.shape().is_empty()).filter_map(|a| a.item().ok());
        for (slot, scalar) in ended.scalars.iter_mut().zip(scalars) {
            *slot = scalar;
            ended.count += 1;
        }
        ended
    }

    /// The scalars, in the order in which they were reported.
    pub(crate) fn scalars(&self) -> &[f32] {
        &self.scalars[..self.count]
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
fn write_scalar(dtype: DType, value: f64, out: &mut Vec<u8>) {
    out.clear();
    match dtype {
        DType::F32 => out.extend((value as f32).to_ne_bytes()),
        DType::F64 => out.extend(value.to_ne_bytes()),
        DType::BF16 => out.extend(half::bf16::from_f64(value).to_ne_bytes()),
        DType::F16 => out.extend(half::f16::from_f64(value).to_ne_bytes()),
        DType::I32 => out.extend((value as i32).to_ne_bytes()),
        DType::I64 => out.extend((value as i64).to_ne_bytes()),
        DType::U8 | DType::Bool => out.push(value as u8),
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
