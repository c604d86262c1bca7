//! Eager mode: the same model function, the same numbers, and memory that follows the tensors.

use plimsoll::data::{Columns, Dataset};
use plimsoll::layers::*;
use plimsoll::loss::Loss;
use plimsoll::models::Gpt;
use plimsoll::{Eager, ErrorKind, Optimizer, Tensor, Trainer};

fn numbers(count: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 7919 + 13) % 1000) as f32 / 500.0 - 1.0).collect()
}

fn labels(count: usize, classes: usize) -> Vec<i32> {
    (0..count).map(|i| ((i * 31 + 7) % classes) as i32).collect()
}

/// Trains three steps compiled and eagerly on the same batch, and expects the same bits.
fn assert_same_numbers<L: Layer + Clone + 'static>(
    model: L,
    data: Columns,
    input: impl Fn(&Eager) -> Tensor,
    target: impl Fn(&Eager) -> Tensor,
) {
    let optimizer = Optimizer::adam(1e-2);
    let data = Dataset::new(data).unwrap();
    let trained = Trainer::new(model.clone(), Loss::SparseCrossEntropy, optimizer.clone())
        .batch(data.samples())
        .steps(3)
        .shuffle(false)
        .fit(&data, None, &mut ())
        .unwrap();
    let eager = Eager::new().unwrap();
    let (x, y) = (input(&eager), target(&eager));
    for step in 0..3 {
        let mut tape = eager.tape();
        let prediction = model.forward(&eager.context(true), &x).unwrap();
        let loss = Loss::SparseCrossEntropy.of(&prediction, &y).unwrap();
        let parameters = eager.parameters();
        let wrt: Vec<&Tensor> = parameters.values().collect();
        let gradients = tape.gradient(&loss, &wrt).unwrap();
        assert_eq!(loss.to_vec().unwrap(), [trained.report.losses[step]], "the loss of step {step}");
        let named: Vec<(&str, &Tensor)> = parameters.keys().map(String::as_str).zip(&gradients).collect();
        eager.apply_gradients(&optimizer, &named).unwrap();
    }
    for (name, value) in eager.parameters() {
        assert_eq!(value.to_vec().unwrap(), trained.weights[&name].values, "{name}");
    }
}

#[test]
fn an_mlp_with_dropout_gives_the_same_bits_eagerly_and_compiled() {
    let model = Sequential::new()
        .then(Dense::new(20).activation(Activation::Gelu))
        .then(Dropout(0.3))
        .then(Dense::new(4));
    let data = Columns::new().column("x", &[6], numbers(48)).unwrap().column("y", &[], labels(8, 4)).unwrap();
    assert_same_numbers(
        std::rc::Rc::new(model),
        data,
        |e| e.tensor(&[8, 6], &numbers(48)).unwrap(),
        |e| e.integers(&[8], &labels(8, 4)).unwrap(),
    );
}

#[test]
fn a_cnn_with_batch_norm_gives_the_same_bits_eagerly_and_compiled() {
    let model = Sequential::new()
        .then(Conv2d::new(5, [3, 3]).padding(Padding::Same))
        .then(BatchNorm::new())
        .then(Activation::Relu)
        .then(MaxPool::new([2, 2]))
        .then(Flatten)
        .then(Dense::new(3));
    let data =
        Columns::new().column("x", &[6, 6, 2], numbers(288)).unwrap().column("y", &[], labels(4, 3)).unwrap();
    assert_same_numbers(
        std::rc::Rc::new(model),
        data,
        |e| e.tensor(&[4, 6, 6, 2], &numbers(288)).unwrap(),
        |e| e.integers(&[4], &labels(4, 3)).unwrap(),
    );
}

#[test]
fn a_gpt_gives_the_same_bits_eagerly_and_compiled() {
    let model = Gpt { layers: 2, width: 16, heads: 2, context: 8, vocab: 11, dropout: 0.1, tied_head: true };
    let data =
        Columns::new().column("x", &[8], labels(24, 11)).unwrap().column("y", &[8], labels(24, 11)).unwrap();
    assert_same_numbers(
        std::rc::Rc::new(model),
        data,
        |e| e.integers(&[3, 8], &labels(24, 11)).unwrap(),
        |e| e.integers(&[3, 8], &labels(24, 11)).unwrap(),
    );
}

