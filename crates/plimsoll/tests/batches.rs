//! Steps of many batches: as many samples as are drawn from a list, in the memory of the largest.

use plimsoll::data::{Dataset, Synthetic};
use plimsoll::layers::*;
use plimsoll::loss::Loss;
use plimsoll::{Optimizer, Trainer};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

fn data() -> Dataset {
    Dataset::new(Synthetic::new(64, 5).normal("features", &[6]).unwrap().classes("label", 3).unwrap())
        .unwrap()
}

fn trainer(model: impl Layer + 'static) -> Trainer {
    Trainer::new(model, Loss::SparseCrossEntropy, Optimizer::adam(1e-2)).batch(8).steps(24).threads(1)
}

#[test]
fn each_step_has_as_many_samples_as_are_drawn_and_one_arena_serves_them_all() {
    let sizes = Rc::new(RefCell::new(BTreeSet::new()));
    let seen = Rc::clone(&sizes);
    let noting = model(move |cx, x| {
        seen.borrow_mut().insert(x.shape()[0]);
        Dense::new(3).forward(cx, x)
    });
    let largest = trainer(Dense::new(3)).forecast(&data(), None).unwrap();
    let trained = trainer(noting).batches([2, 5, 8]).fit(&data(), None, &mut ()).unwrap();
    assert_eq!(*sizes.borrow(), BTreeSet::from([2, 5, 8]));
    assert_eq!(trained.report.arena_bytes, largest.peak_bytes);
    assert_eq!(trained.report.allocations_after_first_step, 0);
    assert_eq!(trained.report.losses.len(), 24);
}

#[test]
fn drawing_only_whole_batches_changes_nothing() {
    let whole = trainer(Dense::new(3)).fit(&data(), None, &mut ()).unwrap();
    let drawn = trainer(Dense::new(3)).batches([8]).fit(&data(), None, &mut ()).unwrap();
    assert_eq!(whole.report.losses, drawn.report.losses);
    assert_eq!(whole.weights, drawn.weights);
}

#[test]
fn samples_that_a_batch_does_not_have_are_refused() {
    for samples in [0, 9] {
        let error = trainer(Dense::new(3)).batches([8, samples]).fit(&data(), None, &mut ()).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("{samples} samples of a batch of 8; use at least 1, and no more than that")
        );
    }
}
