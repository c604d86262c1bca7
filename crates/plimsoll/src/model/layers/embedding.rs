//! Embeddings.

use super::Layer;
use crate::{Context, Init, Result, Tensor};

/// A row of a table for each index: integers `[..]` become `[.., width]`. An index outside of the vocabulary
/// gives NaN.
///
/// ```
/// use plimsoll::layers::{Embedding, Layer};
/// use plimsoll::{Context, DType, Precision};
/// let cx = Context::trace(true, Precision::F32);
/// let tokens = cx.input("tokens", &[8, 128], DType::I32)?;
/// let x = Embedding::new(1000, 64).forward(&cx, &tokens)?;
/// assert_eq!(x.shape()[..], [8, 128, 64]);
/// # Ok::<(), plimsoll::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Embedding {
    vocabulary: usize,
    width: usize,
    init: Init,
}

impl Embedding {
    /// A table of `vocabulary` rows of `width`, initialised by [`Init::Normal`] with deviation 0.02.
    pub fn new(vocabulary: usize, width: usize) -> Self {
        Embedding { vocabulary, width, init: Init::Normal(0.02) }
    }

    /// Initialises the table so.
    pub fn init(mut self, init: Init) -> Self {
        self.init = init;
        self
    }
}

impl Layer for Embedding {
    fn forward(&self, cx: &Context, x: &Tensor) -> Result<Tensor> {
        // Only the rows that are used are converted, and their gradients are summed in `f32`.
        let table = cx.master_parameter("table", &[self.vocabulary, self.width], self.init)?;
        table.gather(&x.as_indices()?)?.cast(cx.precision().compute())
    }

    fn kind(&self) -> &'static str {
        "embedding"
    }
}
