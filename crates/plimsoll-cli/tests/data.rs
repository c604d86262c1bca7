//! `plimsoll data`: what a workload's samples are and what they take.

mod common;

use common::Place;
use serde_json::Value;

#[test]
fn fields_counts_and_first_samples_are_those_of_the_file() {
    let place = Place::new();
    place.write("points.csv", "x,y,kind\n0.5,1,0\n-2,3e1,1\n4,5,1\n");
    place.write(
        "points.toml",
        r#"
            loss = "sparse_cross_entropy"
            data = { kind = "csv", path = "points.csv", label = "kind", classes = 2 }
            model = { kind = "sequential", layers = [{ dense = 2 }] }
            optimizer = { kind = "adam", rate = 0.01 }
            train = { batch = 2, epochs = 1 }
        "#,
    );
    let text = place.succeed(&["data", "points.toml", "--seconds", "0.01"]).stdout;
    for expected in
        ["samples    3 to train on", "features  f32 [2]", "0.5, 1", "-2, 30", "label", "samples a second"]
    {
        assert!(text.contains(expected), "{expected} in {text}");
    }
    let json = place.succeed(&["data", "points.toml", "--seconds", "0", "--first", "2", "--json"]).stdout;
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["samples"], 3);
    assert_eq!(json["fields"][0]["shape"], serde_json::json!([2]));
    assert_eq!(json["first"][1]["features"]["begins"], "-2, 30");
    assert_eq!(json["first"].as_array().map(Vec::len), Some(2));
}
