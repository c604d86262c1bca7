//! What was measured while training, to the bit: the loss of every step, and the metrics of held-out data.

use crate::save::Draft;
use crate::tensor_file::{Described, TensorFile, write_tensors};
use crate::{DType, Error, ErrorKind, Result};

/// The tensor of losses, one a step.
const LOSS: &str = "loss";

/// The tensor of the steps after which held-out data was measured.
const STEP: &str = "validation/step";

/// What tensors of metrics are named after.
const VALIDATION: &str = "validation/metric/";

/// The numbers that are written at a time.
const PIECE: usize = 1 << 16;

/// What was measured.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct History {
    /// The loss of each step, before its update.
    pub(crate) losses: Vec<f32>,
    /// What the metrics of held-out data are called.
    pub(crate) names: Vec<String>,
    /// The metrics of held-out data, oldest first.
    pub(crate) validations: Vec<Measured>,
}

/// The metrics of held-out data after a step.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Measured {
    pub(crate) step: u64,
    /// As many as there are names.
    pub(crate) values: Vec<f64>,
}

impl History {
    /// The values of a metric, oldest first, with their steps.
    pub(crate) fn of(&self, metric: &str) -> impl Iterator<Item = (u64, f64)> {
        let position = self.names.iter().position(|name| name == metric);
        self.validations.iter().filter_map(move |of| Some((of.step, *of.values.get(position?)?)))
    }

    /// Writes it as tensors.
    pub(super) fn write(&self, file: &mut Draft) -> Result<()> {
        let of = |name: String, dtype, count| Described { name, dtype, shape: vec![count] };
        let count = self.validations.len();
        let mut tensors =
            vec![of(LOSS.into(), DType::F32, self.losses.len()), of(STEP.into(), DType::I64, count)];
        let metric = |name: &String| of(format!("{VALIDATION}{name}"), DType::F64, count);
        tensors.extend(self.names.iter().map(metric));
        let mut bytes = Vec::with_capacity(4 * PIECE.min(self.losses.len()));
        write_tensors(file, &tensors, &mut |index, write| match index {
            0 => self.losses.chunks(PIECE).try_for_each(|piece| {
                bytes.clear();
                bytes.extend(piece.iter().flat_map(|loss| loss.to_le_bytes()));
                write(&bytes)
            }),
            1 => self.validations.iter().try_for_each(|of| write(&of.step.to_le_bytes())),
            _ => self.validations.iter().try_for_each(|of| write(&of.values[index - 2].to_le_bytes())),
        })
    }

    /// Reads what was written.
    pub(super) fn read(file: &TensorFile) -> Result<History> {
        let losses = words(file, LOSS, DType::F32)?.into_iter().map(f32::from_le_bytes).collect();
        let steps: Vec<u64> = words(file, STEP, DType::I64)?.into_iter().map(u64::from_le_bytes).collect();
        let mut history = History { losses, ..History::default() };
        history.validations = steps.into_iter().map(|step| Measured { step, values: vec![] }).collect();
        for tensor in file.tensors() {
            let Some(name) = tensor.name().strip_prefix(VALIDATION) else { continue };
            let values = words(file, tensor.name(), DType::F64)?;
            if values.len() != history.validations.len() {
                return Err(wrong(file, tensor.name()));
            }
            history.names.push(name.to_string());
            for (of, value) in history.validations.iter_mut().zip(values) {
                of.values.push(f64::from_le_bytes(value));
            }
        }
        Ok(history)
    }
}

/// The elements of a tensor of one axis.
fn words<const N: usize>(file: &TensorFile, name: &str, dtype: DType) -> Result<Vec<[u8; N]>> {
    let found = file.find(name).filter(|(_, of)| of.dtype() == Some(dtype) && of.shape().len() == 1);
    let Some((index, tensor)) = found else { return Err(wrong(file, name)) };
    let mut words = vec![[0; N]; tensor.shape()[0]];
    file.read(index, 0, words.as_flattened_mut())?;
    Ok(words)
}

fn wrong(file: &TensorFile, name: &str) -> Error {
    let message = format!("{} has no tensor `{name}` as a history has it", file.path().display());
    Error::new(ErrorKind::File, message)
}
