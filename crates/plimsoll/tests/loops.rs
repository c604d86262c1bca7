//! Training loops of a person's own making, eager and compiled, follow PyTorch's.
//!
//! The reference is made by `tests/reference/loops.py`, in `f64`.

use plimsoll::layers::{Activation, Dense, Dropout};
use plimsoll::{Array, Context, DType, Eager, Input, Optimizer, Result, Run, RunBuilder, Tensor, loss};
use serde_json::Value;
use std::collections::BTreeMap;

const STEPS: usize = 20;
/// How far any number may be from PyTorch's, relative to its size or to one.
const TOLERANCE: f64 = 1e-5;

/// A case of the reference.
struct Case {
    seed: u64,
    initial: BTreeMap<String, Array>,
    inputs: BTreeMap<String, Array>,
    losses: Vec<f64>,
    r#final: BTreeMap<String, Vec<f64>>,
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
}

impl Case {
    fn read(name: &str) -> Case {
        let all: Value = serde_json::from_str(include_str!("reference/loops.json")).unwrap();
        let case = &all[name];
        let arrays = |value: &Value| {
            let arrays = value.as_object().unwrap().iter().map(|(name, of)| {
                let shape: Vec<usize> = numbers(&of["shape"]).into_iter().map(|x| x as usize).collect();
                let values: Vec<f32> = numbers(&of["values"]).into_iter().map(|x| x as f32).collect();
                (name.clone(), Array::new(&shape, &values).unwrap())
            });
            arrays.collect::<BTreeMap<String, Array>>()
        };
        let ends = case["final"].as_object().unwrap();
        Case {
            seed: all["seed"].as_u64().unwrap(),
            initial: arrays(&case["initial"]),
            inputs: arrays(&case["inputs"]),
            losses: numbers(&case["losses"]),
            r#final: ends.iter().map(|(name, of)| (name.clone(), numbers(&of["values"]))).collect(),
        }
    }

    /// Compares losses and parameters with PyTorch's.
    fn check(&self, losses: &[f32], mut parameter: impl FnMut(&str) -> Vec<f32>) {
        let close = |what: &str, got: f32, expected: f64| {
            let apart = (f64::from(got) - expected).abs() / expected.abs().max(1.0);
            assert!(apart <= TOLERANCE, "{what}: {got}, PyTorch's {expected}");
        };
        assert_eq!(losses.len(), self.losses.len());
        for (step, (&got, &expected)) in losses.iter().zip(&self.losses).enumerate() {
            close(&format!("loss {step}"), got, expected);
        }
        for (name, expected) in &self.r#final {
            for (got, &expected) in parameter(name).into_iter().zip(expected) {
                close(name, got, expected);
            }
        }
    }

    fn check_run(&self, losses: &[f32], run: &mut Run) {
        self.check(losses, |name| run.state(name).unwrap().to_vec().unwrap());
    }

    fn check_eager(&self, losses: &[f32], eager: &Eager) {
        let parameters = eager.parameters();
        self.check(losses, |name| parameters[name].to_vec().unwrap());
    }

    /// A run from the first weights of the case.
    fn compiled(&self, run: RunBuilder) -> Run {
        let mut run = run.seed(self.seed).threads(2).compile().unwrap();
        for (name, value) in &self.initial {
            run.set_state(name, value).unwrap();
        }
        run
    }

    fn input(&self, name: &str) -> Input {
        Input::new(name, self.inputs[name].shape(), DType::F32)
    }

    /// Eager mode, with its first weights once `forward` has asked for them.
    fn eager(&self, forward: impl Fn(&Context, &Eager) -> Result<()>) -> Eager {
        let eager = Eager::builder().seed(self.seed).threads(2).build().unwrap();
        forward(&eager.context(false), &eager).unwrap();
        for (name, value) in &self.initial {
            eager.set(name, &value.to_vec::<f32>().unwrap()).unwrap();
        }
        eager
    }

    fn tensor(&self, eager: &Eager, name: &str) -> Tensor {
        eager.array(&self.inputs[name]).unwrap()
    }
}

