//! What several optimizers of one run do to numbers.

use plimsoll_graph::optimizer::Optimizer;
use plimsoll_graph::program::Role;
use plimsoll_graph::schedule::Schedule;
use plimsoll_graph::step::Initial;
use plimsoll_graph::{DType, StateTable, Step, ValueId, lower};
use plimsoll_reference::{Tensor, run};

/// The states of a run by name, and the steps over them.
struct Run {
    states: Vec<Tensor>,
    names: Vec<Box<str>>,
}

impl Run {
    /// The steps, with one table of states, and its first values.
    fn new<const N: usize>(mut steps: [Step; N]) -> (Run, [Step; N]) {
        let mut table = StateTable::default();
        steps.iter().try_for_each(|step| table.extend(step)).unwrap();
        steps.iter_mut().try_for_each(|step| step.adopt_states(&table)).unwrap();
        let (states, names) = table
            .iter()
            .map(|(state, ty)| {
                let Initial::Constant(value) = state.initial else { panic!("no other is declared here") };
                (Tensor::new(&ty.shape, ty.dtype, vec![value; ty.shape.elements()]), state.name.clone())
            })
            .unzip();
        (Run { states, names }, steps)
    }

    fn step(&mut self, step: &Step) {
        (self.states, _) = run(&lower(step), &self.states, &[]);
    }

    fn state(&self, name: &str) -> &[f64] {
        let index = self.names.iter().position(|known| &**known == name);
        &self.states[index.unwrap_or_else(|| panic!("no `{name}` in {:?}", self.names))].data
    }
}

/// Parameters `actor/w` and `critic/w`, and for each the sum of its elements to the fourth power.
fn two_parameters() -> (Step, [ValueId; 2]) {
    let mut step = Step::new();
    let losses = [("actor/w", 1.5), ("critic/w", -0.75)].map(|(name, first)| {
        let w = step.state(name, Role::Parameter, &[2], DType::F32, Initial::Constant(first)).unwrap();
        let square = step.graph.square(w).unwrap();
        let fourth = step.graph.square(square).unwrap();
        step.graph.sum_all(fourth).unwrap()
    });
    (step, losses)
}

fn actor() -> Optimizer {
    Optimizer::adam(0.1).named("actor").only(["actor"])
}

fn critic() -> Optimizer {
    Optimizer::momentum(0.01, 0.9, true).named("critic").only(["critic"])
}

#[test]
fn two_optimizers_of_one_step_do_to_their_groups_what_each_does_alone() {
    let (mut both, [a, c]) = two_parameters();
    both.minimise(a, &actor()).unwrap();
    both.minimise(c, &critic()).unwrap();
    both.update_parameters().unwrap();
    let (mut first, [loss, _]) = two_parameters();
    first.train(loss, &actor()).unwrap();
    let (mut second, [_, loss]) = two_parameters();
    second.train(loss, &critic()).unwrap();
    let (mut together, [both]) = Run::new([both]);
    let (mut apart, [first, second]) = Run::new([first, second]);
    for _ in 0..5 {
        together.step(&both);
        apart.step(&first);
        apart.step(&second);
        for name in &together.names {
            assert_eq!(together.state(name), apart.state(name), "{name}");
        }
    }
    assert_eq!(together.names.len(), apart.names.len());
    assert_ne!(together.state("actor/w"), [1.5; 2]);
    assert_ne!(together.state("critic/w"), [-0.75; 2]);
}

#[test]
fn the_losses_of_one_optimizer_are_added_up() {
    // The gradients are 4w³ and 2w, and all numbers are exact.
    let losses = |step: &mut Step| {
        let w = step.state("w", Role::Parameter, &[], DType::F32, Initial::Constant(0.5)).unwrap();
        let square = step.graph.square(w).unwrap();
        [step.graph.square(square).unwrap(), square]
    };
    let mut step = Step::new();
    let [fourth, square] = losses(&mut step);
    let sgd = Optimizer::sgd(0.25);
    step.minimise(fourth, &sgd).unwrap();
    step.minimise(square, &sgd).unwrap();
    step.update_parameters().unwrap();
    let (mut run, [step]) = Run::new([step]);
    run.step(&step);
    assert_eq!(run.state("w"), [0.5 - 0.25 * (4.0 * 0.125 + 2.0 * 0.5)]);
    assert_eq!(run.state("optimizer:updates"), [1.0], "that is one update");
}

