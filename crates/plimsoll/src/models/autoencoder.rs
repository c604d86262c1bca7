//! Images through a narrow place and back.

use crate::layers::{Activation, Conv2d, ConvTranspose2d, Dense, Flatten, Layer, Padding};
use crate::{Context, Result, Tensor};

/// An autoencoder of images `[batch, height, width, channels]`, height and width multiples of two to the number of widths:
/// strided convolutions, a dense layer to `latent` numbers and one back, transposed convolutions.
///
/// Parameters are `down0` and so on, `latent`, `spread`, `up0` and so on.
#[derive(Debug, Clone, PartialEq)]
pub struct Autoencoder {
    /// How wide each convolution on the way down is.
    pub widths: Vec<usize>,
    /// How many numbers an image becomes.
    pub latent: usize,
}

impl Layer for Autoencoder {
    fn forward(&self, cx: &Context, x: &Tensor) -> Result<Tensor> {
        cx.expect_axes("autoencoder", x, &["batch", "height", "width", "channels"])?;
        let channels = x.shape()[3];
        let mut x = x.clone();
        for (at, &width) in self.widths.iter().enumerate() {
            let conv = Conv2d::new(width, [3, 3]).stride([2, 2]).padding(Padding::Explicit([1; 4]));
            x = cx.layer(&format!("down{at}"), conv.activation(Activation::Relu), &x)?;
        }
        let small = x.shape();
        let latent = cx.layer("latent", Dense::new(self.latent), &Flatten.forward(cx, &x)?)?;
        let spread = Dense::new(small[1..].iter().product()).activation(Activation::Relu);
        x = cx.layer("spread", spread, &latent)?.reshape(&small)?;
        for at in 0..self.widths.len() {
            let last = at + 1 == self.widths.len();
            let width = if last { channels } else { self.widths[self.widths.len() - 2 - at] };
            let conv = ConvTranspose2d::new(width, [4, 4]).stride([2, 2]).padding(Padding::Explicit([1; 4]));
            let conv = if last { conv } else { conv.activation(Activation::Relu) };
            x = cx.layer(&format!("up{at}"), conv, &x)?;
        }
        Ok(x)
    }

    fn kind(&self) -> &'static str {
        "autoencoder"
    }
}
