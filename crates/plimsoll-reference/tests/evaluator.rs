//! The evaluator against known numbers, and structured ops against the primitives they could be written with.

use plimsoll_graph::op::{Attention, Binary, Conv2d, Distribution, Op, Pool2d, PoolKind, Reduction, Unary};
use plimsoll_graph::{DType, Graph, Result, ValueId};
use plimsoll_reference::{Tensor, evaluate};
use proptest::prelude::*;
use std::collections::HashMap;

fn row(dtype: DType, data: &[f64]) -> Tensor {
    Tensor::new(&[data.len()], dtype, data.to_vec())
}

/// The values that `build` makes from inputs.
fn run<const N: usize>(
    tensors: &[Tensor],
    build: impl FnOnce(&mut Graph, &[ValueId]) -> Result<[ValueId; N]>,
) -> [Tensor; N] {
    let mut g = Graph::new();
    let ids: Vec<ValueId> = tensors.iter().map(|t| g.input("x", &t.shape, t.dtype).unwrap()).collect();
    let wanted = build(&mut g, &ids).unwrap();
    let inputs: HashMap<ValueId, Tensor> = ids.into_iter().zip(tensors.iter().cloned()).collect();
    evaluate(&g, &inputs, &wanted).try_into().unwrap()
}

fn unary(function: Unary, x: Tensor) -> Vec<f64> {
    let [y] = run(&[x], |g, x| Ok([g.apply(Op::Unary(function), x)?]));
    y.data
}

fn binary(function: Binary, a: Tensor, b: Tensor) -> Vec<f64> {
    let [y] = run(&[a, b], |g, x| Ok([g.apply(Op::Binary(function), x)?]));
    y.data
}

fn close(a: &Tensor, b: &Tensor) {
    assert_eq!(a.shape, b.shape);
    for (a, b) in a.data.iter().zip(&b.data) {
        assert!((a - b).abs() <= 1e-12 * (1.0 + b.abs()), "{a} and {b}");
    }
}

#[test]
fn functions_have_their_known_values() {
    let at = |function, x: f64| unary(function, row(DType::F64, &[x]))[0];
    for (function, x, expected) in [
        (Unary::Erf, 0.5, 0.520_499_877_813_046_5),
        (Unary::Erf, -3.0, -0.999_977_909_503_001_4),
        (Unary::Gelu, 1.0, 0.841_344_746_068_542_9),
        (Unary::Gelu, -10.0, -7.619_853_024_160_527e-23),
        (Unary::GeluSlope, 0.0, 0.5),
        (Unary::Softplus, 0.0, std::f64::consts::LN_2),
        (Unary::Softplus, 800.0, 800.0),
        (Unary::Sigmoid, -800.0, 0.0),
        (Unary::Rsqrt, 4.0, 0.5),
        (Unary::Sign, -3.0, -1.0),
        (Unary::Sign, 0.0, 0.0),
        (Unary::Relu, -3.0, 0.0),
        (Unary::Floor, -0.5, -1.0),
    ] {
        let found = at(function, x);
        assert!((found - expected).abs() <= 1e-14 * expected.abs(), "{function:?}({x}) = {found}");
    }
    assert!(at(Unary::Relu, f64::NAN).is_nan());
    assert_eq!(unary(Unary::IsFinite, row(DType::F32, &[1.0, f64::INFINITY, f64::NAN])), [1.0, 0.0, 0.0]);
}

#[test]
fn integers_wrap_and_divide_by_zero_to_zero() {
    let i32s = |data: &[f64]| row(DType::I32, data);
    let most = f64::from(i32::MAX);
    assert_eq!(binary(Binary::Add, i32s(&[most]), i32s(&[1.0])), [f64::from(i32::MIN)]);
    assert_eq!(binary(Binary::Mul, i32s(&[most]), i32s(&[most])), [1.0]);
    assert_eq!(binary(Binary::Div, i32s(&[-7.0, 7.0]), i32s(&[2.0, 0.0])), [-3.0, 0.0]);
    assert_eq!(binary(Binary::Sub, row(DType::U8, &[1.0]), row(DType::U8, &[2.0])), [255.0]);
    let bools = |data: &[f64]| row(DType::Bool, data);
    assert_eq!(binary(Binary::Add, bools(&[1.0, 0.0]), bools(&[1.0, 0.0])), [1.0, 0.0]);
    assert_eq!(binary(Binary::Mul, bools(&[1.0, 0.0]), bools(&[1.0, 1.0])), [1.0, 0.0]);
}

