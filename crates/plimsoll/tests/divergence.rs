//! Training that diverges says in which step, and where in it the first value was that is not finite.

mod common;

use common::AsItIs;
use plimsoll::data::{Columns, Dataset};
use plimsoll::layers::{Dense, Dropout, Layer, model};
use plimsoll::loss::Loss;
use plimsoll::{
    Array, DType, ErrorKind, Init, Input, NotFinite, Optimizer, Phase, Precision, Run, StateInfo, Trainer,
};

/// 24 samples of ones, with one other number among those of a sample.
fn data(sample: usize, number: f32) -> Dataset {
    let mut x = vec![1.0f32; 24 * 4];
    x[sample * 4 + 2] = number;
    let columns = Columns::new().column("x", &[4], x).unwrap();
    Dataset::new(AsItIs(columns.column("y", &[1], vec![0.5f32; 24]).unwrap())).unwrap()
}

/// A network whose scope `steep` squares twice what is large.
fn network() -> impl Layer {
    model(|cx, x| {
        let hidden = cx.layer("first", Dense::new(8).init(Init::Constant(0.1)), x)?;
        let steep = cx.scope("steep", |_| hidden.square()?.square())?;
        let kept = cx.layer("drop", Dropout(0.1), &steep.mul_scalar(1e-3)?)?;
        cx.layer("last", Dense::new(1).init(Init::Constant(0.01)), &kept)
    })
}

fn trainer() -> Trainer {
    Trainer::new(network(), Loss::Mse, Optimizer::adam(1e-3)).batch(8).epochs(1).shuffle(false)
}

#[test]
fn an_overflow_is_told_with_its_step_scope_and_op() {
    // Sums of 0.1 · number, to the fourth power: beyond 3.4e38 in `f32`, beyond 65504 in `f16`.
    for (precision, number) in [(Precision::F32, 1e12), (Precision::Bf16, 1e12), (Precision::F16, 1e3)] {
        for parts in [1, 4] {
            let data = data(17, number);
            let trainer = trainer().precision(precision).micro_batches(parts);
            let mut training = trainer.compile(&data, None).unwrap();
            let error = training.fit(&mut ()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Diverged);
            let message = error.to_string();
            for part in ["in step 3 of epoch 1", "that of mul in `steep` (forward)", "8 of "] {
                assert!(message.contains(part), "{precision} in {parts}: {part}: {message}");
            }
            // What was trained until then is still there.
            let weights = training.weights().unwrap();
            assert!(weights.values().all(|weight| weight.values.iter().all(|x| x.is_finite())));
            assert_ne!(weights["first/weight"].values[0], 0.1);
            let updates = training.run().state("optimizer:updates").unwrap().item::<i64>().unwrap();
            assert_eq!(updates, 2, "{precision}: the step that diverged is none");
        }
    }
}

#[test]
fn a_number_in_the_data_that_is_none_is_told_with_the_input() {
    let error = trainer().fit(&data(9, f32::NAN), None, &mut ()).unwrap_err().to_string();
    assert!(error.contains("in step 2 of epoch 1"), "{error}");
    assert!(error.contains("the input `x` is not finite in 1 of 32 elements"), "{error}");
}

#[test]
fn a_step_that_diverges_changes_neither_parameters_nor_slots_with_and_without_a_budget() {
    let (good, bad) = (data(0, 2.0), data(17, 1e12));
    let two = trainer().steps(2);
    let budget = two.forecast(&good, None).unwrap().peak_bytes;
    for trainer in [two.clone(), two.micro_batches(3)] {
        let mut until = trainer.clone().compile(&good, None).unwrap();
        until.fit(&mut ()).unwrap();
        let mut beyond = trainer.steps(3).budget(2 * budget).compile(&bad, None).unwrap();
        for state in until.run().states() {
            let value = until.run().state(&state.name).unwrap();
            beyond.run().set_state(&state.name, &value).unwrap();
        }
        beyond.fit(&mut ()).unwrap_err();
        let updates = beyond.run().state("optimizer:updates").unwrap().item::<i64>().unwrap();
        assert_eq!(updates, 4, "two here and two there");
    }
}

