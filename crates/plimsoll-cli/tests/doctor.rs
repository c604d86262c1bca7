//! `plimsoll doctor`: what is suspicious about a machine, and its books.

mod common;

use common::Place;
use serde_json::Value;

/// A machine whose driver tells of one GPU, which a process that cannot be seen from here has most of.
const TOOL: &str = r#"#!/bin/sh
case "$1" in
  *mig.mode*) echo 'Field "mig.mode.current" is not a valid field to query.'; exit 2 ;;
  --query-gpu=*)
    echo 'index, uuid, driver_version, memory.total [MiB], memory.used [MiB], memory.free [MiB], compute_mode, persistence_mode, name'
    printf '0, GPU-a, 470.82.01, 16160, 15000, 1160, Default, Enabled, Tesla \033[2JV100\n' ;;
  --query-compute-apps=*)
    echo 'gpu_uuid, pid, used_gpu_memory [MiB], process_name'
    echo 'GPU-a, 4194303, 14000, python' ;;
esac
"#;

/// A place with a stand-in for NVIDIA's tool: there is no GPU where tests run.
fn with_a_gpu() -> Place {
    let place = Place::new();
    place.write("nvidia-smi", TOOL);
    place.shell("chmod +x nvidia-smi");
    place
}

#[test]
fn every_book_of_this_machine_sums() {
    let ran = Place::new().run(&["doctor", "--json"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    let said: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let books = said["system"]["books"].as_array().expect("a list");
    assert!(!books.is_empty());
    for book in books {
        let lines = book["lines"].as_array().expect("lines");
        let sum: u64 = lines.iter().map(|line| line["bytes"].as_u64().expect("bytes")).sum();
        assert_eq!(Some(sum), book["total_bytes"].as_u64(), "{book}");
    }
}

#[test]
fn who_holds_a_gpu_is_suspicious_and_comes_first() {
    let ran = with_a_gpu().shell("PATH=.:$PATH $PLIMSOLL doctor");
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert_eq!(lines[0], "Suspicious:");
    assert_eq!(lines[1], "  · GPU 0: process 4194303 (python) holds 13.7 GiB of 15.8 GiB");
    for part in ["pid 4194303: python   13.7 GiB", "driver 470.82.01, compute mode Default, persistence on"] {
        assert!(ran.stdout.contains(part), "no `{part}` in {}", ran.stdout);
    }
    assert!(ran.stdout.contains(r"books of GPU 0, Tesla \u001b[2JV100"), "{}", ran.stdout);
}

#[test]
fn a_setting_that_does_not_exist_is_suspicious() {
    let place = Place::new();
    let ran = place.shell("SECRET=hush PYTORCH_CUDA_ALLOC_CONF=expandable_segment:True $PLIMSOLL doctor");
    assert_eq!(ran.code, Some(0));
    assert!(ran.stdout.contains("there is no setting `expandable_segment`"), "{}", ran.stdout);
    assert!(!ran.stdout.contains("hush"), "{}", ran.stdout);
}
