//! Every network that ships trains as the same network does in PyTorch: from the same weights, on the same batch, the
//! gradients of the first step and the losses of twenty agree.
//!
//! The reference is made by `tests/reference/zoo.py`, in `f64`. Networks are small versions of what people train.

mod common;

use common::formula::{Prepared, integers, numbers, off, parameter};
use plimsoll::layers::{Activation, Layer};
use plimsoll::models::*;
use plimsoll::{
    Array, Context, DType, Eager, Input, Optimizer, Precision, Result, Run, RunBuilder, Tensor, loss,
};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// How far losses may be from PyTorch's, relative to their size.
const LOSS_TOLERANCE: f64 = 1e-4;
/// How far gradients may be from PyTorch's, relative to how long they are.
const GRADIENT_TOLERANCE: f64 = 1e-4;

/// How far the first loss in half precision may be from that in double.
const HALF_TOLERANCE: f64 = 1e-2;

/// The inputs of a network, by name.
struct Inputs(BTreeMap<String, Tensor>);

impl std::ops::Index<&str> for Inputs {
    type Output = Tensor;

    fn index(&self, name: &str) -> &Tensor {
        &self.0[name]
    }
}

/// A network's loss.
type Loss = fn(&Context, &Inputs) -> Result<Tensor>;

/// What PyTorch makes of a network, and the inputs it makes it of.
struct Reference {
    expected: Value,
    inputs: BTreeMap<String, Array>,
}

impl Reference {
    fn read(name: &str) -> Reference {
        let all: Value = serde_json::from_str(include_str!("reference/zoo.json")).unwrap();
        let expected = all["networks"][name].clone();
        let inputs = expected["inputs"].as_object().unwrap_or_else(|| panic!("{name} has no reference"));
        let inputs = inputs.iter().map(|(key, of)| {
            let shape: Vec<usize> =
                of["shape"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as usize).collect();
            let (called, count) = (format!("{name}/{key}"), shape.iter().product());
            let array = match of["below"].as_u64() {
                Some(below) => Array::new(&shape, &integers(&called, below as usize, count)),
                None => Array::new(&shape, &numbers(&called, count)),
            };
            (key.clone(), array.unwrap())
        });
        Reference { inputs: inputs.collect(), expected }
    }

    /// What is wrong with gradients, by the names of their parameters.
    fn wrong_gradients(&self, gradients: &BTreeMap<String, Vec<f32>>) -> Vec<String> {
        let expected = self.expected["gradients"].as_object().unwrap();
        assert_eq!(gradients.keys().collect::<BTreeSet<_>>(), expected.keys().collect());
        gradients.iter().filter_map(|(key, of)| off(key, of, &expected[key], GRADIENT_TOLERANCE)).collect()
    }

    /// A run that trains.
    fn run(&self, precision: Precision, of: Loss) -> RunBuilder {
        let rate = self.expected["rate"].as_f64().unwrap();
        let inputs = self.inputs.iter().map(|(key, of)| Input::new(key, of.shape(), of.dtype()));
        let names: Vec<String> = self.inputs.keys().cloned().collect();
        let optimizer = Optimizer::momentum(rate, 0.9, false);
        let run = Run::builder().threads(1).precision(precision);
        run.step("train", inputs.collect::<Vec<_>>(), move |cx, given| {
            let given = names.iter().map(|name| Ok((name.clone(), given.get(name)?.clone())));
            let loss = of(cx, &Inputs(given.collect::<Result<_>>()?))?;
            cx.minimise(&loss, &optimizer)?;
            Ok([("loss", loss)])
        })
    }

    /// The losses of so many steps from the first weights.
    fn losses(&self, run: RunBuilder, steps: usize) -> Vec<f32> {
        let mut run = run.compile().unwrap();
        for state in self.expected["gradients"].as_object().unwrap().keys() {
            let shape = run.state(state).unwrap().shape().to_vec();
            run.set_state(state, &Array::new(&shape, &parameter(state, &shape)).unwrap()).unwrap();
        }
        let given: Vec<(&str, &Array)> = self.inputs.iter().map(|(key, of)| (key.as_str(), of)).collect();
        let step = |_| run.step("train", &given).unwrap()["loss"].to_vec::<f32>().unwrap()[0];
        (0..steps).map(step).collect()
    }

