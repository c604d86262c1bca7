//! Models as ONNX files, for programs that only run them.
//!
//! What is written is the graph of inference, op by op, under the scopes of the model, with the weights of a saved
//! training. Where a model does the same for any number of samples, the file leaves it open. Images are
//! `[batch, height, width, channels]` in our graphs and `[batch, channels, height, width]` in ONNX's convolutions: values
//! stay as convolutions leave them through arithmetic on elements, and are transposed where something else follows.

mod batch;
mod convert;
mod model_file;
mod protobuf;
mod structured;
mod values;

use super::TensorFile;
use crate::{Result, Step};
use batch::SizedStep;
use convert::Converter;
use std::path::Path;

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OnnxReport {
    /// How many nodes the graph has.
    pub nodes: usize,
    /// The bytes of the file.
    pub bytes: u64,
    /// The bytes of the weights in a file beside it, whose name has `.data` at its end; 0 if they are in the model's.
    pub bytes_beside: u64,
    /// Why the number of samples is fixed at 1 in the file, if it is; else it is open.
    pub fixed_samples: Option<String>,
}

/// Writes a model as an ONNX file (opset 17), with weights from a file of ours. `trace` gives the step of inference for so
/// many samples: its inputs and outputs are those of the file. Computing is in the precision that was traced; weights are
/// `f32`, and streamed in pieces. Weights of more than 1.5 GiB in all are in a file beside it, `.data` at its end.
///
/// ```
/// use plimsoll::exchange::{Names, TensorFile, save_weights, write_onnx};
/// use plimsoll::layers::{Activation, Dense, Layer, Sequential};
/// use plimsoll::{Context, DType, Input, Precision, Run};
/// fn model() -> Sequential {
///     Sequential::new().then(Dense::new(8).activation(Activation::Gelu)).then(Dense::new(2))
/// }
/// # let folder = std::env::temp_dir().join(format!("plimsoll-doc-onnx-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder).unwrap();
/// let weights = folder.join("weights.safetensors");
/// let mut run = Run::builder()
///     .inference("predict", vec![Input::new("x", &[1, 4], DType::F32)], |cx, inputs| {
///         let [x] = inputs.all()?;
///         Ok(vec![("y".into(), model().forward(cx, x)?)])
///     })
///     .compile()?;
/// save_weights(&mut run, &weights, &Names::plimsoll())?;
///
/// let trace = |samples: usize| {
///     let cx = Context::trace(false, Precision::F32);
///     let x = cx.input("x", &[samples, 4], DType::F32)?;
///     cx.output("y", &model().forward(&cx, &x)?)?;
///     cx.take_step()
/// };
/// let report = write_onnx(&trace, &TensorFile::open(&weights)?, folder.join("model.onnx"))?;
/// assert_eq!(report.fixed_samples, None);
/// # std::fs::remove_dir_all(&folder).unwrap();
/// # Ok::<(), plimsoll::Error>(())
/// ```
///
/// # Errors
/// If the model has an op that ONNX has nothing for, such as random numbers, a weight is not in the file, or a file cannot
/// be read or written.
pub fn write_onnx(
    trace: &dyn Fn(usize) -> Result<Step>,
    weights: &TensorFile,
    path: impl AsRef<Path>,
) -> Result<OnnxReport> {
    let path = path.as_ref();
    let sized = SizedStep::trace(trace)?;
    let file = Converter::new(&sized, weights).convert()?;
    let title = path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
    let [bytes, bytes_beside] = file.write(&title, weights, path)?;
    Ok(OnnxReport { nodes: file.nodes(), bytes, bytes_beside, fixed_samples: sized.fixed })
}
