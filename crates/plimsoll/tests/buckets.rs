//! Sequences that are padded to buckets train as they would without, in fewer compiled steps and in the same memory.

use plimsoll::data::{Dataset, Synthetic};
use plimsoll::layers::*;
use plimsoll::loss::Loss;
use plimsoll::metric::Metric;
use plimsoll::models::Gpt;
use plimsoll::{Buckets, ErrorKind, Optimizer, Trained, Trainer};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

const VOCABULARY: usize = 20;
const LONGEST: usize = 14;

/// Sequences longer than any that is trained on.
fn tokens() -> Dataset {
    let data = Synthetic::new(53, 4).tokens("token", "next", 16, VOCABULARY).unwrap();
    Dataset::new(data).unwrap()
}

/// A language model, trained without Adam, which would divide gradients that are nothing but rounding by their own size.
fn gpt() -> Trainer {
    let (layers, width, heads, context) = (2, 16, 2, LONGEST);
    let gpt = Gpt { layers, width, heads, context, vocab: VOCABULARY, dropout: 0.0, tied_head: true };
    trainer(gpt, Optimizer::momentum(0.05, 0.9, false))
}

fn lstm() -> Trainer {
    let lstm = Sequential::new()
        .then(Embedding::new(VOCABULARY, 8))
        .then(Lstm::new(12).sequences())
        .then(Dense::new(VOCABULARY));
    trainer(lstm, Optimizer::adam(1e-3))
}

fn gru() -> Trainer {
    let gru = Sequential::new()
        .then(Embedding::new(VOCABULARY, 8))
        .then(Gru::new(12).sequences())
        .then(Dense::new(VOCABULARY));
    trainer(gru, Optimizer::adam(1e-3))
}

fn trainer(model: impl Layer + 'static, optimizer: Optimizer) -> Trainer {
    let trainer = Trainer::new(model, Loss::SparseCrossEntropy, optimizer).batch(12).steps(20).seed(7);
    trainer.lengths(3..=LONGEST).metrics([Metric::accuracy()])
}

fn fit(trainer: &Trainer) -> Trained {
    trainer.fit(&tokens(), Some(&tokens()), &mut ()).unwrap()
}

/// Requires losses, metrics and weights to agree to 1e-5: losses of their size, weights of the largest of their tensor.
fn assert_agree(name: &str, plain: &Trained, padded: &Trained) {
    let near = |a: f64, b: f64, scale: f64| (a - b).abs() <= 1e-5 * scale;
    assert_eq!(plain.report.losses.len(), padded.report.losses.len(), "{name}");
    for (step, (&a, &b)) in plain.report.losses.iter().zip(&padded.report.losses).enumerate() {
        assert!(near(a.into(), b.into(), f64::from(a.abs())), "{name}: loss {a} and {b} in step {step}");
    }
    assert!(plain.report.final_metrics.contains_key("accuracy"));
    for (metric, &a) in &plain.report.final_metrics {
        let b = padded.report.final_metrics[metric];
        assert!(near(a, b, a.abs()), "{name}: {metric} {a} and {b}");
    }
    for (parameter, a) in &plain.weights {
        let b = &padded.weights[parameter];
        let scale = f64::from(a.values.iter().fold(0.0f32, |most, v| most.max(v.abs())));
        for (&a, &b) in a.values.iter().zip(&b.values) {
            assert!(near(a.into(), b.into(), scale), "{name}: {parameter} has {a} and {b}");
        }
    }
}

#[test]
fn padding_to_buckets_changes_nothing_that_is_trained_or_measured() {
    for (name, trainer) in [("gpt", gpt()), ("lstm", lstm()), ("gru", gru())] {
        let plain = fit(&trainer);
        for buckets in [Buckets::from(4), [6, 9, LONGEST].into(), [LONGEST].into(), [100].into(), 100.into()]
        {
            let padded = fit(&trainer.clone().buckets(buckets.clone()));
            assert_agree(&format!("{name} in {buckets:?}"), &plain, &padded);
        }
    }
}

#[test]
fn padded_batches_train_the_same_in_parts() {
    let plain = fit(&gpt());
    assert_agree("gpt in parts", &plain, &fit(&gpt().buckets(4).micro_batches(5)));
}

#[test]
fn a_budget_that_needs_remedies_holds_buckets_too() {
    let trainer = gpt().buckets([6, LONGEST]);
    let plain = fit(&trainer);
    let tight = fit(&trainer.clone().budget(plain.report.arena_bytes * 9 / 10));
    assert!(tight.report.arena_bytes <= plain.report.arena_bytes * 9 / 10);
    assert_agree("gpt in a budget", &plain, &tight);
}