    /// Trains compiled, and compares every loss.
    fn assert_trains(&self, name: &str, of: Loss) {
        let expected: Vec<f64> =
            self.expected["losses"].as_array().unwrap().iter().map(|loss| loss.as_f64().unwrap()).collect();
        let losses = self.losses(self.run(Precision::F32, of), expected.len());
        for (step, (loss, expected)) in losses.iter().zip(&expected).enumerate() {
            let apart = (f64::from(*loss) - expected).abs() / expected.abs();
            assert!(apart <= LOSS_TOLERANCE, "{name}: loss {step} is {loss}, PyTorch's {expected}");
        }
        // In the least memory that it can be made to take, without what changes rounding, it trains to the same bits.
        let floor = self.run(Precision::F32, of).exact(true).frontier().unwrap().floor_bytes;
        let least = self.losses(self.run(Precision::F32, of).exact(true).budget(floor), 3);
        assert_eq!(least, losses[..3], "{name} in {floor} bytes");
    }

    /// The first loss in half precision.
    fn assert_begins(&self, name: &str, of: Loss) {
        let expected = self.expected["losses"][0].as_f64().unwrap();
        for precision in [Precision::Bf16, Precision::F16] {
            let loss = self.losses(self.run(precision, of), 1)[0];
            let apart = (f64::from(loss) - expected).abs() / expected.abs();
            assert!(apart <= HALF_TOLERANCE, "{name}: in {precision} {loss}, PyTorch's {expected}");
        }
    }
}

/// Compares the gradients that eager mode finds, the losses of a compiled training, and the first ones in half precision.
fn assert_agrees(name: &str, of: Loss) {
    let reference = Reference::read(name);
    let eager = Eager::builder().threads(1).build().unwrap();
    let inputs = reference.inputs.iter().map(|(key, of)| (key.clone(), eager.array(of).unwrap()));
    let inputs = Inputs(inputs.collect());
    let prepared = Prepared::new(eager, |cx| of(cx, &inputs));
    let (_, gradients) = prepared.differentiate(&BTreeMap::new(), |cx| of(cx, &inputs), |loss| loss.clone());
    let statistic = |name: &str| name.ends_with("/mean") || name.ends_with("/variance");
    let gradients = gradients.into_iter().filter(|(name, _)| !statistic(name)).collect();
    let wrong = reference.wrong_gradients(&gradients);
    assert!(wrong.is_empty(), "{name}:\n{}", wrong.join("\n"));
    reference.assert_trains(name, of);
    reference.assert_begins(name, of);
}

/// The cross-entropy of a network's logits.
fn classes(model: impl Layer, cx: &Context, x: &Inputs) -> Result<Tensor> {
    loss::sparse_cross_entropy(&model.forward(cx, &x["x"])?, &x["y"])
}

/// Which of the places before and at these lengths there are.
fn there(cx: &Context, last: &Tensor, tokens: usize) -> Result<Tensor> {
    cx.iota(&[last.shape()[0], tokens], 1, DType::I32)?.le(&last.unsqueeze(1)?)
}

#[test]
fn residual_networks_train_as_in_pytorch() {
    assert_agrees("resnet18", |cx, x| {
        let model = ResNet { width: 4, group_width: 4, ..ResNet::resnet18(5) };
        classes(model, cx, x)
    });
    assert_agrees("resnet50", |cx, x| {
        let model = ResNet { blocks: [1; 4], width: 6, group_width: 6, ..ResNet::resnet50(5) };
        classes(model, cx, x)
    });
    assert_agrees("resnext", |cx, x| {
        let resnext = ResNet::resnext50(5);
        classes(ResNet { blocks: [1; 4], width: 4, groups: 4, group_width: 2, ..resnext }, cx, x)
    });
}