const WIDTH: usize = 2048;

/// A run whose loss is finite, and whose gradient is not: the slope of a root at 0.
fn with_a_root() -> Run {
    let sgd = Optimizer::sgd(0.1);
    Run::builder()
        .step("train", [Input::new("x", &[WIDTH], DType::F32)], move |cx, inputs| {
            let w = cx.scope("before", |cx| cx.parameter("w", &[WIDTH], Init::Ones))?;
            let scaled = cx.scope("between", |_| w.mul(inputs.get("x")?))?;
            let length = cx.scope("root", |_| scaled.square()?.sum_all()?.sqrt())?;
            let v = cx.scope("after", |cx| cx.parameter("v", &[], Init::Ones))?;
            let loss = length.add(&v.square()?)?;
            cx.minimise(&loss, &sgd)?;
            Ok([("loss", loss)])
        })
        // What this step needs is there for looking at the values of the other, which has them in registers.
        .inference("larger", [Input::new("x", &[1 << 16], DType::F32)], |_, inputs| {
            Ok([("sum", inputs.get("x")?.sum_all()?)])
        })
        .compile()
        .unwrap()
}

#[test]
fn a_gradient_that_is_not_finite_is_found_in_the_backward_pass_and_its_parameter_after_it() {
    let mut run = with_a_root();
    let [good, zero] = [1.0f32, 0.0].map(|x| Array::new(&[WIDTH], &[x; WIDTH]).unwrap());
    assert_eq!(run.first_not_finite("train", &[("x", &good)]).unwrap(), None);
    let found = run.first_not_finite("train", &[("x", &zero)]).unwrap().unwrap();
    assert_eq!((found.scope.as_str(), found.phase), ("root", Phase::Backward), "{found}");
    assert_eq!(run.state("before/w").unwrap().to_vec::<f32>().unwrap(), [1.0; WIDTH], "nothing was changed");

    assert_eq!(run.step("train", &[("x", &zero)]).unwrap()["loss"].item::<f32>().unwrap(), 1.0);
    let found = run.first_not_finite("train", &[("x", &good)]).unwrap().unwrap();
    let scope = "before/w".to_string();
    let expected = NotFinite {
        scope,
        op: "parameter".into(),
        phase: Phase::Update,
        count: WIDTH as u64,
        of: WIDTH as u64,
    };
    assert_eq!(found, expected);
}

#[test]
fn infinities_that_a_model_means_are_none_that_are_told() {
    let sgd = Optimizer::sgd(0.1);
    let mut run = Run::builder()
        .step("train", [Input::new("x", &[4], DType::F32)], move |cx, inputs| {
            let x = inputs.get("x")?;
            let w = cx.parameter("w", &[4], Init::Ones)?;
            let masked = x.gt(&x.full_like(0.0)?)?.select(&w, &w.full_like(f64::NEG_INFINITY)?)?;
            let loss = masked.softmax()?.square()?.sum_all()?;
            cx.minimise(&loss, &sgd)
        })
        .compile()
        .unwrap();
    let x = Array::new(&[4], &[1.0f32, -1.0, 2.0, -2.0]).unwrap();
    assert_eq!(run.first_not_finite("train", &[("x", &x)]).unwrap(), None);
}

#[test]
fn parameters_and_slots_are_f32_in_every_precision() {
    for precision in [Precision::F32, Precision::Tf32, Precision::Bf16, Precision::F16] {
        let data = data(0, 1.0);
        let states = trainer().precision(precision).compile(&data, None).unwrap().run().states();
        let counts = |state: &StateInfo| state.shape.is_empty() || state.name == "random";
        let kept: Vec<&StateInfo> = states.iter().filter(|state| !counts(state)).collect();
        assert_eq!(kept.len(), 3 * 4, "four parameters with two slots each");
        assert!(kept.iter().all(|state| state.dtype == DType::F32), "{precision}: {kept:?}");
    }
}