#[test]
fn a_tape_is_spent_when_its_gradient_is_taken_and_says_so() {
    let eager = Eager::new().unwrap();
    let x = eager.tensor(&[2], &[1.0, 2.0]).unwrap();
    let mut tape = eager.tape();
    let loss = x.square().unwrap().sum_all().unwrap();
    tape.gradient(&loss, &[&x]).unwrap();
    let error = tape.gradient(&loss, &[&x]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Gradient);
    assert!(error.to_string().contains("spent"), "{error}");
}

#[test]
fn a_persistent_tape_gives_gradients_again_and_again() {
    let eager = Eager::new().unwrap();
    let x = eager.tensor(&[2], &[1.0, 2.0]).unwrap();
    let mut tape = eager.persistent_tape();
    let y = x.square().unwrap();
    let z = y.mul(&x).unwrap();
    assert_eq!(tape.gradient(&y, &[&x]).unwrap()[0].to_vec().unwrap(), [2.0, 4.0]);
    assert_eq!(tape.gradient(&z, &[&x]).unwrap()[0].to_vec().unwrap(), [3.0, 12.0]);
}

#[test]
fn taking_the_gradient_frees_what_the_tape_held_and_dropping_the_tape_frees_nothing_more() {
    let eager = Eager::new().unwrap();
    let x = eager.tensor(&[1000], &numbers(1000)).unwrap();
    let mut tape = eager.tape();
    let loss = x.exp().unwrap().tanh().unwrap().sum_all().unwrap();
    let held = eager.memory().live_bytes;
    assert!(held >= 3 * 4000, "{held}");
    let gradient = tape.gradient(&loss, &[&x]).unwrap();
    let after = eager.memory().live_bytes;
    assert_eq!(after, 4000 + 4 + 4000);
    drop(tape);
    assert_eq!(eager.memory().live_bytes, after);
    drop((gradient, loss));
    assert_eq!(eager.memory().live_bytes, 4000);
}

#[test]
fn tensors_are_freed_when_dropped() {
    let eager = Eager::new().unwrap();
    let x = eager.tensor(&[256], &numbers(256)).unwrap();
    for _ in 0..10 {
        let _ = x.add(&x).unwrap().mul_scalar(2.0).unwrap();
    }
    assert_eq!(eager.memory().live_bytes, 1024);
    drop(x);
    assert_eq!(eager.memory().live_bytes, 0);
}

#[test]
fn a_limit_is_an_error_and_the_program_goes_on() {
    let eager = Eager::builder().threads(1).limit(50_000).build().unwrap();
    let large = eager.tensor(&[10_000], &numbers(10_000)).unwrap();
    let error = large.exp().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Budget);
    assert!(error.to_string().contains("40000 of 50000"), "{error}");
    let small = eager.tensor(&[2], &[0.0, 1.0]).unwrap();
    assert_eq!(small.add(&small).unwrap().to_vec().unwrap(), [0.0, 2.0]);
}

#[test]
fn a_tensor_the_loss_does_not_depend_on_has_a_gradient_of_zeros() {
    let eager = Eager::new().unwrap();
    let x = eager.tensor(&[2], &[1.0, 2.0]).unwrap();
    let other = eager.tensor(&[3], &[1.0, 2.0, 3.0]).unwrap();
    let mut tape = eager.tape();
    let loss = x.sum_all().unwrap();
    let gradients = tape.gradient(&loss, &[&x, &other]).unwrap();
    assert_eq!(gradients[0].to_vec().unwrap(), [1.0, 1.0]);
    assert_eq!(gradients[1].to_vec().unwrap(), [0.0; 3]);
}