#[test]
fn every_result_is_rounded_to_its_type() {
    for (dtype, step) in
        [(DType::F32, 0.5f64.powi(23)), (DType::F16, 0.5f64.powi(10)), (DType::BF16, 0.5f64.powi(7))]
    {
        let sum = |b: f64| binary(Binary::Add, row(dtype, &[1.0]), row(dtype, &[b]))[0];
        assert_eq!(sum(0.5 * step), 1.0, "a tie rounds to even in {dtype}");
        assert_eq!(sum(0.75 * step), 1.0 + step);
        assert_eq!(sum(1.5 * step), 1.0 + 2.0 * step);
    }
    assert_eq!(Tensor::scalar(1e5, DType::F16).data, [f64::INFINITY]);
}

#[test]
fn casts_truncate_and_saturate() {
    let cast = |data: &[f64], dtype| {
        let [y] = run(&[row(DType::F64, data)], |g, x| Ok([g.cast(x[0], dtype)?]));
        y.data
    };
    assert_eq!(cast(&[-1.7, 1.7, 1e20, f64::NAN], DType::I32), [-1.0, 1.0, f64::from(i32::MAX), 0.0]);
    assert_eq!(cast(&[-1.0, 300.0], DType::U8), [0.0, 255.0]);
    assert_eq!(cast(&[0.0, 0.5], DType::Bool), [0.0, 1.0]);
}

#[test]
fn not_a_number_is_contagious_in_maxima() {
    let x = || Tensor::new(&[2, 2], DType::F64, vec![1.0, f64::NAN, 3.0, 2.0]);
    let [max, position] =
        run(&[x()], |g, x| Ok([g.reduce(Reduction::Max, x[0], &[1])?, g.arg_max(x[0], 1)?]));
    assert!(max.data[0].is_nan());
    assert_eq!(max.data[1], 3.0);
    assert_eq!(position.data, [1.0, 0.0]);
}

#[test]
fn indices_outside_a_table_read_nothing_and_write_nothing() {
    let table = Tensor::new(&[2, 2], DType::F32, vec![1.0, 2.0, 3.0, 4.0]);
    let which = row(DType::I32, &[1.0, -1.0, 2.0, 1.0]);
    let [rows, back] = run(&[table, which], |g, x| {
        let rows = g.apply(Op::Gather, x)?;
        Ok([rows, g.apply(Op::ScatterAdd { rows: 2 }, &[x[1], rows])?])
    });
    assert_eq!(rows.data[..2], [3.0, 4.0]);
    assert!(rows.data[2..6].iter().all(|v| v.is_nan()));
    assert_eq!(back.data, [0.0, 0.0, 6.0, 8.0]);
}

#[test]
fn labels_outside_the_classes_count_for_nothing_or_are_noticed() {
    let logits = Tensor::new(&[3, 2], DType::F64, vec![0.0; 6]);
    let [loss] =
        run(&[logits, row(DType::I64, &[-1.0, 1.0, 2.0])], |g, x| Ok([g.apply(Op::CrossEntropy, x)?]));
    assert_eq!(loss.data[..2], [0.0, std::f64::consts::LN_2]);
    assert!(loss.data[2].is_nan());
}

#[test]
fn random_numbers_depend_on_state_and_stream_alone() {
    let draw = |seed: f64, step: f64, dtype| {
        let [a, b] = run(&[row(DType::I64, &[seed, step, 0.0])], |g, x| {
            Ok([(); 2].map(|()| g.random(Distribution::Uniform, x[0], &[4, 50], dtype, 50).unwrap()))
        });
        assert_ne!(a, b, "two ops have two streams");
        a
    };
    assert_eq!(draw(1.0, 2.0, DType::F32), draw(1.0, 2.0, DType::F32));
    assert_ne!(draw(1.0, 2.0, DType::F32), draw(1.0, 3.0, DType::F32));
    for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
        assert!(draw(1.0, 2.0, dtype).data.iter().all(|v| (0.0..1.0).contains(v)));
    }
    let [first] = run(&[row(DType::I64, &[0.0, 0.0, 0.0])], |g, x| {
        Ok([g.random(Distribution::Uniform, x[0], &[1], DType::F32, 0)?])
    });
    let words = plimsoll_graph::random::philox([0, 0, 1, 0], [0, 0]);
    assert_eq!(first.data[0], f64::from(words[0] >> 8) / f64::from(1 << 24));
}

