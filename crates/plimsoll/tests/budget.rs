//! Training within a budget: exact remedies change no bit, arenas stay within their budgets, and a budget that
//! nothing fits is refused with a change that does.

use plimsoll::data::{Dataset, Synthetic};
use plimsoll::layers::*;
use plimsoll::loss::Loss;
use plimsoll::models::Gpt;
use plimsoll::{
    Class, ErrorKind, Optimizer, Precision, RemedyKind, RunFolder, Spec, Start, Tensor, Trained, Trainer,
    devices,
};
use std::path::Path;

const SAMPLES: usize = 44;
const BATCH: usize = 16;
const STEPS: usize = 20;

fn images(shape: &[usize], classes: usize) -> Dataset {
    let data = Synthetic::new(SAMPLES, 3).normal("images", shape).unwrap();
    Dataset::new(data.classes("label", classes).unwrap()).unwrap()
}

fn pairs(shape: &[usize]) -> Dataset {
    let data = Synthetic::new(SAMPLES, 5).normal("noisy", shape).unwrap();
    Dataset::new(data.normal("clean", shape).unwrap()).unwrap()
}

fn tokens(length: usize, vocabulary: usize) -> Dataset {
    let data = Synthetic::new(SAMPLES, 4).tokens("token", "next", length, vocabulary).unwrap();
    Dataset::new(data).unwrap()
}

fn fit(trainer: &Trainer, data: &Dataset) -> Trained {
    trainer.fit(data, Some(data), &mut ()).unwrap()
}

fn assert_same_bits(name: &str, free: &Trained, tight: &Trained) {
    let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&free.report.losses), bits(&tight.report.losses), "{name}: losses");
    assert_eq!(free.weights.len(), tight.weights.len(), "{name}");
    for (parameter, weight) in &free.weights {
        assert_eq!(bits(&weight.values), bits(&tight.weights[parameter].values), "{name}: {parameter}");
    }
}

/// Trains without a budget, and by exact remedies at the tightest budget and at some between.
fn assert_budgets_change_no_bit(name: &str, trainer: Trainer, data: &Dataset) {
    let trainer = trainer.batch(BATCH).steps(STEPS).seed(7).exact(true);
    let free = fit(&trainer, data);
    assert!(free.report.losses.iter().all(|loss| loss.is_finite()));
    assert_fits_change_no_bit(name, &trainer, data, &free);
    let folder = tempfile::tempdir().unwrap();
    assert_fits_change_no_bit(&format!("{name} with a file"), &trainer.spill(folder.path()), data, &free);
}

fn assert_fits_change_no_bit(name: &str, trainer: &Trainer, data: &Dataset, free: &Trained) {
    let frontier = trainer.frontier(data, None).unwrap();
    let most = trainer.forecast(data, None).unwrap().peak_bytes;
    assert!(frontier.floor_bytes < most, "{name}: nothing can be saved of {most} bytes");
    for part in [0, 1, 3] {
        let budget = frontier.floor_bytes + (most - frontier.floor_bytes) * part / 4;
        let trainer = trainer.clone().budget(budget);
        let forecast = trainer.forecast(data, None).unwrap();
        assert!(!forecast.remedies.is_empty(), "{name} at {budget}");
        assert_eq!(forecast.micro_batches, 1, "{name} at {budget}");
        let tight = fit(&trainer, data);
        assert!(tight.report.arena_bytes <= budget, "{name}: {} > {budget}", tight.report.arena_bytes);
        assert_eq!(tight.report.allocations_after_first_step, 0, "{name}");
        assert_same_bits(&format!("{name} within {budget} bytes"), free, &tight);
    }
}

#[test]
fn a_perceptron_is_the_same_to_the_bit_within_any_budget() {
    let network = Sequential::new()
        .then(Dense::new(64).activation(Activation::Gelu))
        .then(Dense::new(64).activation(Activation::Gelu))
        .then(Dropout(0.3))
        .then(Dense::new(48).activation(Activation::Relu))
        .then(Dense::new(5));
    let trainer = Trainer::new(network, Loss::SparseCrossEntropy, Optimizer::adamw(1e-3));
    assert_budgets_change_no_bit("perceptron", trainer, &images(&[40], 5));
}

