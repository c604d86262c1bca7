//! Training agrees with PyTorch: the same weights, batches and optimizer give the same losses and weights.
//!
//! The reference values are made by `tests/reference/generate.py`; nothing here needs PyTorch.

use plimsoll::data::{Columns, Dataset};
use plimsoll::layers::*;
use plimsoll::loss::Loss;
use plimsoll::models::Gpt;
use plimsoll::{Clip, Eager, Optimizer, Trainer};
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;

fn path(file: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "reference", file].iter().collect()
}

fn json(name: &str) -> Value {
    serde_json::from_slice(&std::fs::read(path(name)).unwrap()).unwrap()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
}

fn integers(bytes: &[u8]) -> Vec<i32> {
    bytes.chunks_exact(4).map(|b| i32::from_le_bytes(b.try_into().unwrap())).collect()
}

/// Trains `model` on the batches of a reference and compares every loss and the final weights.
fn assert_trains_as_in_pytorch(name: &str, model: impl Layer + 'static) {
    let file = std::fs::read(path(&format!("{name}.safetensors"))).unwrap();
    let tensors = SafeTensors::deserialize(&file).unwrap();
    let expected = json(&format!("{name}.json"));
    let mut data = Columns::new();
    let mut weights = BTreeMap::new();
    let mut batch = 0;
    for column in ["batches/inputs", "batches/labels"] {
        let view = tensors.tensor(column).unwrap();
        batch = view.shape()[1];
        data = match view.dtype() {
            Dtype::F32 => data.column(column, &view.shape()[2..], floats(view.data())),
            _ => data.column(column, &view.shape()[2..], integers(view.data())),
        }
        .unwrap();
    }
    for (tensor, view) in tensors.tensors().into_iter().filter(|(n, _)| !n.starts_with("batches/")) {
        weights.insert(tensor, floats(view.data()));
    }
    let losses: Vec<f64> =
        expected["losses"].as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect();
    let trained = Trainer::new(model, Loss::SparseCrossEntropy, Optimizer::adam(1e-3))
        .batch(batch)
        .steps(losses.len())
        .shuffle(false)
        .weights(weights)
        .fit(&Dataset::new(data).unwrap(), None, &mut ())
        .unwrap();
    for (step, (got, expected)) in trained.report.losses.iter().zip(&losses).enumerate() {
        let error = (f64::from(*got) - expected).abs() / expected;
        assert!(error < 1e-4, "{name}: the loss of step {step} is {got}, PyTorch's {expected}");
    }
    let finals = expected["final"].as_object().unwrap();
    assert_eq!(trained.weights.len(), finals.len());
    for (parameter, expected) in finals {
        // The gradient of a key's bias is zero but for rounding, which Adam blows up to full steps.
        if parameter.ends_with("attention/qkv/bias") {
            continue;
        }
        let values = &trained.weights[parameter].values;
        let norm = values.iter().map(|&v| f64::from(v) * f64::from(v)).sum::<f64>().sqrt();
        let l2 = expected["l2"].as_f64().unwrap();
        assert!((norm - l2).abs() <= 1e-4 * l2.max(1e-2), "{name}: |{parameter}| is {norm}, PyTorch's {l2}");
    }
}

#[test]
fn an_mlp_trains_as_in_pytorch() {
    let model = Sequential::new()
        .named("hidden", Dense::new(32).activation(Activation::Relu))
        .named("output", Dense::new(10));
    assert_trains_as_in_pytorch("mlp", model);
}

#[test]
fn a_cnn_with_batch_norm_trains_as_in_pytorch() {
    let padding = || Padding::Explicit([1, 1, 1, 1]);
    let model = Sequential::new()
        .named("conv1", Conv2d::new(8, [3, 3]).padding(padding()).no_bias())
        .named("norm1", BatchNorm::new())
        .then(Activation::Relu)
        .then(MaxPool::new([2, 2]))
        .named("conv2", Conv2d::new(16, [3, 3]).stride([2, 2]).padding(padding()).no_bias())
        .named("norm2", BatchNorm::new())
        .then(Activation::Relu)
        .then(GlobalMeanPool)
        .named("output", Dense::new(10));
    assert_trains_as_in_pytorch("cnn", model);
}

