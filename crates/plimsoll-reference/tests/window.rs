//! A window of micro-batches is one training step.

use plimsoll_graph::optimizer::{Clip, Optimizer};
use plimsoll_graph::program::{Keep, Role};
use plimsoll_graph::step::{Initial, State, StateTable};
use plimsoll_graph::{DType, Graph, Step, ValueId, lower};
use plimsoll_reference::random_step::{Choices, random_step, sample};
use plimsoll_reference::{Tensor, run};
use proptest::prelude::*;

/// A step of random ops whose parameters stay as they are, and a loss to train them by.
fn random_loss(numbers: &[u32]) -> Option<(Step, ValueId)> {
    let mut choices = Choices::new(numbers);
    let ops = 1 + choices.below(24);
    let mut step = random_step(&mut choices, ops);
    step.states.iter_mut().for_each(|state| state.next = None);
    let float = |g: &Graph, value| g.dtype(value) == DType::F32;
    let value = step.outputs.iter().map(|o| o.value).find(|&v| float(&step.graph, v))?;
    let loss = step.graph.sum_all(value).ok()?;
    Some((step, loss))
}

fn optimizer(choice: u32) -> Optimizer {
    match choice % 4 {
        0 => Optimizer::sgd(0.1),
        1 => Optimizer::momentum(0.1, 0.9, true).weight_decay(0.1),
        2 => Optimizer::adamw(0.01).clip(Clip::GlobalNorm(0.5)),
        _ => Optimizer::rmsprop(0.01).clip(Clip::Value(0.2)),
    }
}

/// The states of a step.
fn states(step: &Step) -> StateTable {
    let mut table = StateTable::default();
    table.extend(step).unwrap();
    table
}

