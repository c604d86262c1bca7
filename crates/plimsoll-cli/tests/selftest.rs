//! `plimsoll selftest`: whether memory on this machine does what is relied on.

mod common;

use common::Place;
use serde_json::Value;

#[test]
fn every_check_passes_on_the_hosts_memory() {
    let ran = Place::new().shell("$PLIMSOLL selftest --device cpu --json");
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    let report: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    assert_eq!((&report["device"], &report["passed"]), (&Value::from("cpu"), &Value::from(true)));
    let checks = report["checks"].as_array().expect("a list");
    assert!(checks.len() >= 2 && checks.iter().all(|check| check["passed"] == true), "{report}");
    let ran = Place::new().shell("$PLIMSOLL selftest --device cpu");
    assert_eq!(ran.code, Some(0));
    assert!(ran.stdout.contains(&format!("{0} of {0} checks passed on cpu", checks.len())), "{}", ran.stdout);
}

#[test]
fn a_device_that_is_not_there_is_an_error_that_says_what_is_missing() {
    let ran = Place::new().shell("$PLIMSOLL selftest --device cuda:60000");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""));
    assert!(ran.stderr.contains("NVIDIA driver") || ran.stderr.contains("cuda:60000"), "{}", ran.stderr);
}

#[test]
fn a_name_that_is_no_device_is_an_error_that_says_how_to_write_one() {
    let ran = Place::new().shell("$PLIMSOLL selftest --device tpu");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""));
    assert!(ran.stderr.contains("`tpu`") && ran.stderr.contains("cpu, cuda:0"), "{}", ran.stderr);
}
