//! Every op on the CPU device agrees with the reference evaluator, in every type it takes.

use half::{bf16, f16};
use plimsoll_cpu::CpuDevice;
use plimsoll_device::Device;
use plimsoll_graph::op::*;
use plimsoll_graph::step::Named;
use plimsoll_graph::{DType, Graph, Result, Shape, Step, ValueId, lower};
use plimsoll_memory::Pool;
use plimsoll_reference::random_step::{Choices, random_step, sample};
use plimsoll_reference::{Tensor, evaluate};
use proptest::prelude::*;
use std::collections::HashMap;
use std::rc::Rc;

fn to_bytes(tensor: &Tensor) -> Vec<u8> {
    let element = |v: f64| -> Vec<u8> {
        match tensor.dtype {
            DType::F32 => (v as f32).to_ne_bytes().to_vec(),
            DType::F64 => v.to_ne_bytes().to_vec(),
            DType::F16 => f16::from_f64(v).to_ne_bytes().to_vec(),
            DType::BF16 => bf16::from_f64(v).to_ne_bytes().to_vec(),
            DType::I32 => (v as i32).to_ne_bytes().to_vec(),
            DType::I64 => (v as i64).to_ne_bytes().to_vec(),
            DType::U8 | DType::Bool => vec![v as u8],
        }
    };
    tensor.data.iter().flat_map(|&v| element(v)).collect()
}

fn from_bytes(shape: &[usize], dtype: DType, bytes: &[u8]) -> Tensor {
    let element = |b: &[u8]| match dtype {
        DType::F32 => f64::from(f32::from_ne_bytes(b.try_into().unwrap())),
        DType::F64 => f64::from_ne_bytes(b.try_into().unwrap()),
        DType::F16 => f16::from_ne_bytes(b.try_into().unwrap()).to_f64(),
        DType::BF16 => bf16::from_ne_bytes(b.try_into().unwrap()).to_f64(),
        DType::I32 => f64::from(i32::from_ne_bytes(b.try_into().unwrap())),
        DType::I64 => i64::from_ne_bytes(b.try_into().unwrap()) as f64,
        DType::U8 | DType::Bool => f64::from(b[0]),
    };
    Tensor::new(shape, dtype, bytes.chunks_exact(dtype.size()).map(element).collect())
}

/// Runs a step without states on the CPU device.
fn on_cpu(step: &Step, inputs: &[Tensor], threads: usize) -> Vec<Tensor> {
    let device = CpuDevice::new(Some(threads)).unwrap();
    let pool = Pool::new(None);
    let blocks: Vec<_> = inputs
        .iter()
        .map(|t| {
            let bytes = to_bytes(t);
            let mut block = pool.allocate(bytes.len() as u64).unwrap();
            block.as_mut_slice().copy_from_slice(&bytes);
            Rc::new(block)
        })
        .collect();
    let results = device.run_once(&lower(step), &blocks, &pool).unwrap();
    let types = step.outputs.iter().map(|o| step.graph.ty(o.value));
    types.zip(results).map(|(ty, block)| from_bytes(&ty.shape, ty.dtype, block.as_slice())).collect()
}

/// How far a result may be from the reference, relative to the largest element.
fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 1e-10,
        DType::F32 => 2e-5,
        DType::F16 => 1e-2,
        DType::BF16 => 6e-2,
        _ => 0.0,
    }
}

#[track_caller]
fn assert_close(expected: &Tensor, got: &Tensor, worst: DType, what: &str) {
    let scale = expected.data.iter().filter(|v| v.is_finite()).fold(1e-3f64, |m, v| m.max(v.abs()));
    let bound = tolerance(worst).max(tolerance(expected.dtype)) * scale;
    for (i, (e, g)) in expected.data.iter().zip(&got.data).enumerate() {
        let same = e == g || (e.is_nan() && g.is_nan()) || (e - g).abs() <= bound;
        assert!(same, "{what}: element {i} of {}{} is {g}, not {e}", expected.dtype, expected.shape);
    }
}

fn numbers(shape: &[usize], dtype: DType, seed: usize) -> Tensor {
    let n: usize = shape.iter().product();
    let data = (0..n).map(|i| {
        let word = plimsoll_graph::random::philox([i as u32, seed as u32, 0, 0], [7, 9])[0];
        f64::from(word >> 8) / f64::from(1 << 23) - 1.0
    });
    Tensor::new(shape, dtype, data.collect())
}

fn integers(shape: &[usize], below: usize, seed: usize) -> Tensor {
    let n: usize = shape.iter().product();
    let data = (0..n).map(|i| {
        let word = plimsoll_graph::random::philox([i as u32, seed as u32, 1, 0], [7, 9])[0];
        f64::from(word % below as u32)
    });
    Tensor::new(shape, DType::I32, data.collect())
}

