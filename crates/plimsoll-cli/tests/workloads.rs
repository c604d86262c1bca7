//! `plimsoll workloads`: what is built in, to run or to copy.

mod common;

use common::Place;

#[test]
fn a_printed_workload_can_be_edited_and_run_from_its_file() {
    let place = Place::new();
    let text = place.succeed(&["workloads", "digits"]).stdout;
    place.write("mine.toml", &text.replace("epochs = 15", "steps = 2"));
    place.succeed(&["train", "mine.toml", "--quiet"]);
    assert_eq!(place.json("runs/mine/run.json")["steps"], 2);
}

#[test]
fn the_list_has_a_line_for_each_workload() {
    let listed = Place::new().succeed(&["workloads"]).stdout;
    for name in [
        "digits",
        "mnist",
        "mnist-cnn",
        "moby-dick",
        "mlp-small",
        "mlp-wide",
        "cnn-small",
        "gpt-small",
        "gpt-varlen",
        "lstm-seq",
        "gpt2-124m",
        "gpt2-varlen",
        "gpt2-1.5b",
        "resnet50",
        "mlp-large",
        "vgg16",
        "unet",
    ] {
        assert!(listed.lines().any(|line| line.starts_with(&format!("{name} "))), "no {name} in {listed}");
    }
}