#[test]
fn out_of_memory_names_the_tensor_and_who_holds_the_memory_and_the_program_trains_on() {
    let eager = Eager::builder().threads(1).limit(1_000_000).build().unwrap();
    let adam = Optimizer::adam(1e-3);
    let hidden = Dense::new(100);
    let x = eager.tensor(&[10, 50], &numbers(500)).unwrap();
    let step = |eager: &Eager| {
        let mut tape = eager.tape();
        let cx = eager.context(true);
        let loss = cx.layer("hidden", hidden.clone(), &x).unwrap().square().unwrap().sum_all().unwrap();
        let parameters = eager.parameters();
        let wrt: Vec<&Tensor> = parameters.values().collect();
        let gradients = tape.gradient(&loss, &wrt).unwrap();
        let named: Vec<(&str, &Tensor)> = parameters.keys().map(String::as_str).zip(&gradients).collect();
        eager.apply_gradients(&adam, &named).unwrap();
        loss.to_vec().unwrap()[0]
    };
    let first = step(&eager);
    let kept: Vec<Tensor> = (0..5).map(|_| eager.tensor(&[40_000], &numbers(40_000)).unwrap()).collect();
    let error = kept[0].exp().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Budget);
    let text = error.to_string();
    for said in ["f32[40000]", "`exp`", "160000 bytes", "of 1000000 bytes", "limit", "held by: inputs 8"] {
        assert!(text.contains(said), "no `{said}` in: {text}");
    }
    let error = eager.tensor(&[300_000], &numbers(300_000)).unwrap_err().to_string();
    assert!(error.contains("f32[300000]") && error.contains("1200000 bytes"), "{error}");
    drop(kept);
    let mut last = first;
    for _ in 0..5 {
        last = step(&eager);
    }
    assert!(last < first, "training goes on: {last} after {first}");
    assert_eq!(eager.memory().refusals, 2);
}

#[test]
fn a_kept_list_of_tensors_is_seen_to_grow_by_owner_from_step_to_step() {
    use plimsoll::memory::Action;
    let eager = Eager::new().unwrap();
    let model = Dense::new(64);
    let x = eager.tensor(&[32, 16], &numbers(512)).unwrap();
    let mut kept = vec![];
    for _ in 0..6 {
        let mut tape = eager.tape();
        let cx = eager.context(true);
        let out = cx.scope("model", |cx| cx.layer("dense", model.clone(), &x)).unwrap();
        let loss = cx.scope("loss", |_| out.square()?.sum_all()).unwrap();
        let parameters = eager.parameters();
        let wrt: Vec<&Tensor> = parameters.values().collect();
        let gradients = tape.gradient(&loss, &wrt).unwrap();
        let named: Vec<(&str, &Tensor)> = parameters.keys().map(String::as_str).zip(&gradients).collect();
        eager.apply_gradients(&Optimizer::sgd(1e-3), &named).unwrap();
        kept.push(out);
    }
    let dump = eager.memory_trace();
    let (trace, owners) = (&dump.trace, &dump.owners);
    assert!(trace.complete);
    // Live bytes by owner at each mark.
    let mut live = std::collections::BTreeMap::new();
    let mut at_marks = vec![];
    for event in &trace.events {
        match event.action {
            Action::Allocate(id) => {
                *live.entry(trace.request(id).owner).or_insert(0) += trace.request(id).bytes
            }
            Action::Free(id) => *live.entry(trace.request(id).owner).or_insert(0) -= trace.request(id).bytes,
            Action::Mark(_) => at_marks.push(live.clone()),
            _ => {}
        }
    }
    assert_eq!(at_marks.len(), 6);
    let path = |owner| {
        let mut names: Vec<&str> = owners.stack(owner).map(|frame| frame.name.as_str()).collect();
        names.reverse();
        names.join("/")
    };
    let growing: Vec<String> = at_marks[5]
        .iter()
        .filter(|(owner, bytes)| **bytes >= at_marks[2].get(owner).copied().unwrap_or(0) + 3 * 8192)
        .map(|(owner, _)| path(*owner))
        .collect();
    assert_eq!(growing.len(), 1, "{growing:?}");
    assert!(growing[0].starts_with("activations/model/dense/"), "{growing:?}");
    let holders = eager.memory_by_owner();
    assert_eq!((&holders[0].path, holders[0].live_bytes), (&growing[0], 6 * 8192));
    assert!(holders.iter().any(|owner| owner.path == "parameters/model/dense/weight"), "{holders:?}");

    let folder = tempfile::tempdir().unwrap();
    eager.save_memory_trace(&folder.path().join("run")).unwrap();
    let text = std::fs::read_to_string(folder.path().join("run/memory.jsonl")).unwrap();
    assert!(text.starts_with("{\"plimsoll-trace\":1,"), "{}", &text[..80]);
    assert!(text.ends_with("{\"end\":true}\n"));
    drop(kept);
    let reserved = eager.memory().reserved_bytes;
    assert!(eager.trim_memory() <= reserved);
    eager.reset_peak_memory();
    assert_eq!(eager.memory().peak_bytes, eager.memory().live_bytes);
}
