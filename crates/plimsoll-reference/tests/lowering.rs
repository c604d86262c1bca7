//! Lowering changes no number: random graphs, evaluated op by op and as programs.

use plimsoll_graph::op::{Attention, Op};
use plimsoll_graph::optimizer::Optimizer;
use plimsoll_graph::program::{Body, Keep, Kernel, Program, Role};
use plimsoll_graph::step::Initial;
use plimsoll_graph::{DType, Graph, Result, StateParts, Step, ValueId, cut_updates, gradients, lower};
use plimsoll_reference::random_step::{Choices, random_step, sample};
use plimsoll_reference::{Tensor, evaluate, run, with_rematerializations};
use proptest::prelude::*;
use std::collections::HashMap;

fn close(a: &Tensor, b: &Tensor) -> bool {
    let near = |(x, y): (&f64, &f64)| x == y || (x - y).abs() <= 1e-5 * x.abs().max(1.0);
    a.data.len() == b.data.len() && a.data.iter().zip(&b.data).all(near)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5000))]

    #[test]
    fn a_program_computes_what_its_graph_says(numbers in prop::collection::vec(any::<u32>(), 4..160)) {
        let mut choices = Choices::new(&numbers);
        let ops = 1 + choices.below(24);
        let step = random_step(&mut choices, ops);
        let given: Vec<ValueId> =
            step.states.iter().map(|s| s.value).chain(step.inputs.iter().map(|i| i.value)).collect();
        let tensors: Vec<Tensor> = given.iter().enumerate().map(|(i, &v)| sample(&step.graph, v, i)).collect();
        let inputs: HashMap<ValueId, Tensor> = given.iter().copied().zip(tensors.iter().cloned()).collect();
        let wanted: Vec<ValueId> = step
            .states
            .iter()
            .map(|s| s.next.unwrap_or(s.value))
            .chain(step.outputs.iter().map(|o| o.value))
            .collect();
        let expected = evaluate(&step.graph, &inputs, &wanted);
        let (states, inputs) = tensors.split_at(step.states.len());
        let program = lower(&step);
        prop_assert_eq!(program.check(), Ok(()), "{}", step.graph);
        let (states, outputs) = run(&program, states, inputs);
        for ((expected, got), wanted) in expected.iter().zip(states.iter().chain(&outputs)).zip(&wanted) {
            prop_assert!(
                close(expected, got),
                "{}\n{expected:?}\n{got:?}\nvalue {wanted:?} of\n{}", step.graph.op(*wanted).name(), step.graph
            );
        }
    }

    #[test]
    fn a_rematerialization_gives_what_the_kernel_gave(numbers in prop::collection::vec(any::<u32>(), 4..160)) {
        let mut choices = Choices::new(&numbers);
        let ops = 1 + choices.below(24);
        let step = random_step(&mut choices, ops);
        let given = step.states.iter().map(|s| s.value).chain(step.inputs.iter().map(|i| i.value));
        let tensors: Vec<Tensor> = given.enumerate().map(|(i, v)| sample(&step.graph, v, i)).collect();
        let (states, inputs) = tensors.split_at(step.states.len());
        let program = lower(&step);
        for rematerialization in &program.rematerializations {
            prop_assert_eq!(rematerialization.writes.len(), 1);
            prop_assert_eq!(program.buffers[rematerialization.writes[0].buffer.index()].keep, Keep::WhileUsed);
        }
        let (program, pairs) = with_rematerializations(&program);
        let (_, outputs) = run(&program, states, inputs);
        for [made, again] in pairs {
            let bits = |t: &Tensor| t.data.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            prop_assert_eq!(bits(&outputs[made]), bits(&outputs[again]), "{}", step.graph);
        }
    }
}

/// What each rematerialization reads and computes: the names of the buffers and the number of its instructions, with the
/// buffer it makes.
fn rematerializations(program: &Program) -> Vec<(Vec<&str>, usize, &str)> {
    let name = |o: &plimsoll_graph::program::Operand| &*program.buffers[o.buffer.index()].name;
    let rematerialization = |k: &plimsoll_graph::program::Kernel| {
        let Body::Loop(body) = &k.body else { panic!("a loop") };
        (k.reads.iter().map(name).collect(), body.instructions.len(), name(&k.writes[0]))
    };
    program.rematerializations.iter().map(rematerialization).collect()
}

