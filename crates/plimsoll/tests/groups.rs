//! Groups of parameters within one optimizer, and parameters that are frozen.
//!
//! The reference of groups is made by `tests/reference/groups.py`, in `f64`.

use plimsoll::data::{Columns, Dataset, Source, digits};
use plimsoll::layers::{Activation, BatchNorm, Dense, Sequential, model};
use plimsoll::loss::Loss;
use plimsoll::memory::Category;
use plimsoll::{
    Array, Clip, Context, DType, Group, Init, Input, Optimizer, Result, Run, RunBuilder, Schedule, Spec,
    StateInfo, Tensor, Trainer, loss,
};
use serde_json::Value;
use std::path::Path;

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
}

fn array(value: &Value) -> Array {
    let shape: Vec<usize> = numbers(&value["shape"]).into_iter().map(|x| x as usize).collect();
    let values: Vec<f32> = numbers(&value["values"]).into_iter().map(|x| x as f32).collect();
    Array::new(&shape, &values).unwrap()
}

fn two_layers(cx: &Context, x: &Tensor) -> Result<Tensor> {
    let hidden = cx.layer("first", Dense::new(10).activation(Activation::Tanh), x)?;
    cx.layer("second", Dense::new(3), &hidden)
}

/// A step that trains two layers.
fn run_of(optimizer: Optimizer) -> RunBuilder {
    let inputs = [Input::new("x", &[8, 6], DType::F32), Input::new("y", &[8, 3], DType::F32)];
    Run::builder().threads(2).step("train", inputs, move |cx, inputs| {
        let [x, y] = inputs.all()?;
        let loss = loss::mse(&two_layers(cx, x)?, y)?;
        cx.minimise(&loss, &optimizer)?;
        Ok([("loss", loss)])
    })
}

#[test]
fn groups_with_rates_decay_and_clips_of_their_own_follow_pytorchs() {
    let all: Value = serde_json::from_str(include_str!("reference/groups.json")).unwrap();
    let optimizers = [
        ("adamw", Optimizer::adamw(1e-3), 5e-3),
        ("sgd", Optimizer::momentum(0.05, 0.9, true), 0.2),
        ("rmsprop", Optimizer::rmsprop(1e-3), 5e-3),
    ];
    for (name, optimizer, own_rate) in optimizers {
        let own = Group::of(["second"]).rate(Schedule::cosine(own_rate, 30).warmup(4));
        let optimizer = optimizer
            .weight_decay(0.1)
            .clip(Clip::GlobalNorm(0.1))
            .group(Group::of(["*/bias"]).weight_decay(0.0).rate_scale(2.0))
            .group(own.clip(Clip::GlobalNorm(0.05)));
        let case = &all[name];
        let mut run = run_of(optimizer).compile().unwrap();
        for (name, value) in case["initial"].as_object().unwrap() {
            run.set_state(name, &array(value)).unwrap();
        }
        let (x, y) = (array(&case["inputs"]["x"]), array(&case["inputs"]["y"]));
        let close = |what: &str, got: f32, expected: f64| {
            let apart = (f64::from(got) - expected).abs() / expected.abs().max(1.0);
            assert!(apart <= 1e-6, "{name}, {what}: {got}, PyTorch's {expected}");
        };
        for (step, expected) in numbers(&case["losses"]).into_iter().enumerate() {
            let outputs = run.step("train", &[("x", &x), ("y", &y)]).unwrap();
            close(&format!("loss {step}"), outputs["loss"].item().unwrap(), expected);
        }
        for (name, expected) in case["final"].as_object().unwrap() {
            let got: Vec<f32> = run.state(name).unwrap().to_vec().unwrap();
            for (got, expected) in got.into_iter().zip(numbers(&expected["values"])) {
                close(name, got, expected);
            }
        }
        let clocks = run.states().iter().filter(|state| state.name.ends_with(":updates")).count();
        assert_eq!(clocks, 1, "groups share one clock");
    }
}

#[test]
fn the_first_group_that_matches_counts() {
    let rates = Optimizer::sgd(0.0).group(Group::of(["a"]).rate(0.5)).group(Group::of(["*"]).rate(0.25));
    let mut run = Run::builder()
        .step("train", [], move |cx, _| {
            let [a, b] = ["a", "b"].map(|name| cx.parameter(name, &[], Init::Ones));
            cx.minimise(&a?.add(&b?)?, &rates)
        })
        .compile()
        .unwrap();
    run.step("train", &[]).unwrap();
    assert_eq!(["a", "b"].map(|name| run.state(name).unwrap().item::<f32>().unwrap()), [0.5, 0.75]);
}

