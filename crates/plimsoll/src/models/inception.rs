//! Networks of modules with branches.

use super::blocks::{centred, conv_norm};
use crate::layers::{Dense, GlobalMeanPool, Layer, MaxPool, Padding};
use crate::{Context, Result, Tensor};

/// A network of Inception modules with batch norms, as GoogLeNet: images `[batch, height, width, channels]` to logits
/// `[batch, classes]`. A module has four branches side by side: a 1×1 convolution, a 3×3 and a 5×5 one, each after a
/// 1×1 convolution that narrows, and a max-pool before a 1×1 one.
///
/// Parameters are `stem/conv1`, `norm1` to `conv3`, `norm3`; `stage0/module0/one/conv`, `norm`, `three/reduce`,
/// `three/reduce_norm`, `three/conv`, `norm`, the same of `five`, and `pool/conv`, `norm`; then `head`.
#[derive(Debug, Clone, PartialEq)]
pub struct Inception {
    /// How wide the three convolutions of the stem are.
    pub stem: [usize; 3],
    /// The modules of each stage; a max-pool is before every stage.
    pub stages: Vec<Vec<InceptionModule>>,
    /// How many classes there are.
    pub classes: usize,
}

/// The widths of a module's branches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InceptionModule {
    /// That of the 1×1 convolution.
    pub one: usize,
    /// To what the 3×3 convolution's input is narrowed, and its own.
    pub three: [usize; 2],
    /// To what the 5×5 convolution's input is narrowed, and its own.
    pub five: [usize; 2],
    /// That of the convolution after the pool.
    pub pool: usize,
}

impl Inception {
    /// GoogLeNet, without its auxiliary heads.
    pub fn googlenet(classes: usize) -> Self {
        let module = |[one, reduce3, three, reduce5, five, pool]: [usize; 6]| InceptionModule {
            one,
            three: [reduce3, three],
            five: [reduce5, five],
            pool,
        };
        let stages: [&[[usize; 6]]; 3] = [
            &[[64, 96, 128, 16, 32, 32], [128, 128, 192, 32, 96, 64]],
            &[
                [192, 96, 208, 16, 48, 64],
                [160, 112, 224, 24, 64, 64],
                [128, 128, 256, 24, 64, 64],
                [112, 144, 288, 32, 64, 64],
                [256, 160, 320, 32, 128, 128],
            ],
            &[[256, 160, 320, 32, 128, 128], [384, 192, 384, 48, 128, 128]],
        ];
        let stages = stages.map(|stage| stage.iter().copied().map(module).collect()).to_vec();
        Inception { stem: [64, 64, 192], stages, classes }
    }
}

impl InceptionModule {
    fn forward(&self, cx: &Context, x: &Tensor) -> Result<Tensor> {
        let wide = |scope: &str, [narrow, width]: [usize; 2], extent: usize| {
            cx.scope(scope, |cx| {
                let y = conv_norm(cx, x, ["reduce", "reduce_norm"], centred(narrow, 1))?.relu()?;
                conv_norm(cx, &y, ["conv", "norm"], centred(width, extent))?.relu()
            })
        };
        let one = cx.scope("one", |cx| conv_norm(cx, x, ["conv", "norm"], centred(self.one, 1))?.relu())?;
        let (three, five) = (wide("three", self.three, 3)?, wide("five", self.five, 5)?);
        let pool = cx.scope("pool", |cx| {
            let pool = MaxPool::new([3, 3]).stride([1, 1]).padding(Padding::Explicit([1; 4]));
            conv_norm(cx, &pool.forward(cx, x)?, ["conv", "norm"], centred(self.pool, 1))?.relu()
        })?;
        Tensor::concat(&[&one, &three, &five, &pool], 3)
    }
}

impl Layer for Inception {
    fn forward(&self, cx: &Context, x: &Tensor) -> Result<Tensor> {
        cx.expect_axes("inception", x, &["batch", "height", "width", "channels"])?;
        let halve = MaxPool::new([3, 3]).stride([2, 2]).padding(Padding::Explicit([1; 4]));
        let mut x = cx.scope("stem", |cx| {
            let [first, second, third] = self.stem;
            let y = conv_norm(cx, x, ["conv1", "norm1"], centred(first, 7).stride([2, 2]))?.relu()?;
            let y = halve.forward(cx, &y)?;
            let y = conv_norm(cx, &y, ["conv2", "norm2"], centred(second, 1))?.relu()?;
            conv_norm(cx, &y, ["conv3", "norm3"], centred(third, 3))?.relu()
        })?;
        for (stage, modules) in self.stages.iter().enumerate() {
            x = halve.forward(cx, &x)?;
            for (at, module) in modules.iter().enumerate() {
                x = cx.scope(&format!("stage{stage}/module{at}"), |cx| module.forward(cx, &x))?;
            }
        }
        cx.layer("head", Dense::new(self.classes), &GlobalMeanPool.forward(cx, &x)?)
    }

    fn kind(&self) -> &'static str {
        "inception"
    }
}
