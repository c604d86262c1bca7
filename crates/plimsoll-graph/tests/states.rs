//! The steps of a run share one table of states, so that they find them at the same offsets.

use plimsoll_graph::optimizer::Optimizer;
use plimsoll_graph::program::Role;
use plimsoll_graph::step::Initial;
use plimsoll_graph::{DType, StateTable, Step, lower};

fn names(step: &Step) -> Vec<&str> {
    step.states.iter().map(|state| &*state.name).collect()
}

/// A step that reports the sum of some parameters.
fn step_of(parameters: &[&str]) -> Step {
    let mut step = Step::new();
    let mut total = step.graph.constant(0.0, DType::F32).unwrap();
    for name in parameters {
        let w = step.state(name, Role::Parameter, &[2, 3], DType::F32, Initial::Normal { deviation: 0.5 });
        let sum = step.graph.sum_all(w.unwrap()).unwrap();
        total = step.graph.add(total, sum).unwrap();
    }
    step.output("total", total);
    step
}

fn trained(parameters: &[&str]) -> Step {
    let mut step = step_of(parameters);
    let loss = step.outputs[0].value;
    step.train(loss, &Optimizer::momentum(0.1, 0.9, false)).unwrap();
    step
}

fn table_of(steps: &[&Step]) -> StateTable {
    let mut table = StateTable::default();
    steps.iter().try_for_each(|step| table.extend(step)).unwrap();
    table
}

#[test]
fn a_table_has_every_state_once_in_the_order_in_which_they_were_declared() {
    let (first, second) = (trained(&["a", "b"]), step_of(&["c", "b"]));
    let table = table_of(&[&first, &second, &first]);
    let expected = ["a", "b", "optimizer:updates", "optimizer:rate", "a:momentum", "b:momentum", "c"];
    assert_eq!(table.iter().map(|(state, _)| &*state.name).collect::<Vec<_>>(), expected);
    for (position, name) in expected.iter().enumerate() {
        assert_eq!(table.position(name), Some(position));
    }
    assert_eq!(table.position("d"), None);
    assert!(table.iter().all(|(state, _)| state.next.is_none()), "what they become is each step's own");
}

#[test]
fn a_state_is_trainable_if_it_is_in_one_of_the_steps() {
    let (mut frozen, free) = (step_of(&["w"]), step_of(&["w"]));
    frozen.states[0].trainable = false;
    let trainable = |steps: &[&Step]| table_of(steps).iter().next().unwrap().0.trainable;
    assert!(!trainable(&[&frozen]));
    assert!(trainable(&[&frozen, &free]) && trainable(&[&free, &frozen]));
}

#[test]
fn steps_that_disagree_on_a_type_are_refused_by_name() {
    for (shape, dtype) in [(&[3, 2][..], DType::F32), (&[2, 3], DType::F16), (&[], DType::F32)] {
        let mut other = Step::new();
        other.state("w", Role::Parameter, shape, dtype, Initial::Constant(0.0)).unwrap();
        let ty = other.graph.ty(other.states[0].value).to_string();
        let mut table = table_of(&[&step_of(&["v", "w"])]);
        for error in [table.clone().extend(&other).unwrap_err(), other.adopt_states(&table).unwrap_err()] {
            let message = error.to_string();
            assert!(message.contains("`w` is f32[2, 3] in one step") && message.contains(&ty), "{message}");
        }
        table.extend(&step_of(&["u"])).expect("others are added");
    }
}

#[test]
fn adopting_a_table_orders_what_a_step_has_and_adds_what_it_has_not() {
    let (train, mut evaluate) = (trained(&["a", "b"]), step_of(&["b"]));
    let b = evaluate.states[0].value;
    let table = table_of(&[&train, &evaluate]);
    evaluate.adopt_states(&table).unwrap();
    assert_eq!(names(&evaluate), names(&train));
    assert_eq!(evaluate.states[1].value, b, "its own stay what they are");
    for (added, original) in evaluate.states.iter().zip(&train.states) {
        assert_eq!((added.role, added.initial), (original.role, original.initial), "{}", added.name);
        assert_eq!(evaluate.graph.ty(added.value), train.graph.ty(original.value), "{}", added.name);
        assert!(added.next.is_none(), "{} is not changed by it", added.name);
    }
    let mut again = train.clone();
    again.adopt_states(&table).unwrap();
    let next = |step: &Step| step.states.iter().map(|state| state.next).collect::<Vec<_>>();
    assert_eq!(next(&again), next(&train), "what is updated still is");
    let bytes = |step: &Step| {
        let program = lower(step);
        program.states.iter().map(|id| program.buffers[id.index()].bytes()).collect::<Vec<_>>()
    };
    assert_eq!(bytes(&evaluate), bytes(&train), "their programs agree on every state");
}

#[test]
fn a_step_with_a_state_that_the_table_has_not_is_refused() {
    let table = table_of(&[&step_of(&["a"])]);
    let message = step_of(&["a", "b"]).adopt_states(&table).unwrap_err().to_string();
    assert!(message.contains("the state `b` is not declared"), "{message}");
}
