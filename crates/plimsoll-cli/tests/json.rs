//! `--json`: data and nothing else on the standard output, from every command, errors included.

mod common;

use common::Place;
use serde_json::Value;

/// What writes scripts and pages for other programs has no other form, and what runs another program prints what that does.
const SCRIPTS: [&str; 4] = ["completions", "man", "help", "run"];

fn commands(place: &Place) -> Vec<String> {
    let help = place.succeed(&["--help"]).stdout;
    let (_, list) = help.split_once("Commands:\n").expect("a list of commands");
    let lines = list.lines().take_while(|line| !line.is_empty());
    let names = lines.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    names.filter(|name| !name.is_empty()).map(String::from).collect()
}

#[test]
fn every_command_answers_in_json() {
    let place = Place::new();
    place.write("a.csv", "id,lower,upper,size\na,0,3,4\nb,3,9,4\n");
    place.succeed(&["train", "digits", "--steps", "1", "--quiet", "--out", "run"]);
    let arguments = |command: &str| -> &[&str] {
        match command {
            "train" => &["digits", "--steps", "2"],
            "forecast" | "summary" | "plan" => &["digits"],
            "data" => &["digits", "--seconds", "0.01"],
            "evaluate" => &["run"],
            "predict" => &["run", "--out", "p.npy"],
            "export" => &["run", "--out", "weights.onnx"],
            "bench" => &["digits", "--steps", "1"],
            "explain" | "replay" => &["run"],
            "pack" => &["a.csv"],
            "new" => &["mine"],
            "workloads" | "devices" | "doctor" => &[],
            "selftest" => &["--device", "cpu", "--only", "gelu"],
            other => panic!("say here how `{other}` is asked for JSON"),
        }
    };
    for command in commands(&place).iter().filter(|command| !SCRIPTS.contains(&command.as_str())) {
        let ran = place.succeed(&[&[command, "--json"], arguments(command)].concat());
        let answer: Value = serde_json::from_str(&ran.stdout)
            .unwrap_or_else(|error| panic!("{command}: {error} in {}", ran.stdout));
        assert!(answer.is_object() || answer.is_array(), "{command}: {answer}");
    }
}

#[test]
fn an_error_is_an_object_with_the_status_that_it_has_for_people() {
    let place = Place::new();
    place.write("a.csv", "id,lower,upper\n");
    place.write("broken.pickle", "no pickle");
    for (args, code, kind) in [
        (&["train", "digist"][..], 1, "file"),
        (&["train", "digits", "--budget", "1KiB"], 1, "budget"),
        (&["forecast", "digits", "--device", "h2000"], 1, "name"),
        (&["bench", "digits", "--device", "cuda:60000"], 1, "device"),
        (&["explain", "broken.pickle"], 1, "empty"),
        (&["replay", "missing"], 1, "io"),
        (&["pack", "a.csv"], 1, "other"),
        (&["workloads", "digist"], 1, "name"),
        (&["summary", "digist"], 1, "file"),
        (&["new", ".."], 1, "other"),
        (&["train"], 2, "usage"),
        (&["fly"], 2, "usage"),
    ] {
        let ran = place.run(&[args, &["--json"]].concat());
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(code), ""), "{args:?}: {}", ran.stdout);
        let answer: Value = serde_json::from_str(&ran.stdout).expect("JSON and nothing else");
        assert_eq!(answer["error"]["kind"], kind, "{args:?}: {answer}");
        assert!(answer["error"]["message"].as_str().is_some_and(|message| !message.is_empty()), "{answer}");
        assert!(answer["error"]["causes"].is_array(), "{answer}");
    }
}

#[test]
fn an_answer_that_is_no_is_an_answer_and_no_error() {
    let place = Place::new();
    place.write("a.csv", "id,lower,upper,size\na,0,3,4\nb,0,9,4\n");
    let ran = place.run(&["pack", "a.csv", "--capacity", "5", "--json"]);
    let answer: Value = serde_json::from_str(&ran.stdout).expect("JSON and nothing else");
    assert_eq!((ran.code, &answer["fits"], &answer["height_bytes"]), (Some(1), &false.into(), &8.into()));
}

#[test]
fn the_report_of_training_is_that_of_its_file() {
    let place = Place::new();
    let ran = place.succeed(&["train", "digits", "--steps", "2", "--json", "--quiet"]);
    let report: Value = serde_json::from_str(&ran.stdout).expect("JSON and nothing else");
    assert_eq!(ran.stderr, "");
    assert_eq!(report["losses"], place.json("runs/digits/run.json")["losses"]);
}
