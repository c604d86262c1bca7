//! Weights in and out of the command: `plimsoll export`, and `plimsoll train --weights`.

mod common;

use common::Place;

/// A folder in which `first` is the result of a few steps on digits.
fn trained() -> Place {
    let place = Place::new();
    place.succeed(&["train", "digits", "--steps", "5", "--quiet", "--out", "first"]);
    place
}

fn first_loss(place: &Place, more: &[&str]) -> f64 {
    let out = format!("run{}", more.len());
    place.succeed(&[&["train", "digits", "--steps", "1", "--quiet", "--out", &out], more].concat());
    place.json(&format!("{out}/run.json"))["losses"][0].as_f64().expect("a loss")
}

#[test]
fn weights_that_were_exported_are_begun_with_under_any_names() {
    let place = trained();
    let ours = "first/weights.safetensors";
    let ran = place.succeed(&["export", "first", "--out", "torch.safetensors", "--names", "torch"]);
    assert!(ran.stdout.contains("torch.safetensors (8 tensors"), "{}", ran.stdout);
    place.succeed(&["export", "first", "--out", "renamed.safetensors", "--rename", "dense*=fc*"]);
    let from_ours = first_loss(&place, &["--weights", ours]);
    assert_ne!(from_ours, first_loss(&place, &[]));
    let from_torch = first_loss(&place, &["--weights", "torch.safetensors", "--names", "torch"]);
    assert_eq!(from_torch, from_ours);
    let renamed = ["--weights", "renamed.safetensors", "--rename", "dense*=fc*"];
    assert_eq!(first_loss(&place, &renamed), from_ours);
    let ran = place.succeed(&["train", "digits", "--steps", "1", "--out", "loud", "--weights", ours]);
    assert!(ran.stdout.contains("8 of 8 weights taken from first/weights.safetensors"), "{}", ran.stdout);
}

#[test]
fn weights_that_do_not_go_with_the_model_are_refused_with_what_can_be_done() {
    let place = trained();
    place.succeed(&["export", "first", "--out", "renamed.safetensors", "--rename", "dense1=fc"]);
    let train = ["train", "digits", "--steps", "1", "--out", "second", "--weights", "renamed.safetensors"];
    let said = place.fail(&train);
    for part in ["6 of 8 weights taken", "not in the file: 2", "dense1/weight", "fc/weight", "give --partial"]
    {
        assert!(said.contains(part), "no `{part}` in {said}");
    }
    let ran = place.succeed(&[&train[..], &["--partial"]].concat());
    assert!(ran.stdout.contains("not in the file: 2"), "{}", ran.stdout);
    for (more, part) in [
        (&["--names", "torch"][..], "there is none"),
        (&["--weights", "renamed.safetensors", "--names", "keras"], "names are plimsoll, torch"),
        (&["--weights", "first/run.json"], "is not a safetensors file"),
    ] {
        let said = place.fail(&[&["train", "digits", "--steps", "1"], more].concat());
        assert!(said.contains(part), "no `{part}` in {said}");
    }
    for (more, part) in [
        (&["--partial"][..], "--weights"),
        (&["--weights", "renamed.safetensors", "--rename", "dense1"], "OURS=THEIRS"),
    ] {
        let ran = place.run(&[&["train", "digits", "--steps", "1"], more].concat());
        assert!(ran.code == Some(2) && ran.stderr.contains(part), "no `{part}` in {}", ran.stderr);
    }
}

#[test]
fn a_model_is_exported_as_onnx_for_any_number_of_samples() {
    let place = trained();
    let ran = place.succeed(&["export", "first", "--out", "digits.onnx", "--workload", "digits"]);
    for part in ["digits.onnx (", "nodes", "any number"] {
        assert!(ran.stdout.contains(part), "no `{part}` in {}", ran.stdout);
    }
    let onnx = std::fs::read(place.path("digits.onnx")).expect("the model");
    // The workload is that of the folder, if it has one.
    place.write("first/workload.toml", include_str!("../../plimsoll/workloads/digits.toml"));
    place.succeed(&["export", "first", "--out", "digits.onnx"]);
    assert!(onnx == std::fs::read(place.path("digits.onnx")).expect("the model"));
    std::fs::remove_file(place.path("first/workload.toml")).expect("the workload");
    let weights = std::fs::metadata(place.path("first/weights.safetensors")).expect("the weights").len();
    assert!(onnx.len() as u64 > weights * 9 / 10);
    for (args, part) in [
        (&["first", "--out", "digits.onnx"][..], "--workload"),
        (&["first", "--out", "digits.onnx", "--names", "torch"], "the model's own names"),
        (&["first", "--out", "digits.pt"], "FILE.safetensors"),
        (&["first", "--out", "other.onnx", "--workload", "gpt-small"], "has no weight"),
        (&["none", "--out", "digits.onnx"], "none/weights.safetensors"),
    ] {
        let said = place.fail(&[&["export"], args].concat());
        assert!(said.contains(part), "no `{part}` in {said}");
    }
    assert!(!place.path("other.onnx").exists());
}