/// Updates those of the parameters that an optimizer trains by their gradients.
fn update(eager: &Eager, optimizer: &Optimizer, gradients: &BTreeMap<String, Tensor>) {
    let own = gradients.iter().filter(|(name, _)| optimizer.trains(name));
    let named: Vec<(&str, &Tensor)> = own.map(|(name, gradient)| (name.as_str(), gradient)).collect();
    eager.apply_gradients(optimizer, &named).unwrap();
}

/// The loss, and the gradients of all parameters by name.
fn differentiated(eager: &Eager, loss: impl FnOnce() -> Tensor) -> (f32, BTreeMap<String, Tensor>) {
    let mut tape = eager.tape();
    let loss = loss();
    let parameters = eager.parameters();
    let gradients = tape.gradient(&loss, &parameters.values().collect::<Vec<_>>()).unwrap();
    (loss.to_vec().unwrap()[0], parameters.into_keys().zip(gradients).collect())
}

fn two_layers(cx: &Context, x: &Tensor, rate: f64) -> Result<Tensor> {
    let hidden = cx.layer("first", Dense::new(10).activation(Activation::Tanh), x)?;
    let hidden = cx.layer("dropout", Dropout(rate), &hidden)?;
    cx.layer("second", Dense::new(3), &hidden)
}

fn two_adams() -> [Optimizer; 2] {
    [Optimizer::adam(1e-2).only(["first"]), Optimizer::adam_with(3e-3, 0.8, 0.99, 1e-8).only(["second"])]
}

#[test]
fn two_adams_in_eager_mode_have_slots_and_clocks_of_their_own() {
    let case = Case::read("two_adams");
    let eager = case.eager(|cx, eager| two_layers(cx, &case.tensor(eager, "x"), 0.0).map(|_| ()));
    let (x, y) = (case.tensor(&eager, "x"), case.tensor(&eager, "y"));
    let adams = two_adams();
    let mut losses = vec![];
    for _ in 0..STEPS {
        let forward = || loss::mse(&two_layers(&eager.context(true), &x, 0.0).unwrap(), &y).unwrap();
        let (loss, gradients) = differentiated(&eager, forward);
        adams.iter().for_each(|adam| update(&eager, adam, &gradients));
        losses.push(loss);
    }
    case.check_eager(&losses, &eager);
}

#[test]
fn two_adams_in_one_compiled_step_have_slots_and_clocks_of_their_own() {
    let case = Case::read("two_adams");
    let adams = two_adams();
    let mut run =
        case.compiled(Run::builder().step("train", [case.input("x"), case.input("y")], move |cx, inputs| {
            let [x, y] = inputs.all()?;
            let loss = loss::mse(&two_layers(cx, x, 0.0)?, y)?;
            adams.iter().try_for_each(|adam| cx.minimise(&loss, adam))?;
            Ok([("loss", loss)])
        }));
    let mut losses = vec![];
    for _ in 0..STEPS {
        let out = run.step("train", &[("x", &case.inputs["x"]), ("y", &case.inputs["y"])]).unwrap();
        losses.push(out["loss"].item().unwrap());
    }
    case.check_run(&losses, &mut run);
}

fn momentum_and_adam() -> [Optimizer; 2] {
    [Optimizer::momentum(0.05, 0.9, false).only(["first"]), Optimizer::adam(1e-2).only(["second"])]
}

