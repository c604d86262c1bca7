//! Which heads become one op that makes its logits some rows at a time, and what stays around it.

use plimsoll_graph::op::Op;
use plimsoll_graph::optimizer::Optimizer;
use plimsoll_graph::program::Role;
use plimsoll_graph::step::Initial;
use plimsoll_graph::{DType, Result, Step, ValueId, chunk_loss, gradients, lower};

/// The bytes from which on logits are chunked here.
const LEAST: usize = 1 << 20;

/// What distinguishes one head from another.
#[derive(Clone, Copy, Default)]
struct Head {
    transpose_weight: bool,
    biased: bool,
    /// Whether the logits are an output, or asked for their largest class along another axis.
    logits_reported: bool,
    other_arg_max: bool,
    /// Whether each loss is weighted by itself.
    weighted_by_loss: bool,
    small: bool,
    /// Whether it is of `bf16`, not `f32`.
    half: bool,
    /// The width, if it is not 16.
    width: Option<usize>,
}

/// A training step: `[batch, time, width]` through a weight and a head.
fn step(head: Head) -> Result<Step> {
    let (batch, time, classes) = (8, 128, if head.small { 200 } else { 600 });
    let (dtype, width) = (if head.half { DType::BF16 } else { DType::F32 }, head.width.unwrap_or(16));
    let mut step = Step::new();
    let x = step.input("x", &[batch, time, width], dtype)?;
    let labels = step.input("labels", &[batch, time], DType::I32)?;
    let mut parameter =
        |name: &str, shape: &[usize]| step.state(name, Role::Parameter, shape, dtype, Initial::Constant(0.1));
    let first = parameter("first", &[width, width])?;
    let shape = if head.transpose_weight { [classes, width] } else { [width, classes] };
    let weight = parameter("weight", &shape)?;
    let bias = parameter("bias", &[classes])?;
    let g = &mut step.graph;
    let rows = g.reshape(x, &[batch * time, width])?;
    let hidden = g.dot(rows, first)?;
    let mut logits = g.scoped("head", |g| g.dot_general(hidden, weight, false, head.transpose_weight))?;
    if head.biased {
        logits = g.add(logits, bias)?;
    }
    let logits = g.reshape(logits, &[batch, time, classes])?;
    let (rows, row_labels) =
        (g.reshape(logits, &[batch * time, classes])?, g.reshape(labels, &[batch * time])?);
    let [losses, _] = g.scoped("loss", |g| g.apply_n(Op::CrossEntropy, &[rows, row_labels]))?;
    let losses = if head.weighted_by_loss { g.mul(losses, losses)? } else { losses };
    let loss = g.mean_all(losses)?;
    let chosen = g.arg_max(logits, if head.other_arg_max { 1 } else { 2 })?;
    step.output("loss", loss);
    step.output("chosen", chosen);
    if head.logits_reported {
        step.output("logits", logits);
    }
    step.train(loss, &Optimizer::adam(1e-3))?;
    Ok(step)
}

fn names(step: &Step) -> Vec<&'static str> {
    step.graph.nodes().iter().map(|node| node.op.name()).collect()
}

#[test]
fn the_head_and_its_gradients_become_one_op() {
    for transpose_weight in [false, true] {
        let plain = step(Head { transpose_weight, ..Head::default() }).unwrap();
        let chunked = chunk_loss(&plain, LEAST).unwrap();
        let lines = chunked.graph.to_string();
        let line = lines.lines().find(|line| line.contains("projected_cross_entropy")).unwrap();
        let weight = if transpose_weight { "[600, 16]" } else { "[16, 600]" };
        let flag = if transpose_weight { ", transpose_weight" } else { "" };
        let expected = format!("f32[1024], i32[1024], f32[1024, 16], f32{weight} projected_cross_entropy");
        assert!(line.contains(&expected), "{line}");
        assert!(line.ends_with(&format!("{{chunk=128{flag}}}  # head")), "{line}");
        for gone in ["cross_entropy", "cross_entropy_grad", "arg_max"] {
            assert!(!names(&chunked).contains(&gone), "{gone} is left");
        }
        let largest = |step: &Step| lower(step).buffers.iter().map(|buffer| buffer.bytes()).max();
        assert_eq!(largest(&plain), Some(1024 * 600 * 4));
        assert!(largest(&chunked) < Some(1024 * 600));
    }
}

