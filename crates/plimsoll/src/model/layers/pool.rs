//! Pooling.

use super::{Layer, Padding};
use crate::{Context, Result, Tensor};
use plimsoll_graph::op::{Pool2d, PoolKind};

macro_rules! pool {
    ($($(#[$doc:meta])* $name:ident, $kind:literal, $pool:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone)]
        pub struct $name {
            window: [usize; 2],
            stride: [usize; 2],
            padding: Padding,
        }

        impl $name {
            /// Windows of this height and width, one beside the other.
            pub fn new(window: [usize; 2]) -> Self {
                $name { window, stride: window, padding: Padding::Valid }
            }

            /// Moves the window in these steps (down, across).
            pub fn stride(mut self, stride: [usize; 2]) -> Self {
                self.stride = stride;
                self
            }

            /// Lets windows reach over the edges of images so far. What is beyond does not count.
            pub fn padding(mut self, padding: Padding) -> Self {
                self.padding = padding;
                self
            }
        }

        impl Layer for $name {
            fn forward(&self, cx: &Context, x: &Tensor) -> Result<Tensor> {
                cx.expect_axes($kind, x, &["batch", "height", "width", "channels"])?;
                let extent = [x.shape()[1], x.shape()[2]];
                let padding = self.padding.resolve(extent, self.window, self.stride);
                x.pool2d(Pool2d { kind: PoolKind::$pool, window: self.window, stride: self.stride, padding })
            }

            fn kind(&self) -> &'static str {
                $kind
            }
        }
    )*};
}

pool! {
    /// The largest element of each window of images `[batch, height, width, channels]`.
    MaxPool, "max_pool", Max;
    /// The mean of each window of images `[batch, height, width, channels]`.
    MeanPool, "mean_pool", Mean;
}

/// The mean of each channel: images `[batch, height, width, channels]`, volumes or sequences `[batch, positions, channels]`
/// to `[batch, channels]`.
#[derive(Debug, Clone, Copy)]
pub struct GlobalMeanPool;

impl Layer for GlobalMeanPool {
    fn forward(&self, cx: &Context, x: &Tensor) -> Result<Tensor> {
        if x.rank() < 3 {
            cx.expect_axes("global_mean_pool", x, &["batch", "height", "width", "channels"])?;
        }
        x.mean(&(1..x.rank() - 1).collect::<Vec<_>>())
    }

    fn kind(&self) -> &'static str {
        "global_mean_pool"
    }
}
