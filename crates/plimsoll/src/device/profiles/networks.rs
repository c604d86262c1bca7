//! Networks whose kernels tell how fast a processor is.
//!
//! A kernel alone, over and over, finds its numbers in a cache where a step does not. So kernels are timed within whole training
//! steps: of networks of many kinds, at sizes that people train on a CPU and at small and odd ones, so that each family and
//! class is seen at several sizes. One of each kind is enough: forecasts are judged by others (`benches/zoo`).

use crate::layers::{Conv2d, Dense, Flatten, GlobalMeanPool, GroupNorm, Layer, MaxPool, Padding};
use crate::models::*;
use crate::{Array, Context, DType, Input, Inputs, Optimizer, Resize, Result, Run, Tensor, loss};
use plimsoll_ir::Kernel;
use plimsoll_plan::Profile;
use std::time::Instant;

/// Whole steps that are timed.
const STEPS: usize = 5;
/// No step takes more than so many times what its kernels do; one that seems to had other programs beside it.
const MOST_BESIDE: f64 = 1.1;

/// An input: its name, its extents, and what its whole numbers are below, if it is not of floats.
type Given = (&'static str, Vec<usize>, Option<usize>);

/// What a network is trained to make small.
type LossOf = dyn Fn(&Context, &Inputs) -> Result<Tensor>;

/// A network to train for a few steps.
pub(super) struct Network {
    inputs: Vec<Given>,
    loss: Box<LossOf>,
}

impl Network {
    /// The kernels of its training step as planners see them, with the seconds of each and its part of what a step takes
    /// beside them.
    pub(super) fn kernel_times(
        self,
        threads: Option<usize>,
        profile: &Profile,
    ) -> Result<Vec<(Kernel, f64)>> {
        let given: Vec<(&str, Array)> = self
            .inputs
            .iter()
            .map(|(name, shape, below)| Ok((*name, array(shape, *below)?)))
            .collect::<Result<_>>()?;
        let given: Vec<(&str, &Array)> = given.iter().map(|(name, array)| (*name, array)).collect();
        let inputs: Vec<Input> =
            given.iter().map(|(name, of)| Input::new(name, of.shape(), of.dtype())).collect();
        let (loss, optimizer) = (self.loss, Optimizer::adam(1e-4));
        let run = Run::builder().profile(profile.clone()).step("train", inputs, move |cx, inputs| {
            let loss = loss(cx, inputs)?;
            cx.minimise(&loss, &optimizer)?;
            Ok([("loss", loss)])
        });
        let mut run = threads.into_iter().fold(run, |run, threads| run.threads(threads)).compile()?;
        run.step("train", &given)?;
        let mut timed = run.planned_kernel_times(&given)?;
        let mut steps = vec![];
        for _ in 0..STEPS {
            let begin = Instant::now();
            run.step("train", &given)?;
            steps.push(begin.elapsed().as_secs_f64());
        }
        steps.sort_by(f64::total_cmp);
        // Inputs are written, results read, and kernels timed without a clock between them.
        let all: f64 = timed.iter().map(|(_, seconds)| seconds).sum();
        let more = (steps[STEPS / 2] / all.max(1e-9)).clamp(1.0, MOST_BESIDE);
        timed.iter_mut().for_each(|(_, seconds)| *seconds *= more);
        Ok(timed)
    }
}

/// An input's numbers: floats evenly from -1 to 1, whole numbers from 0 on.
fn array(shape: &[usize], below: Option<usize>) -> Result<Array> {
    // A multiplicative hash of the position.
    let hashed = |at: usize| (at as u32).wrapping_mul(0x9E37_79B1) >> 8;
    let count = 0..shape.iter().product();
    match below {
        Some(below) => {
            Array::new(shape, &count.map(|at| (hashed(at) % below as u32) as i32).collect::<Vec<_>>())
        }
        None => {
            let float = |at| hashed(at) as f32 / (1 << 23) as f32 - 1.0;
            Array::new(shape, &count.map(float).collect::<Vec<_>>())
        }
    }
}

fn network(inputs: Vec<Given>, loss: impl Fn(&Context, &Inputs) -> Result<Tensor> + 'static) -> Network {
    Network { inputs, loss: Box::new(loss) }
}

/// Values and a class for each sample.
fn labelled(shape: &[usize], classes: usize, model: impl Layer + 'static) -> Network {
    let inputs = vec![("x", shape.to_vec(), None), ("y", vec![shape[0]], Some(classes))];
    network(inputs, move |cx, x| loss::sparse_cross_entropy(&model.forward(cx, x.get("x")?)?, x.get("y")?))
}

/// Colour images and a class for each.
fn images(batch: usize, side: usize, model: impl Layer + 'static) -> Network {
    labelled(&[batch, side, side, 3], 10, model)
}

/// Values and a class for each place of theirs.
fn places(shape: &[usize], classes: usize, model: impl Layer + 'static) -> Network {
    let inputs = vec![("x", shape.to_vec(), None), ("y", shape[..shape.len() - 1].to_vec(), Some(classes))];
    network(inputs, move |cx, x| loss::sparse_cross_entropy(&model.forward(cx, x.get("x")?)?, x.get("y")?))
}

/// Sequences of tokens, and the next of each.
fn tokens(batch: usize, length: usize, vocab: usize, model: impl Layer + 'static) -> Network {
    let of = |name| (name, vec![batch, length], Some(vocab));
    network(vec![of("x"), of("y")], move |cx, x| {
        loss::sparse_cross_entropy(&model.forward(cx, x.get("x")?)?, x.get("y")?)
    })
}

fn resnet(width: usize, blocks: [usize; 4], [bottleneck, grouped]: [bool; 2]) -> ResNet {
    let (groups, group_width) = if grouped { (32, 4) } else { (1, 64) };
    ResNet { blocks, width, bottleneck, groups, group_width, classes: 100 }
}

fn gpt(layers: usize, width: usize, heads: usize, [context, vocab]: [usize; 2]) -> Gpt {
    Gpt { layers, width, heads, context, vocab, dropout: 0.0, tied_head: true }
}

fn unet(widths: &[usize]) -> UNet {
    UNet::new(3).widths(widths).upsampling(Upsampling::Bilinear)
}

fn bert(batch: usize, length: usize, width: usize, vocab: usize) -> Network {
    let bert =
        Bert { layers: 1, width, heads: width / 64, hidden: 4 * width, context: length, vocab, dropout: 0.0 };
    let of = |name| (name, vec![batch, length], Some(vocab));
    network(vec![of("x"), of("y"), ("n", vec![batch], Some(length))], move |cx, x| {
        let (tokens, last) = (x.get("x")?, x.get("n")?);
        let real = cx.iota(tokens.shape().as_ref(), 1, DType::I32)?.le(&last.unsqueeze(1)?)?;
        loss::sparse_cross_entropy(&bert.with_padding(cx, tokens, &real)?, x.get("y")?)
    })
}

fn seq2seq(batch: usize, [from, to]: [usize; 2], width: usize, vocab: usize) -> Network {
    let model = Seq2Seq { width, source_vocab: vocab, target_vocab: vocab };
    let of = |name, length| (name, vec![batch, length], Some(vocab));
    let inputs = vec![of("x", to), of("y", to), of("source", from), ("n", vec![batch], Some(from))];
    network(inputs, move |cx, x| {
        let lengths = x.get("n")?.add_scalar(1.0)?;
        let logits = model.logits(cx, x.get("source")?, &lengths, x.get("x")?)?;
        loss::sparse_cross_entropy(&logits, x.get("y")?)
    })
}

fn recommender(batch: usize, tables: &[usize], width: usize, hidden: &[usize]) -> Network {
    let model = Recommender { tables: tables.to_vec(), width, bottom: hidden.to_vec(), top: hidden.to_vec() };
    let below = tables.iter().copied().min();
    let inputs = vec![
        ("x", vec![batch, 16], None),
        ("i", vec![batch, tables.len()], below),
        ("y", vec![batch], Some(2)),
    ];
    network(inputs, move |cx, x| {
        let labels = x.get("y")?.cast(DType::F32)?;
        loss::bce_from_logits(&model.logits(cx, x.get("x")?, x.get("i")?)?, &labels)
    })
}

fn autoencoder(batch: usize, side: usize, widths: &[usize]) -> Network {
    let model = Autoencoder { widths: widths.to_vec(), latent: widths.iter().sum() };
    network(vec![("x", vec![batch, side, side, 3], None)], move |cx, x| {
        loss::mse(&model.forward(cx, x.get("x")?)?, x.get("x")?)
    })
}

/// A perceptron with layers of one width.
fn perceptron(batch: usize, width: usize, layers: usize, tanh: bool) -> Network {
    let model = crate::layers::model(move |cx: &Context, x: &Tensor| {
        let mut x = x.clone();
        for at in 0..layers {
            let y = cx.layer(&format!("layer{at}"), Dense::new(width), &x)?;
            x = if tanh { y.tanh()? } else { y.relu()? };
        }
        cx.layer("head", Dense::new(10), &x)
    });
    labelled(&[batch, width / 2], 10, model)
}

/// Convolutions with group norms and large windows, images that are made larger, and pooling.
fn mixed(batch: usize, side: usize, width: usize) -> Network {
    let conv = |width: usize, window: usize| {
        Conv2d::new(width, [window; 2]).padding(Padding::Explicit([window / 2; 4]))
    };
    let model = crate::layers::model(move |cx: &Context, x: &Tensor| {
        let x = cx.layer("conv0", conv(width, 3), x)?;
        let x = cx.layer("norm0", GroupNorm::new(8), &x)?.silu()?;
        let x = MaxPool::new([2, 2]).forward(cx, &x)?;
        let x = cx.layer("conv1", conv(2 * width, 5), &x)?;
        let x = cx.layer("norm1", GroupNorm::new(8), &x)?.silu()?;
        let x = cx.layer("channels", conv(2 * width, 5).groups(2 * width), &x)?.relu()?;
        let x = cx.layer("channels2", conv(2 * width, 5).groups(2 * width).stride([2, 2]), &x)?.relu()?;
        let larger = x.resize([2 * x.shape()[1], 2 * x.shape()[2]], Resize::Nearest)?;
        let x = cx.layer("conv2", conv(width, 3), &larger)?.relu()?;
        let mean = GlobalMeanPool.forward(cx, &x)?;
        let flat = Flatten.forward(cx, &mean)?;
        cx.layer("head", Dense::new(10), &flat)
    });
    labelled(&[batch, side, side, 3], 10, model)
}

/// The kinds of blocks of a MobileNet, with and without gates, by windows of 3 and 5.
fn mobile(batch: usize, side: usize, width: usize) -> Network {
    use crate::layers::Activation::{HardSigmoid, HardSwish, Relu6, Sigmoid, Silu};
    let block = |(inside, outside, window, stride, gate, activation)| InvertedResidual {
        inside,
        outside,
        window,
        stride,
        squeeze: gate,
        activation,
    };
    let wide = 2 * width;
    let blocks = [
        (width, width / 2, 3, 1, None, Relu6),
        (3 * width, wide / 2, 3, 2, None, Relu6),
        (3 * width, wide / 2, 3, 1, None, HardSwish),
        (3 * width, wide, 5, 2, Some((width / 2, HardSigmoid)), HardSwish),
        (6 * width, wide, 5, 1, Some((width / 2, Sigmoid)), Silu),
        (6 * width, 2 * wide, 3, 2, Some((width / 2, Sigmoid)), Silu),
        (12 * width, 2 * wide, 5, 1, None, HardSwish),
        (12 * width, 3 * wide, 5, 2, None, Relu6),
        (18 * width, 3 * wide, 3, 1, Some((width, Sigmoid)), Silu),
    ];
    let model = MobileNet {
        stem: width,
        blocks: blocks.map(block).to_vec(),
        last: 16 * width,
        hidden: Some(20 * width),
        activation: Silu,
        classes: 10,
    };
    images(batch, side, model)
}

/// What is measured, from sizes that people train to the smallest.
pub(super) fn all() -> Vec<Network> {
    let [plain, bottleneck, grouped] = [[false, false], [true, false], [true, true]];
    let convnext =
        |widths: [usize; 4]| ConvNext { depths: vec![1, 1, 1, 1], widths: widths.to_vec(), classes: 100 };
    let vit = |patch, width, heads| VisionTransformer { patch, layers: 1, width, heads, classes: 100 };
    let vgg = |stages: &[(usize, usize)], hidden| Vgg {
        stages: stages.to_vec(),
        hidden,
        batch_norm: false,
        dropout: 0.0,
        classes: 100,
    };
    let deeplab = |width| DeepLab { width, blocks: 2, rates: vec![6, 12, 18], classes: 21 };
    let lm = |cell, layers, width, vocab| RecurrentLm { cell, layers, width, vocab };
    let wavenet = |width, layers| WaveNet { levels: 256, width, layers, stacks: 1 };
    vec![
        images(16, 96, resnet(64, [2, 2, 2, 2], plain)),
        images(5, 64, resnet(48, [1, 2, 1, 1], plain)),
        images(2, 56, resnet(24, [1, 1, 2, 1], plain)),
        images(8, 96, resnet(64, [2, 1, 2, 1], bottleneck)),
        images(2, 80, resnet(32, [1, 2, 1, 1], bottleneck)),
        images(8, 96, resnet(64, [2, 1, 2, 1], grouped)),
        images(3, 64, resnet(64, [1, 1, 1, 1], grouped)),
        images(32, 32, vgg(&[(1, 64), (1, 128), (2, 256), (2, 512)], 512)),
        images(6, 48, vgg(&[(1, 32), (2, 80), (1, 160)], 200)),
        images(16, 96, MobileNet::v2(100)),
        mobile(8, 80, 24),
        mobile(2, 64, 16),
        mobile(1, 96, 32),
        images(16, 96, convnext([40, 80, 160, 320])),
        images(4, 64, convnext([32, 64, 128, 256])),
        places(&[4, 96, 96, 3], 3, unet(&[32, 64, 128])),
        places(&[1, 64, 64, 3], 3, unet(&[16, 40, 80])),
        places(&[3, 40, 56, 3], 3, unet(&[18, 52])),
        places(&[2, 64, 96, 3], 3, unet(&[28, 60])),
        places(&[2, 32, 32, 32, 1], 4, UNet3d { widths: vec![16, 32], classes: 4 }),
        places(&[1, 16, 16, 16, 1], 4, UNet3d { widths: vec![12, 24], classes: 4 }),
        places(&[4, 128, 128, 3], 21, deeplab(64)),
        places(&[1, 96, 96, 3], 21, deeplab(32)),
        images(16, 64, vit(8, 192, 3)),
        images(3, 48, vit(6, 96, 3)),
        images(5, 64, vit(16, 320, 5)),
        images(6, 60, vit(6, 120, 3)),
        tokens(8, 128, 8000, gpt(1, 256, 4, [128, 8000])),
        tokens(2, 256, 2000, gpt(1, 128, 4, [256, 2000])),
        tokens(3, 48, 700, gpt(1, 72, 3, [48, 700])),
        tokens(1, 600, 1500, gpt(1, 224, 2, [600, 1500])),
        tokens(2, 384, 1000, gpt(1, 128, 2, [384, 1000])),
        tokens(4, 96, 1000, gpt(1, 96, 3, [96, 1000])),
        bert(8, 128, 256, 8000),
        bert(4, 40, 128, 1200),
        tokens(16, 64, 8000, lm(Cell::Lstm, 2, 256, 8000)),
        tokens(4, 40, 500, lm(Cell::Lstm, 1, 64, 500)),
        tokens(7, 100, 1000, lm(Cell::Lstm, 1, 144, 1000)),
        tokens(10, 48, 3000, lm(Cell::Gru, 1, 128, 3000)),
        seq2seq(16, [50, 40], 256, 8000),
        seq2seq(5, [20, 30], 96, 1000),
        tokens(4, 2048, 256, wavenet(64, 8)),
        tokens(1, 1500, 256, wavenet(40, 4)),
        tokens(2, 2500, 256, wavenet(112, 3)),
        recommender(512, &[100_000, 50_000, 20_000, 10_000, 5000, 1000, 500, 100], 32, &[256, 128]),
        recommender(100, &[30_000, 2000, 300], 16, &[80, 40]),
        autoencoder(32, 64, &[32, 64, 128]),
        autoencoder(6, 32, &[16, 40]),
        perceptron(4, 1500, 3, false),
        perceptron(6, 2600, 2, false),
        perceptron(8, 600, 3, false),
        perceptron(2, 200, 4, false),
        perceptron(64, 64, 6, false),
        perceptron(48, 320, 3, false),
        perceptron(256, 800, 2, false),
        perceptron(2000, 96, 3, true),
        perceptron(300, 40, 4, true),
        mixed(8, 48, 48),
        mixed(2, 32, 24),
    ]
}
