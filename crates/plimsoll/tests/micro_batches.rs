//! A step that is run as micro-batches is the same step, up to rounding.

use plimsoll::data::{Dataset, Synthetic};
use plimsoll::layers::*;
use plimsoll::loss::Loss;
use plimsoll::models::Gpt;
use plimsoll::{Clip, ErrorKind, Optimizer, Trained, Trainer};

/// Samples of the data sets, and of a batch: an epoch is four full batches and one of five samples.
const SAMPLES: usize = 53;
const BATCH: usize = 12;
const STEPS: usize = 20;

fn features(shape: &[usize], classes: usize) -> Dataset {
    let data = Synthetic::new(SAMPLES, 3).normal("features", shape).unwrap();
    Dataset::new(data.classes("label", classes).unwrap()).unwrap()
}

fn tokens(length: usize, vocabulary: usize) -> Dataset {
    let data = Synthetic::new(SAMPLES, 4).tokens("token", "next", length, vocabulary).unwrap();
    Dataset::new(data).unwrap()
}

fn fit(trainer: &Trainer, data: &Dataset) -> Trained {
    trainer.fit(data, Some(data), &mut ()).unwrap()
}

/// Requires losses, metrics and weights to agree to 1e-5: losses of their size, weights of the largest of their tensor.
fn assert_agree(name: &str, whole: &Trained, split: &Trained) {
    let near = |a: f64, b: f64, scale: f64| (a - b).abs() <= 1e-5 * scale;
    assert_eq!(whole.report.losses.len(), split.report.losses.len(), "{name}");
    for (step, (&a, &b)) in whole.report.losses.iter().zip(&split.report.losses).enumerate() {
        assert!(near(a.into(), b.into(), f64::from(a.abs())), "{name}: loss {a} and {b} in step {step}");
    }
    for (metric, &a) in &whole.report.final_metrics {
        let b = split.report.final_metrics[metric];
        assert!(near(a, b, a.abs()), "{name}: {metric} {a} and {b}");
    }
    assert_eq!(whole.weights.len(), split.weights.len(), "{name}");
    for (parameter, a) in &whole.weights {
        let b = &split.weights[parameter];
        let scale = f64::from(a.values.iter().fold(0.0f32, |most, v| most.max(v.abs())));
        for (&a, &b) in a.values.iter().zip(&b.values) {
            assert!(near(a.into(), b.into(), scale), "{name}: {parameter} has {a} and {b}");
        }
    }
}

/// Trains whole and in parts: a divisor of the batch, one that leaves a remainder, and single samples.
fn assert_parts_change_nothing(name: &str, trainer: Trainer, data: &Dataset) {
    let trainer = trainer.batch(BATCH).steps(STEPS).seed(7);
    let whole = fit(&trainer, data);
    assert!(whole.report.losses.iter().all(|loss| loss.is_finite()));
    for parts in [3, 5, BATCH] {
        let split = fit(&trainer.clone().micro_batches(parts), data);
        assert_agree(&format!("{name} in {parts} parts"), &whole, &split);
    }
}

fn perceptron() -> Sequential {
    Sequential::new().then(Dense::new(24).activation(Activation::Tanh)).then(Dropout(0.3)).then(Dense::new(5))
}

#[test]
fn a_perceptron_trains_the_same_in_parts() {
    let data = features(&[9], 5);
    let trainer = Trainer::new(perceptron(), Loss::SparseCrossEntropy, Optimizer::adamw(1e-3));
    assert_parts_change_nothing("perceptron", trainer, &data);
}

/// Not with Adam: the gradient of the keys' bias is zero but for rounding, which Adam would divide by its own size.
#[test]
fn a_gpt_with_dropout_trains_the_same_in_parts() {
    let gpt = Gpt { layers: 2, width: 16, heads: 2, context: 8, vocab: 20, dropout: 0.2, tied_head: true };
    let trainer = Trainer::new(gpt, Loss::SparseCrossEntropy, Optimizer::momentum(0.05, 0.9, false));
    assert_parts_change_nothing("gpt", trainer, &tokens(8, 20));
}

#[test]
fn an_lstm_trains_the_same_in_parts() {
    let lstm =
        Sequential::new().then(Embedding::new(20, 8)).then(Lstm::new(12).sequences()).then(Dense::new(20));
    let trainer = Trainer::new(lstm, Loss::SparseCrossEntropy, Optimizer::adam(1e-3));
    assert_parts_change_nothing("lstm", trainer, &tokens(6, 20));
}

#[test]
fn a_cnn_with_dropout_trains_the_same_in_parts() {
    let cnn = Sequential::new()
        .then(Conv2d::new(6, [3, 3]).activation(Activation::Relu))
        .then(MaxPool::new([2, 2]))
        .then(Dropout(0.25))
        .then(Flatten)
        .then(Dense::new(5));
    let trainer = Trainer::new(cnn, Loss::SparseCrossEntropy, Optimizer::momentum(0.05, 0.9, true));
    assert_parts_change_nothing("cnn", trainer, &features(&[8, 8, 2], 5));
}

/// A model may draw for tokens in one axis with samples, and for what is no sample at all.
#[test]
fn whatever_a_model_draws_is_drawn_the_same_in_parts() {
    let network = model(|cx, x| {
        let x = cx.layer("embed", Embedding::new(20, 4), x)?;
        let gate = cx.uniform(&[1, 4])?;
        let noise = cx.normal(&[4])?;
        let [batch, time] = [x.shape()[0], x.shape()[1]];
        let x = x.mul(&gate)?.add(&noise)?.reshape(&[batch * time, 4])?;
        let x = Dropout(0.3).forward(cx, &x)?.reshape(&[batch, time, 4])?;
        cx.layer("head", Dense::new(20), &x)
    });
    // Parts of 4, of 3 and of 1: the first extents of what is drawn for no sample are among them.
    let trainer = Trainer::new(network, Loss::SparseCrossEntropy, Optimizer::sgd(0.5));
    assert_parts_change_nothing("drawing model", trainer, &tokens(6, 20));
}

