//! Graphs as text, JSON and drawings.

use plimsoll_graph::op::{Conv2d, Distribution, Op, Pad, Reduction};
use plimsoll_graph::{DType, Graph, Shape, gradients};
use serde_json::json;

/// A little of everything that prints in its own way.
fn sample() -> Graph {
    let mut g = Graph::new();
    let x = g.input("x", &[2, 4], DType::F32).unwrap();
    let labels = g.input("labels", &[2], DType::I32).unwrap();
    let [loss, _] = g.scoped("loss", |g| g.apply_n(Op::CrossEntropy, &[x, labels])).unwrap();
    let half = g.constant(0.5, DType::F32).unwrap();
    let product = g.mul(loss, half).unwrap();
    g.reduce(Reduction::Max, product, &[0]).unwrap();
    g
}

#[test]
fn text_has_a_line_for_each_node_in_order() {
    assert_eq!(
        sample().to_string(),
        "\
%0 = f32[2, 4] input()  # x
%1 = i32[2] input()  # labels
%2, %3 = f32[2], f32[2, 2] cross_entropy(%0, %1)  # loss
%4 = f32[] constant() {value=0.5}
%5 = f32[2] broadcast(%4)
%6 = f32[2] mul(%2, %5)
%7 = f32[] reduce_max(%6) {axes=[0]}
"
    );
}

#[test]
fn text_gives_the_attributes_that_names_and_types_do_not_tell() {
    let last = |build: &dyn Fn(&mut Graph)| {
        let mut g = Graph::new();
        build(&mut g);
        g.to_string().lines().last().unwrap().to_string()
    };
    let image = |g: &mut Graph| g.input("x", &[1, 4, 4, 2], DType::F32).unwrap();
    let convolution = last(&|g| {
        let x = image(g);
        let filter = g.input("f", &[3, 3, 2, 5], DType::F32).unwrap();
        let conv = Conv2d { stride: [2, 1], ..Conv2d::default() };
        g.apply(Op::Conv2d(conv), &[x, filter]).unwrap();
    });
    assert_eq!(
        convolution,
        "%2 = f32[1, 1, 2, 5] conv2d(%0, %1) {dilation=[1, 1], groups=1, padding=[0, 0, 0, 0], stride=[2, 1]}"
    );
    let mask = last(&|g| {
        let x = image(g);
        let [one, none] = [&[0, 1, 0, 0], &[0; 4]].map(|dims| Shape::new(dims).unwrap());
        let pad = Pad { before: one, after: none, between: none, value: f64::NEG_INFINITY };
        g.apply(Op::Pad(Box::new(pad)), &[x]).unwrap();
    });
    assert_eq!(
        mask,
        "%1 = f32[1, 5, 4, 2] pad(%0) {after=[0, 0, 0, 0], before=[0, 1, 0, 0], between=[0, 0, 0, 0], value=-inf}"
    );
    let noise = last(&|g| {
        let state = g.input("state", &[3], DType::I64).unwrap();
        g.random(Distribution::Normal, state, &[3], DType::BF16, 0).unwrap();
    });
    assert_eq!(noise, "%1 = bf16[3] random(%0) {distribution=normal, per_sample=0, stream=1}");
    let tanh = last(&|g| {
        let x = image(g);
        g.tanh(x).unwrap();
    });
    assert_eq!(tanh, "%1 = f32[1, 4, 4, 2] tanh(%0)");
}

#[test]
fn gradients_print_under_the_scopes_they_belong_to() {
    let mut g = Graph::new();
    let x = g.input("x", &[2], DType::F32).unwrap();
    let y = g.scoped("act", |g| g.exp(x)).unwrap();
    gradients(&mut g, &[(y, None)], &[x]).unwrap();
    assert!(g.to_string().ends_with("%3 = f32[2] mul(%2, %1)  # act\n"));
}

#[test]
fn json_holds_every_node_with_all_of_its_attributes() {
    let json = sample().to_json();
    let nodes = json["nodes"].as_array().unwrap();
    assert_eq!(nodes.len(), 7);
    assert_eq!(
        nodes[2],
        json!({
            "op": "cross_entropy",
            "attributes": {},
            "operands": [0, 1],
            "results": [
                {"id": 2, "dtype": "f32", "shape": [2]},
                {"id": 3, "dtype": "f32", "shape": [2, 2]},
            ],
            "scope": "loss",
        })
    );
    assert_eq!(nodes[3]["attributes"], json!({"value": 0.5, "shape": [], "dtype": "f32"}));
    assert_eq!(nodes[6]["attributes"], json!({"kind": "max", "axes": [0], "wide": false}));
}

#[test]
fn json_keeps_the_numbers_that_json_does_not_have() {
    let mut g = Graph::new();
    for value in [f64::INFINITY, f64::NEG_INFINITY, f64::NAN] {
        g.constant(value, DType::F32).unwrap();
    }
    let json = g.to_json();
    let values = [0, 1, 2].map(|i| json["nodes"][i]["attributes"]["value"].clone());
    assert_eq!(values, ["inf", "-inf", "NaN"].map(|text| json!(text)));
}

#[test]
fn drawings_have_a_box_for_each_node_and_an_arrow_for_each_operand() {
    let g = sample();
    let drawing = g.to_dot();
    assert!(drawing.starts_with("digraph {"));
    assert!(drawing.ends_with("}\n"));
    assert_eq!(drawing.matches(" [label=\"").count() - drawing.matches(" -> ").count(), g.nodes().len());
    assert_eq!(
        drawing.matches(" -> ").count(),
        g.nodes().iter().map(|node| node.operands.len()).sum::<usize>()
    );
    assert!(drawing.contains("n0 -> n2 [label=\"f32[2, 4]\"];"));
    assert!(drawing.contains("n2 [label=\"loss\\ncross_entropy\"];"));
}

#[test]
fn drawings_escape_what_graphviz_would_read() {
    let mut g = Graph::new();
    g.input("a \"name\" with \\", &[], DType::F32).unwrap();
    assert!(g.to_dot().contains("label=\"a \\\"name\\\" with \\\\\\ninput\""));
}