#[test]
fn a_pattern_that_matches_nothing_is_refused_with_what_could_have_been_meant() {
    let adam = || Optimizer::adam(1e-3);
    let group = |pattern: &str| adam().group(Group::of([pattern]).weight_decay(0.0));
    let cases = [
        (run_of(group("*/bais")), ["`*/bais`", "a group of the optimizer `optimizer` (Adam)", "`*/bias`?"]),
        (run_of(group("secnod")), ["`secnod`", "a group", "did you mean `second`?"]),
        (run_of(adam()).freeze(["first/wieght"]), ["`first/wieght`", "what is frozen", "`first/weight`?"]),
        (run_of(adam()).freeze(["*/norm*"]), ["`*/norm*`", "matches no parameter", "there are `first/bias`"]),
        (run_of(adam()).train_only(["second", "heads"]), ["`heads`", "what is trained", "first/bias"]),
    ];
    for (run, parts) in cases {
        let message = run.compile().map(|_| ()).unwrap_err().to_string();
        for part in parts {
            assert!(message.contains(part), "{part}: {message}");
        }
    }
}

#[test]
fn constants_of_a_group_that_are_not_usable_are_refused_with_its_names() {
    for (group, part) in [
        (Group::of(["*/bias"]).rate(f64::NAN), "NaN"),
        (Group::of(["*/bias"]).rate_scale(-1.0), "-1"),
        (Group::of(["*/bias"]).weight_decay(f64::INFINITY), "inf"),
        (Group::of(["*/bias"]).clip(Clip::Value(0.0)), "clipped at 0"),
    ] {
        let message =
            run_of(Optimizer::adam(1e-3).group(group)).compile().map(|_| ()).unwrap_err().to_string();
        assert!(message.contains("`*/bias`") && message.contains(part), "{part}: {message}");
    }
}

/// Digits, those below 5 or the others, as classes 0 to 4.
fn half_of_digits(upper: bool) -> Dataset {
    let source = digits();
    let (mut features, mut labels) = (vec![], vec![]);
    let (mut pixels, mut label) = ([0; 4 * 64], [0; 4]);
    for sample in 0..source.samples() {
        source.read(sample, 0, &mut pixels).unwrap();
        source.read(sample, 1, &mut label).unwrap();
        let label = i32::from_ne_bytes(label);
        if (label >= 5) == upper {
            features.extend(pixels.as_chunks().0.iter().map(|&bytes| f32::from_ne_bytes(bytes)));
            labels.push(label % 5);
        }
    }
    let columns = Columns::new().column("features", &[64], features).unwrap();
    Dataset::new(columns.column("label", &[], labels).unwrap()).unwrap()
}

/// A body with a batch norm, and a head.
fn trainer() -> Trainer {
    let network = model(|cx, x| {
        let body = Sequential::new()
            .then(Dense::new(64).activation(Activation::Relu))
            .then(BatchNorm::new())
            .then(Dense::new(32).activation(Activation::Relu));
        let hidden = cx.layer("body", body, x)?;
        cx.layer("head", Dense::new(5), &hidden)
    });
    Trainer::new(network, Loss::SparseCrossEntropy, Optimizer::adamw(3e-3)).batch(64).epochs(4)
}

#[test]
fn a_frozen_body_keeps_every_byte_while_its_head_learns_other_classes() {
    let (lower, upper) = (half_of_digits(false), half_of_digits(true));
    let mut first = trainer().compile(&lower, None).unwrap();
    first.fit(&mut ()).unwrap();
    let mut second = trainer().freeze(["body"]).epochs(40).compile(&upper, Some(&upper)).unwrap();

    let (all, frozen) = (first.forecast(), second.forecast());
    assert_eq!(frozen.trainable_parameters, 32 * 5 + 5);
    let gradients = |trainer: Trainer| trainer.step(&upper).unwrap().gradients.len();
    assert_eq!([gradients(trainer()), gradients(trainer().freeze(["body"]))], [8, 2]);
    for category in [Category::Optimizer, Category::Activations] {
        let [all, frozen] = [&all, &frozen].map(|forecast| forecast.ledger.get(category));
        assert!(frozen < all, "{category:?}: {frozen} of {all} bytes");
    }
    let of_head = |state: &StateInfo| state.name.starts_with("head/") || state.name.starts_with("optimizer:");
    let states = second.run().states();
    assert!(states.iter().all(|state| of_head(state) || (state.of_model && !state.trainable)), "{states:?}");
    assert_eq!(states.iter().filter(|state| state.trainable).count(), 2);

    let taken = second.run().take_states_from(first.run()).unwrap();
    assert_eq!(taken.taken.len(), states.len(), "{taken:?}");
    assert!(taken.not_there.is_empty() && taken.of_other_type.is_empty(), "{taken:?}");
    let before = second.weights().unwrap();
    let report = second.fit(&mut ()).unwrap();
    for (name, weight) in second.weights().unwrap() {
        let same = weight.values == before[&name].values;
        assert_eq!(same, name.starts_with("body/"), "{name}");
    }
    assert!(report.final_metrics["accuracy"] > 0.8, "{:?}", report.final_metrics);
    assert_eq!(report.predicted_peak_bytes, report.arena_bytes);

    // Unfrozen, with the states of both: the slots of the body are those of the first run where this one has none.
    let mut third = trainer().compile(&upper, None).unwrap();
    let taken = third.run().take_states_from(second.run()).unwrap();
    assert!(taken.not_there.iter().all(|name| name.starts_with("body/") && name.contains(':')), "{taken:?}");
    assert_eq!(third.weights().unwrap(), second.weights().unwrap());
    third.fit(&mut ()).unwrap();
    let (before, after) = (second.weights().unwrap(), third.weights().unwrap());
    assert!(after.iter().all(|(name, weight)| weight.values != before[name].values));
}

