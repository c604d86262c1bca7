//! Training in `f16` with a scaled loss: as in PyTorch, near training in `f32`, and the same in parts and budgets.

use plimsoll::data::{Columns, Dataset, Synthetic};
use plimsoll::layers::*;
use plimsoll::loss::Loss;
use plimsoll::models::Gpt;
use plimsoll::{
    Array, Context, DType, ErrorKind, Init, Input, LossScale, Op, Optimizer, Precision, RemedyKind, Run,
    Tensor, Trained, Trainer,
};
use plimsoll_graph::Node;
use plimsoll_graph::op::Unary;
use plimsoll_graph::random::philox;
use plimsoll_graph::scaling::SCALE;
use serde_json::Value;
use std::collections::BTreeMap;

fn numbers(values: &Value) -> Vec<f32> {
    values.as_array().unwrap().iter().map(|x| x.as_f64().unwrap() as f32).collect()
}

/// The reference is made by `tests/reference/generate.py`.
#[test]
fn scales_and_parameters_follow_a_grad_scaler_of_pytorch() {
    let reference: Value = serde_json::from_str(include_str!("reference/scaler.json")).unwrap();
    let adam = Optimizer::adam(1e-3);
    let mut run = Run::builder()
        .step("train", [Input::new("gradient", &[6], DType::F32).exact()], move |cx, inputs| {
            let parameter = cx.master_parameter("x", &[6], Init::Zeros)?;
            cx.minimise(&parameter.mul(inputs.get("gradient")?)?.sum(&[0])?, &adam)
        })
        .precision(Precision::F16)
        .threads(1)
        .compile()
        .unwrap();
    run.set_state("x", &Array::new(&[6], &numbers(&reference["initial"])).unwrap()).unwrap();

    let gradients: Vec<Vec<f32>> = reference["gradients"].as_array().unwrap().iter().map(numbers).collect();
    let list = |key: &str| numbers(&reference[key]).into_iter().map(|v| v as usize).collect::<Vec<_>>();
    let (overflows, seen) = (list("overflows"), list("seen"));
    let overflow = reference["overflow"].as_f64().unwrap() as f32;
    let (mut scales, mut paths, mut last) = (vec![], vec![], 32_768.0);
    for step in 0..reference["steps"].as_u64().unwrap() as usize {
        let factor = if overflows.contains(&step) { overflow } else { 1.0 };
        let gradient: Vec<f32> = gradients[step % gradients.len()].iter().map(|v| v * factor).collect();
        run.step("train", &[("gradient", &Array::new(&[6], &gradient).unwrap())]).unwrap();
        let scale: f32 = run.state(SCALE).unwrap().item().unwrap();
        if scale != last {
            scales.push(vec![step as f32, scale]);
            last = scale;
        }
        if seen.contains(&step) {
            paths.push((step, run.state("x").unwrap().to_vec::<f32>().unwrap()));
        }
    }
    let expected: Vec<Vec<f32>> = reference["scales"].as_array().unwrap().iter().map(numbers).collect();
    assert_eq!(scales, expected);
    let expected = reference["parameters"].as_array().unwrap();
    assert_eq!(paths.len(), expected.len());
    for ((step, got), expected) in paths.iter().zip(expected) {
        for (got, expected) in got.iter().zip(numbers(expected)) {
            // A rounding of the parameters, about one, in each of up to 4,070 updates.
            let close = (got - expected).abs() <= 6e-8 * (*step as f32 + 1.0);
            assert!(close, "step {step}: {got}, PyTorch's {expected}");
        }
    }
}

fn uniform(i: usize) -> f32 {
    philox([i as u32, 0, 0, 0], [7, 9])[0] as f32 / 2f32.powi(31) - 1.0
}

/// How small the targets are. The gradients of predictions are then about its square over the batch.
const SMALL: f32 = 1.0 / 4096.0;

