//! Two tensors of a safetensors file, read in place.

use super::bytes::Bytes;
use super::concatenated::open_pairs;
use super::number::{ByteOrder, Number};
use super::stored::{Array, Inputs, Stored, Targets};
use super::{Answer, Description, Options, SourceKind};
use crate::{Dataset, Result};
use safetensors::tensor::{Dtype, Metadata};
use std::path::{Path, PathBuf};

pub(super) const KIND: SourceKind = SourceKind {
    name: "safetensors",
    keys: &["path", "inputs", "targets", "classes", "scale", "channels"],
    describe,
};

/// The longest header that is read.
const LONGEST_HEADER: u64 = 16 << 20;

/// The samples of two tensors of a file, which is read in place.
///
/// # Errors
/// If the file cannot be read, is cut off or spoiled, or has no such tensors.
pub fn safetensors(
    path: impl AsRef<Path>,
    [inputs, targets]: [&str; 2],
    given: Inputs,
    predicted: Targets,
) -> Result<Stored> {
    let path = path.as_ref();
    Stored::new(open(path, inputs)?, given, open(path, targets)?, predicted)
}

/// Tensors that a workload names.
#[derive(Debug)]
struct Described {
    path: PathBuf,
    inputs: String,
    /// Unless there is nothing to predict.
    targets: Option<String>,
    given: Inputs,
    predicted: Targets,
}

fn describe(options: &dyn Options) -> Result<Box<dyn Description>> {
    let (inputs, targets) = (options.need_text("inputs")?, options.need_text("targets")?);
    let targets = Some(targets).filter(|_| options.wants_answer());
    let (given, predicted) = (Inputs::read(options)?, Targets::read(options)?);
    Ok(Box::new(Described { path: options.need_path("path")?, inputs, targets, given, predicted }))
}

impl Description for Described {
    fn answer(&self) -> Answer {
        self.predicted.answer()
    }

    fn open(&self) -> Result<Dataset> {
        open_pairs(&self.path, &self.path, |path, _| match &self.targets {
            Some(targets) => safetensors(path, [&self.inputs, targets], self.given, self.predicted),
            None => Stored::inputs(open(path, &self.inputs)?, self.given),
        })
    }
}

fn open(path: &Path, name: &str) -> Result<Array> {
    let bytes = Bytes::open(path)?;
    let fail = |offset: u64, reason: String| bytes.error(None, Some(offset), reason);
    if bytes.len() == 0 {
        return Err(fail(0, "it is empty".to_string()));
    }
    let mut length = [0; 8];
    bytes.read(0, &mut length)?;
    let length = u64::from_le_bytes(length);
    if length > LONGEST_HEADER {
        let reason =
            format!("a header of {length} bytes; at most {LONGEST_HEADER} are read, or it is no such file");
        return Err(fail(0, reason));
    }
    let offset = 8 + length;
    let header = bytes.read_vec(8, length)?;
    let spoiled = |error: serde_json::Error| {
        fail(8, format!("its header cannot be understood: {:?}", error.to_string()))
    };
    let metadata: Metadata = serde_json::from_slice(&header).map_err(spoiled)?;
    if bytes.len() - offset != metadata.data_len() as u64 {
        let (there, needed) = (bytes.len() - offset, metadata.data_len());
        let reason =
            format!("{there} bytes of tensors, where its header says {needed}: it is cut off or spoiled");
        return Err(fail(offset, reason));
    }
    let Some(tensor) = metadata.info(name) else {
        let mut known: Vec<String> = metadata.tensors().keys().map(|name| format!("{name:?}")).collect();
        known.sort();
        known.truncate(12);
        return Err(fail(8, format!("it has no tensor {name:?}; there are: {}", known.join(", "))));
    };
    let start = offset + tensor.data_offsets.0 as u64;
    let number = match tensor.dtype {
        Dtype::BOOL => Number::Bool,
        Dtype::U8 => Number::U8,
        Dtype::I8 => Number::I8,
        Dtype::U16 => Number::U16,
        Dtype::I16 => Number::I16,
        Dtype::U32 => Number::U32,
        Dtype::I32 => Number::I32,
        Dtype::I64 => Number::I64,
        Dtype::F16 => Number::F16,
        Dtype::BF16 => Number::Bf16,
        Dtype::F32 => Number::F32,
        Dtype::F64 => Number::F64,
        other => {
            let reason = format!(
                "the tensor {name:?} is of {other:?}, which cannot be read; save it as F32, I32 or U8"
            );
            return Err(fail(start, reason));
        }
    };
    Ok(Array { offset: start, number, order: ByteOrder::Little, shape: tensor.shape.clone(), bytes })
}
