//! Whole training steps, a few one after another: what they leave in weights and slots.

use super::Case;
use crate::layers::{Activation, Conv2d, Dense, Flatten, Layer, MaxPool, Sequential};
use crate::{Context, Optimizer, Precision, loss};
use plimsoll_graph::DType;

pub(super) fn list() -> Vec<Case> {
    let mut cases = Vec::new();
    for precision in [Precision::F32, Precision::Bf16] {
        let about = precision.compute();
        // What is computed in halves is off by their roundings, wherever it is kept.
        let terms = if precision == Precision::F32 { 1 << 12 } else { 1 << 19 };
        cases.push(
            Case::of_step(format!("steps of a dense network {about}"), 10, move || {
                let network =
                    Sequential::new().then(Dense::new(64).activation(Activation::Relu)).then(Dense::new(10));
                classify(&network, &[32, 40], precision)
            })
            .terms(terms),
        );
        cases.push(
            Case::of_step(format!("steps of a convolutional network {about}"), 10, move || {
                let network = Sequential::new()
                    .then(Conv2d::new(16, [3, 3]).activation(Activation::Relu))
                    .then(MaxPool::new([2, 2]))
                    .then(Conv2d::new(32, [3, 3]).activation(Activation::Relu))
                    .then(Flatten)
                    .then(Dense::new(10));
                classify(&network, &[8, 16, 16, 3], precision)
            })
            .terms(terms),
        );
    }
    cases
}

/// A step that learns to classify inputs.
fn classify(network: &dyn Layer, dims: &[usize], precision: Precision) -> crate::Result<crate::Step> {
    let cx = Context::trace(true, precision);
    let x = cx.input("x", dims, DType::F32)?;
    let labels = cx.target("labels", &dims[..1], DType::I32)?;
    let loss = loss::sparse_cross_entropy(&network.forward(&cx, &x)?, &labels)?;
    cx.output("loss", &loss)?;
    cx.minimise(&loss, &Optimizer::momentum(0.01, 0.9, false))?;
    cx.take_step()
}
