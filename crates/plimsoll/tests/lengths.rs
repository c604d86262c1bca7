//! Steps of many lengths take the memory of the longest alone, however many there were.

use plimsoll::data::{Dataset, Synthetic};
use plimsoll::layers::*;
use plimsoll::loss::Loss;
use plimsoll::models::Gpt;
use plimsoll::{Optimizer, Trainer};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

const VOCABULARY: usize = 50;
/// More lengths than are tried before training, so that steps meet new ones.
const LENGTHS: std::ops::RangeInclusive<usize> = 8..=128;
const STEPS: usize = 200;

fn tokens() -> Dataset {
    let data = Synthetic::new(64, 4).tokens("token", "next", *LENGTHS.end(), VOCABULARY).unwrap();
    Dataset::new(data).unwrap()
}

/// Trains `inner` for 200 steps of drawn lengths and requires one arena from the first to the last: that of the longest.
fn assert_memory_is_that_of_the_longest(name: &str, inner: impl Layer + 'static) {
    let lengths = Rc::new(RefCell::new(BTreeSet::new()));
    let seen = Rc::clone(&lengths);
    let noting = model(move |cx, x| {
        seen.borrow_mut().insert(x.shape()[1]);
        inner.forward(cx, x)
    });
    let trainer = Trainer::new(noting, Loss::SparseCrossEntropy, Optimizer::adam(1e-3)).batch(4).steps(STEPS);
    let data = tokens();
    let longest = trainer.clone().lengths(*LENGTHS.end()..=*LENGTHS.end()).forecast(&data, None).unwrap();
    let mut known = None;
    let trained = trainer.lengths(LENGTHS).fit(&data, None, &mut |progress: &plimsoll::Progress<'_>| {
        known.get_or_insert(lengths.borrow().len());
        assert_eq!(progress.memory.arena_bytes, longest.peak_bytes, "{name} in step {}", progress.step);
        assert_eq!(progress.memory.grown_bytes, 0, "{name} in step {}", progress.step);
    });
    let report = trained.unwrap().report;
    assert_eq!(report.losses.len(), STEPS, "{name}");
    assert_eq!(report.arena_bytes, longest.peak_bytes, "{name}");
    assert_eq!(report.allocations_after_first_step, 0, "{name}");
    let met = lengths.borrow().len();
    assert!(known.is_some_and(|known| met > known + 20), "{name}: {met} lengths, {known:?} of them at first");
}

#[test]
fn a_language_model_of_many_lengths_takes_the_memory_of_the_longest_alone() {
    let gpt = Gpt {
        layers: 2,
        width: 32,
        heads: 4,
        context: *LENGTHS.end(),
        vocab: VOCABULARY,
        dropout: 0.0,
        tied_head: false,
    };
    assert_memory_is_that_of_the_longest("gpt", gpt);
}

#[test]
fn an_lstm_of_many_lengths_takes_the_memory_of_the_longest_alone() {
    let lstm = Sequential::new()
        .then(Embedding::new(VOCABULARY, 32))
        .then(Lstm::new(32).sequences())
        .then(Dense::new(VOCABULARY));
    assert_memory_is_that_of_the_longest("lstm", lstm);
}