#[test]
fn an_activation_is_made_again_from_its_kept_operand_or_from_the_product() {
    let mut step = Step::new();
    let x = step.input("x", &[8, 4], DType::F32).unwrap();
    let b = step.input("b", &[4], DType::F32).unwrap();
    let w = step.input("w", &[4, 4], DType::F32).unwrap();
    let g = &mut step.graph;
    let h = g.add(x, b).unwrap();
    let y = g.gelu(h).unwrap();
    // Both are needed again, so both are stored.
    let ends = [g.dot(h, w).unwrap(), g.dot(y, w).unwrap()];
    ends.into_iter().for_each(|end| step.output("end", end));
    assert_eq!(
        rematerializations(&lower(&step)),
        [(vec!["x", "b"], 3, "add"), (vec!["add"], 2, "gelu"), (vec!["x", "b"], 4, "gelu")]
    );
}

#[test]
fn a_state_that_the_kernel_has_overwritten_makes_nothing_again() {
    let mut step = Step::new();
    let s = step.state("s", Role::Parameter, &[4, 4], DType::F32, Initial::Constant(1.0)).unwrap();
    let g = &mut step.graph;
    let h = g.exp(s).unwrap();
    let next = g.tanh(h).unwrap();
    let end = g.dot(h, h).unwrap();
    step.update(s, next).unwrap();
    step.output("end", end);
    let program = lower(&step);
    assert_eq!((program.kernels[0].writes.len(), program.rematerializations.len()), (2, 0));
}

fn kernels(step: &Step) -> Vec<&'static str> {
    lower(step).kernels.iter().map(|k| k.name()).collect()
}

#[test]
fn bias_and_activation_after_a_product_are_one_kernel() {
    let mut step = Step::new();
    let x = step.input("x", &[8, 4], DType::F32).unwrap();
    let w = step.input("w", &[4, 6], DType::F32).unwrap();
    let b = step.input("b", &[6], DType::F32).unwrap();
    let g = &mut step.graph;
    let y = g.dot(x, w).and_then(|y| g.add(y, b)).and_then(|y| g.relu(y)).unwrap();
    step.output("y", y);
    let program = lower(&step);
    assert_eq!(kernels(&step), ["dot"]);
    assert!(matches!(program.kernels[0].body, Body::WithEpilogue(_)));
    assert_eq!(program.buffers.len(), 4, "operands and the result have buffers, the product has none");
}

#[test]
fn a_product_is_not_handed_on_to_a_loop_that_reads_it_otherwise_or_not_alone() {
    let build = |after: &dyn Fn(&mut Step, ValueId) -> Result<ValueId>| {
        let mut step = Step::new();
        let x = step.input("x", &[8, 8], DType::F32).unwrap();
        let w = step.input("w", &[8, 8], DType::F32).unwrap();
        let y = step.graph.dot(x, w).unwrap();
        let y = after(&mut step, y).unwrap();
        step.output("y", y);
        kernels(&step)
    };
    assert_eq!(build(&|step, y| step.graph.relu(y)), ["dot"]);
    let transposed = |step: &mut Step, y| {
        let flipped = step.graph.permute(y, &[1, 0])?;
        step.graph.add(y, flipped)
    };
    assert_eq!(build(&transposed), ["dot", "fused"], "each element needs another");
    let reported = |step: &mut Step, y| {
        step.output("product", y);
        step.graph.relu(y)
    };
    assert_eq!(build(&reported), ["dot", "fused"], "somebody else reads it");
    let rows = |step: &mut Step, y| step.graph.apply(Op::Softmax, &[y]);
    assert_eq!(build(&rows), ["dot", "fused_rows"], "a row is needed whole");
}