#[test]
fn a_cnn_with_batch_norm_and_dropout_is_the_same_to_the_bit_within_any_budget() {
    let cnn = Sequential::new()
        .then(Conv2d::new(8, [3, 3]).padding(Padding::Same))
        .then(BatchNorm::new())
        .then(Activation::Relu)
        .then(Conv2d::new(12, [3, 3]).padding(Padding::Same))
        .then(BatchNorm::new())
        .then(Activation::Relu)
        .then(MaxPool::new([2, 2]))
        .then(Dropout(0.25))
        .then(Flatten)
        .then(Dense::new(5));
    let trainer = Trainer::new(cnn, Loss::SparseCrossEntropy, Optimizer::momentum(0.05, 0.9, true));
    assert_budgets_change_no_bit("cnn", trainer, &images(&[12, 12, 3], 5));
}

#[test]
fn a_gpt_is_the_same_to_the_bit_within_any_budget() {
    // Logits of 16 × 32 rows and 700 classes are over 1 MiB: the loss is chunked.
    let gpt = Gpt { layers: 3, width: 32, heads: 2, context: 32, vocab: 700, dropout: 0.1, tied_head: true };
    let trainer = Trainer::new(gpt, Loss::SparseCrossEntropy, Optimizer::adam(1e-3));
    let data = tokens(32, 700);
    let folder = tempfile::tempdir().unwrap();
    let tight = trainer.clone().batch(BATCH).exact(true).spill(folder.path());
    let floor = tight.frontier(&data, None).unwrap().floor_bytes;
    let remedies = tight.budget(floor).forecast(&data, None).unwrap().remedies;
    let is =
        |kind: fn(&RemedyKind) -> bool| remedies.iter().any(|r| kind(&r.kind) && r.class() == Class::Exact);
    assert!(is(|kind| *kind == RemedyKind::ChunkedLoss), "{remedies:?}");
    assert!(is(|kind| matches!(kind, RemedyKind::Recompute(_))), "{remedies:?}");
    assert!(is(|kind| *kind == RemedyKind::OffloadStates), "{remedies:?}");
    assert_budgets_change_no_bit("gpt", trainer, &data);
}

