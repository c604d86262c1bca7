//! What people are told when something does not go together.

mod common;

use common::trace;
use plimsoll::layers::*;
use plimsoll::models::{Gpt, UNet};
use plimsoll::{Context, DType, ErrorKind, Precision, Result, loss, metric};
use std::error::Error as _;

fn message(layer: impl Layer + 'static, input: &[usize], dtype: DType) -> String {
    trace(Sequential::new().named("part", layer), input, dtype).unwrap_err().to_string()
}

#[test]
fn layers_name_themselves_the_shape_and_the_scope() {
    let (f32, i32) = (DType::F32, DType::I32);
    let gpt = Gpt { layers: 1, width: 4, heads: 2, context: 8, vocab: 9, dropout: 0.0, tied_head: true };
    for (actual, expected) in [
        (message(Dense::new(3), &[], f32), "dense: the input is [.., in], this is f32[] (in scope `part`)"),
        (
            message(Conv2d::new(3, [3, 3]), &[2, 8], f32),
            "conv: the input is [batch, height, width, channels], this is f32[2, 8] (in scope `part`)",
        ),
        (
            message(Conv2d::new(3, [3, 3]), &[1, 2, 8, 1], f32),
            "conv2d: filter [3, 3, 1, 3] reaches 3, images [1, 2, 8, 1] have 2 (in scope `part`)",
        ),
        (
            message(Conv2d::new(4, [1, 1]).groups(2), &[1, 2, 2, 3], f32),
            "conv: the 3 channels of f32[1, 2, 2, 3] and 4 filters do not split into 2 groups (in scope `part`)",
        ),
        (
            message(BatchNorm::new(), &[2], i32),
            "batch_norm: the input is floats [.., width], this is i32[2] (in scope `part`)",
        ),
        (
            message(Dropout(1.5), &[2], f32),
            "dropout: the rate is at least 0 and below 1, this is 1.5 (in scope `part`)",
        ),
        (
            message(MultiHeadAttention::new(3), &[2, 5, 4], f32),
            "attention: the width 4 of f32[2, 5, 4] does not split into 3 heads (in scope `part`)",
        ),
        (
            message(Lstm::new(3), &[2, 5], f32),
            "lstm: the input is [batch, time, in], this is f32[2, 5] (in scope `part`)",
        ),
        (
            message(Residual::new(Dense::new(3)), &[2, 1], f32),
            "residual: f32[2, 3] cannot be added to f32[2, 1]; a projection would make them alike (in scope `part`)",
        ),
        (message(gpt, &[2, 9], i32), "gpt: i32[2, 9] has 9 tokens, the context is 8 (in scope `part`)"),
        (
            message(UNet::new(2), &[1, 30, 32, 3], f32),
            "unet: height and width of f32[1, 30, 32, 3] must be multiples of 16 (in scope `part`)",
        ),
    ] {
        assert_eq!(actual, expected);
    }
}

#[test]
fn an_error_of_the_graph_keeps_its_message_kind_and_source() -> Result<()> {
    let cx = Context::trace(true, Precision::F32);
    let x = cx.input("x", &[2, 3], DType::F32)?;
    let error = cx.scope("a/b", |_| x.matmul(&x)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "dot: f32[2, 3] · f32[2, 3]: inner extents 3 and 2 differ (in scope `a/b`)"
    );
    assert_eq!(error.kind(), ErrorKind::Shape);
    assert!(error.source().unwrap().is::<plimsoll_graph::Error>());
    Ok(())
}

#[test]
fn tensors_of_two_traces_do_not_mix() -> Result<()> {
    let (one, other) = (Context::trace(true, Precision::F32), Context::trace(true, Precision::F32));
    let a = one.input("x", &[2], DType::F32)?;
    let b = other.input("x", &[2], DType::F32)?;
    let errors = [
        a.add(&b).unwrap_err(),
        one.output("b", &b).unwrap_err(),
        Dense::new(3).forward(&one, &b).unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::Trace);
        assert!(error.to_string().contains("belongs to another trace"), "{error}");
    }
    Ok(())
}