#[test]
fn a_part_of_a_batch_draws_what_it_would_in_the_whole() {
    let draw = |first: f64, samples: usize, per_sample| {
        let [drawn] = run(&[row(DType::I64, &[7.0, 3.0, first])], |g, x| {
            Ok([g.random(Distribution::Normal, x[0], &[samples, 2, 3], DType::F32, per_sample)?])
        });
        drawn.data
    };
    let whole = draw(0.0, 5, 6);
    assert_eq!([draw(0.0, 2, 6), draw(2.0, 2, 6), draw(4.0, 1, 6)].concat(), whole);
    assert_eq!(draw(2.0, 5, 0), whole, "what is not drawn for samples is the same for every part");
}

#[test]
fn pooling_sees_the_image_and_not_its_border() {
    let image = Tensor::new(&[1, 2, 2, 1], DType::F64, vec![-1.0, -2.0, -3.0, -4.0]);
    let pool = |kind| Pool2d { kind, window: [2, 2], stride: [1, 1], padding: [1, 0, 1, 0] };
    let [max, mean] = run(&[image], |g, x| {
        Ok([PoolKind::Max, PoolKind::Mean].map(|kind| g.apply(Op::Pool2d(pool(kind)), x).unwrap()))
    });
    assert_eq!(max.data, [-1.0, -1.0, -1.0, -1.0]);
    assert_eq!(mean.data, [-1.0, -1.5, -2.0, -2.5]);
}

#[test]
fn a_convolution_adds_each_tap_of_its_filter() {
    let image = Tensor::new(&[1, 3, 3, 1], DType::F64, (1..10).map(f64::from).collect());
    let filter = Tensor::new(&[2, 2, 1, 1], DType::F64, vec![1.0, 10.0, 100.0, 1000.0]);
    let [plain, dilated] = run(&[image, filter], |g, x| {
        let dilated = Conv2d { dilation: [2, 2], ..Conv2d::default() };
        Ok([Conv2d::default(), dilated].map(|conv| g.apply(Op::Conv2d(conv), x).unwrap()))
    });
    assert_eq!(plain.data, [5421.0, 6532.0, 8754.0, 9865.0]);
    assert_eq!(dilated.data, [9731.0]);
}

/// One step of each recurrent layer with a single unit, against its equations written out.
#[test]
fn recurrent_layers_follow_their_equations() {
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let (x, hidden, cell) = (0.3, -0.4, 0.7);
    let [w, u, b, b2] =
        [[0.1, 0.2, 0.3, 0.4], [0.5, -0.6, 0.7, -0.8], [0.05, 0.06, -0.07, 0.08], [0.2, 0.1, 0.3, 0.0]];
    let tensor = |shape: &[usize], data: &[f64]| Tensor::new(shape, DType::F64, data.to_vec());
    let [states, _, cells] = run(
        &[
            tensor(&[1, 1, 1], &[x]),
            tensor(&[1, 4], &w),
            tensor(&[1, 4], &u),
            tensor(&[4], &b),
            tensor(&[1, 1], &[hidden]),
            tensor(&[1, 1], &[cell]),
        ],
        |g, x| g.apply_n(Op::Lstm, x),
    );
    let sum = |i: usize| x * w[i] + hidden * u[i] + b[i];
    let new_cell = sigmoid(sum(1)) * cell + sigmoid(sum(0)) * sum(2).tanh();
    close(&cells, &tensor(&[1, 1, 1], &[new_cell]));
    close(&states, &tensor(&[1, 1, 1], &[sigmoid(sum(3)) * new_cell.tanh()]));

    let [states, gates] = run(
        &[
            tensor(&[1, 1, 1], &[x]),
            tensor(&[1, 3], &w[..3]),
            tensor(&[1, 3], &u[..3]),
            tensor(&[3], &b[..3]),
            tensor(&[3], &b2[..3]),
            tensor(&[1, 1], &[hidden]),
        ],
        |g, x| g.apply_n(Op::Gru, x),
    );
    let (reset, update) = (sigmoid(sum(0) + b2[0]), sigmoid(sum(1) + b2[1]));
    let product = hidden * u[2] + b2[2];
    let new = (x * w[2] + b[2] + reset * product).tanh();
    close(&gates, &tensor(&[1, 1, 4], &[reset, update, new, product]));
    close(&states, &tensor(&[1, 1, 1], &[(1.0 - update) * new + update * hidden]));
}