/// Runs an op with all its results on the CPU device and in the reference, on one and on three threads.
#[track_caller]
fn compare(op: Op, operands: &[Tensor]) {
    let mut step = Step::new();
    let mut inputs = vec![];
    for (i, operand) in operands.iter().enumerate() {
        inputs.push(step.input(&i.to_string(), &operand.shape, operand.dtype).unwrap());
    }
    let node = step.graph.push(op.clone(), &inputs).unwrap();
    let results: Vec<ValueId> = step.graph.node(node).results().collect();
    step.outputs =
        results.iter().map(|&value| Named { name: format!("{}", value.index()).into(), value }).collect();
    let given: HashMap<ValueId, Tensor> = inputs.iter().copied().zip(operands.iter().cloned()).collect();
    let expected = evaluate(&step.graph, &given, &results);
    let one = on_cpu(&step, operands, 1);
    let three = on_cpu(&step, operands, 3);
    let worst = operands.iter().map(|o| o.dtype).max_by(|a, b| tolerance(*a).total_cmp(&tolerance(*b)));
    for ((expected, one), three) in expected.iter().zip(&one).zip(&three) {
        assert_close(expected, one, worst.unwrap_or(DType::F32), op.name());
        let bits = |t: &Tensor| t.data.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(one), bits(three), "{} on one and on three threads", op.name());
    }
}

