//! `plimsoll devices`: the machines that can be planned for, and what this one can do.

mod common;

use common::Place;
use serde_json::Value;

/// Runs the command with a folder `own` of profiles in the place.
fn devices(place: &Place, args: &str) -> common::Ran {
    place.shell(&format!("PLIMSOLL_DEVICES=own $PLIMSOLL devices {args}"))
}

#[test]
fn the_list_has_a_line_for_each_device() {
    let ran = devices(&Place::new(), "");
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    for name in ["cpu", "h200", "h100-80g", "a100-80g", "a100-40g", "l40s", "rtx4090", "rtx3090", "t4"] {
        let named = |line: &&str| line.starts_with(&format!("{name} ")) && line.contains("FLOP/s");
        assert!(ran.stdout.lines().any(|line| named(&line)), "no {name} in {}", ran.stdout);
    }
    for part in ["NVIDIA A100 SXM, 40 GB", "39.4 GiB", "690 TFLOP/s", "1.79 TB/s"] {
        assert!(ran.stdout.contains(part), "no `{part}` in {}", ran.stdout);
    }
}

#[test]
fn the_list_is_data_for_other_programs_too() {
    let list: Value = serde_json::from_str(&devices(&Place::new(), "--json").stdout).expect("JSON");
    let h200 = list.as_array().expect("a list").iter().find(|p| p["name"] == "h200").expect("the H200");
    assert_eq!(h200["rates"]["matrix_half"], 6.9e14);
    assert_eq!(h200["copies"]["overlap"], true);
}

#[test]
fn cuda_devices_are_listed_or_it_is_said_in_one_line_why_there_are_none() {
    let data = devices(&Place::new(), "--here --json");
    assert_eq!((data.code, data.stderr.as_str()), (Some(0), ""));
    let data: Value = serde_json::from_str(&data.stdout).expect("JSON");
    let kinds = data.as_array().expect("a list of kinds");
    let cuda = kinds.iter().find(|kind| kind["kind"] == "cuda").expect("CUDA");
    let found = cuda["devices"].as_array().expect("a list").len();
    assert!(cuda["missing"].is_null() || found == 0, "{cuda}");
    for args in ["", "--here", "--cuda"] {
        let ran = devices(&Place::new(), args);
        let lines = |start: &str| ran.stdout.lines().filter(|line| line.starts_with(start)).count();
        assert_eq!((ran.code, lines("cuda:")), (Some(0), found), "{}", ran.stdout);
        assert_eq!(lines("no CUDA device: "), usize::from(found == 0), "{}", ran.stdout);
    }
}

#[test]
fn what_was_measured_is_saved_and_then_listed() {
    let place = Place::new();
    let ran = devices(&place, "--calibrate --threads 1 --save");
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    let saved = place.read("own/cpu.toml");
    assert_eq!(ran.stdout, format!("{saved}\n# written to own/cpu.toml\n"));
    assert_eq!(place.list("own"), ["cpu.toml"]);
    let listed = devices(&place, "").stdout;
    assert!(listed.contains("1 thread, measured"), "{listed}");
}

#[test]
fn a_profile_that_is_wrong_is_shown_with_its_line() {
    let place = Place::new();
    let ran = place.shell(
        "mkdir own && printf 'memory_bytes = 5\\nalignment = 3\\n' > own/mine.toml; \
         PLIMSOLL_DEVICES=own $PLIMSOLL devices",
    );
    let expected = "own/mine.toml:2:13: `alignment` is 3; expected a power of two";
    assert!(ran.error().starts_with(expected), "{}", ran.stderr);
}

#[test]
fn a_folder_that_cannot_be_made_is_known_before_measuring() {
    let place = Place::new();
    place.write("own", "a file");
    let ran = devices(&place, "--calibrate --save");
    assert!(ran.error().starts_with("cannot make the folder own: "), "{}", ran.stderr);
    assert_eq!(ran.stdout, "");
}

#[test]
fn options_that_mean_nothing_here_are_refused() {
    for args in ["--save", "--threads 2", "--calibrate --threads 0", "--calibrate --json"] {
        let ran = devices(&Place::new(), args);
        assert_eq!(ran.code, Some(2), "{args}: {}", ran.stderr);
    }
}

#[test]
fn a_gpu_that_is_not_here_is_named_by_everything_that_would_use_it() {
    let place = Place::new();
    let text = place.succeed(&["workloads", "digits"]).stdout;
    let text =
        text.replace("[train]", "[train]\ndevice = \"cuda:60000\"").replace("epochs = 15", "steps = 1");
    place.write("gpu.toml", &text);
    for args in [
        &["forecast", "digits", "--device", "cuda:60000"][..],
        &["forecast", "digits", "--device", "cuda:60000", "--frontier"],
        &["forecast", "gpu.toml"],
        &["train", "gpu.toml"],
        &["bench", "digits", "--device", "cuda:60000"],
    ] {
        let error = place.fail(args);
        assert!(error.contains("NVIDIA driver") || error.contains("cuda:60000"), "{args:?}: {error}");
    }
    // What the command line says wins over the file.
    for args in [
        &["forecast", "gpu.toml", "--device", "h200"][..],
        &["forecast", "gpu.toml", "--device", "cpu"],
        &["train", "gpu.toml", "--device", "cpu", "--quiet"],
    ] {
        place.succeed(args);
    }
}