/// The seeds that an `f64` holds exactly.
const SEEDS: std::ops::Range<u64> = 0..1 << 52;

fn numbers(shape: &[usize], seed: u64) -> Tensor {
    let state = row(DType::I64, &[seed as f64, 0.0, 0.0]);
    run(&[state], |g, x| Ok([g.random(Distribution::Normal, x[0], shape, DType::F64, 0)?]))
        .into_iter()
        .next()
        .unwrap()
}

/// `(x − mean) / √(variance + ε)` over axes, with γ and β.
fn normalised(g: &mut Graph, x: &[ValueId], axes: &[usize], kept: &[usize]) -> Result<ValueId> {
    let mean = g.mean(x[0], axes)?;
    let mean = g.reshape(mean, kept)?;
    let centred = g.sub(x[0], mean)?;
    let square = g.square(centred)?;
    let variance = g.mean(square, axes)?;
    let variance = g.reshape(variance, kept)?;
    let variance = g.add_scalar(variance, 0.1)?;
    let reciprocal = g.rsqrt(variance)?;
    let unit = g.mul(centred, reciprocal)?;
    let scaled = g.mul(unit, x[1])?;
    g.add(scaled, x[2])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn norms_are_what_the_primitives_make_of_them(seed in SEEDS, rows in 1..4usize, channels in 1..5usize) {
        let x = [numbers(&[rows, channels], seed), numbers(&[channels], seed + 1), numbers(&[channels], seed + 2)];
        let [layer, layer2, batch, batch2] = run(&x, |g, x| {
            Ok([
                g.apply(Op::LayerNorm { epsilon: 0.1 }, x)?,
                normalised(g, x, &[1], &[rows, 1])?,
                g.apply(Op::BatchNorm { epsilon: 0.1 }, x)?,
                normalised(g, x, &[0], &[1, channels])?,
            ])
        });
        close(&layer, &layer2);
        close(&batch, &batch2);
    }

    #[test]
    fn cross_entropy_is_a_log_softmax_at_the_label(seed in SEEDS, n in 1..4usize, classes in 1..5usize) {
        let labels = row(DType::I32, &(0..n).map(|i| (i % classes) as f64).collect::<Vec<_>>());
        let [loss, expected, softmax, log] = run(&[numbers(&[n, classes], seed), labels], |g, x| {
            let log = g.apply(Op::LogSoftmax, &x[..1])?;
            let label = g.reshape(x[1], &[n, 1])?;
            let class = g.iota(&[n, classes], 1, DType::I32)?;
            let hit = g.eq(class, label)?;
            let zero = g.full_like(0.0, log)?;
            let chosen = g.select(hit, log, zero)?;
            let total = g.sum(chosen, &[1])?;
            let softmax = g.apply(Op::Softmax, &x[..1])?;
            Ok([g.apply(Op::CrossEntropy, x)?, g.neg(total)?, g.log(softmax)?, log])
        });
        close(&loss, &expected);
        close(&softmax, &log);
    }

    #[test]
    fn attention_is_a_softmax_between_two_products(seed in SEEDS, queries in 1..4usize, more in 0..3usize, causal: bool) {
        let keys = queries + more;
        let x = [numbers(&[queries, 3], seed), numbers(&[keys, 3], seed + 1), numbers(&[keys, 3], seed + 2)];
        let [output, expected] = run(&x, |g, x| {
            let heads = [
                g.reshape(x[0], &[1, queries, 1, 3])?,
                g.reshape(x[1], &[1, keys, 1, 3])?,
                g.reshape(x[2], &[1, keys, 1, 3])?,
            ];
            let output = g.apply(Op::Attention(Attention { causal, scale: 0.5 }), &heads)?;
            let scores = g.dot_general(x[0], x[1], false, true)?;
            let mut scores = g.mul_scalar(scores, 0.5)?;
            if causal {
                let query = g.iota(&[queries, keys], 0, DType::I32)?;
                let last = g.add_scalar(query, more as f64)?;
                let key = g.iota(&[queries, keys], 1, DType::I32)?;
                let seen = g.le(key, last)?;
                let never = g.full_like(f64::NEG_INFINITY, scores)?;
                scores = g.select(seen, scores, never)?;
            }
            let weights = g.apply(Op::Softmax, &[scores])?;
            Ok([g.reshape(output, &[queries, 3])?, g.dot(weights, x[2])?])
        });
        close(&output, &expected);
    }

    #[test]
    fn a_convolution_of_single_taps_is_a_matrix_product(seed in SEEDS, pixels in 1..4usize, outputs in 1..4usize) {
        let x = [numbers(&[2, pixels, 1, 3], seed), numbers(&[1, 1, 3, outputs], seed + 1)];
        let [convolved, product] = run(&x, |g, x| {
            let convolved = g.apply(Op::Conv2d(Conv2d::default()), x)?;
            let (image, filter) = (g.reshape(x[0], &[2 * pixels, 3])?, g.reshape(x[1], &[3, outputs])?);
            let product = g.dot(image, filter)?;
            Ok([convolved, g.reshape(product, &[2, pixels, 1, outputs])?])
        });
        close(&convolved, &product);
    }
}