fn inputs(step: &Step) -> Vec<Tensor> {
    step.inputs.iter().enumerate().map(|(i, input)| sample(&step.graph, input.value, 7 + i)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// Halves are exact, so two micro-batches with the samples of the batch give the very bits of one step.
    #[test]
    fn two_halves_and_an_update_are_a_training_step(
        numbers in prop::collection::vec(any::<u32>(), 4..160),
        choice in any::<u32>(),
    ) {
        let Some((mut train, loss)) = random_loss(&numbers) else { return Ok(()) };
        let mut part = train.clone();
        let (optimizer, inputs) = (optimizer(choice), inputs(&train));
        if train.train(loss, &optimizer).is_err() {
            return Ok(());
        }
        part.minimise(loss, &optimizer).unwrap();
        part.accumulate(0).unwrap();
        let end = part.end_of_window().unwrap();
        part.adopt_states(&states(&end)).unwrap();
        let begin = |step: &Step| -> Vec<Tensor> {
            let first = |(index, state): (usize, &State)| {
                let ty = step.graph.ty(state.value);
                match state.role {
                    Role::Random => Tensor::new(&ty.shape, ty.dtype, vec![5.0, 2.0, 0.0]),
                    Role::Parameter => sample(&step.graph, state.value, index),
                    _ => Tensor::new(&ty.shape, ty.dtype, vec![0.0; ty.shape.elements()]),
                }
            };
            step.states.iter().enumerate().map(first).collect()
        };
        let [whole, program, last] = [&train, &part, &end].map(lower);
        for program in [&whole, &program, &last] {
            prop_assert_eq!(program.check(), Ok(()), "{}", train.graph);
        }
        let (expected, _) = run(&whole, &begin(&train), &inputs);
        let half = Tensor::new(&[], DType::F32, vec![0.5]);
        let weighted = [inputs, vec![half]].concat();
        let (states, _) = run(&program, &begin(&part), &weighted);
        let (states, _) = run(&program, &states, &weighted);
        let (states, _) = run(&last, &states, &[]);
        if expected.iter().any(|t| t.data.iter().any(|v| !v.is_finite())) {
            return Ok(());
        }
        for (state, got) in end.states.iter().zip(&states) {
            match train.states.iter().position(|s| s.name == state.name) {
                Some(index) => prop_assert_eq!(&expected[index], got, "{} of\n{}", state.name, part.graph),
                None => prop_assert!(got.data.iter().all(|&v| v == 0.0), "{} is not zero again", state.name),
            }
        }
    }
}

/// A step of one weight, squared.
fn small_step() -> (Step, ValueId) {
    let mut step = Step::new();
    step.random_state().unwrap();
    let w = step.state("w", Role::Parameter, &[50, 70], DType::F32, Initial::Constant(1.0)).unwrap();
    let square = step.graph.square(w).unwrap();
    let loss = step.graph.mean(square, &[0, 1]).unwrap();
    (step, loss)
}

/// A part of a window of that step, and the window's end, with the same states.
fn small_window(optimizer: &Optimizer) -> (Step, Step) {
    let (mut part, loss) = small_step();
    part.minimise(loss, optimizer).unwrap();
    part.accumulate(4).unwrap();
    let end = part.end_of_window().unwrap();
    part.adopt_states(&states(&end)).unwrap();
    (part, end)
}

#[test]
fn the_steps_of_a_window_have_the_same_states() {
    let (part, end) = small_window(&Optimizer::adam(0.1));
    let names = |step: &Step| -> Vec<String> { step.states.iter().map(|s| s.name.to_string()).collect() };
    let of_window = ["random", "w", "loss:window", "w:gradient"];
    let of_optimizer = ["optimizer:updates", "optimizer:rate", "w:mean", "w:square"];
    assert_eq!(names(&part), [&of_window[..], &of_optimizer[..]].concat());
    assert_eq!(names(&part), names(&end));
    assert!(end.inputs.is_empty());
}

#[test]
fn samples_are_counted_up_in_a_window_and_updates_at_its_end() {
    let (part, end) = small_window(&Optimizer::sgd(0.1));
    let random = |numbers: [f64; 3]| Tensor::new(&[3], DType::I64, numbers.to_vec());
    let updates = |count: f64| Tensor::scalar(count, DType::I64);
    let states = |first: Tensor| {
        let [w, gradient] = [1, 3].map(|state: usize| sample(&part.graph, part.states[state].value, state));
        let loss = Tensor::scalar(0.5, DType::F32);
        vec![first, w, loss, gradient, updates(5.0), Tensor::scalar(1.0, DType::F64)]
    };
    let weight = Tensor::new(&[], DType::F32, vec![0.5]);
    let (after, _) = run(&lower(&part), &states(random([9.0, 3.0, 8.0])), &[weight]);
    assert_eq!([&after[0], &after[4]], [&random([9.0, 3.0, 12.0]), &updates(5.0)]);
    let (after, _) = run(&lower(&end), &states(random([9.0, 3.0, 12.0])), &[]);
    assert_eq!([&after[0], &after[4]], [&random([9.0, 4.0, 0.0]), &updates(6.0)]);
}

/// The update reads gradients and writes parameters where they are: no second copy of either.
#[test]
fn the_end_of_a_window_needs_little_beside_its_states() {
    let (_, end) = small_window(&Optimizer::adam(0.1));
    let largest = lower(&end).buffers.iter().filter(|b| b.keep != Keep::Always).map(|b| b.bytes()).max();
    assert!(largest.unwrap_or(0) <= 64, "a buffer of {largest:?} bytes");
}

#[test]
fn a_step_that_does_not_accumulate_has_no_end_of_window() {
    let (mut step, loss) = small_step();
    step.train(loss, &Optimizer::sgd(0.1)).unwrap();
    let error = step.end_of_window().unwrap_err();
    assert!(error.to_string().contains("accumulates"), "{error}");
}

#[test]
fn only_batch_normalisation_has_batch_statistics() {
    let (mut step, _) = small_step();
    assert!(!step.has_batch_statistics());
    let x = step.input("x", &[4, 3], DType::F32).unwrap();
    let [scale, shift] = ["scale", "shift"].map(|n| step.input(n, &[3], DType::F32).unwrap());
    step.graph.push(plimsoll_graph::Op::BatchNorm { epsilon: 1e-5 }, &[x, scale, shift]).unwrap();
    assert!(step.has_batch_statistics());
}
