//! What networks for images are made of.

use crate::layers::{BatchNorm, Conv2d, Padding};
use crate::{Context, Result, Tensor};

/// A square convolution of odd extent, centred: of stride 1, images keep their size.
pub(super) fn centred(filters: usize, extent: usize) -> Conv2d {
    Conv2d::new(filters, [extent, extent]).padding(Padding::Explicit([extent / 2; 4]))
}

/// A convolution without a bias and a batch norm, by their names.
pub(super) fn conv_norm(cx: &Context, x: &Tensor, [conv, norm]: [&str; 2], layer: Conv2d) -> Result<Tensor> {
    let y = cx.layer(conv, layer.no_bias(), x)?;
    cx.layer(norm, BatchNorm::new(), &y)
}