/// Every length that the model is ever traced with.
fn traced_lengths(buckets: Option<Buckets>) -> Vec<usize> {
    let seen = Rc::new(RefCell::new(BTreeSet::new()));
    let (inner, noted) = (Sequential::new().then(Embedding::new(VOCABULARY, 4)), Rc::clone(&seen));
    let noting = model(move |cx, x| {
        noted.borrow_mut().insert(x.shape()[1]);
        let x = cx.layer("inner", &inner, x)?;
        cx.layer("head", Dense::new(VOCABULARY), &x)
    });
    let mut trainer = trainer(noting, Optimizer::sgd(0.1)).steps(60);
    if let Some(buckets) = buckets {
        trainer = trainer.buckets(buckets);
    }
    fit(&trainer);
    seen.borrow().iter().copied().collect()
}

#[test]
fn as_many_lengths_are_compiled_as_there_are_buckets() {
    assert_eq!(traced_lengths(None), (3..=LONGEST).collect::<Vec<_>>());
    assert_eq!(traced_lengths(Some(4.into())), [4, 8, 12, 14]);
    assert_eq!(traced_lengths(Some([2, 5, 20].into())), [5, 14]);
    assert_eq!(traced_lengths(Some([LONGEST].into())), [14]);
}

#[test]
fn the_arena_of_buckets_is_that_of_the_longest_length_alone() {
    for trainer in [gpt(), lstm()] {
        let alone = trainer.clone().lengths(LONGEST..=LONGEST).forecast(&tokens(), None).unwrap();
        let report = fit(&trainer.buckets(4)).report;
        // The input that tells of the padding is one number, in a buffer of its own.
        assert!(report.arena_bytes <= alone.peak_bytes + 1024, "{} {}", report.arena_bytes, alone.peak_bytes);
        assert_eq!(report.arena_bytes, report.predicted_peak_bytes);
        assert_eq!(report.allocations_after_first_step, 0);
    }
}

fn refusal(trainer: &Trainer, data: &Dataset) -> String {
    let error = trainer.forecast(data, None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Argument);
    let trained = trainer.fit(data, None, &mut ()).expect_err("training is refused as well");
    assert_eq!(trained.to_string(), error.to_string());
    error.to_string()
}

#[test]
fn buckets_that_do_not_hold_the_lengths_are_refused_by_their_numbers() {
    for (buckets, parts) in [
        (Buckets::from(0), &["multiples of 0"][..]),
        ([0, 14].into(), &["length 0"]),
        ([4, 8, 13].into(), &["13", "14"]),
        ([4, 12, 9, 14].into(), &["12", "9"]),
        ([4, 14, 14].into(), &["14 is followed by 14"]),
        (vec![].into(), &["no buckets"]),
    ] {
        let error = refusal(&gpt().buckets(buckets.clone()), &tokens());
        assert!(parts.iter().all(|part| error.contains(part)), "{buckets:?}: {error}");
    }
    let without = Trainer::new(Dense::new(3), Loss::SparseCrossEntropy, Optimizer::sgd(0.1)).buckets(4);
    assert!(refusal(&without, &tokens()).contains("`lengths`"));
}

#[test]
fn models_and_losses_in_which_padding_would_show_are_refused() {
    let embedded = || Sequential::new().then(Embedding::new(VOCABULARY, 8));
    let head = || Dense::new(VOCABULARY);
    let sees_all = embedded().then(MultiHeadAttention::new(2)).then(head());
    let error = refusal(&trainer(sees_all, Optimizer::sgd(0.1)).buckets(4), &tokens());
    assert!(error.contains("not causal"), "{error}");
    let causal = embedded().then(MultiHeadAttention::new(2).causal()).then(head());
    assert!(trainer(causal, Optimizer::sgd(0.1)).buckets(4).forecast(&tokens(), None).is_ok());
    let normalised = embedded().then(BatchNorm::new()).then(head());
    let error = refusal(&trainer(normalised, Optimizer::sgd(0.1)).buckets(4), &tokens());
    assert!(error.contains("batch norm"), "{error}");
    let numbers = Synthetic::new(20, 1).normal("x", &[16, 3]).unwrap().normal("y", &[16, 2]).unwrap();
    let regression = Trainer::new(Dense::new(2), Loss::Mse, Optimizer::sgd(0.1)).lengths(3..=9).buckets(4);
    let error = refusal(&regression, &Dataset::new(numbers).unwrap());
    assert!(error.contains("`mse`") && error.contains("`y`"), "{error}");
}
