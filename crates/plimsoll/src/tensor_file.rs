//! Tensors as a safetensors file, written from where they are, piece by piece; [`read`] is the way back.
//!
//! A file is a header that says where each tensor is, and their bytes one after another. Libraries take all tensors in
//! memory to write one; a run has them in its arena, and saving them must not take as much again.

mod read;

pub use read::{StoredTensor, TensorFile};

use crate::save::Draft;
use crate::{DType, Error, ErrorKind, Result};
use serde_json::{Map, Value, json};

/// A tensor of a file.
#[derive(Debug, Clone)]
pub(crate) struct Described {
    pub(crate) name: String,
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<usize>,
}

/// Shows the bytes of a tensor, by its position, one piece after another.
pub(crate) type ShowTensor<'a> = &'a mut dyn FnMut(usize, &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()>;

/// Headers are padded to a multiple of this, so that tensors are aligned in a file that is mapped.
const ALIGNMENT: usize = 8;

/// Writes tensors, in their order.
pub(crate) fn write_tensors(draft: &mut Draft, tensors: &[Described], show: ShowTensor<'_>) -> Result<()> {
    let header = header(tensors)?;
    draft.write(&(header.len() as u64).to_le_bytes())?;
    draft.write(&header)?;
    for (index, tensor) in tensors.iter().enumerate() {
        let mut left = bytes(tensor);
        show(index, &mut |piece| {
            left = left.saturating_sub(piece.len());
            draft.write(piece)
        })?;
        if left > 0 {
            let message = format!("`{}` has {left} bytes less than its shape, which is a bug", tensor.name);
            return Err(Error::new(ErrorKind::Internal, message));
        }
    }
    Ok(())
}

fn bytes(tensor: &Described) -> usize {
    tensor.shape.iter().product::<usize>() * tensor.dtype.size()
}

/// What a file says before its tensors, which lie in their order.
pub(crate) fn header(tensors: &[Described]) -> Result<Vec<u8>> {
    let (mut entries, mut first) = (Map::new(), 0);
    for tensor in tensors {
        let end = first + bytes(tensor);
        let entry =
            json!({ "dtype": dtype_name(tensor.dtype), "shape": tensor.shape, "data_offsets": [first, end] });
        entries.insert(tensor.name.clone(), entry);
        first = end;
    }
    let mut header = serde_json::to_vec(&Value::Object(entries)).map_err(|error| {
        Error::new(ErrorKind::File, format!("the weights' names cannot be written: {error}"))
    })?;
    header.resize(header.len().next_multiple_of(ALIGNMENT), b' ');
    Ok(header)
}

/// What the format calls a type.
fn dtype_name(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "F32",
        DType::F64 => "F64",
        DType::F16 => "F16",
        DType::BF16 => "BF16",
        DType::I32 => "I32",
        DType::I64 => "I64",
        DType::U8 => "U8",
        DType::Bool => "BOOL",
    }
}
