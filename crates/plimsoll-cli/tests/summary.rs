//! `plimsoll summary`: a model layer by layer, in figures that are the forecast's.

mod common;

use common::Place;
use serde_json::Value;

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&Place::new().succeed(args).stdout).expect("JSON and nothing else")
}

fn number(of: &Value, key: &str) -> u64 {
    of[key].as_u64().unwrap_or_else(|| panic!("no {key} in {of}"))
}

#[test]
fn sums_are_those_of_the_ledger_where_they_are_the_same_thing() {
    for name in ["digits", "mlp-small", "cnn-small", "gpt-small", "lstm-seq", "resnet50", "unet"] {
        let device = ["--device", "cpu", "--json"];
        let forecast = json(&[&["forecast", name], &device[..]].concat());
        for depth in ["1", "3"] {
            let summary = json(&[&["summary", name, "--depth", depth], &device[..]].concat());
            let total = &summary["total"];
            assert_eq!(total["parameters"], forecast["trainable_parameters"], "{name}");
            assert_eq!(total["weight_bytes"], forecast["ledger"]["parameters"], "{name}");
            assert_eq!(total["slot_bytes"], forecast["ledger"]["optimizer"], "{name}");
            for key in ["parameters", "weight_bytes", "slot_bytes", "gradient_bytes", "saved_bytes"] {
                let layers = summary["layers"].as_array().expect("a list");
                let sum: u64 = layers.iter().map(|layer| number(layer, key)).sum();
                assert_eq!(sum, number(total, key), "{name}: {key}");
            }
        }
    }
}

#[test]
fn what_a_layer_of_known_size_takes_is_what_arithmetic_says() {
    // 784 to 100, rectified, to 10, on batches of 256.
    let summary = json(&["summary", "mlp-small", "--json"]);
    let layer = |name: &str| {
        let layers = summary["layers"].as_array().expect("a list");
        layers.iter().find(|layer| layer["name"] == name).unwrap_or_else(|| panic!("no {name} in {summary}"))
    };
    let dense = layer("dense0");
    assert_eq!(dense["output"], serde_json::json!([256, 100]));
    assert_eq!(number(dense, "parameters"), 784 * 100 + 100);
    assert_eq!(number(dense, "weight_bytes"), 4 * (784 * 100 + 100));
    assert_eq!(number(dense, "slot_bytes"), 8 * (784 * 100 + 100), "Adam has two");
    assert_eq!(number(dense, "saved_bytes"), 4 * 256 * 100, "what was rectified is all that gradients need");
}

#[test]
fn the_shapes_of_layers_are_those_of_the_model_as_it_was_written() {
    let summary = json(&["summary", "digits", "--json"]);
    let layers = summary["layers"].as_array().expect("a list");
    let shapes: Vec<(&str, Value)> =
        layers.iter().filter_map(|layer| Some((layer["name"].as_str()?, layer["output"].clone()))).collect();
    // Though it is rectified after pooling, which is less work.
    assert!(shapes.contains(&("conv1", serde_json::json!([32, 8, 8, 32]))), "{shapes:?}");
    assert!(shapes.contains(&("max_pool0", serde_json::json!([32, 4, 4, 32]))), "{shapes:?}");
}

#[test]
fn the_table_fits_and_goes_as_deep_as_is_asked() {
    let place = Place::new();
    for (columns, depth) in [(60, 1), (60, 3), (80, 2), (120, 3)] {
        let script = format!("COLUMNS={columns} $PLIMSOLL summary gpt-small --depth {depth}");
        let ran = place.shell(&script);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        let table: Vec<&str> = ran.stdout.lines().skip(2).collect();
        assert!(table.iter().all(|line| line.chars().count() <= columns), "{}", ran.stdout);
        assert_eq!(
            table.iter().filter(|line| line.starts_with("block0")).count() > 1,
            depth > 1,
            "{table:?}"
        );
        assert!(table.last().is_some_and(|line| line.starts_with("total ")), "{table:?}");
    }
}
