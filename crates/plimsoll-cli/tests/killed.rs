//! Runs of the real program that are killed at any moment go on to the bits of one that never was.
#![cfg(unix)]

mod common;

use common::Place;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How often each workload is killed; `PLIMSOLL_KILLS` says otherwise for a longer look.
const KILLS: u32 = 12;

const GPT: &str = r#"
loss = "sparse_cross_entropy"
[data]
kind = "synthetic-tokens"
samples = 96
length = 16
vocabulary = 50
[model]
kind = "gpt"
layers = 2
width = 32
heads = 2
context = 16
vocabulary = 50
dropout = 0.1
[optimizer]
kind = "adamw"
rate = 0.001
schedule = { cosine = 400 }
[train]
batch = 8
epochs = 20
lengths = [8, 16]
held_out = 0.1
reduce_on_plateau = { metric = "loss", patience = 2, factor = 0.5 }
"#;

/// A few random bits.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit.max(1)
    }
}

fn start(arguments: &[&str], folder: &Path) -> Child {
    Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(["train", "--quiet", "--threads", "1", "--checkpoint-every", "7"])
        .args(arguments)
        .arg("--out")
        .arg(folder)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

fn is_the_same_however_often_it_is_killed(workload: &[&str], place: &Place) {
    let whole = place.path("whole");
    let began = Instant::now();
    assert!(start(workload, &whole).wait().unwrap().success());
    let whole_run = began.elapsed();
    let expected = fs::read(whole.join("weights.safetensors")).unwrap();
    let kills = std::env::var("PLIMSOLL_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(KILLS);
    let (mut random, mut killed) = (Random(kills.into()), 0);
    let resume = [workload, &["--resume"]].concat();
    while killed < kills {
        let folder = place.path("killed");
        loop {
            let mut run = start(&resume, &folder);
            sleep(Duration::from_micros(random.below(whole_run.as_micros() as u64)));
            let status = match run.try_wait().unwrap() {
                Some(status) => status,
                // The last of all may come to its end.
                None if killed == kills => run.wait().unwrap(),
                None => {
                    run.kill().unwrap();
                    run.wait().unwrap();
                    killed += 1;
                    continue;
                }
            };
            assert!(status.success(), "{status} after {killed} kills");
            break;
        }
        assert!(fs::read(folder.join("weights.safetensors")).unwrap() == expected, "after {killed} kills");
        fs::remove_dir_all(&folder).unwrap();
    }
}

#[test]
fn a_classifier_is_the_same_however_often_it_is_killed() {
    let place = Place::new();
    is_the_same_however_often_it_is_killed(&["digits", "--epochs", "10"], &place);
}

#[test]
fn a_gpt_with_dropout_is_the_same_however_often_it_is_killed() {
    let place = Place::new();
    place.write("gpt.toml", GPT);
    is_the_same_however_often_it_is_killed(&[place.path("gpt.toml").to_str().unwrap()], &place);
}

#[test]
fn a_signal_saves_a_checkpoint_and_says_how_to_go_on() {
    for (signal, status) in [("INT", 130), ("TERM", 143)] {
        let place = Place::new();
        let folder = place.path("run");
        let run = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
            .args(["train", "digits", "--quiet", "--epochs", "100000", "--checkpoint-every", "200", "--out"])
            .arg(&folder)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let checkpoints = folder.join("checkpoints");
        while !checkpoints.is_dir() {
            sleep(Duration::from_millis(10));
        }
        let sent = Command::new("kill").args(["-s", signal, &run.id().to_string()]).status().unwrap();
        assert!(sent.success());
        let ended = run.wait_with_output().unwrap();
        let said = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(ended.status.code(), Some(status), "{said}");
        assert!(said.contains("--resume"), "{said}");
        assert!(fs::read_dir(&checkpoints).unwrap().count() > 0);
        assert!(!folder.join("weights.safetensors").exists() && folder.join("workload.toml").exists());
        // What is there is not lost by accident.
        let mut anew = start(&["digits", "--epochs", "1"], &folder);
        assert_eq!(anew.wait().unwrap().code(), Some(1));
        let mut over = start(&["digits", "--epochs", "1", "--restart"], &folder);
        assert!(over.wait().unwrap().success());
        assert!(folder.join("weights.safetensors").exists());
    }
}
