//! Layers that change nothing but the shape.

use super::Layer;
use crate::{Context, ErrorKind, Result, Tensor};

/// Joins all axes after the first: `[batch, ..]` becomes `[batch, features]`.
#[derive(Debug, Clone, Copy)]
pub struct Flatten;

impl Layer for Flatten {
    fn forward(&self, cx: &Context, x: &Tensor) -> Result<Tensor> {
        match &x.shape()[..] {
            [batch, rest @ ..] => x.reshape(&[*batch, rest.iter().product()]),
            [] => Err(cx.error(ErrorKind::Shape, format!("flatten: the input is [batch, ..], this is {x}"))),
        }
    }

    fn kind(&self) -> &'static str {
        "flatten"
    }
}

/// Gives all axes after the first another shape: `[batch, ..]` becomes `[batch, shape..]`.
#[derive(Debug, Clone)]
pub struct Reshape(pub Vec<usize>);

impl Layer for Reshape {
    fn forward(&self, cx: &Context, x: &Tensor) -> Result<Tensor> {
        match x.shape().first() {
            Some(batch) => x.reshape(&[&[*batch], &self.0[..]].concat()),
            None => {
                Err(cx.error(ErrorKind::Shape, format!("reshape: the input is [batch, ..], this is {x}")))
            }
        }
    }

    fn kind(&self) -> &'static str {
        "reshape"
    }
}

/// Repeats every pixel of images `[batch, height, width, channels]` this often down and across.
#[derive(Debug, Clone, Copy)]
pub struct Upsample(pub usize);

impl Layer for Upsample {
    fn forward(&self, cx: &Context, x: &Tensor) -> Result<Tensor> {
        cx.expect_axes("upsample", x, &["batch", "height", "width", "channels"])?;
        let [batch, height, width, channels] = [0, 1, 2, 3].map(|axis| x.shape()[axis]);
        let times = self.0;
        let (Some(tall), Some(wide)) = (height.checked_mul(times), width.checked_mul(times)) else {
            let message = format!("upsample: {x} times {times} is more than can be addressed");
            return Err(cx.error(ErrorKind::Shape, message));
        };
        x.reshape(&[batch, height, 1, width, 1, channels])?
            .broadcast(&[batch, height, times, width, times, channels])?
            .reshape(&[batch, tall, wide, channels])
    }

    fn kind(&self) -> &'static str {
        "upsample"
    }
}