#[test]
fn a_gradient_that_only_its_update_reads_has_no_buffer() {
    let mut step = Step::new();
    let x = step.input("x", &[16, 8], DType::F32).unwrap();
    let dy = step.input("dy", &[16, 6], DType::F32).unwrap();
    let w = step.state("w", Role::Parameter, &[8, 6], DType::F32, Initial::Constant(1.0)).unwrap();
    let g = &mut step.graph;
    let gradient = g.apply(Op::Dot { transpose_a: true, transpose_b: false }, &[x, dy]).unwrap();
    // The weight is read once more after its gradient is known, by a kernel that must come before the update.
    let dx = g.apply(Op::Dot { transpose_a: false, transpose_b: true }, &[dy, w]).unwrap();
    let next = g.sub(w, gradient).unwrap();
    step.update(w, next).unwrap();
    step.gradients.push(gradient);
    step.output("dx", dx);
    let program = lower(&step);
    assert_eq!(kernels(&step), ["dot", "dot"]);
    assert!(program.buffers.iter().all(|buffer| buffer.role != Role::Gradient));
    let sample = |shape: &[usize], seed: usize| {
        let n: usize = shape.iter().product();
        Tensor::new(shape, DType::F32, (0..n).map(|i| ((i * 7 + seed) % 5) as f64 - 2.0).collect())
    };
    let (inputs, old) = ([sample(&[16, 8], 1), sample(&[16, 6], 2)], sample(&[8, 6], 3));
    let given = [x, dy, w].into_iter().zip([inputs[0].clone(), inputs[1].clone(), old.clone()]).collect();
    let expected = evaluate(&step.graph, &given, &[next, dx]);
    let (states, outputs) = run(&program, &[old], &inputs);
    assert_eq!((&states[0], &outputs[0]), (&expected[0], &expected[1]));
}

/// The gradients of attention on thirds of one projection: those of the thirds, and of all of it.
fn attention_on_thirds(step: &mut Step, dtype: DType) -> (ValueId, [ValueId; 3], ValueId) {
    let projection = step.input("projection", &[2, 5, 24], dtype).unwrap();
    let g = &mut step.graph;
    let thirds = [0, 1, 2].map(|part| {
        let third = g.slice_axis(projection, 2, 8 * part..8 * (part + 1)).unwrap();
        g.reshape(third, &[2, 5, 2, 4]).unwrap()
    });
    let attention = Op::Attention(Attention { causal: true, scale: 0.5 });
    let [out, _] = g.apply_n(attention, &thirds).unwrap();
    let all = [projection, thirds[0], thirds[1], thirds[2]];
    let gradients: Vec<ValueId> =
        gradients(g, &[(out, Some(out))], &all).unwrap().into_iter().flatten().collect();
    (projection, [gradients[1], gradients[2], gradients[3]], gradients[0])
}

#[test]
fn gradients_of_attention_on_parts_of_one_projection_are_written_side_by_side() {
    for dtype in [DType::F32, DType::BF16] {
        let mut step = Step::new();
        let (projection, _, gradient) = attention_on_thirds(&mut step, dtype);
        step.output("gradient", gradient);
        assert_eq!(kernels(&step), ["attention", "joint_attention_grad"]);
        let input = sample(&step.graph, projection, 1);
        let given = [(projection, input.clone())].into_iter().collect();
        let expected = evaluate(&step.graph, &given, &[gradient]);
        let (_, got) = run(&lower(&step), &[], &[input]);
        assert_eq!(expected[0].data, got[0].data);
    }
}

#[test]
fn gradients_of_attention_that_somebody_else_reads_are_made_once() {
    let mut step = Step::new();
    let (_, thirds, gradient) = attention_on_thirds(&mut step, DType::F32);
    step.output("gradient", gradient);
    step.output("keys", thirds[1]);
    assert_eq!(kernels(&step), ["attention", "attention_grad", "concat"]);
}

#[test]
fn normalising_by_the_batch_fuses_with_what_follows() {
    for dtype in [DType::F32, DType::BF16] {
        let mut step = Step::new();
        let x = step.input("x", &[2, 3, 3, 4], dtype).unwrap();
        let gamma = step.input("gamma", &[4], dtype).unwrap();
        let g = &mut step.graph;
        let [y, mean, variance] = g.apply_n(Op::BatchNorm { epsilon: 1e-5 }, &[x, gamma, gamma]).unwrap();
        let y = g.add(y, x).and_then(|y| g.relu(y)).unwrap();
        [y, mean, variance].into_iter().for_each(|value| step.output("result", value));
        assert_eq!(kernels(&step), ["batch_moments", "fused"]);
        let inputs = [sample(&step.graph, x, 1), sample(&step.graph, gamma, 2)];
        let given = [x, gamma].into_iter().zip(inputs.iter().cloned()).collect();
        let expected = evaluate(&step.graph, &given, &[y, mean, variance]);
        let (_, got) = run(&lower(&step), &[], &inputs);
        assert!(
            expected.iter().zip(&got).all(|(expected, got)| close(expected, got)),
            "{expected:?}\n{got:?}"
        );
    }
}

