//! Bad input: a clear error on the standard error stream, and no panic.

mod common;

use common::{FLOWERS, Place};

/// The first line of the error about a workload file in which `from` has become `to`.
fn complaint(from: &str, to: &str) -> String {
    assert!(FLOWERS.contains(from), "{from} is not in the workload");
    let place = Place::new();
    place.write("data.csv", "a,species\n1,0\n2,1\n");
    place.write("mine.toml", &FLOWERS.replacen(from, to, 1));
    let error = place.fail(&["train", "mine.toml"]);
    assert!(!place.path("runs").exists(), "something was written");
    error.lines().next().unwrap_or_default().to_string()
}

/// The error about data.
fn data_complaint(csv: &str) -> String {
    let place = Place::new();
    place.write("data.csv", csv);
    place.write("mine.toml", FLOWERS);
    let error = place.fail(&["train", "mine.toml"]);
    assert!(!place.path("runs").exists(), "something was written");
    error
}

#[test]
fn a_workload_that_does_not_exist_gets_the_one_that_was_meant() {
    let error = Place::new().fail(&["train", "digist"]);
    assert_eq!(error, "there is no workload and no file `digist`; did you mean `digits`?\n");
    let error = Place::new().fail(&["workloads", "digist"]);
    assert_eq!(error, "there is no workload `digist`; did you mean `digits`?\n");
}

#[test]
fn an_unknown_key_is_named_with_its_line() {
    assert_eq!(
        complaint("batch = 4", "bacth = 4"),
        "mine.toml:19:1: unknown key `bacth` in [train]; did you mean `batch`?"
    );
}

#[test]
fn a_missing_key_is_named_with_the_line_of_its_section() {
    assert_eq!(
        complaint("rate = 0.05\n", ""),
        "mine.toml:14:1: [optimizer] has no `rate`: expected a number above 0"
    );
}

#[test]
fn a_wrong_type_is_named_with_its_line_and_what_was_expected() {
    assert_eq!(
        complaint("epochs = 40", "epochs = \"many\""),
        "mine.toml:20:10: `epochs` is \"many\"; expected a whole number, at least 1"
    );
}

#[test]
fn a_model_that_does_not_take_the_data_is_told_the_shapes() {
    let error = complaint("layers = [", "layers = [{ conv = 4, window = 3 }, ");
    assert!(error.contains("conv") && error.contains("[2, 1]"), "{error}");
    let error = complaint("{ dense = 2 }", "{ dense = 1 }");
    assert!(error.contains("label 1 is outside of 0..1"), "{error}");
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let place = Place::new();
    std::fs::create_dir(place.path("folder.toml")).expect("a folder");
    assert!(place.fail(&["train", "folder.toml"]).starts_with("cannot read folder.toml: "));
    assert!(place.fail(&["pack", "nothing.csv"]).starts_with("cannot read nothing.csv: "));
    place.write("mine.toml", FLOWERS);
    assert!(place.fail(&["train", "mine.toml"]).starts_with("data.csv: "));
    std::fs::write(place.path("bytes.toml"), [0xff, 0xfe, 0x00]).expect("a file");
    assert!(place.fail(&["forecast", "bytes.toml"]).starts_with("cannot read bytes.toml: "));
}

#[test]
fn a_folder_that_cannot_be_made_is_named_before_training() {
    let place = Place::new();
    place.write("plain", "a file");
    let error = place.fail(&["train", "digits", "--quiet", "--out", "plain/run"]);
    assert!(error.starts_with("cannot make the folder plain/run: "), "{error}");
}

#[test]
fn nan_in_the_data_is_named_with_line_and_column() {
    let error = data_complaint("length,species\n1.5,0\nNaN,1\n");
    assert!(error.starts_with("data.csv: line 3, column `length`: `NaN`"), "{error}");
}

#[test]
fn a_label_out_of_range_is_named_with_the_range() {
    let error = data_complaint("length,species\n1.5,0\n2.5,2\n");
    assert!(
        error.starts_with("data.csv: line 3, column `species`: the label 2 is outside of 0..2"),
        "{error}"
    );
}

#[test]
fn an_empty_data_set_is_refused() {
    assert!(data_complaint("").starts_with("data.csv has no header line"));
    assert!(data_complaint("length,species\n").starts_with("data.csv has a header but no rows"));
}

#[test]
fn wrong_usage_ends_with_code_2() {
    for args in [
        &["train"][..],
        &["train", "digits", "--batch", "0"],
        &["train", "digits", "--epochs", "1", "--steps", "1"],
        &["train", "digits", "--budget", "twelve"],
        &["train", "digits", "--device", "gpu"],
        &["bench", "digits", "--device", "h200"],
        &["forecast", "digits", "--max-batch", "--frontier", "--budget", "1GiB"],
        &["forecast", "digits", "--plan-seconds", "-1"],
        &["pack", "a.csv", "--seconds", "-1"],
        &["fly"],
        &[],
    ] {
        let ran = Place::new().run(args);
        assert_eq!(ran.code, Some(2), "{args:?}\n{}", ran.stderr);
        assert!(!ran.stderr.is_empty(), "{args:?}");
    }
}

#[cfg(unix)]
#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let place = Place::new();
    for command in ["workloads vgg16", "forecast digits", "forecast digits --json", "workloads"] {
        let ran = place.shell(&format!("{{ $PLIMSOLL {command}; echo $? >&2; }} | true"));
        assert_eq!(ran.stderr, "0\n", "{command}");
    }
}