const FLOATS: [DType; 4] = [DType::F32, DType::F64, DType::F16, DType::BF16];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn random_graphs_agree(choices in prop::collection::vec(any::<u32>(), 4..160)) {
        let mut choices = Choices::new(&choices);
        let ops = 1 + choices.below(24);
        let step = random_step(&mut choices, ops);
        // As a function: states are inputs, and what they become is an output.
        let mut function = Step { graph: step.graph.clone(), ..Step::new() };
        for state in &step.states {
            function.inputs.push(Named { name: state.name.clone(), value: state.value });
            function.outputs.push(Named { name: state.name.clone(), value: state.next.unwrap_or(state.value) });
        }
        function.inputs.extend(step.inputs.iter().cloned());
        function.outputs.extend(step.outputs.iter().cloned());
        let tensors: Vec<Tensor> =
            function.inputs.iter().enumerate().map(|(i, n)| sample(&function.graph, n.value, i)).collect();
        let given: HashMap<ValueId, Tensor> =
            function.inputs.iter().map(|n| n.value).zip(tensors.iter().cloned()).collect();
        let wanted: Vec<ValueId> = function.outputs.iter().map(|o| o.value).collect();
        let expected = evaluate(&function.graph, &given, &wanted);
        for (expected, got) in expected.iter().zip(on_cpu(&function, &tensors, 2)) {
            assert_close(expected, &got, DType::F32, &function.graph.to_string());
        }
    }

    #[test]
    fn products_agree(m in 1usize..40, k in 1usize..40, n in 1usize..40, batch in 1usize..4, flags in 0u8..16) {
        let (ta, tb) = (flags & 1 == 1, flags & 2 == 2);
        let dtype = FLOATS[usize::from(flags >> 2)];
        let a = if ta { [batch, k, m] } else { [batch, m, k] };
        let b = if tb { [batch, n, k] } else { [batch, k, n] };
        compare(Op::Dot { transpose_a: ta, transpose_b: tb }, &[numbers(&a, dtype, 1), numbers(&b, dtype, 2)]);
    }

    #[test]
    fn convolutions_and_their_gradients_agree(
        (h, w, kh, kw) in (3usize..9, 3usize..9, 1usize..4, 1usize..4),
        (stride, dilation) in (1usize..3, 1usize..3),
        padding in prop::array::uniform4(0usize..3),
        (groups, per_group, out) in (1usize..3, 1usize..4, 1usize..4),
        dtype in prop::sample::select(&FLOATS[..]),
    ) {
        let conv = Conv2d { stride: [stride, 1], padding, dilation: [1, dilation], groups };
        let x = numbers(&[2, h, w, groups * per_group], dtype, 1);
        let filter = numbers(&[kh, kw, per_group, groups * out], dtype, 2);
        if let Ok(shape) = conv.output(&x.shape, &filter.shape) {
            let dy = numbers(&shape, dtype, 3);
            compare(Op::Conv2d(conv), &[x.clone(), filter.clone()]);
            compare(Op::Conv2dInputGrad { conv, input: x.shape }, &[filter.clone(), dy.clone()]);
            compare(Op::Conv2dFilterGrad { conv, filter: filter.shape }, &[x, dy]);
        }
    }

    #[test]
    fn pooling_and_its_gradient_agree(
        (h, w) in (2usize..9, 2usize..9),
        window in prop::array::uniform2(1usize..4),
        stride in prop::array::uniform2(1usize..4),
        padding in prop::array::uniform4(0usize..2),
        max in any::<bool>(),
        dtype in prop::sample::select(&FLOATS[..]),
    ) {
        let pool = Pool2d { kind: if max { PoolKind::Max } else { PoolKind::Mean }, window, stride, padding };
        let x = numbers(&[2, h, w, 3], dtype, 1);
        if let Ok(shape) = pool.output(&x.shape) {
            compare(Op::Pool2d(pool), std::slice::from_ref(&x));
            compare(Op::Pool2dGrad(pool), &[x, numbers(&shape, dtype, 2)]);
        }
    }

    #[test]
    fn attention_and_its_gradient_agree(
        (batch, queries, more, heads, width) in (1usize..3, 1usize..70, 0usize..5, 1usize..4, 1usize..20),
        causal in any::<bool>(),
        dtype in prop::sample::select(&FLOATS[..]),
    ) {
        let attention = Attention { causal, scale: 1.0 / (width as f64).sqrt() };
        let q = numbers(&[batch, queries, heads, width], dtype, 1);
        let k = numbers(&[batch, queries + more, heads, width], dtype, 2);
        let v = numbers(&[batch, queries + more, heads, width], dtype, 3);
        compare(Op::Attention(attention), &[q.clone(), k.clone(), v.clone()]);
        let forward = reference(Op::Attention(attention), &[q.clone(), k.clone(), v.clone()]);
        let dy = numbers(&q.shape, dtype, 4);
        let operands = [q, k, v, forward[0].clone(), forward[1].clone(), dy];
        compare(Op::AttentionGrad(attention), &operands);
        if more == 0 {
            compare(Op::JointAttentionGrad(attention), &operands);
        }
    }

    #[test]
    fn norms_and_their_gradients_agree(
        rows in 1usize..40,
        width in 1usize..80,
        dtype in prop::sample::select(&FLOATS[..]),
    ) {
        let x = numbers(&[rows, 2, width], dtype, 1);
        let (gamma, beta) = (numbers(&[width], dtype, 2), numbers(&[width], dtype, 3));
        let dy = numbers(&x.shape, dtype, 4);
        let epsilon = 1e-2;
        for (forward, backward) in [
            (Op::LayerNorm { epsilon }, Op::LayerNormGrad),
            (Op::BatchNorm { epsilon }, Op::BatchNormGrad { epsilon }),
        ] {
            compare(forward.clone(), &[x.clone(), gamma.clone(), beta.clone()]);
            let results = reference(forward.clone(), &[x.clone(), gamma.clone(), beta.clone()]);
            let operands = [&x, &gamma, &results[1], &results[2], &dy].map(Clone::clone);
            compare(backward, &operands);
            if forward == (Op::LayerNorm { epsilon }) {
                compare(Op::ResidualLayerNormGrad, &[&operands[..], &[numbers(&x.shape, dtype, 5)]].concat());
            }
        }
    }

    #[test]
    fn cross_entropy_and_its_gradient_agree(
        rows in 1usize..40,
        classes in 1usize..300,
        dtype in prop::sample::select(&FLOATS[..]),
    ) {
        let (logits, mut labels) = (numbers(&[rows, classes], dtype, 1), integers(&[rows], classes, 2));
        labels.data[0] = -1.0;
        compare(Op::CrossEntropy, &[logits.clone(), labels.clone()]);
        let results = reference(Op::CrossEntropy, &[logits.clone(), labels.clone()]);
        let dy = numbers(&[rows], dtype.accumulator(), 3);
        compare(Op::CrossEntropyGrad, &[logits, labels, results[1].clone(), dy]);
    }

    #[test]
    fn a_projected_cross_entropy_agrees(
        (rows, width, classes, chunk) in (1usize..40, 1usize..20, 1usize..100, 1usize..40),
        transpose_weight: bool,
        dtype in prop::sample::select(&FLOATS[..2]),
    ) {
        let weight = if transpose_weight { [classes, width] } else { [width, classes] };
        let mut labels = integers(&[rows], classes, 2);
        labels.data[0] = -1.0;
        let (x, weight) = (numbers(&[rows, width], dtype, 1), numbers(&weight, dtype, 3));
        let dy = numbers(&[rows], dtype.accumulator(), 4);
        compare(Op::ProjectedCrossEntropy { transpose_weight, chunk }, &[x, weight, labels, dy]);
    }

    #[test]
    fn gathering_and_scattering_agree(
        rows in 1usize..20,
        width in 1usize..70,
        picks in 1usize..60,
        dtype in prop::sample::select(&FLOATS[..]),
    ) {
        let mut which = integers(&[picks], rows, 1);
        compare(Op::Gather, &[numbers(&[rows, width], dtype, 2), which.clone()]);
        which.data[0] = -1.0;
        compare(Op::ScatterAdd { rows }, &[which, numbers(&[picks, width], dtype, 3)]);
    }

    #[test]
    fn recurrent_layers_and_their_gradients_agree(
        (batch, time, inputs, hidden) in (1usize..5, 1usize..7, 1usize..9, 1usize..20),
        dtype in prop::sample::select(&FLOATS[..2]),
    ) {
        let x = numbers(&[batch, time, inputs], dtype, 1);
        let first = numbers(&[batch, hidden], dtype, 2);
        let cell = numbers(&[batch, hidden], dtype, 3);
        let dy = numbers(&[batch, time, hidden], dtype, 4);
        let [w, u, b] = [&[inputs, 4 * hidden][..], &[hidden, 4 * hidden], &[4 * hidden]];
        let (w, u, b) = (numbers(w, dtype, 5), numbers(u, dtype, 6), numbers(b, dtype, 7));
        let operands = [&x, &w, &u, &b, &first, &cell].map(Clone::clone);
        compare(Op::Lstm, &operands);
        let forward = reference(Op::Lstm, &operands);
        compare(Op::LstmGrad, &[&x, &w, &u, &first, &cell, &forward[0], &forward[1], &forward[2], &dy].map(Clone::clone));

        let [w, u, b] = [&[inputs, 3 * hidden][..], &[hidden, 3 * hidden], &[3 * hidden]];
        let (w, u, b, c) = (numbers(w, dtype, 5), numbers(u, dtype, 6), numbers(b, dtype, 7), numbers(b, dtype, 8));
        let operands = [&x, &w, &u, &b, &c, &first].map(Clone::clone);
        compare(Op::Gru, &operands);
        let forward = reference(Op::Gru, &operands);
        compare(Op::GruGrad, &[&x, &w, &u, &first, &forward[0], &forward[1], &dy].map(Clone::clone));
    }

    #[test]
    fn reductions_over_any_axes_agree(
        shape in prop::collection::vec(1usize..7, 1..5),
        mask in 1u8..16,
        kind in prop::sample::select(vec![Reduction::Sum, Reduction::Max, Reduction::Min]),
        dtype in prop::sample::select(vec![DType::F32, DType::F64, DType::BF16, DType::F16, DType::I32, DType::I64]),
    ) {
        let axes: Vec<usize> = (0..shape.len()).filter(|a| mask >> a & 1 == 1).collect();
        if !axes.is_empty() {
            let mut x = numbers(&shape, dtype, 1);
            x.data.iter_mut().for_each(|v| *v = (*v * 64.0).round());
            let set = plimsoll_graph::Axes::new(&axes, shape.len()).unwrap();
            for wide in [false, true].into_iter().filter(|wide| !wide || dtype.is_float()) {
                compare(Op::Reduce { kind, axes: set, wide }, std::slice::from_ref(&x));
            }
            compare(Op::ArgMax { axis: axes[0] }, &[x]);
        }
    }
}