#[test]
fn what_an_activation_after_a_batch_norm_needs_again_is_made_again() {
    type Activate = fn(&mut Graph, ValueId) -> Result<ValueId>;
    let silu: Activate = |g, x| g.sigmoid(x).and_then(|slope| g.mul(x, slope));
    let relu6: Activate = |g, x| {
        let (x, six) = (g.relu(x)?, g.full_like(6.0, x)?);
        let above = g.ge(x, six)?;
        g.select(above, six, x)
    };
    for (activate, dtype) in [(silu, DType::F32), (relu6, DType::F32), (silu, DType::BF16)] {
        let mut step = Step::new();
        let x = step.input("x", &[2, 4, 4, 8], dtype).unwrap();
        let gamma = step.input("gamma", &[8], dtype).unwrap();
        let filters = ["a", "b", "c"].map(|name| step.input(name, &[1, 1, 8, 8], dtype).unwrap());
        let g = &mut step.graph;
        let mut y = x;
        for filter in filters {
            y = g.apply(Op::Conv2d(Default::default()), &[y, filter]).unwrap();
            [y, _, _] = g.apply_n(Op::BatchNorm { epsilon: 1e-5 }, &[y, gamma, gamma]).unwrap();
            y = activate(g, y).unwrap();
        }
        let loss = g.sum(y, &[0, 1, 2, 3]).unwrap();
        let found = gradients(g, &[(loss, None)], &filters).unwrap();
        let wanted: Vec<ValueId> = [loss].into_iter().chain(found.into_iter().flatten()).collect();
        wanted.iter().for_each(|&value| step.output("result", value));
        let program = lower(&step);

        // Of each layer but the last, the next one's gradient needs what it makes, and nothing else outlives its loop.
        let first = program.kernels.iter().position(|k| k.name() == "batch_norm_grad").unwrap();
        let large = |kernel: &Kernel| kernel.writes.iter().filter(|w| w.view.shape.elements() == 256).count();
        let loops = program.kernels[..first].iter().filter(|k| matches!(k.body, Body::Loop(_)));
        let written: Vec<usize> = loops.map(large).filter(|&count| count > 0).collect();
        assert_eq!(&written[..2], [1, 1], "{dtype}: {:?}", kernels(&step));

        let given = [x, gamma].into_iter().chain(filters);
        let inputs: Vec<Tensor> = given.clone().enumerate().map(|(i, v)| sample(&step.graph, v, i)).collect();
        let expected = evaluate(&step.graph, &given.zip(inputs.iter().cloned()).collect(), &wanted);
        let (_, got) = run(&program, &[], &inputs);
        assert!(expected.iter().zip(&got).all(|(a, b)| close(a, b)), "{expected:?}\n{got:?}");
    }
}

#[test]
fn softmax_and_what_follows_it_are_one_kernel() {
    let mut step = Step::new();
    let x = step.input("x", &[8, 4], DType::F32).unwrap();
    let g = &mut step.graph;
    let y = g.apply(Op::Softmax, &[x]).and_then(|y| g.mul_scalar(y, 2.0)).and_then(|y| g.add(y, x)).unwrap();
    step.output("y", y);
    assert_eq!(kernels(&step), ["fused_rows"]);
}

#[test]
fn an_adam_update_is_one_kernel_that_writes_its_states_in_place() {
    let mut step = Step::new();
    let w = step.state("w", Role::Parameter, &[5, 7], DType::F32, Initial::Constant(1.0)).unwrap();
    let g = &mut step.graph;
    let square = g.square(w).unwrap();
    let loss = g.sum_all(square).unwrap();
    step.output("loss", loss);
    step.train(loss, &plimsoll_graph::optimizer::Optimizer::adam(1e-3)).unwrap();
    let program = lower(&step);
    let states: Vec<usize> = program.states.iter().map(|s| s.index()).collect();
    let writers: Vec<_> =
        program.kernels.iter().filter(|k| k.writes.iter().any(|w| w.buffer.index() == states[0])).collect();
    assert_eq!(writers.len(), 1);
    let written: Vec<usize> = writers[0].writes.iter().map(|w| w.buffer.index()).collect();
    // The weight, the mean and the mean of squares; the clock and the factor of rates are between them.
    assert!([0, 3, 4].iter().all(|&s| written.contains(&states[s])), "{written:?} of {states:?}");
}