#[test]
fn plain_and_dense_stacks_of_convolutions_train_as_in_pytorch() {
    fn vgg(batch_norm: bool) -> Vgg {
        Vgg { stages: vec![(1, 4), (2, 8)], hidden: 12, batch_norm, dropout: 0.0, classes: 5 }
    }
    assert_agrees("vgg", |cx, x| classes(vgg(false), cx, x));
    assert_agrees("vgg_norm", |cx, x| classes(vgg(true), cx, x));
    assert_agrees("densenet", |cx, x| {
        classes(DenseNet { blocks: vec![2, 2], growth: 4, stem: 8, classes: 5 }, cx, x)
    });
    assert_agrees("inception", |cx, x| {
        let module = InceptionModule { one: 4, three: [3, 6], five: [2, 3], pool: 3 };
        let stages = vec![vec![module; 2], vec![module]];
        classes(Inception { stem: [4, 4, 8], stages, classes: 5 }, cx, x)
    });
}

type Row = (usize, usize, usize, usize, usize, Activation);

fn mobilenet(rows: [Row; 3], gate: Activation, hidden: Option<usize>, activation: Activation) -> MobileNet {
    let block = |(inside, outside, window, stride, squeeze, activation): Row| {
        let squeeze = (squeeze > 0).then_some((squeeze, gate));
        InvertedResidual { inside, outside, window, stride, squeeze, activation }
    };
    MobileNet { stem: 8, blocks: rows.map(block).to_vec(), last: 16, hidden, activation, classes: 5 }
}

#[test]
fn networks_of_inverted_residuals_train_as_in_pytorch() {
    use Activation::{HardSigmoid, HardSwish, Relu, Relu6, Sigmoid, Silu};
    assert_agrees("mobilenet_v2", |cx, x| {
        let rows = [(8, 6, 3, 1, 0, Relu6), (24, 8, 3, 2, 0, Relu6), (32, 8, 3, 1, 0, Relu6)];
        classes(mobilenet(rows, Sigmoid, None, Relu6), cx, x)
    });
    assert_agrees("mobilenet_v3", |cx, x| {
        let rows = [(8, 8, 3, 1, 0, Relu), (20, 12, 5, 2, 4, Relu), (32, 12, 5, 1, 8, HardSwish)];
        classes(mobilenet(rows, HardSigmoid, Some(24), HardSwish), cx, x)
    });
    assert_agrees("efficientnet", |cx, x| {
        let rows = [(8, 6, 3, 1, 2, Silu), (24, 8, 5, 2, 2, Silu), (32, 8, 3, 1, 2, Silu)];
        classes(mobilenet(rows, Sigmoid, None, Silu), cx, x)
    });
}

#[test]
fn networks_over_patches_train_as_in_pytorch() {
    assert_agrees("convnext", |cx, x| {
        classes(ConvNext { depths: vec![1, 2], widths: vec![6, 8], classes: 5 }, cx, x)
    });
    assert_agrees("vit", |cx, x| {
        classes(VisionTransformer { patch: 4, layers: 2, width: 8, heads: 2, classes: 5 }, cx, x)
    });
    assert_agrees("mixer", |cx, x| {
        let mixer =
            MlpMixer { patch: 4, layers: 2, width: 8, token_hidden: 5, channel_hidden: 16, classes: 5 };
        classes(mixer, cx, x)
    });
}

#[test]
fn networks_from_images_to_images_train_as_in_pytorch() {
    fn unet(upsampling: Upsampling) -> UNet {
        UNet::new(3).widths(&[4, 6]).upsampling(upsampling)
    }
    assert_agrees("unet_nearest", |cx, x| classes(unet(Upsampling::Nearest), cx, x));
    assert_agrees("unet_bilinear", |cx, x| classes(unet(Upsampling::Bilinear), cx, x));
    assert_agrees("unet_transposed", |cx, x| classes(unet(Upsampling::Transposed), cx, x));
    assert_agrees("unet3d", |cx, x| classes(UNet3d { widths: vec![3], classes: 3 }, cx, x));
    assert_agrees("deeplab", |cx, x| {
        classes(DeepLab { width: 6, blocks: 2, rates: vec![2, 3], classes: 3 }, cx, x)
    });
    assert_agrees("autoencoder", |cx, x| {
        let found = Autoencoder { widths: vec![4, 8], latent: 5 }.forward(cx, &x["x"])?;
        loss::mse(&found, &x["x"])
    });
}