#[test]
fn an_adam_that_joins_later_begins_its_count_then_in_eager_mode() {
    let case = Case::read("momentum_and_adam");
    let eager = case.eager(|cx, eager| two_layers(cx, &case.tensor(eager, "x"), 0.0).map(|_| ()));
    let (x, y) = (case.tensor(&eager, "x"), case.tensor(&eager, "y"));
    let [momentum, adam] = momentum_and_adam();
    let mut losses = vec![];
    for step in 0..STEPS {
        let forward = || loss::mse(&two_layers(&eager.context(true), &x, 0.0).unwrap(), &y).unwrap();
        let (loss, gradients) = differentiated(&eager, forward);
        update(&eager, &momentum, &gradients);
        if step >= 10 {
            update(&eager, &adam, &gradients);
        }
        losses.push(loss);
    }
    case.check_eager(&losses, &eager);
}

#[test]
fn an_adam_that_joins_later_begins_its_count_then_in_compiled_steps() {
    let case = Case::read("momentum_and_adam");
    let [momentum, adam] = momentum_and_adam();
    let step = |optimizers: Vec<Optimizer>| {
        move |cx: &Context, inputs: &plimsoll::Inputs| {
            let [x, y] = inputs.all()?;
            let loss = loss::mse(&two_layers(cx, x, 0.0)?, y)?;
            optimizers.iter().try_for_each(|optimizer| cx.minimise(&loss, optimizer))?;
            Ok([("loss", loss)])
        }
    };
    let mut run =
        case.compiled(
            Run::builder()
                .step("early", [case.input("x"), case.input("y")], step(vec![momentum.clone()]))
                .step("late", [case.input("x"), case.input("y")], step(vec![momentum, adam])),
        );
    let mut losses = vec![];
    for number in 0..STEPS {
        let name = if number < 10 { "early" } else { "late" };
        let out = run.step(name, &[("x", &case.inputs["x"]), ("y", &case.inputs["y"])]).unwrap();
        losses.push(out["loss"].item().unwrap());
    }
    case.check_run(&losses, &mut run);
}

#[test]
fn gradients_that_are_accumulated_by_hand_draw_other_masks_in_each_pass() {
    let case = Case::read("accumulation_eager");
    let eager = case.eager(|cx, eager| two_layers(cx, &case.tensor(eager, "x"), 0.25).map(|_| ()));
    let (x, y) = (case.tensor(&eager, "x"), case.tensor(&eager, "y"));
    let adam = Optimizer::adam(1e-2);
    let mut losses = vec![];
    for _ in 0..STEPS {
        let mut sums: BTreeMap<String, Tensor> = BTreeMap::new();
        for half in 0..2 {
            let rows = |t: &Tensor| t.slice(0, 4 * half..4 * half + 4).unwrap();
            let forward =
                || loss::mse(&two_layers(&eager.context(true), &rows(&x), 0.25).unwrap(), &rows(&y)).unwrap();
            let (loss, gradients) = differentiated(&eager, forward);
            for (name, gradient) in gradients {
                let part = gradient.mul_scalar(0.5).unwrap();
                let sum = match sums.get(&name) {
                    Some(sum) => sum.add(&part).unwrap(),
                    None => part,
                };
                sums.insert(name, sum);
            }
            losses.push(loss);
        }
        update(&eager, &adam, &sums);
    }
    case.check_eager(&losses, &eager);
}

#[test]
fn losses_of_one_optimizer_add_their_gradients_in_a_compiled_step() {
    let case = Case::read("accumulation_compiled");
    let adam = Optimizer::adam(1e-2);
    let mut run =
        case.compiled(Run::builder().step("train", [case.input("x"), case.input("y")], move |cx, inputs| {
            let [x, y] = inputs.all()?;
            let mut losses = vec![];
            for half in 0..2 {
                let rows = 4 * half..4 * half + 4;
                let loss = loss::mse(&two_layers(cx, &x.slice(0, rows.clone())?, 0.25)?, &y.slice(0, rows)?)?;
                cx.minimise(&loss.mul_scalar(0.5)?, &adam)?;
                losses.push((format!("loss{half}"), loss));
            }
            Ok(losses)
        }));
    let mut losses = vec![];
    for _ in 0..STEPS {
        let out = run.step("train", &[("x", &case.inputs["x"]), ("y", &case.inputs["y"])]).unwrap();
        losses.extend(["loss0", "loss1"].map(|name| out[name].item::<f32>().unwrap()));
    }
    case.check_run(&losses, &mut run);
}