/// Samples of a smooth function, times [`SMALL`].
fn small_targets() -> Dataset {
    let x: Vec<f32> = (0..256 * 3).map(uniform).collect();
    let target = |x: &[f32]| SMALL * (x[0] - 0.5 * x[1] + x[0] * x[2]);
    let y = x.chunks_exact(3).map(target).collect::<Vec<f32>>();
    Dataset::new(Columns::new().column("x", &[3], x).unwrap().column("y", &[1], y).unwrap()).unwrap()
}

/// A perceptron whose predictions are made small in `f32`.
fn small_predictions() -> impl Layer + 'static {
    model(|cx: &Context, x: &Tensor| {
        let hidden = cx.layer("hidden", Dense::new(32).activation(Activation::Tanh), x)?;
        let y = cx.layer("output", Dense::new(1), &hidden)?.cast(DType::F32)?;
        y.mul(&cx.constant(SMALL.into(), &[], DType::F32)?)
    })
}

fn last_loss(trained: &Trained) -> f64 {
    trained.report.final_metrics["loss"]
}

#[test]
fn gradients_that_vanish_in_f16_train_with_a_scaled_loss() {
    let data = small_targets();
    let optimizer = Optimizer::adam_with(1e-2, 0.9, 0.999, 1e-12);
    let trainer = Trainer::new(small_predictions(), Loss::Mse, optimizer).batch(64).steps(300).seed(3);
    let fit = |trainer: &Trainer| trainer.fit(&data, Some(&data), &mut ()).unwrap();
    let single = fit(&trainer);
    let half = trainer.precision(Precision::F16);
    let scaled = fit(&half);
    // A scale of one, which 300 steps do not change.
    let unscaled = fit(&half.weights(BTreeMap::from([(SCALE.to_string(), vec![1.0])])));

    let first = f64::from(single.report.losses[0]);
    assert!(last_loss(&single) < 0.02 * first, "{first} to {}", last_loss(&single));
    let ratio = last_loss(&scaled) / last_loss(&single);
    assert!((0.7..1.4).contains(&ratio), "{} in f16, {} in f32", last_loss(&scaled), last_loss(&single));
    assert!(last_loss(&unscaled) > 0.5 * first, "{first} to {}", last_loss(&unscaled));
    assert_eq!(scaled.report.loss_scale, Some(LossScale { last: 32_768.0, skipped_steps: 0 }));
    let json = scaled.report.to_json();
    assert_eq!(json["loss_scale"]["last"], 32_768.0);
    assert_eq!(json["loss_scale"]["skipped_steps"], 0);
    assert!(scaled.weights.keys().all(|name| !name.contains(':')), "only parameters are saved");
}

/// Targets of which every 40th is far away: its gradient overflows until the scale is small.
fn far_targets() -> Dataset {
    let x: Vec<f32> = (0..200 * 3).map(uniform).collect();
    let y = (0..200).map(|i| if i % 40 == 39 { 3000.0 } else { uniform(1000 + i) }).collect::<Vec<f32>>();
    Dataset::new(Columns::new().column("x", &[3], x).unwrap().column("y", &[1], y).unwrap()).unwrap()
}

#[test]
fn steps_that_overflow_are_skipped_alike_at_once_and_in_parts() {
    let data = far_targets();
    let network = Sequential::new().then(Dense::new(8).activation(Activation::Tanh)).then(Dense::new(1));
    let optimizer = Optimizer::adam(1e-3);
    let trainer = Trainer::new(network, Loss::Mse, optimizer).batch(20).steps(20).shuffle(false).seed(5);
    let trainer = trainer.precision(Precision::F16);
    let fit = |trainer: &Trainer| trainer.fit(&data, None, &mut ()).unwrap();
    let whole = fit(&trainer);
    // 2 · 3000 / 20 times a scale of 2¹⁵ overflows, as it does of 2¹⁴ to 2⁸; every second batch has one.
    let scale = whole.report.loss_scale.unwrap();
    assert_eq!(scale, LossScale { last: 128.0, skipped_steps: 8 });
    for parts in [3, 20] {
        let split = fit(&trainer.clone().micro_batches(parts));
        assert_eq!(split.report.loss_scale, Some(scale));
        for (step, (a, b)) in whole.report.losses.iter().zip(&split.report.losses).enumerate() {
            assert!((a - b).abs() <= 2e-3 * a.abs(), "loss {a} and {b} in step {step} of {parts} parts");
        }
        for (name, weight) in &whole.weights {
            for (a, b) in weight.values.iter().zip(&split.weights[name].values) {
                assert!((a - b).abs() < 2e-3, "{name}: {a} and {b} in {parts} parts");
            }
        }
    }
}