#[test]
fn generators_discriminators_and_denoisers_train_as_in_pytorch() {
    assert_agrees("dcgan_generator", |cx, x| {
        let made = DcganGenerator { width: 4, doublings: 2, channels: 3 }.forward(cx, &x["z"])?;
        loss::mse(&made, &x["y"])
    });
    assert_agrees("dcgan_discriminator", |cx, x| {
        let logits = DcganDiscriminator { width: 4, halvings: 2 }.forward(cx, &x["x"])?;
        loss::bce_from_logits(&logits, &x["y"].cast(DType::F32)?)
    });
    assert_agrees("diffusion", |cx, x| {
        let model = DiffusionUNet { widths: vec![4, 8], groups: 2, heads: 2 };
        loss::mse(&model.noise(cx, &x["x"], &x["t"])?, &x["y"])
    });
}

const VOCABULARY: usize = 11;

#[test]
fn transformers_train_as_in_pytorch() {
    assert_agrees("llama", |cx, x| {
        let (heads, key_value_heads) = (4, 2);
        let (hidden, vocab, base) = (20, VOCABULARY, 10000.0);
        classes(Llama { layers: 2, width: 16, heads, key_value_heads, hidden, vocab, base }, cx, x)
    });
    assert_agrees("bert", |cx, x| {
        let (hidden, vocab) = (16, VOCABULARY);
        let bert = Bert { layers: 2, width: 8, heads: 2, hidden, context: 12, vocab, dropout: 0.0 };
        let real = there(cx, &x["n"], x["x"].shape()[1])?;
        loss::sparse_cross_entropy(&bert.with_padding(cx, &x["x"], &real)?, &x["y"])
    });
    assert_agrees("t5", |cx, x| {
        let (hidden, vocab) = (16, VOCABULARY);
        let t5 = T5 { layers: 2, width: 8, heads: 2, hidden, vocab, buckets: 8, farthest: 6 };
        loss::sparse_cross_entropy(&t5.logits(cx, &x["source"], &x["x"])?, &x["y"])
    });
}

#[test]
fn networks_over_time_train_as_in_pytorch() {
    fn recurrent(cell: Cell) -> RecurrentLm {
        RecurrentLm { cell, layers: 2, width: 8, vocab: VOCABULARY }
    }
    assert_agrees("lstm", |cx, x| classes(recurrent(Cell::Lstm), cx, x));
    assert_agrees("gru", |cx, x| classes(recurrent(Cell::Gru), cx, x));
    assert_agrees("seq2seq", |cx, x| {
        let model = Seq2Seq { width: 8, source_vocab: 7, target_vocab: VOCABULARY };
        let lengths = x["n"].add_scalar(1.0)?;
        loss::sparse_cross_entropy(&model.logits(cx, &x["source"], &lengths, &x["x"])?, &x["y"])
    });
    assert_agrees("wavenet", |cx, x| {
        classes(WaveNet { levels: VOCABULARY, width: 6, layers: 3, stacks: 2 }, cx, x)
    });
}

#[test]
fn a_recommender_and_a_mixture_of_experts_train_as_in_pytorch() {
    assert_agrees("recommender", |cx, x| {
        let model = Recommender { tables: vec![9, 7, 20], width: 6, bottom: vec![8], top: vec![10] };
        loss::bce_from_logits(&model.logits(cx, &x["x"], &x["i"])?, &x["y"].cast(DType::F32)?)
    });
    assert_agrees("experts", |cx, x| {
        let model = MixtureOfExperts { experts: 4, chosen: 2, hidden: 10 };
        loss::mse(&model.forward(cx, &x["x"])?, &x["y"])
    });
}

/// Its loss has derivatives of the network in it, which are gradients of the trace: eager mode has tapes instead.
#[test]
fn a_network_that_solves_an_equation_trains_as_in_pytorch() {
    Reference::read("pinn").assert_trains("pinn", |cx, x| {
        let model = Pinn { layers: 2, width: 8 };
        let residual = model.heat_residual(cx, &x["x"], 0.3)?.square()?.mean_all()?;
        let value = model.forward(cx, &x["x"])?.squeeze(1)?;
        residual.add(&loss::mse(&value, &x["y"])?)
    });
}
