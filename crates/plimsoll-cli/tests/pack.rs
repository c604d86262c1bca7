//! `plimsoll pack`: from lifetimes to offsets.

mod common;

use common::Place;

/// Two that follow each other and one that lives through both.
const SMALL: &str = "id,lower,upper,size\na,0,3,100\nb,3,6,100\nc,0,6,50\n";

#[test]
fn a_small_file_is_packed_without_waste() {
    let place = Place::new();
    place.write("small.csv", SMALL);
    let ran = place.succeed(&["pack", "small.csv", "--out", "packed.csv"]);
    for line in [
        "height       150 bytes",
        "lower bound  150 bytes",
        "gap          0.0000 %",
        "written      packed.csv",
    ] {
        assert!(ran.stdout.contains(line), "no `{line}` in {}", ran.stdout);
    }
    let packed = place.read("packed.csv");
    let rows: Vec<Vec<&str>> = packed.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(rows[0], ["id", "lower", "upper", "size", "offset"]);
    let offset = |row: usize| rows[row][4].parse::<u64>().expect("an offset");
    assert_eq!(offset(1), offset(2));
    assert_ne!(offset(1), offset(3));
    assert_eq!(place.list("."), ["packed.csv", "small.csv"]);
}

#[test]
fn a_capacity_that_is_reached_is_a_success() {
    let place = Place::new();
    place.write("small.csv", SMALL);
    place.succeed(&["pack", "small.csv", "--capacity", "150"]);
    place.succeed(&["pack", "small.csv", "--capacity", "1KiB", "--seconds", "0"]);
}

#[test]
fn a_capacity_that_cannot_be_reached_is_a_failure_that_says_why() {
    let place = Place::new();
    place.write("small.csv", SMALL);
    let ran = place.run(&["pack", "small.csv", "--capacity", "149", "--seconds", "0.1"]);
    assert_eq!(ran.error(), "nothing packs these into 149 bytes: 150 are alive at one moment\n");
    assert!(ran.stdout.contains("height       150 bytes"));
}

#[test]
fn a_line_that_is_no_buffer_is_named() {
    let place = Place::new();
    for (text, expected) in [
        ("", "line 1: the file is empty"),
        ("id,lower,upper\n", "line 1: no column `size`"),
        ("id,lower,upper,size\na,0,3,many\n", "line 2: size is `many`"),
        ("id,lower,upper,size\na,5,3,1\n", "line 2: upper is 3"),
        ("id,lower,upper,size\na,0,3\n", "line 2: 3 fields, expected 4"),
    ] {
        place.write("bad.csv", text);
        let error = place.fail(&["pack", "bad.csv", "--out", "packed.csv"]);
        assert!(error.starts_with(&format!("bad.csv: {expected}")), "{error}");
        assert_eq!(place.list("."), ["bad.csv"]);
    }
}

#[test]
fn a_result_that_cannot_be_written_leaves_nothing() {
    let place = Place::new();
    place.write("small.csv", SMALL);
    let error = place.fail(&["pack", "small.csv", "--out", "nowhere/packed.csv"]);
    assert!(error.starts_with("cannot write nowhere/packed.csv: "), "{error}");
    assert_eq!(place.list("."), ["small.csv"]);
}
