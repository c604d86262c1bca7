//! Layers: descriptions of parts of a model.
//!
//! A layer holds no weights. It says what to compute and asks the [`Context`] for its parameters by name, in
//! the scope it is used in. So a layer is a few numbers that can be cloned, printed and used in any trace.
//!
//! | layer | parameters in its scope |
//! |---|---|
//! | [`Dense`] | `weight` `[in, out]`, `bias` |
//! | [`Conv2d`] | `filter` `[height, width, in / groups, out]`, `bias` |
//! | [`Conv1d`] | `filter` `[window, in / groups, out]`, `bias` |
//! | [`Conv3d`] | `filter` `[depth, height, width, in / groups, out]`, `bias` |
//! | [`ConvTranspose2d`] | `filter` `[height, width, out / groups, in]`, `bias` |
//! | [`BatchNorm`] | `gamma`, `beta`, and the statistics `mean`, `variance` |
//! | [`LayerNorm`], [`GroupNorm`], [`InstanceNorm`] | `gamma`, `beta` |
//! | [`RmsNorm`] | `gamma` |
//! | [`Embedding`] | `table` `[vocabulary, width]` |
//! | [`Lstm`] | `input_weight`, `hidden_weight`, `bias` |
//! | [`Gru`] | `input_weight`, `hidden_weight`, `input_bias`, `hidden_bias` |
//! | [`MultiHeadAttention`] | `qkv/weight`, `qkv/bias`, `out/weight`, `out/bias`; to something else, `q/..` and `kv/..` for `qkv/..` |
//! | [`RelativeBias`] | `table` `[buckets, heads]` |
//! | [`SwiGlu`] | `gate/weight`, `up/weight`, `down/weight` |
//! | [`SqueezeExcite`] | `squeeze/weight`, `squeeze/bias`, `excite/weight`, `excite/bias` |
//! | [`TransformerBlock`] | `ln1/..`, `attention/..`, `ln2/..`, `mlp/up/..`, `mlp/down/..` |

mod activation;
mod attention;
mod combine;
mod conv;
mod conv1d;
mod conv3d;
mod conv_transpose;
mod dense;
mod dropout;
mod embedding;
mod gated;
mod norm;
mod pool;
mod recurrent;
mod rescale;
mod shape;
mod transformer;

pub use activation::Activation;
pub use attention::{MultiHeadAttention, RelativeBias};
pub use combine::{Model, Residual, Sequential, model};
pub use conv::{Conv2d, Padding};
pub use conv_transpose::ConvTranspose2d;
pub use conv1d::Conv1d;
pub use conv3d::{Conv3d, MaxPool3d};
pub use dense::Dense;
pub use dropout::Dropout;
pub use embedding::Embedding;
pub use gated::{SqueezeExcite, SwiGlu};
pub use norm::{BatchNorm, GroupNorm, InstanceNorm, LayerNorm, RmsNorm};
pub use pool::{GlobalMeanPool, MaxPool, MeanPool};
pub use recurrent::{Gru, Lstm};
pub use rescale::Rescale;
pub use shape::{Flatten, Reshape, Upsample};
pub use transformer::TransformerBlock;

use crate::{Context, Result, Tensor};

/// A part of a model with one input and one output.
pub trait Layer {
    /// What the layer makes of `x`. Its parameters are those of the context's current scope.
    ///
    /// # Errors
    /// If the layer does not take an input of this shape or element type.
    fn forward(&self, cx: &Context, x: &Tensor) -> Result<Tensor>;

    /// What [`Sequential`] calls the layer, with a number, where it has no name.
    fn kind(&self) -> &'static str {
        "layer"
    }
}

macro_rules! layer_behind {
    ($($pointer:ty),*) => {$(
        impl<L: Layer + ?Sized> Layer for $pointer {
            fn forward(&self, cx: &Context, x: &Tensor) -> Result<Tensor> {
                (**self).forward(cx, x)
            }

            fn kind(&self) -> &'static str {
                (**self).kind()
            }
        }
    )*};
}

layer_behind!(&L, Box<L>, std::rc::Rc<L>);
