//! Optimizers are objects: each has a group of parameters, slots and a clock of its own.

use plimsoll_graph::optimizer::Optimizer;
use plimsoll_graph::program::Role;
use plimsoll_graph::step::{Initial, State};
use plimsoll_graph::{DType, ErrorKind, Step, ValueId};

fn names(step: &Step) -> Vec<&str> {
    step.states.iter().map(|state| &*state.name).collect()
}

/// A step of one parameter for each name, and the sum of the squares of each.
fn step_of<const N: usize>(parameters: [&str; N]) -> (Step, [ValueId; N]) {
    let mut step = Step::new();
    let losses = parameters.map(|name| {
        let w = step.state(name, Role::Parameter, &[3], DType::F32, Initial::Constant(1.0)).unwrap();
        let square = step.graph.square(w).unwrap();
        step.graph.sum_all(square).unwrap()
    });
    (step, losses)
}

#[test]
fn two_optimizers_of_one_step_train_a_group_each() {
    let (mut step, [actor, critic]) = step_of(["actor/w", "critic/w"]);
    step.minimise(actor, &Optimizer::adam(0.1).only(["actor"]).named("actor")).unwrap();
    step.minimise(critic, &Optimizer::momentum(0.1, 0.9, false).only(["critic"]).named("critic")).unwrap();
    step.update_parameters().unwrap();
    assert_eq!(
        names(&step),
        [
            "actor/w",
            "critic/w",
            "actor:updates",
            "actor:rate",
            "actor/w:actor/mean",
            "actor/w:actor/square",
            "critic:updates",
            "critic:rate",
            "critic/w:critic/momentum",
        ]
    );
    let stays = |state: &&State| state.next.is_none();
    let unchanged: Vec<&str> = step.states.iter().filter(stays).map(|state| &*state.name).collect();
    assert_eq!(unchanged, ["actor:rate", "critic:rate"], "all others change");
    assert_eq!(step.gradients.len(), 2);
    for state in &step.states[2..] {
        assert_eq!((state.role, state.trainable), (Role::Optimizer, false), "{}", state.name);
    }
    for clock in ["actor:updates", "critic:updates"] {
        let clock = step.states.iter().find(|state| &*state.name == clock).unwrap();
        assert_eq!(step.graph.ty(clock.value).to_string(), "i64[]");
        assert_eq!(clock.initial, Initial::Constant(0.0));
    }
    for factor in ["actor:rate", "critic:rate"] {
        let factor = step.states.iter().find(|state| &*state.name == factor).unwrap();
        assert_eq!(step.graph.ty(factor.value).to_string(), "f64[]");
        assert_eq!(factor.initial, Initial::Constant(1.0));
    }
}

#[test]
fn the_states_of_an_optimizer_without_a_name_have_the_plain_ones() {
    let (mut step, [loss]) = step_of(["w"]);
    step.train(loss, &Optimizer::rmsprop_with(0.1, 0.9, 1e-8, 0.5)).unwrap();
    assert_eq!(names(&step), ["w", "optimizer:updates", "optimizer:rate", "w:square", "w:momentum"]);
}

#[test]
fn a_parameter_outside_of_every_group_stays_as_it_is() {
    let (mut step, [a, _]) = step_of(["a", "b"]);
    step.train(a, &Optimizer::sgd(0.1).only(["a"])).unwrap();
    assert_eq!(names(&step), ["a", "b", "optimizer:updates", "optimizer:rate"]);
    assert!(step.states[0].next.is_some() && step.states[1].next.is_none());
}

#[test]
fn the_losses_of_an_optimizer_and_its_clones_are_one_objective() {
    let (mut step, [a, b]) = step_of(["a", "b"]);
    let optimizer = Optimizer::adam(0.1);
    step.minimise(a, &optimizer).unwrap();
    step.minimise(b, &optimizer.clone()).unwrap();
    assert_eq!(step.objectives.len(), 1);
    assert_eq!(step.objectives[0].losses, [a, b]);
    step.update_parameters().unwrap();
    let clocks = names(&step).into_iter().filter(|name| name.ends_with(":updates")).count();
    assert_eq!(clocks, 1, "one update of all of its parameters");
}

