//! What values have become in the file: their names, whole or repeating, however their axes lie; weights, numbers and
//! shapes.

use super::batch::Dim;
use super::convert::{Converter, number, numbers};
use crate::{DType, Error, ErrorKind, Result};
use half::{bf16, f16};
use plimsoll_graph::{Node, ValueId};

/// What a value is in the file.
#[derive(Clone, Default)]
pub(super) struct Converted {
    /// Its name as it is in our graph.
    pub(super) plain: Option<String>,
    /// The name of images with the channels before height and width.
    pub(super) channels_first: Option<String>,
    /// The shape that the tensor has, where that is smaller and repeats.
    pub(super) repeats: Option<Vec<Dim>>,
}

const CHANNELS_FIRST: [usize; 4] = [0, 3, 1, 2];
const CHANNELS_LAST: [usize; 4] = [0, 2, 3, 1];

impl Converter<'_> {
    pub(super) fn set(&mut self, node: &Node, value: Converted) {
        if let Some(result) = node.results().next() {
            self.values[result.index()] = value;
        }
    }

    /// Makes a tensor the result of a node.
    pub(super) fn set_plain(&mut self, node: &Node, name: String) {
        self.set(node, Converted { plain: Some(name), ..Converted::default() });
    }

    /// Makes images with their channels first the result of a node.
    pub(super) fn set_channels_first(&mut self, node: &Node, name: String) {
        self.set(node, Converted { channels_first: Some(name), ..Converted::default() });
    }

    /// Makes a tensor that repeats the result of a node.
    pub(super) fn repeat(&mut self, node: &Node, name: String, dims: Vec<Dim>) {
        let Some(result) = node.results().next() else { return };
        let repeats = (dims != self.dims(result)).then_some(dims);
        self.set(node, Converted { plain: Some(name), repeats, ..Converted::default() });
    }

    /// The shape of the tensor that a value is, which may repeat.
    pub(super) fn small_dims(&self, value: ValueId) -> &[Dim] {
        self.values[value.index()].repeats.as_deref().unwrap_or(self.sized.dims(value))
    }

    /// The name of the tensor that a value is, which may repeat.
    pub(super) fn small_name(&mut self, value: ValueId) -> Result<String> {
        if let Some(name) = &self.values[value.index()].plain {
            return Ok(name.clone());
        }
        if let Some(name) = self.values[value.index()].channels_first.clone() {
            let order = numbers("perm", CHANNELS_LAST);
            let name = self.file.node(self.graph().scope(value), "Transpose", &[&name], &[order]);
            self.values[value.index()].plain = Some(name.clone());
            return Ok(name);
        }
        let order: Vec<usize> = (0..self.dims(value).len()).collect();
        let name = self.weight(value, &order)?;
        self.values[value.index()].plain = Some(name.clone());
        Ok(name)
    }

    /// The name of a value as it is in our graph, whole.
    pub(super) fn plain(&mut self, value: ValueId) -> Result<String> {
        let name = self.small_name(value)?;
        if self.values[value.index()].repeats.is_none() {
            return Ok(name);
        }
        let shape = self.shape(self.dims(value))?;
        let whole = self.file.node(self.graph().scope(value), "Expand", &[&name, &shape], &[]);
        self.values[value.index()] = Converted { plain: Some(whole.clone()), ..Converted::default() };
        Ok(whole)
    }

    /// The name of images with their channels first.
    pub(super) fn channels_first(&mut self, value: ValueId) -> Result<String> {
        if let Some(name) = &self.values[value.index()].channels_first {
            return Ok(name.clone());
        }
        let plain = self.plain(value)?;
        let order = numbers("perm", CHANNELS_FIRST);
        let name = self.file.node(self.graph().scope(value), "Transpose", &[&plain], &[order]);
        self.values[value.index()].channels_first = Some(name.clone());
        Ok(name)
    }

    /// A value with its axes in an order: a weight is written so, anything else is transposed.
    pub(super) fn arranged(&mut self, value: ValueId, order: &[usize]) -> Result<String> {
        if order.is_sorted() {
            return self.plain(value);
        }
        if self.is_weight(value) {
            return self.weight(value, order);
        }
        let x = self.plain(value)?;
        Ok(self.file.node(self.graph().scope(value), "Transpose", &[&x], &[numbers("perm", order.to_vec())]))
    }

    pub(super) fn is_weight(&self, value: ValueId) -> bool {
        self.sized.step.states.iter().any(|state| state.value == value)
    }

    /// A weight with its axes in an order.
    pub(super) fn weight(&mut self, value: ValueId, order: &[usize]) -> Result<String> {
        let Some(state) = self.sized.step.states.iter().find(|state| state.value == value) else {
            let message =
                format!("a value in `{}` that was not computed, which is a bug", self.graph().scope(value));
            return Err(Error::new(ErrorKind::Internal, message));
        };
        let key = (state.name.to_string(), order.to_vec());
        if let Some(name) = self.arranged.get(&key) {
            return Ok(name.clone());
        }
        let (ty, file) = (self.graph().ty(value), self.weights.path().display());
        let Some((index, stored)) = self.weights.find(&state.name) else {
            let message = format!("{file} has no weight `{}` for the model", state.name);
            return Err(Error::new(ErrorKind::File, message));
        };
        if stored.shape() != &ty.shape[..] || stored.dtype() != Some(DType::F32) || ty.dtype != DType::F32 {
            let message = format!(
                "{file}: `{}` is {}{:?}, the model's is {ty}",
                state.name,
                stored.dtype_name().escape_debug(),
                stored.shape()
            );
            return Err(Error::new(ErrorKind::File, message));
        }
        // A weight is in the file once: another order of it is made from the first.
        let name = match self.first_orders.get(&value) {
            None => {
                self.first_orders.insert(value, order.to_vec());
                self.file.weight(&state.name, index, stored.shape(), order)
            }
            Some(first) => {
                let perm: Vec<usize> =
                    order.iter().filter_map(|axis| first.iter().position(|known| known == axis)).collect();
                let first = self.arranged[&(state.name.to_string(), first.clone())].clone();
                self.file.node(self.graph().scope(value), "Transpose", &[&first], &[numbers("perm", perm)])
            }
        };
        self.arranged.insert(key, name.clone());
        Ok(name)
    }

    /// A number.
    pub(super) fn number(&mut self, value: f64, dtype: DType) -> String {
        let key = (value.to_bits(), dtype);
        if let Some(name) = self.constants.get(&key) {
            return name.clone();
        }
        let name = self.file.constant("number", dtype, &[], bytes_of(value, dtype));
        self.constants.insert(key, name.clone());
        name
    }

    /// A shape as a tensor.
    pub(super) fn shape(&mut self, dims: &[Dim]) -> Result<String> {
        let mut parts: Vec<String> = vec![];
        let mut known: Vec<i64> = vec![];
        for dim in dims {
            match *dim {
                Dim::Fixed(extent) => known.push(extent as i64),
                Dim::Samples(times) => {
                    if !known.is_empty() {
                        parts.push(self.file.numbers("shape", &std::mem::take(&mut known)));
                    }
                    let samples = self.samples()?;
                    parts.push(match times {
                        1 => samples,
                        times => {
                            let times = self.file.numbers("shape", &[times as i64]);
                            self.file.node("", "Mul", &[&samples, &times], &[])
                        }
                    });
                }
            }
        }
        if !known.is_empty() || parts.is_empty() {
            parts.push(self.file.numbers("shape", &known));
        }
        if let [only] = &parts[..] {
            return Ok(only.clone());
        }
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        Ok(self.file.node("", "Concat", &parts, &[number("axis", 0)]))
    }

    pub(super) fn samples(&mut self) -> Result<String> {
        if let Some(name) = &self.samples {
            return Ok(name.clone());
        }
        let (input, axis) = self.sized.samples()?;
        let range = [number("start", axis as i64), number("end", axis as i64 + 1)];
        let name = self.file.node("", "Shape", &[input], &range);
        self.samples = Some(name.clone());
        Ok(name)
    }
}

/// A number as bytes of a type.
pub(super) fn bytes_of(value: f64, dtype: DType) -> Vec<u8> {
    match dtype {
        DType::F32 => (value as f32).to_le_bytes().to_vec(),
        DType::F64 => value.to_le_bytes().to_vec(),
        DType::F16 => f16::from_f64(value).to_le_bytes().to_vec(),
        DType::BF16 => bf16::from_f64(value).to_le_bytes().to_vec(),
        DType::I32 => (value as i32).to_le_bytes().to_vec(),
        DType::I64 => (value as i64).to_le_bytes().to_vec(),
        DType::U8 => vec![value as u8],
        DType::Bool => vec![u8::from(value != 0.0)],
    }
}
