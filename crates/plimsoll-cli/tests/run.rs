//! `plimsoll run`: another's program, with its own output and status, and what is said if it is killed.

#![cfg(unix)]

mod common;

use common::Place;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

#[test]
fn a_program_has_its_own_output_arguments_and_status() {
    let place = Place::new();
    let ran =
        place.shell(r#"$PLIMSOLL run -- sh -c 'echo "$@"; echo err >&2; exit 7' sh --json -x 'a b' --"#);
    assert_eq!(
        (ran.code, ran.stdout.as_str(), ran.stderr.as_str()),
        (Some(7), "--json -x a b --\n", "err\n")
    );
    assert_eq!(place.list("."), Vec::<String>::new(), "nothing is left behind");
}

#[test]
fn the_package_in_the_program_is_turned_on_and_finds_this_program() {
    let ran = Place::new()
        .shell(r#"$PLIMSOLL run -- sh -c '"$PLIMSOLL_PROGRAM" --version; echo $PLIMSOLL_EXPLAIN'"#);
    assert_eq!(ran.stdout, format!("plimsoll {}\n1\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn a_killed_program_has_its_status_and_leaves_what_is_known() {
    let place = Place::new();
    let ran = place.shell("$PLIMSOLL run -- sh -c 'kill -KILL $$'");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(137), ""));
    assert!(ran.stderr.contains("was killed (SIGKILL, exit status 137)"), "{}", ran.stderr);
    let left = place.list(".");
    let [folder] = &left[..] else { panic!("{left:?}") };
    assert!(folder.starts_with("plimsoll-crash-"), "{folder}");
    assert_eq!(place.list(folder), ["environment.json", "message.txt"]);
    assert!(place.read(&format!("{folder}/message.txt")).starts_with("Killed\n"));
    assert!(place.json(&format!("{folder}/environment.json"))["system"]["memory"]["total"].is_u64());
}

#[test]
fn where_no_folder_can_be_made_it_is_said_all_the_same() {
    let place = Place::new();
    place.write("file", "");
    let ran = place.shell("PLIMSOLL_CRASH_DIR=file TMPDIR=file $PLIMSOLL run -- sh -c 'kill -KILL $$'");
    assert_eq!(ran.code, Some(137));
    assert!(ran.stderr.contains("no folder could be made"), "{}", ran.stderr);
}

#[test]
fn other_signals_and_failures_are_the_program_s_own_affair() {
    let place = Place::new();
    for (script, code) in [("kill -TERM $$", 143), ("kill -SEGV $$", 139), ("exit 1", 1)] {
        let ran = place.shell(&format!("$PLIMSOLL run -- sh -c '{script}'"));
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(code), ""), "{script}");
    }
    assert_eq!(place.list("."), Vec::<String>::new());
}

#[test]
fn a_program_that_is_not_there_is_said_as_shells_do() {
    let ran = Place::new().run(&["run", "--", "./no-such-program"]);
    assert_eq!(ran.code, Some(127));
    assert!(ran.stderr.contains("./no-such-program cannot be run"), "{}", ran.stderr);
}

#[test]
fn a_signal_to_the_command_reaches_the_program() {
    let mut running = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args([
            "run",
            "--",
            "sh",
            "-c",
            "trap 'exit 5' TERM; echo ready; for i in $(seq 600); do sleep 0.05; done",
        ])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(running.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    let sent = Command::new("kill").args(["-TERM", &running.id().to_string()]).status().unwrap();
    assert!(sent.success());
    assert_eq!(running.wait().unwrap().code(), Some(5));
}

#[test]
fn a_script_without_the_package_is_run_and_told_of() {
    let place = Place::new();
    place.write("train.py", "");
    // A Python that has no packages at all: it can say so, and run nothing.
    place.shell("mkdir bin && printf '#!/bin/sh\\n[ \"$1\" = -c ] && exit 1\\necho ran \"$@\"\\n' > bin/python && chmod +x bin/python");
    let ran = place.shell("cp $PLIMSOLL bin/plimsoll && bin/plimsoll run train.py --epochs 3");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "ran train.py --epochs 3\n"));
    assert!(ran.stderr.contains("bin/python -m pip install plimsoll"), "{}", ran.stderr);
    let ran = place.shell("bin/plimsoll run -m package.train --epochs 3");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "ran -m package.train --epochs 3\n"));
}
