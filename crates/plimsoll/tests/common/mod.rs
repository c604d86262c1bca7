//! What tests share.

// Each test file uses its own part of this.
#![allow(dead_code)]

pub(crate) mod formula;

use plimsoll::data::{Columns, Field, Promise, Source};
use plimsoll::layers::Layer;
use plimsoll::{Context, DType, Precision, Result, Step, Tensor};

/// Traces a layer in training, in `f32`, on an input of this type.
pub(crate) fn trace(layer: impl Layer, shape: &[usize], dtype: DType) -> Result<(Tensor, Step)> {
    let cx = Context::trace(true, Precision::F32);
    let x = cx.input("x", shape, dtype)?;
    let y = layer.forward(&cx, &x)?;
    Ok((y, cx.take_step()?))
}

/// Samples that are not looked through before training, as labels of data in memory are: some stand for nothing.
pub(crate) struct AsItIs(pub(crate) Columns);

impl Source for AsItIs {
    fn samples(&self) -> usize {
        self.0.samples()
    }

    fn fields(&self) -> &[Field] {
        self.0.fields()
    }

    fn read(&self, sample: usize, field: usize, out: &mut [u8]) -> plimsoll::data::Result<()> {
        self.0.read(sample, field, out)
    }

    fn resident_bytes(&self) -> u64 {
        0
    }

    fn promise(&self, _: usize) -> Promise {
        Promise::Meant
    }
}