#[test]
fn what_nothing_needs_is_not_computed() {
    let mut step = Step::new();
    let x = step.input("x", &[3], DType::F32).unwrap();
    let y = step.graph.exp(x).unwrap();
    step.graph.log(y).unwrap();
    step.output("y", y);
    let program = lower(&step);
    let Body::Loop(body) = &program.kernels[0].body else { panic!("a loop") };
    assert_eq!((program.kernels.len(), body.instructions.len()), (1, 2));
}

#[test]
fn states_may_exchange_values() {
    let mut step = Step::new();
    let a = step.state("a", Role::Parameter, &[2], DType::F32, Initial::Constant(0.0)).unwrap();
    let b = step.state("b", Role::Parameter, &[2], DType::F32, Initial::Constant(0.0)).unwrap();
    step.update(a, b).unwrap();
    step.update(b, a).unwrap();
    let (one, two) =
        (Tensor::new(&[2], DType::F32, vec![1.0; 2]), Tensor::new(&[2], DType::F32, vec![2.0; 2]));
    let (states, _) = run(&lower(&step), &[one.clone(), two.clone()], &[]);
    assert_eq!(states, [two, one]);
}

#[test]
fn a_norm_and_its_gradient_may_replace_what_they_read_only_once() {
    let epsilon = 1e-5;
    for (norm, grad) in [
        (Op::LayerNorm { epsilon }, Op::LayerNormGrad),
        (Op::BatchNorm { epsilon }, Op::BatchNormGrad { epsilon }),
    ] {
        let mut step = Step::new();
        let x = step.input("x", &[8, 4], DType::F32).unwrap();
        let u = step.input("u", &[8, 4], DType::F32).unwrap();
        let gamma = step.input("gamma", &[4], DType::F32).unwrap();
        let g = &mut step.graph;
        let [y, mean, spread] = g.apply_n(norm.clone(), &[x, gamma, gamma]).unwrap();
        let dx = g.apply(grad.clone(), &[x, gamma, mean, spread, u]).unwrap();
        // Here x is the gradient of y as well, and no result may take its place.
        let twice = g.apply(grad.clone(), &[x, gamma, mean, spread, x]).unwrap();
        [y, dx, twice].into_iter().for_each(|value| step.output("result", value));
        let pairs: Vec<_> = lower(&step)
            .kernels
            .iter()
            .filter(|k| [norm.name(), grad.name()].contains(&k.name()))
            .map(|k| k.in_place.clone())
            .collect();
        // Batch norm has no kernel: normalising is a loop.
        let forward = if norm == (Op::LayerNorm { epsilon }) { vec![vec![(0, 0)]] } else { vec![] };
        let backward = [vec![(0, 0), (0, 4)], vec![]];
        assert_eq!(pairs, [&forward[..], &backward].concat(), "{}", norm.name());
    }
}