fn reference(op: Op, operands: &[Tensor]) -> Vec<Tensor> {
    let mut graph = Graph::new();
    let inputs: Vec<ValueId> =
        operands.iter().map(|t| graph.input("x", &t.shape, t.dtype).unwrap()).collect();
    let node = graph.push(op, &inputs).unwrap();
    let results: Vec<ValueId> = graph.node(node).results().collect();
    evaluate(&graph, &inputs.into_iter().zip(operands.iter().cloned()).collect(), &results)
}

#[test]
fn functions_of_one_element_agree_in_every_type() {
    for &f in Unary::ALL {
        let (low, high) = f.tried();
        for dtype in DType::ALL.into_iter().filter(|&dtype| f.domain().result(dtype).is_some()) {
            let x = if dtype.is_float() {
                let mut x = numbers(&[3, 700], dtype, 1);
                let middle = (low + high) / 2.0;
                x.data.iter_mut().for_each(|v| *v = (middle + *v * 4.0).clamp(low, high));
                Tensor::new(&x.shape, dtype, x.data)
            } else if dtype == DType::Bool {
                Tensor::new(&[2], dtype, vec![0.0, 1.0])
            } else {
                let least = if dtype == DType::U8 { 3.0 } else { -3.0 };
                Tensor::new(&[5], dtype, vec![least, 1.0, 0.0, 2.0, 9.0])
            };
            compare(Op::Unary(f), &[x]);
        }
    }
}