/// A network whose largest update is of a table of 3 MiB, and one of layers of 4 MiB, whose products hand their results on to
/// updates.
fn networks_of_large_updates() -> [(&'static str, u64, Trainer, Dataset); 2] {
    let gpt = Gpt { layers: 1, width: 128, heads: 2, context: 8, vocab: 6144, dropout: 0.0, tied_head: true };
    let layers = Sequential::new().then(Dense::new(1024).activation(Activation::Tanh)).then(Dense::new(1024));
    let with = |trainer: Trainer| trainer.batch(BATCH).steps(6).seed(7).exact(true);
    let adam = || Optimizer::adam(1e-3);
    [
        ("table", 3 << 20, with(Trainer::new(gpt, Loss::SparseCrossEntropy, adam())), tokens(8, 6144)),
        ("layers", 4 << 20, with(Trainer::new(layers, Loss::Mse, adam())), pairs(&[1024])),
    ]
}

#[test]
fn a_large_update_in_parts_takes_less_and_changes_no_bit() {
    for (name, largest, trainer, data) in networks_of_large_updates() {
        let folder = tempfile::tempdir().unwrap();
        let spilling = trainer.clone().spill(folder.path());
        let floor = spilling.frontier(&data, None).unwrap().floor_bytes;
        assert!(floor < 4 * largest, "{name}: {floor}, where four times {largest} is the whole update");
        let tight = fit(&spilling.budget(floor), &data);
        assert!(tight.report.arena_bytes <= floor);
        assert_eq!(tight.report.allocations_after_first_step, 0, "{name}");
        assert_same_bits(name, &fit(&trainer, &data), &tight);
    }
}

#[test]
fn training_goes_on_with_states_in_parts_that_were_saved_whole() {
    let (_, _, trainer, data) = networks_of_large_updates().into_iter().next().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let spilling = trainer.clone().spill(folder.path());
    let tight = spilling.clone().budget(spilling.frontier(&data, None).unwrap().floor_bytes);
    let weights = |trainer: &Trainer, place: &Path, start: Start| {
        let mut training = trainer.compile(&data, None).unwrap();
        training.fit_into(&mut RunFolder::open(place).unwrap(), start, &mut ()).unwrap();
        training.weights().unwrap()
    };
    let [whole, parted, back] = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let expected = weights(&trainer, whole.path(), Start::Anew);
    weights(&trainer.clone().steps(3), parted.path(), Start::Anew);
    assert_eq!(weights(&tight, parted.path(), Start::Resume), expected);
    weights(&tight.clone().steps(3), back.path(), Start::Anew);
    assert_eq!(weights(&trainer, back.path(), Start::Resume), expected);
}

#[test]
fn an_lstm_is_the_same_to_the_bit_within_any_budget() {
    let lstm = Sequential::new()
        .then(Embedding::new(30, 16))
        .then(Lstm::new(24).sequences())
        .then(Lstm::new(24).sequences())
        .then(Dense::new(30));
    let trainer = Trainer::new(lstm, Loss::SparseCrossEntropy, Optimizer::rmsprop(1e-3));
    assert_budgets_change_no_bit("lstm", trainer, &tokens(12, 30));
}

#[test]
fn a_u_net_is_the_same_to_the_bit_within_any_budget() {
    let u_net = model(|cx, x| {
        let block = |width: usize| {
            Sequential::new()
                .then(Conv2d::new(width, [3, 3]).padding(Padding::Same))
                .then(BatchNorm::new())
                .then(Activation::Relu)
        };
        let top = cx.layer("down", block(8), x)?;
        let below = cx.layer("pool", MaxPool::new([2, 2]), &top)?;
        let below = cx.layer("bottom", block(16), &below)?;
        let up = cx.layer("up", Upsample(2), &below)?;
        let joined = Tensor::concat(&[&top, &up], 3)?;
        let joined = cx.layer("join", block(8), &joined)?;
        cx.layer("head", Conv2d::new(3, [1, 1]), &joined)
    });
    let trainer = Trainer::new(u_net, Loss::Mse, Optimizer::adam(1e-3));
    assert_budgets_change_no_bit("u-net", trainer, &pairs(&[16, 16, 3]));
}

#[test]
fn a_budget_splits_a_batch_where_that_is_faster_and_agrees_up_to_rounding() {
    let network = Sequential::new()
        .then(Conv2d::new(12, [3, 3]).padding(Padding::Same).activation(Activation::Tanh))
        .then(Conv2d::new(12, [3, 3]).padding(Padding::Same).activation(Activation::Tanh))
        .then(MaxPool::new([4, 4]))
        .then(Flatten)
        .then(Dense::new(5));
    let data = images(&[16, 16, 3], 5);
    let trainer =
        Trainer::new(network, Loss::SparseCrossEntropy, Optimizer::sgd(0.1)).batch(40).steps(STEPS).seed(3);
    let free = fit(&trainer, &data);
    let floor = trainer.frontier(&data, None).unwrap().floor_bytes;
    let trainer = trainer.budget(floor);
    let forecast = trainer.forecast(&data, None).unwrap();
    assert!(forecast.micro_batches > 1, "{:?}", forecast.remedies);
    assert!(forecast.remedies.iter().any(|r| r.class() == Class::Rounding));
    let tight = fit(&trainer, &data);
    assert!(tight.report.arena_bytes <= floor);
    for (a, b) in free.report.losses.iter().zip(&tight.report.losses) {
        assert!((a - b).abs() <= 1e-5 * a.abs(), "{a} and {b}");
    }
}

#[test]
fn batch_statistics_are_never_split_without_the_users_word() {
    let network = Sequential::new().then(Dense::new(64)).then(BatchNorm::new()).then(Dense::new(5));
    let data = images(&[8], 5);
    let trainer = Trainer::new(network, Loss::SparseCrossEntropy, Optimizer::sgd(0.1)).batch(40);
    let frontier = trainer.frontier(&data, None).unwrap();
    assert!(frontier.points.iter().all(|p| p.micro_batches == 1));
    let split = trainer.clone().micro_batches(4).forecast(&data, None).unwrap();
    assert_eq!(split.micro_batches, 4);
}

/// The number of the first line `batch N: fits, with ..` of advice.
fn advised_batch(message: &str) -> Option<usize> {
    let line = message.lines().find(|l| l.trim().starts_with("batch ") && l.contains(": fits,"))?;
    line.trim().strip_prefix("batch ")?.split(':').next()?.parse().ok()
}

#[test]
fn a_budget_nothing_fits_names_the_floor_and_a_change_that_does_fit() {
    let cnn = || {
        Sequential::new()
            .then(Conv2d::new(16, [3, 3]).padding(Padding::Same))
            .then(BatchNorm::new())
            .then(Activation::Relu)
            .then(Flatten)
            .then(Dense::new(5))
    };
    let data = images(&[16, 16, 3], 5);
    let trainer = Trainer::new(cnn(), Loss::SparseCrossEntropy, Optimizer::adam(1e-3)).batch(32).steps(2);
    let floor = trainer.frontier(&data, None).unwrap().floor_bytes;
    let budget = floor * 3 / 4;
    let tight = trainer.clone().budget(budget);
    let error = tight.forecast(&data, None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Budget);
    let message = error.to_string();
    assert!(message.contains(&floor.to_string()) && message.contains(&budget.to_string()), "{message}");
    let bound = trainer.frontier(&data, None).unwrap().no_plan_below_bytes;
    assert!(
        message.contains(&format!("no plan takes less than {}", plimsoll::memory::format_bytes(bound))),
        "{message}"
    );
    // It names a kernel and a value.
    assert!(message.contains(" of `") && message.contains("largest there: `"), "{message}");
    assert_eq!(tight.fit(&data, None, &mut ()).err().map(|e| e.kind()), Some(ErrorKind::Budget));

    let batch = advised_batch(&message).unwrap_or_else(|| panic!("no batch is advised: {message}"));
    let trained = fit(&tight.clone().batch(batch), &data);
    assert!(trained.report.arena_bytes <= budget);
    if message.lines().any(|l| l.contains("bf16: fits,")) {
        assert!(fit(&tight.precision(Precision::Bf16), &data).report.arena_bytes <= budget);
    }
    // And so does the floor itself.
    assert!(fit(&trainer.budget(floor), &data).report.arena_bytes <= floor);
}

#[test]
fn the_largest_batch_fits_and_the_next_does_not() {
    let network = Sequential::new().then(Dense::new(64).activation(Activation::Gelu)).then(Dense::new(5));
    let data = images(&[40], 5);
    let trainer = Trainer::new(network, Loss::SparseCrossEntropy, Optimizer::adam(1e-3)).batch(4);
    let budget = trainer.forecast(&data, None).unwrap().peak_bytes + 5000;
    let most = trainer.max_batch(&data, None, budget).unwrap();
    let fits =
        |batch: usize| trainer.clone().batch(batch).forecast(&data, None).unwrap().peak_bytes <= budget;
    assert!(most.without_remedies >= 4 && most.without_remedies < SAMPLES, "{most:?}");
    assert!(fits(most.without_remedies) && !fits(most.without_remedies + 1));
    assert!(most.with_remedies >= most.without_remedies);
    let exact = trainer.exact(true).budget(budget);
    assert!(exact.clone().batch(most.with_remedies).forecast(&data, None).is_ok());
    if most.with_remedies < SAMPLES {
        assert!(exact.batch(most.with_remedies + 1).forecast(&data, None).is_err());
    }
}

/// Workloads that are too large to run here are planned for a device that is not here.
#[test]
fn plans_of_large_workloads_stay_within_their_budgets_and_frontiers_are_monotone() {
    for name in ["gpt2-124m", "resnet50", "unet", "mlp-large", "gpt-small"] {
        let spec = Spec::find(name).unwrap();
        let (data, _) = spec.datasets().unwrap();
        let trainer = spec.trainer().exact(true).profile(devices::find("h200").unwrap());
        let frontier = trainer.frontier(&data, None).unwrap();
        assert!(frontier.points.len() >= 10, "{name}");
        for point in &frontier.points {
            assert!(point.peak_bytes <= point.budget_bytes, "{name}: {point:?}");
        }
        for pair in frontier.points.windows(2) {
            assert!(pair[1].peak_bytes <= pair[0].peak_bytes, "{name}: {pair:?}");
            assert!(pair[1].step_seconds >= pair[0].step_seconds, "{name}: {pair:?}");
        }
        let budget = frontier.points[frontier.points.len() / 2].budget_bytes;
        let forecast = trainer.budget(budget).forecast(&data, None).unwrap();
        assert!(forecast.peak_bytes <= budget, "{name}: {} > {budget}", forecast.peak_bytes);
    }
}