#[test]
fn a_tensor_outlives_its_step_without_harm() -> Result<()> {
    let cx = Context::trace(true, Precision::F32);
    let x = cx.input("x", &[2, 3], DType::F32)?;
    cx.take_step()?;
    assert_eq!(x.shape()[..], [2, 3]);
    assert_eq!(x.relu().unwrap_err().kind(), ErrorKind::Trace);
    assert_eq!(x.pad(&[], 0.0).unwrap_err().kind(), ErrorKind::Trace);
    Ok(())
}

#[test]
fn losses_and_metrics_refuse_shapes_that_would_broadcast() -> Result<()> {
    let cx = Context::trace(true, Precision::F32);
    let prediction = cx.input("prediction", &[4, 1], DType::F32)?;
    let target = cx.target("target", &[4], DType::F32)?;
    let labels = cx.target("labels", &[4, 1], DType::I32)?;
    assert_eq!(
        loss::mse(&prediction, &target).unwrap_err().to_string(),
        "mse: the prediction is f32[4, 1], the target f32[4]; their shapes differ"
    );
    assert!(loss::bce_from_logits(&prediction, &target).is_err());
    assert!(loss::cross_entropy(&prediction, &target).is_err());
    assert!(loss::sparse_cross_entropy(&prediction, &labels).is_err());
    assert!(metric::accuracy(&prediction, &labels).is_err());
    Ok(())
}

#[test]
fn only_labels_of_integers_are_classes() -> Result<()> {
    let cx = Context::trace(true, Precision::F32);
    let logits = cx.input("logits", &[4, 3], DType::F32)?;
    let floats = cx.target("floats", &[4], DType::F32)?;
    assert!(loss::sparse_cross_entropy(&logits, &floats).is_err());
    assert!(metric::accuracy(&logits, &floats).is_err());
    for dtype in [DType::U8, DType::I32, DType::I64] {
        let labels = cx.target(dtype.name(), &[4], dtype)?;
        assert_eq!(loss::sparse_cross_entropy(&logits, &labels)?.to_string(), "f32[]");
        assert_eq!(metric::accuracy(&logits, &labels)?.to_string(), "f32[]");
    }
    Ok(())
}

#[test]
fn unknown_names_are_answered_with_the_known_ones() {
    let error = "sgd".parse::<loss::Loss>().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Name);
    assert_eq!(
        error.to_string(),
        "there is no loss named `sgd`; there are: sparse_cross_entropy, cross_entropy, mse, bce_from_logits, \
         l1, smooth_l1"
    );
    assert!("Relu".parse::<Activation>().unwrap_err().to_string().contains("relu, gelu"));
    assert!("fp8".parse::<Precision>().unwrap_err().to_string().contains("f32, bf16, f16"));
    assert!("f11".parse::<metric::Metric>().unwrap_err().to_string().contains("accuracy"));
}

#[test]
fn absurd_sizes_are_refused_rather_than_computed_with() {
    let huge = usize::MAX / 2;
    let conv = |window| Conv2d::new(1, window).padding(Padding::Same);
    let cases: [(&dyn Layer, &[usize]); 8] = [
        (&Dense::new(huge), &[2, 3]),
        (&Lstm::new(huge), &[2, 5, 3]),
        (&Gru::new(huge), &[2, 5, 3]),
        (&Lstm::new(3), &[2, 0, 3]),
        (&Upsample(huge), &[2, 5, 3, 3]),
        (&conv([huge, 1]).dilation([huge, 1]), &[1, 3, 3, 1]),
        (&conv([1, 1]).stride([0, 0]), &[1, 3, 3, 1]),
        (&MaxPool::new([0, 0]), &[1, 3, 3, 1]),
    ];
    for (layer, shape) in cases {
        assert!(trace(layer, shape, DType::F32).is_err(), "{} of {shape:?}", layer.kind());
    }
}