#[test]
fn states_inputs_outputs_and_gradients_keep_their_names_and_types() {
    let plain = step(Head::default()).unwrap();
    let chunked = chunk_loss(&plain, LEAST).unwrap();
    let describe = |step: &Step| {
        let of = |name: &str, value: ValueId| format!("{name}: {}", step.graph.ty(value));
        let states = step.states.iter().map(|state| {
            let next = state.next.map(|next| step.graph.ty(next));
            format!("{} {:?} {next:?} {:?}", of(&state.name, state.value), state.role, state.initial)
        });
        let named = step.inputs.iter().chain(&step.outputs).map(|named| of(&named.name, named.value));
        let gradients = step.gradients.iter().map(|&value| of(step.graph.scope(value), value));
        states.chain(named).chain(gradients).collect::<Vec<_>>()
    };
    assert_eq!(describe(&plain), describe(&chunked));
    assert!(chunked.states.is_sorted_by_key(|state| state.value), "updates find states by their value");
}

#[test]
fn a_step_is_rewritten_once() {
    let chunked = chunk_loss(&step(Head::default()).unwrap(), LEAST).unwrap();
    assert!(chunk_loss(&chunked, LEAST).is_none());
}

#[test]
fn logits_that_are_few_or_needed_otherwise_stay() {
    let heads = [
        Head { small: true, ..Head::default() },
        Head { biased: true, ..Head::default() },
        Head { logits_reported: true, ..Head::default() },
        Head { other_arg_max: true, ..Head::default() },
        Head { weighted_by_loss: true, ..Head::default() },
    ];
    for head in heads {
        assert!(chunk_loss(&step(head).unwrap(), LEAST).is_none());
    }
}

#[test]
fn halves_stay_where_their_sums_would_take_more_than_their_logits() {
    let narrow = Head { half: true, ..Head::default() };
    assert!(chunk_loss(&step(narrow).unwrap(), LEAST).is_some());
    assert!(chunk_loss(&step(Head { width: Some(512), ..narrow }).unwrap(), LEAST).is_none());
    assert!(chunk_loss(&step(Head { width: Some(512), half: false, ..narrow }).unwrap(), LEAST).is_some());
}

#[test]
fn a_step_that_does_not_train_stays() {
    let mut step = Step::new();
    let x = step.input("x", &[1024, 16], DType::F32).unwrap();
    let weight = step.input("weight", &[16, 300], DType::F32).unwrap();
    let labels = step.input("labels", &[1024], DType::I32).unwrap();
    let logits = step.graph.dot(x, weight).unwrap();
    let [loss, _] = step.graph.apply_n(Op::CrossEntropy, &[logits, labels]).unwrap();
    step.output("loss", loss);
    assert!(chunk_loss(&step, LEAST).is_none());
}

#[test]
fn operands_that_do_not_go_together_are_refused() {
    let mut step = Step::new();
    let x = step.input("x", &[4, 3], DType::F32).unwrap();
    let weight = step.input("weight", &[3, 5], DType::F32).unwrap();
    let labels = step.input("labels", &[4], DType::I32).unwrap();
    let slope = step.input("slope", &[4], DType::F32).unwrap();
    let mut message = |transpose_weight, chunk, operands: [ValueId; 4]| {
        let op = Op::ProjectedCrossEntropy { transpose_weight, chunk };
        step.graph.push(op, &operands).map_err(|error| error.to_string()).err()
    };
    assert_eq!(message(false, 2, [x, weight, labels, slope]), None);
    for (transpose_weight, chunk, operands, expected) in [
        (false, 0, [x, weight, labels, slope], "a chunk of 0 rows; at least 1 is needed"),
        (true, 2, [x, weight, labels, slope], "f32[4, 3] · f32[3, 5]ᵀ: inner extents 3 and 5 differ"),
        (false, 2, [x, weight, slope, slope], "indices and labels are i32 or i64, these are f32[4]"),
        (false, 2, [x, weight, labels, x], "f32[4, 3] where f32[4] is needed"),
    ] {
        let expected = format!("projected_cross_entropy: {expected}");
        assert_eq!(message(transpose_weight, chunk, operands), Some(expected));
    }
}

#[test]
fn its_gradients_have_no_gradients() {
    let mut step = Step::new();
    let x = step.input("x", &[4, 3], DType::F32).unwrap();
    let weight = step.input("weight", &[3, 5], DType::F32).unwrap();
    let labels = step.input("labels", &[4], DType::I32).unwrap();
    let slope = step.input("slope", &[4], DType::F32).unwrap();
    let op = Op::ProjectedCrossEntropy { transpose_weight: false, chunk: 2 };
    let loss = step.graph.apply(op, &[x, weight, labels, slope]).unwrap();
    let error = gradients(&mut step.graph, &[(loss, None)], &[x]).unwrap_err();
    let expected = "second derivatives of projected_cross_entropy are not defined";
    assert_eq!(error.to_string(), format!("projected_cross_entropy: {expected}"));
}