#[test]
fn budgets_change_no_bit_of_a_scaled_run() {
    let data = Synthetic::new(48, 4).tokens("token", "next", 64, 600).unwrap();
    let data = Dataset::new(data).unwrap();
    let gpt = Gpt { layers: 1, width: 32, heads: 4, context: 64, vocab: 600, dropout: 0.1, tied_head: true };
    let trainer = Trainer::new(gpt, Loss::SparseCrossEntropy, Optimizer::adam(1e-3)).batch(16).steps(20);
    // A first scale that is too large, so that the first steps are skipped.
    let first = BTreeMap::from([(SCALE.to_string(), vec![2f32.powi(26)])]);
    let trainer = trainer.precision(Precision::F16).seed(7).exact(true).weights(first);
    let fit = |trainer: &Trainer| trainer.fit(&data, Some(&data), &mut ()).unwrap();
    let free = fit(&trainer);
    let tight = fit(&trainer.clone().budget(trainer.frontier(&data, None).unwrap().floor_bytes));
    assert!(tight.report.arena_bytes < free.report.arena_bytes);
    let remedies: Vec<RemedyKind> = tight.report.remedies.iter().map(|remedy| remedy.kind).collect();
    assert!(remedies.contains(&RemedyKind::ChunkedLoss), "{remedies:?}");
    let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&free.report.losses), bits(&tight.report.losses));
    assert_eq!(free.weights, tight.weights);
    assert_eq!(free.report.loss_scale, tight.report.loss_scale);
    let skipped = free.report.loss_scale.unwrap().skipped_steps;
    assert!((1..10).contains(&skipped), "{skipped} steps were skipped");
}

#[test]
fn a_loss_that_is_not_finite_is_an_error_in_f16_as_well() {
    let y = vec![1e30f32; 8];
    let x = Columns::new().column("x", &[1], vec![1.0f32; 8]).unwrap();
    let data = Dataset::new(x.column("y", &[1], y).unwrap()).unwrap();
    let trainer = Trainer::new(Dense::new(1), Loss::Mse, Optimizer::sgd(0.1)).batch(8).steps(2);
    let error = trainer.precision(Precision::F16).fit(&data, None, &mut ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Diverged);
}

#[test]
fn only_f16_scales_its_loss() {
    let data = far_targets();
    for precision in [Precision::F32, Precision::Bf16, Precision::F16] {
        let optimizer = Optimizer::momentum(1e-3, 0.9, false);
        let trainer = Trainer::new(Dense::new(1), Loss::Mse, optimizer).precision(precision);
        let step = trainer.step(&data).unwrap();
        let names: Vec<&str> = step.states.iter().map(|state| &*state.name).collect();
        // Others look at their loss alone.
        let looks = |node: &&Node| {
            node.op == Op::Unary(Unary::IsFinite) && step.graph.shape(node.operands[0]).rank() > 0
        };
        let checks = step.graph.nodes().iter().any(|node| looks(&node));
        let trained = trainer.steps(1).fit(&data, None, &mut ()).unwrap();
        let scales = precision == Precision::F16;
        assert_eq!(checks, scales, "{precision}");
        assert_eq!(trained.report.loss_scale.is_some(), scales, "{precision}");
        let scaling: &[&str] =
            if scales { &["loss:scale", "loss:good_steps", "loss:skipped_steps"] } else { &[] };
        let slots = ["optimizer:updates", "optimizer:rate", "weight:momentum", "bias:momentum"];
        assert_eq!(names, [&["weight", "bias"], scaling, &slots].concat(), "{precision}");
    }
}