fn network(cx: &Context, scope: &str, x: &Tensor, outputs: usize) -> Result<Tensor> {
    cx.scope(scope, |cx| {
        let hidden = cx.layer("hidden", Dense::new(12).activation(Activation::Tanh), x)?;
        cx.layer("out", Dense::new(outputs), &hidden)
    })
}

fn judged(cx: &Context, x: &Tensor, real: f64) -> Result<Tensor> {
    let logits = network(cx, "discriminator", x, 1)?;
    loss::bce_from_logits(&logits, &cx.constant(real, &logits.shape(), DType::F32)?)
}

fn gan() -> [Optimizer; 2] {
    [
        Optimizer::adam_with(4e-3, 0.5, 0.999, 1e-8).only(["discriminator"]),
        Optimizer::adam_with(2e-3, 0.5, 0.999, 1e-8).only(["generator"]),
    ]
}

fn judge_loss(cx: &Context, real: &Tensor, z: &Tensor) -> Result<Tensor> {
    judged(cx, real, 1.0)?.add(&judged(cx, &network(cx, "generator", z, 2)?, 0.0)?)
}

fn forge_loss(cx: &Context, z: &Tensor) -> Result<Tensor> {
    judged(cx, &network(cx, "generator", z, 2)?, 1.0)
}

#[test]
fn a_gan_trains_in_eager_mode() {
    let case = Case::read("gan");
    let eager = case.eager(|cx, eager| forge_loss(cx, &case.tensor(eager, "z")).map(|_| ()));
    let (z, real) = (case.tensor(&eager, "z"), case.tensor(&eager, "real"));
    let [judge, forge] = gan();
    let mut losses = vec![];
    for _ in 0..STEPS {
        let (loss, gradients) =
            differentiated(&eager, || judge_loss(&eager.context(true), &real, &z).unwrap());
        update(&eager, &judge, &gradients);
        losses.push(loss);
        let (loss, gradients) = differentiated(&eager, || forge_loss(&eager.context(true), &z).unwrap());
        update(&eager, &forge, &gradients);
        losses.push(loss);
    }
    case.check_eager(&losses, &eager);
}

#[test]
fn a_gan_trains_as_two_steps_of_one_run_within_a_budget() {
    let case = Case::read("gan");
    let described = || {
        let [judge, forge] = gan();
        Run::builder()
            .step("judge", [case.input("real"), case.input("z")], move |cx, inputs| {
                let [real, z] = inputs.all()?;
                let loss = judge_loss(cx, real, z)?;
                cx.minimise(&loss, &judge)?;
                Ok([("loss", loss)])
            })
            .step("forge", [case.input("z")], move |cx, inputs| {
                let loss = forge_loss(cx, inputs.get("z")?)?;
                cx.minimise(&loss, &forge)?;
                Ok([("loss", loss)])
            })
            .exact(true)
    };
    let floor = described().frontier().unwrap().floor_bytes;
    let mut bits = vec![];
    for budget in [u64::MAX, floor] {
        let mut run = case.compiled(described().budget(budget));
        let mut losses = vec![];
        for _ in 0..STEPS {
            let (z, real) = (&case.inputs["z"], &case.inputs["real"]);
            losses.push(run.step("judge", &[("z", z), ("real", real)]).unwrap()["loss"].item().unwrap());
            losses.push(run.step("forge", &[("z", z)]).unwrap()["loss"].item().unwrap());
        }
        assert_eq!(run.reserved_bytes(), Some(run.forecast().peak_bytes));
        assert!(run.forecast().peak_bytes <= budget);
        case.check_run(&losses, &mut run);
        bits.push(losses);
    }
    assert_eq!(bits[0], bits[1], "a budget changes when and where, never what");
}