#[test]
fn functions_of_two_elements_agree_in_every_type() {
    use Binary::*;
    for f in [Add, Sub, Mul, Div, Max, Min, Pow] {
        for dtype in DType::ALL {
            let refused = dtype == DType::Bool && matches!(f, Sub | Div);
            if refused || (f == Pow && !dtype.is_float()) {
                continue;
            }
            let (mut a, mut b) = (numbers(&[999], dtype, 1), numbers(&[999], dtype, 2));
            for (a, b) in a.data.iter_mut().zip(&mut b.data) {
                let scale = if dtype.is_float() { 1.0 } else { 40.0 };
                (*a, *b) = ((*a * scale).abs() + 0.5, (*b * scale).abs() + 0.5);
            }
            let [a, b] = [a, b]
                .map(|t| Tensor::new(&[999], dtype, t.data.iter().map(|v| v.floor().max(*v)).collect()));
            compare(Op::Binary(f), &[a.clone(), b.clone()]);
            for c in [
                Comparison::Eq,
                Comparison::Ne,
                Comparison::Lt,
                Comparison::Le,
                Comparison::Gt,
                Comparison::Ge,
            ] {
                compare(Op::Compare(c), &[a.clone(), b.clone()]);
            }
        }
    }
}

#[test]
fn every_type_converts_to_every_other() {
    for from in DType::ALL {
        for to in DType::ALL {
            let data = vec![0.0, 1.0, 2.0, 100.0, 3.0];
            let negative =
                if from.is_float() { vec![-1.5, -300.25, 0.5, 1e9, f64::NAN] } else { vec![0.0; 5] };
            for data in [data, negative] {
                compare(Op::Cast { dtype: to }, &[Tensor::new(&[5], from, data)]);
            }
        }
    }
}

#[test]
fn softmax_agrees_for_short_and_long_rows() {
    for dtype in FLOATS {
        for row in [1, 2, 10, 64, 1000, 5000] {
            let x = numbers(&[7, row], dtype, row);
            compare(Op::Softmax, std::slice::from_ref(&x));
            compare(Op::LogSoftmax, &[x]);
        }
    }
}

#[test]
fn random_numbers_are_those_of_the_reference() {
    for dtype in FLOATS {
        for distribution in [Distribution::Uniform, Distribution::Normal] {
            for per_sample in [0, 1000] {
                let state = Tensor::new(&[3], DType::I64, vec![1234567.0, 89.0, 4.0]);
                let shape = Shape::new(&[3, 1000]).unwrap();
                compare(Op::Random { distribution, shape, dtype, stream: 5, per_sample }, &[state]);
            }
        }
    }
}

#[test]
fn moving_elements_agrees_in_every_type() -> Result<()> {
    for dtype in DType::ALL {
        let x = Tensor::new(&[4, 5, 6], dtype, (0..120).map(|i| f64::from(i % 2)).collect());
        let pad = Pad {
            before: Shape::new(&[1, 0, 2])?,
            after: Shape::new(&[0, 3, 1])?,
            between: Shape::new(&[0, 1, 2])?,
            value: 1.0,
        };
        compare(Op::Pad(Box::new(pad)), std::slice::from_ref(&x));
        let slice = Slice {
            start: Shape::new(&[1, 0, 2])?,
            stop: Shape::new(&[4, 5, 6])?,
            step: Shape::new(&[2, 3, 1])?,
        };
        compare(Op::Slice(Box::new(slice)), std::slice::from_ref(&x));
        compare(Op::Permute { order: Shape::new(&[2, 0, 1])? }, std::slice::from_ref(&x));
        compare(Op::Broadcast { shape: Shape::new(&[3, 4, 5, 6])? }, std::slice::from_ref(&x));
        compare(Op::Concat { axis: 1 }, &[x.clone(), x.clone(), x]);
    }
    Ok(())
}

#[test]
fn a_long_sum_keeps_its_digits() {
    let x = numbers(&[3, 200_000], DType::F32, 1);
    let axes = plimsoll_graph::Axes::last(1, 2);
    compare(Op::Reduce { kind: Reduction::Sum, axes, wide: false }, std::slice::from_ref(&x));
    let axes = plimsoll_graph::Axes::new(&[0], 2).unwrap();
    compare(Op::Reduce { kind: Reduction::Sum, axes, wide: false }, &[x]);
}