#[test]
#[should_panic(expected = "no input `missing`")]
fn a_missing_input_is_named() {
    let mut g = Graph::new();
    let x = g.input("missing", &[1], DType::F32).unwrap();
    evaluate(&g, &HashMap::new(), &[x]);
}

#[test]
fn inputs_that_are_not_needed_may_be_missing() {
    let mut g = Graph::new();
    g.input("unused", &[1], DType::F32).unwrap();
    let two = g.constant(2.0, DType::F32).unwrap();
    assert_eq!(evaluate(&g, &HashMap::new(), &[two]), [Tensor::scalar(2.0, DType::F32)]);
}

#[test]
fn a_projected_cross_entropy_is_the_ops_it_stands_for() {
    for (dtype, transpose_weight) in [(DType::F32, false), (DType::BF16, true)] {
        let numbers = |count: usize, scale: f64| (0..count).map(|i| (i as f64 * scale).sin()).collect();
        let weight: [usize; 2] = if transpose_weight { [7, 4] } else { [4, 7] };
        let operands = [
            Tensor::new(&[5, 4], dtype, numbers(20, 1.3)),
            Tensor::new(&weight, dtype, numbers(28, 0.7)),
            row(DType::I32, &[3.0, -1.0, 0.0, 6.0, 2.0]),
            Tensor::new(&[5], DType::F32, numbers(5, 0.9)),
        ];
        let projected = run::<4>(&operands, |g, operands| {
            g.apply_n(Op::ProjectedCrossEntropy { transpose_weight, chunk: 2 }, operands)
        });
        let plain = run(&operands, |g, operands| {
            let [x, weight, labels, slope] = [0, 1, 2, 3].map(|i| operands[i]);
            let logits = g.dot_general(x, weight, false, transpose_weight)?;
            let [loss, log_sum] = g.apply_n(Op::CrossEntropy, &[logits, labels])?;
            let u = g.apply(Op::CrossEntropyGrad, &[logits, labels, log_sum, slope])?;
            let (a, b) = if transpose_weight { (u, x) } else { (x, u) };
            let dx = g.dot_general(u, weight, false, !transpose_weight)?;
            Ok([loss, g.arg_max(logits, 1)?, dx, g.dot_general(a, b, true, false)?])
        });
        assert_eq!(projected, plain);
    }
}