#[test]
fn training_only_the_head_is_freezing_all_else_whatever_else_is_frozen() {
    let data = half_of_digits(true);
    let frozen = trainer().freeze(["body"]).fit(&data, None, &mut ()).unwrap();
    for other in [trainer().train_only(["head"]), trainer().freeze(["*"]).train_only(["head"])] {
        let other = other.fit(&data, None, &mut ()).unwrap();
        assert_eq!(
            (other.report.losses, other.weights),
            (frozen.report.losses.clone(), frozen.weights.clone())
        );
    }
}

#[test]
fn a_window_of_micro_batches_keeps_what_is_frozen_too() {
    let data = half_of_digits(true);
    let mut training = trainer().freeze(["body"]).micro_batches(4).compile(&data, None).unwrap();
    let sums = training.run().states().into_iter().filter(|state| state.name.ends_with(":gradient"));
    assert_eq!(
        sums.map(|state| state.name).collect::<Vec<_>>(),
        ["head/weight:gradient", "head/bias:gradient"]
    );
    let before = training.weights().unwrap();
    training.fit(&mut ()).unwrap();
    for (name, weight) in training.weights().unwrap() {
        assert_eq!(weight.values == before[&name].values, name.starts_with("body/"), "{name}");
    }
}

#[test]
fn freezing_everything_is_refused() {
    let error = trainer().freeze(["*"]).forecast(&half_of_digits(true), None).unwrap_err().to_string();
    assert!(error.contains("frozen"), "{error}");
}

const WORKLOAD: &str = r#"
loss = "sparse_cross_entropy"
[data]
kind = "digits"
[model]
kind = "sequential"
layers = ["flatten", { dense = 16, activation = "relu", name = "body" }, { dense = 10, name = "head" }]
[optimizer]
kind = "adamw"
rate = 0.001
[[optimizer.groups]]
match = ["*/bias"]
weight_decay = 0
[[optimizer.groups]]
match = ["head"]
rate = 0.01
schedule = { cosine = 100 }
clip = { norm = 1.0 }
[train]
batch = 32
steps = 3
"#;

#[test]
fn a_workload_has_groups_and_frozen_parameters() {
    let trainer = |text: &str| {
        Spec::parse(text, Path::new("w.toml")).map(|spec| (spec.trainer(), spec.datasets().unwrap().0))
    };
    let (described, data) = trainer(WORKLOAD).unwrap();
    let groups = Optimizer::adamw(1e-3)
        .group(Group::of(["*/bias"]).weight_decay(0.0))
        .group(Group::of(["head"]).rate(Schedule::cosine(1e-2, 100)).clip(Clip::GlobalNorm(1.0)));
    let written = described.clone().optimizer(groups).fit(&data, None, &mut ()).unwrap();
    assert_eq!(described.fit(&data, None, &mut ()).unwrap().weights, written.weights);

    let frozen = "[[optimizer.groups]]\nmatch = [\"body\"]\nfrozen = true\n[train]";
    let ways = [
        WORKLOAD.replace("[train]", "[train]\nfreeze = [\"body\"]"),
        WORKLOAD.replace("[train]", "[train]\ntrain_only = [\"head\"]"),
        WORKLOAD.replace("[train]", frozen),
    ];
    for text in ways {
        let (trainer, data) = trainer(&text).unwrap();
        assert_eq!(trainer.forecast(&data, None).unwrap().trainable_parameters, 170, "{text}");
    }
    for (from, to, part) in [
        ("match = [\"*/bias\"]", "", "has no `match`"),
        ("match = [\"*/bias\"]", "match = []", "such as"),
        ("weight_decay = 0", "weight_decay = 0\nwarmup = 5", "its own `rate`"),
        ("weight_decay = 0", "weight_decay = 0\nfrozen = true", "unknown key `weight_decay`"),
        ("weight_decay = 0", "decay = 0", "unknown key `decay`"),
        ("[train]", "[train]\nfreeze = \"body\"", "expected a list"),
    ] {
        let message = trainer(&WORKLOAD.replacen(from, to, 1)).map(|_| ()).unwrap_err().to_string();
        assert!(message.contains(part), "{part}: {message}");
    }
}