#[test]
fn a_stack_of_gpt_blocks_trains_as_in_pytorch() {
    let model =
        Gpt { layers: 2, width: 32, heads: 4, context: 16, vocab: 64, dropout: 0.0, tied_head: false };
    assert_trains_as_in_pytorch("gpt", model);
}

#[test]
fn an_lstm_trains_as_in_pytorch() {
    let model = Sequential::new()
        .named("embedding", Embedding::new(32, 16))
        .named("lstm", Lstm::new(24).sequences())
        .named("head", Dense::new(32));
    assert_trains_as_in_pytorch("lstm", model);
}

/// Optimizers step by step on six numbers, against `torch.optim` in double precision.
#[test]
fn optimizers_step_as_in_pytorch() {
    let reference = json("optimizers.json");
    let numbers = |v: &Value| -> Vec<f32> {
        v.as_array().unwrap().iter().map(|x| x.as_f64().unwrap() as f32).collect()
    };
    let cases = reference["cases"].as_object().unwrap();
    for (name, case) in cases {
        let settings = &case["settings"];
        let get = |key: &str| settings[key].as_f64().unwrap_or(0.0);
        let rate = settings["lr"].as_f64().unwrap();
        let optimizer = match name.as_str() {
            n if n.starts_with("sgd") => {
                Optimizer::momentum(rate, get("momentum"), settings["nesterov"].as_bool().unwrap_or(false))
            }
            n if n.starts_with("rmsprop") => Optimizer::rmsprop_with(rate, 0.99, 1e-8, get("momentum")),
            n if n.starts_with("adagrad") => Optimizer::adagrad(rate),
            n if n.starts_with("adamw") => Optimizer::adamw(rate),
            _ => Optimizer::adam(rate),
        };
        let optimizer = if settings["weight_decay"].is_null() {
            optimizer
        } else {
            optimizer.weight_decay(get("weight_decay"))
        };
        let eager = Eager::new().unwrap();
        let cx = eager.context(true);
        cx.parameter("x", &[6], plimsoll::Init::Zeros).unwrap();
        eager.set("x", &numbers(&reference["initial"])).unwrap();
        let path = case["parameters"].as_array().unwrap();
        for (step, (gradient, expected)) in
            reference["gradients"].as_array().unwrap().iter().zip(path).enumerate()
        {
            let gradient = eager.tensor(&[6], &numbers(gradient)).unwrap();
            eager.apply_gradients(&optimizer, &[("x", &gradient)]).unwrap();
            let got = eager.parameters()["x"].to_vec().unwrap();
            for (got, expected) in got.iter().zip(numbers(expected)) {
                let close = (got - expected).abs() <= 2e-6 * expected.abs().max(1.0);
                assert!(close, "{name}, step {step}: {got}, PyTorch's {expected}");
            }
        }
    }
    assert_eq!(cases.len(), 11);
}

#[test]
fn clipping_by_global_norm_scales_all_gradients_alike() {
    let eager = Eager::new().unwrap();
    let cx = eager.context(true);
    for name in ["a", "b"] {
        cx.parameter(name, &[2], plimsoll::Init::Zeros).unwrap();
    }
    let (a, b) = (eager.tensor(&[2], &[3.0, 0.0]).unwrap(), eager.tensor(&[2], &[0.0, 4.0]).unwrap());
    let optimizer = Optimizer::sgd(1.0).clip(Clip::GlobalNorm(1.0));
    eager.apply_gradients(&optimizer, &[("a", &a), ("b", &b)]).unwrap();
    let parameters = eager.parameters();
    let near =
        |got: Vec<f32>, expected: [f32; 2]| got.iter().zip(expected).all(|(g, e)| (g - e).abs() < 1e-5);
    assert!(near(parameters["a"].to_vec().unwrap(), [-0.6, 0.0]));
    assert!(near(parameters["b"].to_vec().unwrap(), [0.0, -0.8]));
}
