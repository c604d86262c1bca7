//! Which parameters a model has, and what they are called.

mod common;

use common::trace;
use plimsoll::layers::*;
use plimsoll::models::{Gpt, ResNet50, UNet};
use plimsoll::{Context, DType, Init, Precision, Result, Step};

/// Names and shapes of the parameters and statistics, in the order they were asked for.
fn states(step: &Step) -> Vec<(&str, Vec<usize>)> {
    step.states.iter().map(|s| (&*s.name, step.graph.shape(s.value).to_vec())).collect()
}

/// The number of elements of all states that are trainable, or not.
fn elements(step: &Step, trainable: bool) -> usize {
    let states = step.states.iter().filter(|s| s.trainable == trainable);
    states.map(|s| step.graph.shape(s.value).elements()).sum()
}

fn names(layer: impl Layer, input: &[usize], dtype: DType) -> Vec<String> {
    let (_, step) = trace(layer, input, dtype).unwrap();
    states(&step).into_iter().map(|(name, shape)| format!("{name} {shape:?}")).collect()
}

#[test]
fn layers_own_the_parameters_their_table_says() {
    let f32 = DType::F32;
    assert_eq!(names(Dense::new(5), &[2, 3], f32), ["weight [3, 5]", "bias [5]"]);
    assert_eq!(names(Dense::new(5).no_bias(), &[2, 3], f32), ["weight [3, 5]"]);
    assert_eq!(
        names(Conv2d::new(8, [3, 2]).groups(2), &[1, 9, 9, 4], f32),
        ["filter [3, 2, 2, 8]", "bias [8]"]
    );
    assert_eq!(names(BatchNorm::new(), &[2, 3], f32), ["gamma [3]", "beta [3]", "mean [3]", "variance [3]"]);
    assert_eq!(names(LayerNorm::new(), &[2, 3], f32), ["gamma [3]", "beta [3]"]);
    assert_eq!(names(Embedding::new(11, 5), &[2], DType::I32), ["table [11, 5]"]);
    assert_eq!(
        names(Lstm::new(6), &[2, 5, 3], f32),
        ["input_weight [3, 24]", "hidden_weight [6, 24]", "bias [24]"]
    );
    assert_eq!(
        names(Gru::new(6), &[2, 5, 3], f32),
        ["input_weight [3, 18]", "hidden_weight [6, 18]", "input_bias [18]", "hidden_bias [18]"]
    );
    assert_eq!(
        names(MultiHeadAttention::new(2), &[2, 5, 4], f32),
        ["qkv/weight [4, 12]", "qkv/bias [12]", "out/weight [4, 4]", "out/bias [4]"]
    );
}

#[test]
fn a_transformer_block_has_its_parts_in_scopes() {
    let expected = [
        "ln1/gamma [4]",
        "ln1/beta [4]",
        "attention/qkv/weight [4, 12]",
        "attention/qkv/bias [12]",
        "attention/out/weight [4, 4]",
        "attention/out/bias [4]",
        "ln2/gamma [4]",
        "ln2/beta [4]",
        "mlp/up/weight [4, 16]",
        "mlp/up/bias [16]",
        "mlp/down/weight [16, 4]",
        "mlp/down/bias [4]",
    ];
    assert_eq!(names(TransformerBlock::new(2), &[2, 5, 4], DType::F32), expected);
}

#[test]
fn a_language_model_numbers_its_blocks() {
    let model = Gpt { layers: 2, width: 4, heads: 2, context: 8, vocab: 11, dropout: 0.0, tied_head: false };
    let all = names(&model, &[3, 5], DType::I32);
    assert_eq!(all[..3], ["tokens/table [11, 4]", "positions/table [8, 4]", "block0/ln1/gamma [4]"]);
    assert!(all.contains(&"block1/mlp/down/weight [16, 4]".to_string()));
    assert_eq!(all[all.len() - 3..], ["ln/gamma [4]", "ln/beta [4]", "head/weight [4, 11]"]);

    let tied = Gpt { tied_head: true, ..model };
    assert_eq!(names(&tied, &[3, 5], DType::I32), all[..all.len() - 1]);
}

#[test]
fn gpt2_has_124_million_parameters() {
    let tied =
        Gpt { layers: 12, width: 768, heads: 12, context: 1024, vocab: 50257, dropout: 0.1, tied_head: true };
    let count = |model: &Gpt| elements(&trace(model, &[1, 1024], DType::I32).unwrap().1, true);
    assert_eq!(count(&tied), 124_439_808);
    let untied = Gpt { tied_head: false, ..tied };
    assert_eq!(count(&untied), 124_439_808 + 768 * 50257);
}

