//! Functions, layers and losses agree with PyTorch, and so do their gradients.
//!
//! The reference is made by `tests/reference/functions.py`, in `f64`.

mod common;

use common::formula::{Prepared, integers, numbers, off};
use plimsoll::layers::*;
use plimsoll::{Attend, Context, DType, Eager, PadMode, Resize, Result, Tensor, loss, op};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The inputs of a case, by name.
struct Inputs(BTreeMap<String, Tensor>);

impl std::ops::Index<&str> for Inputs {
    type Output = Tensor;

    fn index(&self, name: &str) -> &Tensor {
        &self.0[name]
    }
}

/// How far a result or gradient may be from PyTorch's in double precision, relative to how long it is.
const TOLERANCE: f64 = 2e-6;

type Case = fn(&Context, &Inputs) -> Result<Tensor>;

/// Compares each of the cases with its reference.
fn compare(cases: &[(&'static str, Case)]) {
    let reference: Value = serde_json::from_str(include_str!("reference/functions.json")).unwrap();
    for &(name, case) in cases {
        let expected = &reference["cases"][name];
        let eager = Eager::builder().threads(1).build().unwrap();
        let inputs = expected["inputs"]
            .as_object()
            .unwrap_or_else(|| panic!("{name} has no reference"))
            .iter()
            .map(|(key, of)| {
                let shape: Vec<usize> =
                    of["shape"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as usize).collect();
                let (called, count) = (format!("{name}/{key}"), shape.iter().product());
                let tensor = match of["below"].as_u64() {
                    Some(below) => eager.integers(&shape, &integers(&called, below as usize, count)),
                    None => eager.tensor(&shape, &numbers(&called, count)),
                };
                (key.clone(), tensor.unwrap())
            });
        let inputs = Inputs(inputs.collect());
        let prepared = Prepared::new(eager.clone(), |cx| case(cx, &inputs));
        let weighted = |y: &Tensor| {
            let count = y.shape().elements();
            let weights = eager.tensor(&y.shape(), &numbers(&format!("{name}/weights"), count)).unwrap();
            y.mul(&weights).unwrap().sum_all().unwrap()
        };
        let (result, gradients) = prepared.differentiate(&inputs.0, |cx| case(cx, &inputs), weighted);
        let shape: Vec<u64> = result.shape().iter().map(|&extent| extent as u64).collect();
        assert_eq!(serde_json::json!(shape), expected["shape"], "{name}");
        let mut wrong: Vec<String> =
            off("result", &result.to_vec().unwrap(), &expected["result"], TOLERANCE).into_iter().collect();
        if let Some(expected) = expected["gradients"].as_object() {
            let known: BTreeSet<&String> = expected.keys().collect();
            assert_eq!(gradients.keys().collect::<BTreeSet<_>>(), known, "{name}");
            wrong.extend(gradients.iter().filter_map(|(key, of)| off(key, of, &expected[key], TOLERANCE)));
        }
        assert!(wrong.is_empty(), "{name}: {}", wrong.join("; "));
    }
}

#[test]
fn functions_of_each_element_agree_with_pytorch() {
    compare(&[
        ("silu", |_, x| x["x"].silu()),
        ("mish", |_, x| x["x"].mish()),
        ("elu", |_, x| x["x"].elu(0.7)),
        ("leaky_relu", |_, x| x["x"].leaky_relu(0.2)),
        ("softplus", |_, x| x["x"].softplus()),
        ("relu6", |_, x| x["x"].mul_scalar(5.0)?.relu6()),
        ("hard_sigmoid", |_, x| x["x"].mul_scalar(5.0)?.hard_sigmoid()),
        ("hard_swish", |_, x| x["x"].mul_scalar(5.0)?.hard_swish()),
        ("clamp", |_, x| x["x"].clamp(-0.5, 1.2)),
    ]);
}

#[test]
fn reductions_and_elements_by_position_agree_with_pytorch() {
    compare(&[
        ("sum_keepdim", |_, x| x["x"].mul(&x["x"].sum_keepdim(&[0, 2])?)),
        ("max_keepdim", |_, x| x["x"].sub(&x["x"].max_keepdim(&[1])?)),
        ("variance", |_, x| x["x"].variance(&[0, 2])),
        ("cumsum", |_, x| x["x"].cumsum(1)),
        ("one_hot", |_, x| x["i"].one_hot(5, DType::F32)),
        ("repeat_interleave", |_, x| x["x"].repeat_interleave(1, 3)),
        ("top_k", |_, x| Ok(x["x"].top_k(3)?[0].clone())),
        ("index_select", |_, x| x["x"].index_select(1, &x["i"])),
        ("gather_along", |_, x| x["x"].gather_along(1, &x["i"])),
        ("scatter_add_along", |_, x| x["x"].scatter_add_along(1, &x["i"], 6)),
    ]);
}

#[test]
fn borders_and_sizes_of_images_agree_with_pytorch() {
    const BORDER: [(usize, usize); 4] = [(0, 0), (1, 2), (3, 2), (0, 0)];
    compare(&[
        ("pad_reflect", |_, x| x["x"].pad_with(&BORDER, PadMode::Reflect)),
        ("pad_replicate", |_, x| x["x"].pad_with(&BORDER, PadMode::Replicate)),
        ("pad_circular", |_, x| x["x"].pad_with(&BORDER, PadMode::Circular)),
        ("resize_nearest_up", |_, x| x["x"].resize([8, 15], Resize::Nearest)),
        ("resize_nearest", |_, x| x["x"].resize([7, 3], Resize::Nearest)),
        ("resize_bilinear_up", |_, x| x["x"].resize([8, 10], Resize::Bilinear)),
        ("resize_bilinear", |_, x| x["x"].resize([7, 3], Resize::Bilinear)),
        ("resize_bilinear_aligned", |_, x| x["x"].resize([7, 3], Resize::BilinearAligned)),
    ]);
}

#[test]
fn einsum_agrees_with_pytorch() {
    compare(&[
        ("einsum_0", |_, x| Tensor::einsum("ij,jk->ik", &[&x["a"], &x["b"]])),
        ("einsum_1", |_, x| Tensor::einsum("bqhd,bkhd->bhqk", &[&x["a"], &x["b"]])),
        ("einsum_2", |_, x| Tensor::einsum("bij,bjk,k->ib", &[&x["a"], &x["b"], &x["c"]])),
        ("einsum_3", |_, x| Tensor::einsum("abc->cb", &[&x["a"]])),
        ("einsum_4", |_, x| Tensor::einsum("i,j->ij", &[&x["a"], &x["b"]])),
        ("einsum_5", |_, x| Tensor::einsum("abx,cay->bc", &[&x["a"], &x["b"]])),
    ]);
}

#[test]
fn norms_agree_with_pytorch() {
    compare(&[
        ("rms_norm", |cx, x| RmsNorm::new().forward(cx, &x["x"])),
        ("group_norm", |cx, x| GroupNorm::new(2).forward(cx, &x["x"])),
        ("instance_norm", |cx, x| InstanceNorm::new().forward(cx, &x["x"])),
    ]);
}

#[test]
fn convolutions_agree_with_pytorch() {
    compare(&[
        ("conv1d", |cx, x| {
            let padding = Padding::Explicit([0, 0, 1, 1]);
            Conv1d::new(6, 3).groups(2).stride(2).padding(padding).forward(cx, &x["x"])
        }),
        ("conv1d_causal", |cx, x| Conv1d::new(5, 3).dilation(2).causal().forward(cx, &x["x"])),
        ("conv_transpose", |cx, x| {
            let layer = ConvTranspose2d::new(5, [4, 4]).stride([2, 2]).padding(Padding::Explicit([1; 4]));
            layer.forward(cx, &x["x"])
        }),
        ("conv_transpose_all", |cx, x| {
            let layer = ConvTranspose2d::new(4, [3, 2]).stride([3, 2]).dilation([1, 2]).groups(2);
            let layer = layer.padding(Padding::Explicit([1, 1, 0, 0])).output_padding([2, 1]);
            layer.forward(cx, &x["x"])
        }),
        ("conv3d", |cx, x| Conv3d::new(5, [3, 2, 3]).padding([1; 3]).forward(cx, &x["x"])),
        ("conv3d_all", |cx, x| {
            let layer = Conv3d::new(4, [2, 3, 2]).stride([2, 1, 2]).padding([1, 2, 0]);
            layer.dilation([2, 1, 1]).groups(2).forward(cx, &x["x"])
        }),
        ("max_pool3d", |cx, x| MaxPool3d([2, 3, 2]).forward(cx, &x["x"])),
        ("depthwise", |cx, x| {
            let layer = Conv2d::new(8, [3, 3]).groups(8).dilation([2, 2]).padding(Padding::Explicit([2; 4]));
            layer.forward(cx, &x["x"])
        }),
    ]);
}

#[test]
fn attention_agrees_with_pytorch() {
    compare(&[
        ("attention_grouped", |_, x| Attend::new().of(&x["q"], &x["k"], &x["v"])),
        ("attention_scaled", |_, x| Attend::new().scale(0.3).of(&x["q"], &x["k"], &x["v"])),
        ("attention_masked", |cx, x| {
            let position = cx.iota(&[2, 1, 1, 7], 3, DType::I32)?;
            let mask = position.le(&x["n"].reshape(&[2, 1, 1, 1])?)?;
            Attend::new().mask(&mask).of(&x["q"], &x["k"], &x["v"])
        }),
        ("attention_biased", |_, x| Attend::new().bias(&x["b"]).of(&x["q"], &x["k"], &x["v"])),
        ("attention_biased_causal", |_, x| {
            Attend::new().causal().bias(&x["b"]).of(&x["q"], &x["k"], &x["v"])
        }),
        ("attention_windowed", |_, x| {
            Attend::new().causal().window(3).soft_cap(0.8).of(&x["q"], &x["k"], &x["v"])
        }),
        ("rotary", |_, x| x["x"].rotary(10000.0)),
        ("cross_attention", |cx, x| {
            let layer = MultiHeadAttention::new(4).key_value_heads(2).no_bias();
            layer.cross(cx, &x["x"], &x["memory"], Attend::new())
        }),
        ("self_attention", |cx, x| {
            let layer = MultiHeadAttention::new(4).key_value_heads(2).rotary(10000.0).causal();
            layer.forward(cx, &x["x"])
        }),
        ("relative_bias", |cx, x| {
            let [queries, keys] = [0, 1].map(|axis| x["x"].shape()[axis]);
            RelativeBias::new(3).buckets(8, 20).of(cx, queries, keys)?.add(&x["x"].mul_scalar(0.0)?)
        }),
        ("relative_bias_causal", |cx, x| {
            let [queries, keys] = [0, 1].map(|axis| x["x"].shape()[axis]);
            RelativeBias::new(3).buckets(8, 20).causal().of(cx, queries, keys)?.add(&x["x"].mul_scalar(0.0)?)
        }),
    ]);
}

#[test]
fn gated_layers_agree_with_pytorch() {
    compare(&[
        ("swiglu", |cx, x| SwiGlu::new(7).forward(cx, &x["x"])),
        ("squeeze_excite", |cx, x| {
            let layer = SqueezeExcite::new(2).activation(Activation::Silu).gate(Activation::HardSigmoid);
            layer.forward(cx, &x["x"])
        }),
    ]);
}

#[test]
fn losses_agree_with_pytorch() {
    compare(&[
        ("smoothed_cross_entropy", |_, x| {
            let none = x["i"].eq(&x["i"].full_like(6.0)?)?;
            let labels = none.select(&x["i"].full_like(-100.0)?, &x["i"])?;
            loss::smoothed_cross_entropy(&x["x"], &labels, 0.1)
        }),
        ("l1", |_, x| loss::l1(&x["x"], &x["y"])),
        ("huber", |_, x| loss::huber(&x["x"], &x["y"], 0.7)),
        ("smooth_l1", |_, x| loss::smooth_l1(&x["x"], &x["y"], 0.7)),
        ("kl_div", |_, x| loss::kl_div(&x["x"].log_softmax()?, &x["y"].softmax()?)),
        ("cosine_embedding", |_, x| {
            let sign = x["i"].cast(DType::F32)?.mul_scalar(2.0)?.add_scalar(-1.0)?;
            loss::cosine_embedding(&x["a"], &x["b"], &sign, 0.2)
        }),
        ("ctc", |_, x| {
            let [labels, steps, lengths] =
                [("i", 1.0), ("n", 6.0), ("m", 1.0)].map(|(name, more)| x[name].add_scalar(more));
            loss::ctc(&x["x"].log_softmax()?, &labels?, &steps?, &lengths?)
        }),
        ("triplet", |_, x| loss::triplet(&x["a"], &x["b"], &x["c"], 0.8)),
    ]);
}

/// The result of a function of one tensor and the gradient of its sum.
fn slope(values: &[f32], f: impl Fn(&Tensor) -> Result<Tensor>) -> (Vec<f32>, Vec<f32>) {
    let eager = Eager::builder().threads(1).build().unwrap();
    let x = eager.tensor(&[values.len()], values).unwrap();
    let mut tape = eager.tape();
    let y = f(&x).unwrap();
    let gradient = tape.gradient(&y.sum_all().unwrap(), &[&x]).unwrap();
    (y.to_vec().unwrap(), gradient[0].to_vec().unwrap())
}

#[test]
fn activations_are_themselves_at_the_largest_numbers_and_nan_never_vanishes() {
    let functions: [fn(&Tensor) -> Result<Tensor>; 8] = [
        |x| x.silu(),
        |x| x.mish(),
        |x| x.elu(1.0),
        |x| x.leaky_relu(0.01),
        |x| x.relu6(),
        |x| x.hard_sigmoid(),
        |x| x.hard_swish(),
        |x| x.softplus(),
    ];
    const LARGE: f32 = 1e37;
    // Of each: the value at −LARGE and LARGE, and the slopes there.
    let expected = [
        ([0.0, LARGE], [0.0, 1.0]),
        ([0.0, LARGE], [0.0, 1.0]),
        ([-1.0, LARGE], [0.0, 1.0]),
        ([-LARGE * 0.01, LARGE], [0.01, 1.0]),
        ([0.0, 6.0], [0.0, 0.0]),
        ([0.0, 1.0], [0.0, 0.0]),
        ([0.0, LARGE], [0.0, 1.0]),
        ([0.0, LARGE], [0.0, 1.0]),
    ];
    for (at, (function, (values, slopes))) in functions.into_iter().zip(expected).enumerate() {
        let (y, dy) = slope(&[-LARGE, LARGE, f32::NAN], function);
        assert_eq!((&y[..2], &dy[..2]), (&values[..], &slopes[..]), "function {at}");
        assert!(y[2].is_nan() && (dy[2].is_nan() || dy[2] != 0.0), "function {at}: {} {}", y[2], dy[2]);
    }
}

#[test]
fn elu_is_exact_next_to_zero() {
    let values = [-1e-3f32, -1e-6, -1e-10, -1e-30];
    let (y, _) = slope(&values, |x| x.elu(1.0));
    for (x, y) in values.iter().zip(y) {
        let expected = f64::from(*x).exp_m1();
        assert!((f64::from(y) - expected).abs() <= 3e-7 * expected.abs(), "{x}: {y}, not {expected}");
    }
}

#[test]
fn what_has_no_probability_adds_nothing_to_a_divergence() {
    let (y, dy) = slope(&[0.0, -1.0, -2.0], |x| {
        let target = x.ge(&x.full_like(-1.5)?)?.cast(DType::F32)?.mul_scalar(0.5)?;
        loss::kl_div(x, &target)
    });
    let expected = 0.5f32.ln() + 0.5;
    assert!((y[0] - expected).abs() < 1e-6, "{} is not {expected}", y[0]);
    assert_eq!(dy, [-0.5, -0.5, 0.0]);
}

#[test]
fn labels_that_no_sequence_fits_have_an_infinite_loss() {
    let eager = Eager::builder().threads(1).build().unwrap();
    let logs = eager.tensor(&[1, 3, 2], &numbers("x", 6)).unwrap().log_softmax().unwrap();
    let integer = |values: &[i32]| eager.integers(&[values.len()], values).unwrap();
    let loss = |labels: &[i32], steps: i32, length: i32| {
        let labels = eager.integers(&[1, labels.len()], labels).unwrap();
        loss::ctc(&logs, &labels, &integer(&[steps]), &integer(&[length])).unwrap().to_vec().unwrap()[0]
    };
    // Two of the same label need a blank between them.
    assert!(loss(&[1, 1], 3, 2).is_finite());
    assert_eq!(loss(&[1, 1], 2, 2), f32::INFINITY);
    // Of no label there is one sequence: blanks alone.
    let blanks: f32 = logs.slice(2, 0..1).unwrap().sum_all().unwrap().to_vec().unwrap()[0];
    assert!((loss(&[1, 1], 3, 0) + blanks).abs() < 1e-5);
}

#[test]
fn a_query_that_sees_nothing_gets_zeros_and_no_gradient() {
    let eager = Eager::builder().threads(1).build().unwrap();
    let [q, k, v] = ["q", "k", "v"].map(|x| eager.tensor(&[1, 3, 1, 4], &numbers(x, 12)).unwrap());
    let seen = eager.integers(&[1, 1, 3, 3], &[1, 0, 0, 0, 0, 0, 1, 1, 0]).unwrap();
    let mask = seen.cast(DType::Bool).unwrap();
    let mut tape = eager.tape();
    let y = Attend::new().mask(&mask).of(&q, &k, &v).unwrap();
    let gradients = tape.gradient(&y.sum_all().unwrap(), &[&q, &k, &v]).unwrap();
    let [dq, dk, dv] = [0, 1, 2].map(|at| gradients[at].to_vec().unwrap());
    let (v, y) = (v.to_vec().unwrap(), y.to_vec().unwrap());
    assert_eq!(y[..4], v[..4], "the first query sees the first value alone");
    assert_eq!(y[4..8], [0.0; 4], "the second sees nothing");
    assert_eq!(dq[4..8], [0.0; 4]);
    assert_eq!([&dk[8..], &dv[8..]], [[0.0; 4]; 2], "nobody sees the third");
    assert!(dq.iter().chain(&dk).chain(&dv).all(|slope| slope.is_finite()));
}

#[test]
fn what_does_not_fit_is_an_error_that_says_so() {
    let eager = Eager::builder().threads(1).build().unwrap();
    let x = eager.tensor(&[2, 3], &numbers("x", 6)).unwrap();
    let images = eager.tensor(&[1, 2, 2, 1], &numbers("images", 4)).unwrap();
    let whole = eager.integers(&[2], &[0, 1]).unwrap();
    let message = |result: Result<Tensor>| result.expect_err("this does not fit").to_string();
    for (found, expected) in [
        (message(Tensor::einsum("ij,jk->ik", &[&x, &x])), "`j` is 3 in f32[2, 3] and 2 in f32[2, 3]"),
        (message(Tensor::einsum("ij->ii", &[&x])), "`i` stands twice"),
        (message(Tensor::einsum("ij->k", &[&x])), "no operand has the axis `k`"),
        (message(Tensor::einsum("ijk->k", &[&x])), "\"ijk\" is not a letter for each axis of f32[2, 3]"),
        (message(x.cumsum(2)), "there is no axis 2 in f32[2, 3]"),
        (message(x.gather_along(1, &whole)), "i32[2] are indices along axis 1 of [2, 3]"),
        (message(x.index_select(0, &x)), "the indices are integers [n], these are f32[2, 3]"),
        (message(x.pad_with(&[(0, 0), (3, 0)], PadMode::Reflect)), "a border of 3 and 0 on axis 1"),
        (message(images.resize([0, 4], Resize::Nearest)), "a size of at least 1 × 1"),
        (message(whole.silu()), "silu: takes floats, this is i32[2]"),
        (message(x.clamp(1.0, 0.0)), "there is no number from 1 to 0"),
        (message(loss::huber(&x, &x, 0.0)), "a number above 0, this is 0"),
        (message(GroupNorm::new(2).forward(&eager.context(true), &x)), "2 groups divide the channels"),
        (
            message(
                MultiHeadAttention::new(4)
                    .key_value_heads(3)
                    .forward(&eager.context(true), &eager.tensor(&[1, 2, 8], &numbers("x", 16)).unwrap()),
            ),
            "3 heads of keys and values cannot serve 4 heads of queries",
        ),
        (
            message(images.conv_transpose2d(&images, op::Conv2d::default(), [1, 9, 9, 1])),
            "filter [1, 2, 2, 1] takes 2",
        ),
    ] {
        assert!(found.contains(expected), "{found}\ndoes not say\n{expected}");
    }
}
