//! The same seed gives the same bits, on any number of threads.

use plimsoll::data::{Dataset, Synthetic, digits};
use plimsoll::layers::*;
use plimsoll::loss::Loss;
use plimsoll::models::Gpt;
use plimsoll::{Optimizer, Trained, Trainer};
use std::rc::Rc;

fn train(model: Rc<dyn Layer>, data: &Dataset, threads: usize, seed: u64) -> Trained {
    Trainer::new(model, Loss::SparseCrossEntropy, Optimizer::adamw(3e-3))
        .batch(48)
        .steps(6)
        .seed(seed)
        .threads(threads)
        .fit(data, None, &mut ())
        .unwrap()
}

fn assert_any_thread_count(model: Rc<dyn Layer>, data: &Dataset) {
    let one = train(model.clone(), data, 1, 5);
    for threads in [2, 3] {
        let other = train(model.clone(), data, threads, 5);
        assert_eq!(one.report.losses, other.report.losses, "on {threads} threads");
        assert_eq!(one.weights, other.weights, "on {threads} threads");
    }
    assert_ne!(one.weights, train(model, data, 1, 6).weights, "another seed");
}

#[test]
fn a_cnn_with_dropout_trains_to_the_same_bits_on_any_number_of_threads() {
    let model = Sequential::new()
        .then(Conv2d::new(8, [3, 3]).padding(Padding::Same))
        .then(BatchNorm::new())
        .then(Activation::Relu)
        .then(MaxPool::new([2, 2]))
        .then(Flatten)
        .then(Dropout(0.2))
        .then(Dense::new(10));
    assert_any_thread_count(Rc::new(model), &Dataset::new(digits()).unwrap());
}

#[test]
fn a_gpt_trains_to_the_same_bits_on_any_number_of_threads() {
    let model =
        Gpt { layers: 2, width: 32, heads: 4, context: 24, vocab: 50, dropout: 0.1, tied_head: false };
    let data = Synthetic::new(200, 3).tokens("tokens", "next", 24, 50).unwrap();
    assert_any_thread_count(Rc::new(model), &Dataset::new(data).unwrap());
}

#[test]
fn recurrent_layers_train_to_the_same_bits_on_any_number_of_threads() {
    let data = Dataset::new(Synthetic::new(200, 3).tokens("tokens", "next", 12, 20).unwrap()).unwrap();
    let lstm =
        Sequential::new().then(Embedding::new(20, 16)).then(Lstm::new(24).sequences()).then(Dense::new(20));
    assert_any_thread_count(Rc::new(lstm), &data);
    let gru =
        Sequential::new().then(Embedding::new(20, 16)).then(Gru::new(24).sequences()).then(Dense::new(20));
    assert_any_thread_count(Rc::new(gru), &data);
}
