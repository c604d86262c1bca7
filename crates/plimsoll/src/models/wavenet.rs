//! Sequences by dilated convolutions.

use crate::layers::{Conv1d, Embedding, Layer};
use crate::{Context, Result, Tensor};

/// A network in the manner of WaveNet: integer samples `[batch, time]` of `levels` loudnesses to logits
/// `[batch, time, levels]` of the next. Each layer is a gated causal convolution with twice the dilation of the one before,
/// and adds to what the head sees; all but the last to what the next layer sees, too.
///
/// Parameters are `levels/table`; `layer0/filter`, `gate`, `residual`, `skip` and so on; `hidden` and `head`.
#[derive(Debug, Clone, PartialEq)]
pub struct WaveNet {
    /// How many different samples there are.
    pub levels: usize,
    /// How wide the network is.
    pub width: usize,
    /// How many layers there are before dilations begin again at 1.
    pub layers: usize,
    /// How often they do.
    pub stacks: usize,
}

impl Layer for WaveNet {
    fn forward(&self, cx: &Context, x: &Tensor) -> Result<Tensor> {
        cx.expect_axes("wavenet", x, &["batch", "time"])?;
        let mut x = cx.layer("levels", Embedding::new(self.levels, self.width), x)?;
        let mut seen: Option<Tensor> = None;
        let count = self.stacks.saturating_mul(self.layers);
        for at in 0..count {
            let dilation = 1usize.checked_shl((at % self.layers) as u32).unwrap_or(usize::MAX);
            x = cx.scope(&format!("layer{at}"), |cx| {
                let conv = || Conv1d::new(self.width, 2).dilation(dilation).causal();
                let filter = cx.layer("filter", conv(), &x)?.tanh()?;
                let gated = filter.mul(&cx.layer("gate", conv(), &x)?.sigmoid()?)?;
                let skip = cx.layer("skip", Conv1d::new(self.width, 1), &gated)?;
                seen = Some(match &seen {
                    Some(seen) => seen.add(&skip)?,
                    None => skip,
                });
                if at + 1 == count {
                    return Ok(gated);
                }
                x.add(&cx.layer("residual", Conv1d::new(self.width, 1), &gated)?)
            })?;
        }
        let seen = seen.unwrap_or(x).relu()?;
        let hidden = cx.layer("hidden", Conv1d::new(self.width, 1), &seen)?.relu()?;
        cx.layer("head", Conv1d::new(self.levels, 1), &hidden)
    }

    fn kind(&self) -> &'static str {
        "wavenet"
    }
}
