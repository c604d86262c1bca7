use crate::support::{Numbers, check, inputs};
use plimsoll_graph::op::{Attention, Conv2d, Distribution, Op, Pool2d, PoolKind, Unary};
use plimsoll_graph::{DType, ErrorKind, Graph, Result, ValueId, gradient, gradients};
use plimsoll_reference::{Tensor, evaluate};
use proptest::prelude::*;

fn row(data: &[f64]) -> Tensor {
    Tensor::new(&[data.len()], DType::F64, data.to_vec())
}

#[test]
fn contributions_of_several_outputs_are_added() {
    let mut g = Graph::new();
    let (x, mut values) = inputs(&mut g, &[row(&[0.5, -1.0])]);
    let (sine, square) = (g.sin(x[0]).unwrap(), g.square(x[0]).unwrap());
    let seed = g.input("seed", &[2], DType::F64).unwrap();
    values.insert(seed, row(&[3.0, 4.0]));
    let outputs = [(sine, None), (square, Some(seed)), (sine, None)];
    let found = gradients(&mut g, &outputs, &x).unwrap()[0].unwrap();
    let expected = [2.0 * 0.5f64.cos() + 3.0, 2.0 * 1f64.cos() - 8.0];
    for (found, expected) in evaluate(&g, &values, &[found])[0].data.iter().zip(expected) {
        assert!((found - expected).abs() < 1e-12);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn a_value_used_many_times_gets_the_sum_of_its_uses(seed: u64, uses in 1..20usize) {
        check(&[Numbers(seed).tensor(&[2])], |g, x| {
            let mut y = x[0];
            for _ in 0..uses {
                let sine = g.sin(y)?;
                y = g.mul(sine, x[0])?;
            }
            g.concat(&[y, x[0], y], 0)
        });
    }

    #[test]
    fn second_derivatives_match_differences(seed: u64) {
        fn slope(g: &mut Graph, y: ValueId, x: ValueId) -> Result<ValueId> {
            Ok(gradients(g, &[(y, None)], &[x])?[0].expect("a path"))
        }
        let mut numbers = Numbers(seed);
        for function in [Unary::Tanh, Unary::Exp, Unary::Gelu, Unary::Sqrt, Unary::Sin, Unary::Sigmoid] {
            check(&[numbers.range(&[3], 0.3, 2.0)], |g, x| {
                let y = g.apply(Op::Unary(function), x)?;
                slope(g, y, x[0])
            });
        }
        check(&[numbers.tensor(&[2, 3])], |g, x| {
            let y = g.apply(Op::Softmax, x)?;
            let square = g.square(y)?;
            slope(g, square, x[0])
        });
        check(&[numbers.tensor(&[2, 2]), numbers.tensor(&[2, 2])], |g, x| {
            let y = g.dot_general(x[0], x[1], true, false)?;
            let cube = { let square = g.square(y)?; g.mul(square, y)? };
            slope(g, cube, x[0])
        });
        let conv = Conv2d { stride: [2, 1], padding: [1, 0, 0, 1], ..Conv2d::default() };
        check(&[numbers.tensor(&[1, 3, 3, 2]), numbers.tensor(&[2, 2, 2, 1])], |g, x| {
            let y = g.apply(Op::Conv2d(conv), x)?;
            let square = g.square(y)?;
            slope(g, square, x[1])
        });
    }
}

#[test]
fn nothing_flows_through_stop_gradient() {
    let mut g = Graph::new();
    let (x, values) = inputs(&mut g, &[row(&[3.0])]);
    let still = g.apply(Op::StopGradient, &x).unwrap();
    let y = g.mul(x[0], still).unwrap();
    let found = gradients(&mut g, &[(y, None), (still, None)], &x).unwrap()[0].unwrap();
    assert_eq!(evaluate(&g, &values, &[found])[0].data, [3.0]);
    assert_eq!(gradients(&mut g, &[(still, None)], &x).unwrap(), [None]);
}

#[test]
fn a_value_without_a_path_has_no_gradient_and_zeros_on_request() {
    let mut g = Graph::new();
    let (x, values) = inputs(&mut g, &[row(&[3.0, 4.0]), row(&[1.0])]);
    let loss = g.sum_all(x[1]).unwrap();
    let nodes = g.nodes().len();
    assert_eq!(gradients(&mut g, &[(loss, None)], &x[..1]).unwrap(), [None]);
    assert_eq!(g.nodes().len(), nodes, "nothing is appended for a gradient that does not exist");
    let found = gradient(&mut g, loss, &x).unwrap();
    let found = evaluate(&g, &values, &found);
    assert_eq!((&found[0].data[..], &found[1].data[..]), (&[0.0, 0.0][..], &[1.0][..]));
}

#[test]
fn flat_ops_and_ops_to_other_types_carry_no_gradient() {
    type Build = fn(&mut Graph, ValueId) -> Result<ValueId>;
    let builds: [Build; 6] = [
        |g, x| g.sign(x),
        |g, x| g.floor(x),
        |g, x| {
            let finite = g.is_finite(x)?;
            g.cast(finite, DType::F64)
        },
        |g, x| {
            let above = g.gt(x, x)?;
            g.cast(above, DType::F64)
        },
        |g, x| {
            let best = g.arg_max(x, 0)?;
            g.cast(best, DType::F64)
        },
        |g, x| {
            let state = g.cast(x, DType::I64)?;
            g.random(Distribution::Normal, state, &[3], DType::F64, 0)
        },
    ];
    for build in builds {
        let mut g = Graph::new();
        let x = g.input("x", &[3], DType::F64).unwrap();
        let y = build(&mut g, x).unwrap();
        assert_eq!(gradients(&mut g, &[(y, None)], &[x]).unwrap(), [None]);
    }
}

#[test]
fn gradients_reach_values_in_the_middle_and_outputs_themselves() {
    let mut g = Graph::new();
    let (x, values) = inputs(&mut g, &[row(&[2.0])]);
    let middle = g.square(x[0]).unwrap();
    let y = g.square(middle).unwrap();
    let found = gradients(&mut g, &[(y, None)], &[y, middle, x[0], middle]).unwrap();
    let found: Vec<ValueId> = found.into_iter().map(Option::unwrap).collect();
    assert_eq!(found[1], found[3]);
    let numbers: Vec<f64> = evaluate(&g, &values, &found).iter().map(|t| t.data[0]).collect();
    assert_eq!(numbers, [1.0, 8.0, 32.0, 8.0]);
    assert_eq!(gradients(&mut g, &[(y, None)], &[]).unwrap(), []);
    assert_eq!(gradients(&mut g, &[], &[y]).unwrap(), [None]);
}

/// A network of dense layers with their weights.
fn layers(g: &mut Graph, count: usize) -> (ValueId, Vec<ValueId>) {
    let mut weights = vec![];
    let mut x = g.input("x", &[8, 4], DType::F32).unwrap();
    for i in 0..count {
        let outer = g.enter(&format!("layer{i}"));
        let weight = g.input("weight", &[4, 4], DType::F32).unwrap();
        let bias = g.input("bias", &[4], DType::F32).unwrap();
        let product = g.dot(x, weight).unwrap();
        let sum = g.add(product, bias).unwrap();
        let active = g.tanh(sum).unwrap();
        x = g.add(active, x).unwrap();
        weights.extend([weight, bias]);
        g.leave(outer);
    }
    (g.mean_all(x).unwrap(), weights)
}

#[test]
fn only_gradients_on_a_path_are_computed() {
    let mut g = Graph::new();
    let (loss, weights) = layers(&mut g, 3);
    let before = g.nodes().len();
    gradient(&mut g, loss, &weights).unwrap();
    let dots = g.nodes()[before..].iter().filter(|node| matches!(node.op, Op::Dot { .. })).count();
    assert_eq!(dots, 3 + 2, "each weight has a gradient, and each layer's input but the first's");
}

#[test]
fn the_backward_pass_is_linear_in_the_number_of_layers() {
    let appended = |count: usize| {
        let mut g = Graph::new();
        let (loss, weights) = layers(&mut g, count);
        let before = g.nodes().len();
        gradient(&mut g, loss, &weights).unwrap();
        g.nodes().len() - before
    };
    let [once, twice, thrice] = [2000, 4000, 6000].map(appended);
    assert_eq!(twice - once, thrice - twice);
}

#[test]
fn new_nodes_are_in_the_scopes_of_the_nodes_they_belong_to() {
    let mut g = Graph::new();
    let (loss, weights) = layers(&mut g, 2);
    let mark = g.enter("elsewhere");
    let before = g.len();
    let found = gradient(&mut g, loss, &weights).unwrap();
    assert_eq!(g.scope(found[0]), "layer0");
    assert_eq!(g.scope(found[2]), "layer1");
    assert!(g.values().skip(before).all(|value| !g.scope(value).contains("elsewhere")));
    assert_eq!(g.current_scope(), "elsewhere");
    g.leave(mark);
}

/// The shape and element type of an input.
type Type = (&'static [usize], DType);

/// The message of the error that differentiating the result of `op` at `position` gives.
fn refusal(op: Op, operands: &[Type], position: usize) -> String {
    let mut g = Graph::new();
    let ids: Vec<ValueId> =
        operands.iter().map(|&(shape, dtype)| g.input("x", shape, dtype).unwrap()).collect();
    let node = g.scoped("model", |g| g.push(op, &ids)).unwrap();
    let result = g.node(node).results().nth(position).unwrap();
    let error = gradients(&mut g, &[(result, None)], &ids[..1]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Gradient);
    assert_eq!(g.current_scope(), "");
    error.to_string()
}

#[test]
fn a_gradient_for_a_kept_statistic_is_refused_by_op_scope_and_result() {
    let [logits, labels] = [(&[3, 2][..], DType::F32), (&[3][..], DType::I32)];
    assert_eq!(
        refusal(Op::CrossEntropy, &[logits, labels], 1),
        "cross_entropy: a gradient arrives at result 1; gradients flow through result 0 only (stop_gradient lets \
         the others be used as numbers) (in scope `model`)"
    );
    let [x, gamma] = [(&[3, 2][..], DType::F32), (&[2][..], DType::F32)];
    assert!(refusal(Op::BatchNorm { epsilon: 0.1 }, &[x, gamma, gamma], 2).contains("arrives at result 2"));
    assert!(refusal(Op::LayerNorm { epsilon: 0.1 }, &[x, gamma, gamma], 1).starts_with("layer_norm: "));
}

#[test]
fn statistics_without_their_norm_have_no_gradient() {
    assert_eq!(
        refusal(Op::BatchMoments { epsilon: 0.1 }, &[(&[3, 2], DType::F32)], 0),
        "batch_moments: statistics have no gradient of their own; batch_norm has one (in scope `model`)"
    );
}

#[test]
fn kept_statistics_may_be_used_behind_stop_gradient() {
    let mut g = Graph::new();
    let x = g.input("x", &[3, 2], DType::F32).unwrap();
    let gamma = g.input("gamma", &[2], DType::F32).unwrap();
    let [y, mean, _] = g.apply_n(Op::BatchNorm { epsilon: 0.1 }, &[x, gamma, gamma]).unwrap();
    let still = g.apply(Op::StopGradient, &[mean]).unwrap();
    assert!(gradients(&mut g, &[(y, None), (still, None)], &[x]).unwrap()[0].is_some());
}

#[test]
fn second_derivatives_of_structured_ops_are_refused_by_name() {
    let f = |shape| -> Type { (shape, DType::F32) };
    let pool = |kind| Pool2d { kind, window: [2, 2], stride: [1, 1], padding: [0; 4] };
    let images = [f(&[1, 2, 2, 1]), f(&[1, 1, 1, 1])];
    let (x, gamma) = (f(&[3, 2]), f(&[2]));
    let heads = f(&[1, 2, 1, 2]);
    let attention = Attention { causal: false, scale: 1.0 };
    let (sequence, hidden, states) = (f(&[1, 2, 3]), f(&[1, 1]), f(&[1, 2, 1]));
    let gates = f(&[1, 2, 4]);
    let attended = vec![heads, heads, heads, heads, f(&[1, 1, 2]), heads];
    let cases: [(Op, Vec<Type>, &str); 10] = [
        (Op::Pool2dGrad(pool(PoolKind::Max)), images.to_vec(), "max_pool2d"),
        (Op::Pool2dGrad(pool(PoolKind::Mean)), images.to_vec(), "mean_pool2d"),
        (Op::CrossEntropyGrad, vec![x, (&[3], DType::I32), x, f(&[3])], "cross_entropy"),
        (Op::LayerNormGrad, vec![x, gamma, f(&[3]), f(&[3]), x], "layer_norm"),
        (Op::ResidualLayerNormGrad, vec![x, gamma, f(&[3]), f(&[3]), x, x], "residual_layer_norm"),
        (Op::BatchNormGrad { epsilon: 0.1 }, vec![x, gamma, gamma, gamma, x], "batch_norm"),
        (Op::AttentionGrad(attention), attended.clone(), "attention"),
        (Op::JointAttentionGrad(attention), attended, "joint_attention"),
        (
            Op::LstmGrad,
            vec![sequence, f(&[3, 4]), f(&[1, 4]), hidden, hidden, states, gates, states, states],
            "lstm",
        ),
        (Op::GruGrad, vec![sequence, f(&[3, 3]), f(&[1, 3]), hidden, states, gates, states], "gru"),
    ];
    for (op, operands, forward) in cases {
        assert_eq!(
            refusal(op, &operands, 0),
            format!("{forward}_grad: second derivatives of {forward} are not defined (in scope `model`)")
        );
    }
}

#[test]
fn what_has_no_gradient_is_refused_with_its_type() {
    let mut g = Graph::new();
    let x = g.input("x", &[2, 3], DType::F32).unwrap();
    let indices = g.input("indices", &[2], DType::I32).unwrap();
    let loss = g.sum_all(x).unwrap();
    let message = |result: Result<Vec<Option<ValueId>>>| {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Gradient);
        error.to_string()
    };
    assert_eq!(
        gradient(&mut g, x, &[x]).unwrap_err().to_string(),
        "input: gradients are of a scalar, this is f32[2, 3]; sum it, or take its mean (in scope `x`)"
    );
    assert_eq!(
        message(gradients(&mut g, &[(loss, None)], &[indices])),
        "input: only floats have gradients, this is i32[2] (in scope `indices`)"
    );
    assert_eq!(
        message(gradients(&mut g, &[(indices, None)], &[x])),
        "input: only floats have gradients, this is i32[2] (in scope `indices`)"
    );
    assert_eq!(
        message(gradients(&mut g, &[(x, Some(loss))], &[x])),
        "input: a gradient of f32[] was given for f32[2, 3] (in scope `x`)"
    );
}