#[test]
fn resnet50_has_25_million_parameters_and_its_running_statistics() {
    let (_, step) = trace(ResNet50::new(1000), &[2, 224, 224, 3], DType::F32).unwrap();
    assert_eq!(elements(&step, true), 25_557_032);
    assert_eq!(elements(&step, false), 2 * 26_560);
    let names: Vec<&str> = states(&step).into_iter().map(|(name, _)| name).collect();
    for name in [
        "stem/conv/filter",
        "stem/norm/gamma",
        "stage0/block0/projection/conv/filter",
        "stage3/block2/norm3/variance",
        "head/bias",
    ] {
        assert!(names.contains(&name), "{name}");
    }
}

#[test]
fn the_u_net_has_31_million_parameters() {
    let (_, step) = trace(UNet::new(2), &[1, 32, 32, 3], DType::F32).unwrap();
    assert_eq!(elements(&step, true), 31_037_698);
}

#[test]
fn layers_without_a_name_are_numbered_by_kind() {
    let model = Sequential::new()
        .then(Conv2d::new(4, [3, 3]))
        .then(Activation::Relu)
        .then(Conv2d::new(4, [3, 3]))
        .then(Flatten)
        .named("out", Dense::new(2))
        .then(Sequential::new().then(Dense::new(2)).then(Dense::new(2)));
    let all = names(model, &[1, 8, 8, 1], DType::F32);
    let filters: Vec<&str> = all.iter().map(|n| n.split(' ').next().unwrap()).collect();
    assert_eq!(
        filters,
        [
            "conv0/filter",
            "conv0/bias",
            "conv1/filter",
            "conv1/bias",
            "out/weight",
            "out/bias",
            "sequential0/dense0/weight",
            "sequential0/dense0/bias",
            "sequential0/dense1/weight",
            "sequential0/dense1/bias",
        ]
    );
}

#[test]
fn the_same_name_means_the_same_weights() -> Result<()> {
    let twice = Sequential::new().named("shared", Dense::new(3)).named("shared", Dense::new(3));
    assert_eq!(names(twice, &[2, 3], DType::F32), ["shared/weight [3, 3]", "shared/bias [3]"]);
    Ok(())
}

#[test]
fn the_same_name_for_another_shape_or_kind_is_an_error() -> Result<()> {
    let cx = Context::trace(true, Precision::F32);
    cx.scope("a", |cx| cx.parameter("w", &[2, 3], Init::Zeros))?;
    let shape = cx.scope("a", |cx| cx.parameter("w", &[2, 4], Init::Zeros)).unwrap_err();
    assert_eq!(
        shape.to_string(),
        "there is already a parameter `a/w` of shape [2, 3]; a parameter of shape [2, 4] needs a name or scope \
         of its own"
    );
    let kind = cx.statistic("a/w", &[2, 3], Init::Zeros).unwrap_err();
    assert!(kind.to_string().contains("a statistic of shape [2, 3] needs a name"), "{kind}");
    Ok(())
}

#[test]
fn scopes_name_parameters_and_the_nodes_of_the_graph_alike() -> Result<()> {
    let cx = Context::trace(true, Precision::F32);
    let x = cx.input("x", &[2, 3], DType::F32)?;
    cx.scope("outer", |cx| cx.layer("inner", Dense::new(4), &x))?;
    // A scope ends where its function does, in error too.
    cx.scope("broken", |cx| cx.layer("deep", Dense::new(4), &cx.constant(0.0, &[], DType::F32)?))
        .unwrap_err();
    cx.parameter("free", &[1], Init::Zeros)?;
    let step = cx.take_step()?;
    for state in &step.states {
        assert_eq!(step.graph.scope(state.value), &*state.name);
    }
    assert_eq!(&*step.states[0].name, "outer/inner/weight");
    assert_eq!(&*step.states[2].name, "free");
    Ok(())
}

#[test]
fn names_that_would_collide_with_others_are_refused() {
    let cx = Context::trace(true, Precision::F32);
    for name in ["", "/a", "a/", "a//b", "a:mean", "random"] {
        assert!(cx.parameter(name, &[1], Init::Zeros).is_err(), "{name}");
    }
    assert!(cx.scope("", |_| Ok(())).is_err());
}
