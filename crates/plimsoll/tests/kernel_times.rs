//! What a step's time goes to, kernel by kernel.

use plimsoll::data::{Dataset, Synthetic};
use plimsoll::layers::*;
use plimsoll::loss::Loss;
use plimsoll::{Array, DType, Input, Optimizer, Run, Trainer, loss};

#[test]
fn every_kernel_of_the_step_is_timed_and_shown() {
    let data = Synthetic::new(64, 5).normal("features", &[40]).unwrap().classes("label", 3).unwrap();
    let model = Sequential::new().then(Dense::new(32).activation(Activation::Relu)).then(Dense::new(3));
    let trainer = Trainer::new(model, Loss::SparseCrossEntropy, Optimizer::adam(1e-2)).batch(32).threads(1);
    let times = trainer.kernel_times(&Dataset::new(data).unwrap()).unwrap();
    assert!(times.kernels.iter().all(|kernel| kernel.seconds > 0.0 && kernel.seconds.is_finite()));
    // Two layers forward, two gradients of weights, one of what is between them.
    assert_eq!(times.kernels.iter().filter(|kernel| kernel.name == "dot").count(), 5);
    let first = times.kernels.iter().find(|kernel| kernel.name == "dot").unwrap();
    assert!(first.operands.starts_with("f32[32, 40] f32[40, 32]"), "{}", first.operands);
    assert!(first.flops >= 2 * 32 * 40 * 32);
    let text = times.to_string();
    assert!(text.contains("dot (dense0)") && text.ends_with("kernels\n"), "{text}");
    assert_eq!(times.to_json()["kernels"].as_array().map(Vec::len), Some(times.kernels.len()));
}

/// A run that trains two convolutions, which are told from outliers: what they read has to be what a step reads.
fn trained() -> (Run, Array, Array) {
    let inputs = [Input::new("x", &[8, 12, 12, 3], DType::F32), Input::new("y", &[8], DType::I32)];
    let run = Run::builder().threads(1).step("train", inputs, |cx, inputs| {
        let x = cx.layer("conv0", Conv2d::new(16, [3, 3]), inputs.get("x")?)?.relu()?;
        let x = cx.layer("conv1", Conv2d::new(16, [3, 3]), &x)?.relu()?;
        let x = cx.layer("head", Dense::new(4), &cx.layer("mean", GlobalMeanPool, &x)?)?;
        let loss = loss::sparse_cross_entropy(&x, inputs.get("y")?)?;
        cx.minimise(&loss, &Optimizer::adam(1e-2))?;
        Ok([("loss", loss)])
    });
    let x: Vec<f32> = (0..8 * 12 * 12 * 3).map(|at| (at * 37 % 101) as f32 / 50.0 - 1.0).collect();
    let x = Array::new(&[8, 12, 12, 3], &x).unwrap();
    let y = Array::new(&[8], &[0, 1, 2, 3, 0, 1, 2, 3]).unwrap();
    (run.compile().unwrap(), x, y)
}

#[test]
fn kernels_are_timed_on_the_very_inputs_of_a_step() {
    let states = |run: &mut Run| -> Vec<Vec<f32>> {
        let names: Vec<String> = run
            .states()
            .into_iter()
            .filter(|state| state.trainable)
            .map(|state| state.name.clone())
            .collect();
        names.iter().map(|name| run.state(name).unwrap().to_vec().unwrap()).collect()
    };
    let (mut run, x, y) = trained();
    let times = run.kernel_times(&[("x", &x), ("y", &y)]).unwrap();
    assert!(times.kernels.iter().any(|kernel| kernel.family.starts_with("conv, tiles")), "{times}");
    let timed = states(&mut run);
    // It has trained as often as it was timed, and to the same bits.
    let (mut run, x, y) = trained();
    for _ in 0..7 {
        run.step("train", &[("x", &x), ("y", &y)]).unwrap();
    }
    assert_eq!(timed, states(&mut run));
    let error = run.kernel_times(&[("x", &x)]).unwrap_err().to_string();
    assert!(error.contains("the input `y` is missing"), "{error}");
}
