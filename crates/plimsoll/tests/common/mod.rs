//! What the tests of layers share.

use plimsoll::layers::Layer;
use plimsoll::{Context, DType, Precision, Result, Step, Tensor};

/// Traces a layer in training, in `f32`, on an input of this type.
pub(crate) fn trace(layer: impl Layer, shape: &[usize], dtype: DType) -> Result<(Tensor, Step)> {
    let cx = Context::trace(true, Precision::F32);
    let x = cx.input("x", shape, dtype)?;
    let y = layer.forward(&cx, &x)?;
    Ok((y, cx.take_step()?))
}
