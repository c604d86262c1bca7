//! The largest batch that fits: it does, the next does not, and smaller ones that do not are named.

use plimsoll::data::{Dataset, Synthetic};
use plimsoll::layers::*;
use plimsoll::loss::Loss;
use plimsoll::models::Gpt;
use plimsoll::{Optimizer, Spec, Trainer, devices};
use proptest::prelude::*;

const SAMPLES: usize = 24;

fn language(length: usize, vocab: usize) -> (Trainer, Dataset) {
    let gpt = Gpt { layers: 1, width: 16, heads: 2, context: length, vocab, dropout: 0.0, tied_head: false };
    let data =
        Dataset::new(Synthetic::new(SAMPLES, 4).tokens("token", "next", length, vocab).unwrap()).unwrap();
    (Trainer::new(gpt, Loss::SparseCrossEntropy, Optimizer::adam(1e-3)), data)
}

fn perceptron(width: usize) -> (Trainer, Dataset) {
    let network = Sequential::new().then(Dense::new(width).activation(Activation::Gelu)).then(Dense::new(10));
    let data = Synthetic::new(SAMPLES, 3).normal("x", &[width]).unwrap().classes("y", 10).unwrap();
    (
        Trainer::new(network, Loss::SparseCrossEntropy, Optimizer::momentum(0.1, 0.9, true)),
        Dataset::new(data).unwrap(),
    )
}

fn convolutions(width: usize) -> (Trainer, Dataset) {
    let conv = || Conv2d::new(width, [3, 3]).padding(Padding::Same);
    let network =
        Sequential::new().then(conv()).then(BatchNorm::new()).then(conv()).then(Flatten).then(Dense::new(5));
    let data = Synthetic::new(SAMPLES, 3).normal("x", &[9, 9, 2]).unwrap().classes("y", 5).unwrap();
    (Trainer::new(network, Loss::SparseCrossEntropy, Optimizer::sgd(0.1)), Dataset::new(data).unwrap())
}

/// What each batch takes of what a budget bounds, from one sample on.
fn needs(trainer: &Trainer, data: &Dataset) -> Vec<u64> {
    let of = |batch: usize| trainer.clone().batch(batch).forecast(data, None).unwrap().bounded_bytes();
    (1..=SAMPLES).map(of).collect()
}

fn check(trainer: &Trainer, data: &Dataset, needs: &[u64], budget: u64) -> (usize, usize) {
    let most = trainer.max_batch(data, None, budget).unwrap();
    let found = most.without_remedies;
    assert!(most.with_remedies >= found);
    assert!(found == 0 || needs[found - 1] <= budget, "{most:?} of {needs:?}");
    assert!(found == needs.len() || needs[found] > budget, "{most:?} of {needs:?}");
    for batch in 1..found {
        let is_named = most.gaps.iter().any(|&(first, last)| (first..=last).contains(&batch));
        assert_eq!(needs[batch - 1] > budget, is_named, "batch {batch}: {most:?} of {needs:?}");
    }
    let with = most.with_remedies;
    let exact = trainer.clone().exact(true).budget(budget);
    assert!(with == 0 || exact.clone().batch(with).forecast(data, None).is_ok(), "{most:?}");
    assert!(with == SAMPLES || exact.batch(with + 1).forecast(data, None).is_err(), "{most:?}");
    (found, with)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_larger_budget_never_gives_a_smaller_batch_and_all_that_are_said_to_fit_do(
        network in 0usize..3,
        size in 3usize..40,
        budgets in prop::collection::vec(0.0f64..1.1, 3),
    ) {
        let (trainer, data) = match network {
            0 => language(4 + size, 50 * size),
            1 => perceptron(4 * size),
            _ => convolutions(2 + size / 4),
        };
        let needs = needs(&trainer, &data);
        let (least, most) = (needs[0], needs.iter().copied().max().unwrap_or(0));
        let mut budgets: Vec<u64> =
            budgets.into_iter().map(|part| least * 9 / 10 + ((most - least * 9 / 10) as f64 * part) as u64).collect();
        budgets.sort_unstable();
        let mut last = (0, 0);
        for budget in budgets {
            let found = check(&trainer, &data, &needs, budget);
            prop_assert!(found.0 >= last.0 && found.1 >= last.1, "{:?} after {:?}", found, last);
            last = found;
        }
    }
}

#[test]
fn batches_whose_logits_are_made_whole_and_do_not_fit_are_named() {
    // Logits of a sample are 2.4 MiB: from ten samples on they are made some rows at a time.
    let (trainer, data) = language(32, 20_000);
    let needs = needs(&trainer, &data);
    let drop = (1..SAMPLES).find(|&batch| needs[batch] < needs[batch - 1]).expect("a batch that needs less");
    let budget = needs[drop];
    let most = trainer.max_batch(&data, None, budget).unwrap();
    assert!(most.without_remedies > drop, "{most:?} of {needs:?}");
    check(&trainer, &data, &needs, budget);
    assert!(most.gaps.iter().any(|&(_, last)| last == drop), "{most:?}");
    assert!(most.to_string().contains("but not "), "{most}");
}

#[test]
fn without_a_budget_the_device_is_the_bound() {
    let spec = Spec::find("gpt2-124m").unwrap();
    let (data, _) = spec.datasets().unwrap();
    let trainer = spec.trainer().profile(devices::find("t4").unwrap());
    let most = trainer.max_batch_that_fits(&data, None).unwrap();
    assert!(most.without_remedies > 1, "{most}");
    let fits = |batch: usize| trainer.clone().batch(batch).forecast(&data, None).unwrap().fits();
    assert_eq!(fits(most.without_remedies), Some(true));
}