#[test]
fn a_clock_counts_the_updates_of_its_optimizer_alone() {
    let (mut first, [loss, _]) = two_parameters();
    first.train(loss, &actor()).unwrap();
    let (mut second, [_, loss]) = two_parameters();
    second.train(loss, &critic()).unwrap();
    let (mut run, [first, second]) = Run::new([first, second]);
    for step in [&first, &second, &first, &first] {
        run.step(step);
    }
    assert_eq!([run.state("actor:updates"), run.state("critic:updates")], [[3.0], [1.0]]);
}

#[test]
fn an_optimizer_goes_on_with_its_slots_and_its_clock_in_another_step() {
    let adam = Optimizer::adam(0.1);
    let step = || {
        let (mut step, [a, c]) = two_parameters();
        let loss = step.graph.add(a, c).unwrap();
        step.train(loss, &adam).unwrap();
        step
    };
    let (mut one, [only]) = Run::new([step()]);
    let (mut two, [even, odd]) = Run::new([step(), step()]);
    for _ in 0..3 {
        one.step(&only);
        one.step(&only);
        two.step(&even);
        two.step(&odd);
    }
    assert_eq!(one.names, two.names);
    assert_eq!(one.states, two.states);
    assert_eq!(two.state("optimizer:updates"), [6.0]);
}

#[test]
fn a_window_of_two_optimizers_is_one_step_of_both() {
    let losses = |step: &mut Step, [a, c]: [ValueId; 2]| {
        step.minimise(a, &actor()).unwrap();
        step.minimise(c, &critic()).unwrap();
    };
    let (mut whole, of_whole) = two_parameters();
    losses(&mut whole, of_whole);
    whole.update_parameters().unwrap();
    let (mut part, of_part) = two_parameters();
    losses(&mut part, of_part);
    part.accumulate(1).unwrap();
    let end = part.end_of_window().unwrap();
    let (mut one, [whole]) = Run::new([whole]);
    let (mut window, [part, end]) = Run::new([part, end]);
    let half = Tensor::scalar(0.5, DType::F32);
    for _ in 0..3 {
        one.step(&whole);
        for _ in 0..2 {
            (window.states, _) = run(&lower(&part), &window.states, std::slice::from_ref(&half));
        }
        window.step(&end);
        for name in &one.names {
            assert_eq!(one.state(name), window.state(name), "{name}");
        }
    }
}

#[test]
fn the_factor_of_rates_multiplies_what_the_schedule_says_and_one_changes_no_bit() {
    let cosine = |base| Schedule::cosine(base, 20).warmup(3);
    let made: [fn(Schedule) -> Optimizer; 3] =
        [Optimizer::sgd, Optimizer::adamw, |rate| Optimizer::rmsprop(rate).weight_decay(0.1)];
    for optimizer in made {
        let step = |base: f64| {
            let (mut step, [a, c]) = two_parameters();
            let loss = step.graph.add(a, c).unwrap();
            step.train(loss, &optimizer(cosine(base))).unwrap();
            step
        };
        let ((mut halved, [full]), (mut half, [expected])) =
            (Run::new([step(0.125)]), Run::new([step(0.0625)]));
        let factor = halved.names.iter().position(|name| &**name == "optimizer:rate").unwrap();
        halved.states[factor].data[0] = 0.5;
        for _ in 0..5 {
            halved.step(&full);
            half.step(&expected);
            for name in halved.names.iter().filter(|name| !name.ends_with(":rate")) {
                assert_eq!(halved.state(name), half.state(name), "{name}");
            }
        }
        assert_eq!(
            [halved.state("optimizer:rate"), half.state("optimizer:rate")],
            [[0.5], [1.0]],
            "they stay"
        );
    }
}