#[test]
fn the_gradient_of_a_norm_is_added_by_its_kernel_to_what_comes_past_a_block() {
    let kernels = |dtype: DType, build: fn(&mut Graph, [ValueId; 3]) -> Vec<ValueId>| {
        let mut step = Step::new();
        let [x, u, past] = ["x", "u", "past"].map(|name| step.input(name, &[8, 4], dtype).unwrap());
        let gamma = step.input("gamma", &[4], dtype).unwrap();
        let g = &mut step.graph;
        let [_, mean, spread] = g.apply_n(Op::LayerNorm { epsilon: 1e-5 }, &[x, gamma, gamma]).unwrap();
        let [dx, dgamma, _] = g.apply_n(Op::LayerNormGrad, &[x, gamma, mean, spread, u]).unwrap();
        let results = build(g, [dx, past, u]);
        [&results[..], &[dgamma]].concat().into_iter().for_each(|value| step.output("result", value));
        let program = lower(&step);
        let given = step.inputs.iter().map(|input| input.value);
        let inputs: Vec<Tensor> = given.clone().enumerate().map(|(i, v)| sample(&step.graph, v, i)).collect();
        let (_, outputs) = run(&program, &[], &inputs);
        let wanted: Vec<ValueId> = step.outputs.iter().map(|output| output.value).collect();
        let expected = evaluate(&step.graph, &given.zip(inputs).collect(), &wanted);
        assert_eq!(outputs, expected, "the same bits");
        program.kernels.iter().map(Kernel::name).collect::<Vec<_>>()
    };
    for dtype in [DType::F32, DType::BF16] {
        let added = kernels(dtype, |g, [dx, past, _]| vec![g.add(past, dx).unwrap()]);
        assert_eq!(added, ["layer_norm", "residual_layer_norm_grad"]);
        let used_twice = kernels(dtype, |g, [dx, past, _]| vec![g.add(dx, past).unwrap(), dx]);
        assert_eq!(used_twice, ["layer_norm", "layer_norm_grad", "fused"]);
        // What is added is not there yet when the gradient is computed.
        let later = kernels(dtype, |g, [dx, past, u]| {
            let later = g.mul(past, u).unwrap();
            vec![g.add(dx, later).unwrap()]
        });
        assert_eq!(later, ["layer_norm", "layer_norm_grad", "fused"]);
    }
}

/// A table of 2.5 MiB whose rows are looked up, and a weight of as much that is multiplied by, trained by Adam.
fn step_of_large_updates() -> Result<Step> {
    let mut step = Step::new();
    let table = step.state("table", Role::Parameter, &[2560, 256], DType::F32, Initial::Constant(0.5))?;
    let weight = step.state("weight", Role::Parameter, &[256, 2560], DType::F32, Initial::Constant(0.25))?;
    let rows = step.input("rows", &[5], DType::I32)?;
    let g = &mut step.graph;
    let x = g.apply(Op::Gather, &[table, rows])?;
    let y = g.dot(x, weight)?;
    let square = g.square(y)?;
    let loss = g.sum_all(square)?;
    step.output("loss", loss);
    step.train(loss, &Optimizer::adam(0.01))?;
    Ok(step)
}

#[test]
fn slots_of_large_updates_are_in_parts_and_numbers_do_not_change() {
    let step = step_of_large_updates().unwrap();
    let program = lower(&step);
    let parts = StateParts::of(&[&program]);
    let cut = cut_updates(program.clone(), &parts).unwrap();
    assert_eq!(cut.check(), Ok(()));
    let shape_of = |state: usize| program.buffers[program.states[state].index()].shape;
    let firsts: Vec<Vec<usize>> = (0..program.states.len()).map(|s| parts.firsts(s, &shape_of(s))).collect();
    let in_parts = |s: usize| firsts[s].len() > 1;
    for (state, id) in program.states.iter().enumerate() {
        let of = &program.buffers[id.index()];
        assert_eq!(in_parts(state), of.role == Role::Optimizer && of.bytes() > 2 << 20, "`{}`", of.name);
    }
    // Means of squares are positive.
    let positive = |v: ValueId| {
        let mut of = sample(&step.graph, v, v.index());
        of.data.iter_mut().for_each(|x| *x = x.abs());
        of
    };
    let states: Vec<Tensor> = step.states.iter().map(|s| positive(s.value)).collect();
    let inputs = [Tensor::new(&[5], DType::I32, vec![0.0, 2559.0, 7.0, 7.0, 1300.0])];
    let (expected, _) = run(&program, &states, &inputs);
    // The parts of what is given, and of what comes out, are rows of the whole.
    let slices = |whole: &[Tensor]| -> Vec<Tensor> {
        let mut buffers = cut.states.iter().map(|id| &cut.buffers[id.index()]);
        let parts =
            whole.iter().zip(&firsts).flat_map(|(whole, firsts)| firsts.iter().map(move |&f| (whole, f)));
        let part = |(whole, first): (&Tensor, usize)| {
            let of = buffers.next().expect("a buffer for each part");
            Tensor::new(&of.shape, of.dtype, whole.data[first..][..of.shape.elements()].to_vec())
        };
        parts.map(part).collect()
    };
    let (got, _) = run(&cut, &slices(&states), &inputs);
    assert!(got == slices(&expected), "a part differs");
}
