//! `plimsoll new`: a workload to start from.

mod common;

use common::Place;

#[test]
fn a_new_workload_of_any_data_trains_as_it_is() {
    for data in ["digits", "csv", "synthetic", "tokens"] {
        let place = Place::new();
        let said = place.succeed(&["new", "mine", "--data", data]).stdout;
        assert!(said.contains("plimsoll train mine.toml"), "{said}");
        let text = place.read("mine.toml");
        assert!(text.starts_with("# ") && !text.contains("NAME"), "{text}");
        place.succeed(&["forecast", "mine.toml"]);
        place.succeed(&["train", "mine.toml", "--steps", "3", "--quiet"]);
        assert_eq!(place.json("runs/mine/run.json")["steps"], 3, "{data}");
    }
}

#[test]
fn the_default_learns() {
    let place = Place::new();
    place.succeed(&["new", "mine.toml", "--quiet"]);
    assert_eq!(place.list(""), ["mine.toml"]);
    place.succeed(&["train", "mine.toml", "--quiet"]);
    let accuracy = place.json("runs/mine/run.json")["final_metrics"]["accuracy"].as_f64();
    assert!(accuracy > Some(0.9), "{accuracy:?}");
}

#[test]
fn nothing_is_overwritten() {
    let place = Place::new();
    place.write("mine.csv", "precious");
    let error = place.fail(&["new", "mine", "--data", "csv"]);
    assert!(error.starts_with("mine.csv is there already"), "{error}");
    assert_eq!((place.read("mine.csv").as_str(), place.list("")), ("precious", vec!["mine.csv".to_string()]));
    place.succeed(&["new", "mine"]);
    let before = place.read("mine.toml");
    assert!(place.fail(&["new", "mine", "--data", "tokens"]).starts_with("mine.toml is there already"));
    assert_eq!(place.read("mine.toml"), before);
    assert!(place.fail(&["new", ".."]).contains("no name for a workload"));
    assert!(place.fail(&["new", "nowhere/mine"]).starts_with("cannot write nowhere/mine.toml: "));
}