/// The norm is that of the gradients of the whole window, whatever its parts' were.
#[test]
fn clipping_by_the_global_norm_sees_the_whole_step() {
    let data = features(&[9], 5);
    let optimizer = Optimizer::sgd(0.5).clip(Clip::GlobalNorm(0.05));
    let trainer = Trainer::new(perceptron(), Loss::SparseCrossEntropy, optimizer);
    assert_parts_change_nothing("clipped perceptron", trainer, &data);
}

#[test]
fn sequences_of_drawn_lengths_train_the_same_in_parts() {
    let gpt = Gpt { layers: 1, width: 16, heads: 2, context: 8, vocab: 20, dropout: 0.2, tied_head: false };
    let optimizer = Optimizer::momentum(0.05, 0.9, false);
    let trainer = Trainer::new(gpt, Loss::SparseCrossEntropy, optimizer).lengths(3..=8);
    assert_parts_change_nothing("gpt of drawn lengths", trainer, &tokens(8, 20));
}

#[test]
fn a_batch_larger_than_the_data_trains_the_same_in_parts() {
    let data = features(&[9], 5);
    let trainer = Trainer::new(perceptron(), Loss::SparseCrossEntropy, Optimizer::sgd(0.1));
    let trainer = trainer.batch(2 * SAMPLES).steps(STEPS);
    let whole = fit(&trainer, &data);
    for parts in [4, 2 * SAMPLES] {
        let split = fit(&trainer.clone().micro_batches(parts), &data);
        assert_agree(&format!("{parts} parts"), &whole, &split);
    }
}

#[test]
fn smaller_parts_need_less_memory_and_the_forecast_says_how_much() {
    let model = Sequential::new()
        .then(Dense::new(64).activation(Activation::Relu))
        .then(Dense::new(64).activation(Activation::Relu))
        .then(Dense::new(5));
    let data = Synthetic::new(2048, 1).normal("features", &[16]).unwrap().classes("label", 5).unwrap();
    let data = Dataset::new(data).unwrap();
    let trainer = Trainer::new(model, Loss::SparseCrossEntropy, Optimizer::adam(1e-3)).batch(2048).steps(2);
    let peaks = [1, 4, 16].map(|parts| {
        let trainer = trainer.clone().micro_batches(parts);
        let forecast = trainer.forecast(&data, None).unwrap();
        let report = trainer.fit(&data, None, &mut ()).unwrap().report;
        assert_eq!(report.arena_bytes, forecast.peak_bytes);
        assert_eq!(forecast.ledger.total(), forecast.peak_bytes);
        forecast.peak_bytes
    });
    assert!(peaks[0] > 2 * peaks[1] && peaks[1] > 2 * peaks[2], "{peaks:?}");
}

/// Another normalisation than that of the whole batch, but training all the same, with statistics kept.
#[test]
fn batch_normalisation_sees_the_statistics_of_its_part() {
    let model = Sequential::new().then(Dense::new(16)).then(BatchNorm::new()).then(Dense::new(5));
    let trainer =
        Trainer::new(model, Loss::SparseCrossEntropy, Optimizer::adam(1e-3)).batch(BATCH).steps(STEPS);
    let data = features(&[9], 5);
    let (whole, split) = (fit(&trainer, &data), fit(&trainer.clone().micro_batches(3), &data));
    assert!(split.report.losses.iter().all(|loss| loss.is_finite()));
    assert_ne!(whole.report.losses, split.report.losses);
    let names = |trained: &Trained| trained.weights.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&whole), names(&split));
}

#[test]
fn steps_are_measured_in_parts_too() {
    let data = features(&[9], 5);
    let trainer = Trainer::new(perceptron(), Loss::SparseCrossEntropy, Optimizer::sgd(0.1)).batch(BATCH);
    let trainer = trainer.micro_batches(4);
    let report = trainer.bench(&data, 3).unwrap();
    assert_eq!((report.steps, report.arena_bytes), (3, trainer.forecast(&data, None).unwrap().peak_bytes));
}

#[test]
fn parts_that_there_are_not_are_refused() {
    let data = features(&[9], 5);
    let trainer = Trainer::new(perceptron(), Loss::SparseCrossEntropy, Optimizer::sgd(0.1)).batch(BATCH);
    let complaint = |trainer: Trainer| {
        let [forecast, fit] =
            [trainer.forecast(&data, None).map(|_| ()), trainer.fit(&data, None, &mut ()).map(|_| ())]
                .map(|result| result.expect_err("this should be refused"));
        assert_eq!((forecast.kind(), fit.kind()), (ErrorKind::Argument, ErrorKind::Argument));
        assert_eq!(forecast.to_string(), fit.to_string());
        fit.to_string()
    };
    assert_eq!(
        complaint(trainer.clone().micro_batches(0)),
        "a step of 0 micro-batches; use at least 1, which is the whole batch"
    );
    assert_eq!(
        complaint(trainer.clone().micro_batches(13)),
        "a batch of 12 samples cannot be run as 13 micro-batches; use at most 12"
    );
    assert_eq!(complaint(trainer.batch(0)), "a batch of 0 samples; use at least 1");
}