#[test]
fn two_optimizers_of_one_parameter_are_refused_by_their_names() {
    let (mut step, [a, b]) = step_of(["net/a", "net/b"]);
    step.minimise(a, &Optimizer::adam(0.1).named("first").only(["net"])).unwrap();
    step.minimise(b, &Optimizer::sgd(0.1).named("second").only(["net/b"])).unwrap();
    for result in [step.clone().update_parameters(), step.clone().accumulate(4)] {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Argument);
        let message = error.to_string();
        for part in ["`first` (Adam)", "`second` (SGD)", "`net/b`"] {
            assert!(message.contains(part), "{part}: {message}");
        }
    }
}

/// Their slots and clocks would be one, though they are two.
#[test]
fn two_optimizers_of_one_name_are_refused() {
    let (mut step, [a, b]) = step_of(["a", "b"]);
    step.minimise(a, &Optimizer::adam(0.1).only(["a"])).unwrap();
    step.minimise(b, &Optimizer::sgd(0.1).only(["b"])).unwrap();
    let message = step.update_parameters().unwrap_err().to_string();
    assert!(message.contains("`optimizer` (Adam)") && message.contains("name them apart"), "{message}");
}

#[test]
fn an_optimizer_with_an_empty_group_is_refused_with_a_parameter_that_there_is() {
    let (mut step, [loss]) = step_of(["generator/w"]);
    let message = step.train(loss, &Optimizer::adam(0.1).only(["gen", "critic"])).unwrap_err().to_string();
    assert!(message.contains("optimizer `optimizer` (Adam) has nothing to train"), "{message}");
    assert!(message.contains("`generator/w`"), "{message}");
    let (mut step, [loss]) = step_of(["w"]);
    step.states[0].trainable = false;
    let message = step.train(loss, &Optimizer::adam(0.1)).unwrap_err().to_string();
    assert!(message.contains("has no parameters, or all are frozen"), "{message}");
}

#[test]
fn only_a_float_scalar_can_be_minimised() {
    let (mut step, _) = step_of(["w"]);
    let w = step.states[0].value;
    let error = step.minimise(w, &Optimizer::sgd(0.1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Gradient);
    assert!(error.to_string().contains("f32[3]"), "{error}");
    let count = step.graph.constant(1.0, DType::I64).unwrap();
    assert!(step.minimise(count, &Optimizer::sgd(0.1)).is_err());
    assert!(step.objectives.is_empty());
}

#[test]
fn there_are_as_many_gradients_as_parameters() {
    let (mut step, _) = step_of(["a", "b"]);
    let gradient = step.graph.full_like(1.0, step.states[0].value).unwrap();
    let message = step.apply_gradients(vec![gradient], &Optimizer::sgd(0.1)).unwrap_err().to_string();
    assert!(message.contains("1 gradients for 2 trainable parameters"), "{message}");
}

#[test]
fn the_random_state_is_declared_only_where_something_is_drawn() {
    let (mut step, [loss]) = step_of(["w"]);
    step.train(loss, &Optimizer::adam(0.1)).unwrap();
    assert!(step.states.iter().all(|state| state.role != Role::Random));
    let (mut step, [loss]) = step_of(["w"]);
    step.random_state().unwrap();
    step.train(loss, &Optimizer::adam(0.1)).unwrap();
    let random = step.states.iter().find(|state| state.role == Role::Random).unwrap();
    assert!(random.next.is_some(), "the next step draws other numbers");
}

#[test]
fn a_window_of_two_optimizers_ends_with_both() {
    let (mut part, [actor, critic]) = step_of(["actor/w", "critic/w"]);
    part.minimise(actor, &Optimizer::adam(0.1).only(["actor"]).named("actor")).unwrap();
    part.minimise(critic, &Optimizer::sgd(0.1).only(["critic"]).named("critic")).unwrap();
    part.accumulate(4).unwrap();
    let sums = ["actor/w", "critic/w", "loss:window", "actor/w:gradient", "critic/w:gradient"];
    assert_eq!(names(&part), sums);
    let end = part.end_of_window().unwrap();
    let of_actor = ["actor:updates", "actor:rate", "actor/w:actor/mean", "actor/w:actor/square"];
    assert_eq!(names(&end), [&sums[..], &of_actor[..], &["critic:updates", "critic:rate"]].concat());
    assert!(end.states.iter().all(|state| state.next.is_some() || state.name.ends_with(":rate")));
}
