//! A budget on the CPU is RAM: what the system counts of the whole process, from its start to saved weights.
#![cfg(target_os = "linux")]

mod common;

use common::Place;
use serde_json::Value;
use std::process::{Command, Stdio};

/// What a process may take beside its budget: code, libraries and stacks, and a twentieth for what no plan is of.
const BESIDE: u64 = 16 << 20;

const IMAGES: &str = "kind = \"synthetic\"\nsamples = 128\nfeatures = [48, 48, 3]\nclasses = 10";
const TO_IMAGES: &str = "kind = \"synthetic\"\nsamples = 128\nfeatures = [48, 48, 3]\ntarget = [48, 48, 3]";
const NUMBERS: &str = "kind = \"synthetic\"\nsamples = 512\nfeatures = [512]\nclasses = 10";
const TOKENS: &str = "kind = \"synthetic-tokens\"\nsamples = 64\nlength = 128\nvocabulary = 4000";

/// Ten networks of many kinds, each with its data, loss, layers and batch.
const NETWORKS: [(&str, &str, &str, &str, usize); 10] = [
    (
        "perceptron",
        NUMBERS,
        "sparse_cross_entropy",
        "{ dense = 2048, activation = \"relu\" }, { dense = 2048 }, { dense = 10 }",
        256,
    ),
    (
        "deep",
        NUMBERS,
        "sparse_cross_entropy",
        "{ dense = 1536, activation = \"gelu\" }, { dense = 1536, activation = \"tanh\" }, { dropout = 0.2 }, { dense = 1536 }, { dense = 10 }",
        512,
    ),
    (
        "cnn",
        IMAGES,
        "sparse_cross_entropy",
        "{ conv = 32, window = 3, padding = \"same\", activation = \"relu\" }, { conv = 64, window = 3, padding = \"same\", activation = \"relu\" }, { max_pool = 2 }, \"flatten\", { dense = 10 }",
        96,
    ),
    (
        "normed",
        IMAGES,
        "sparse_cross_entropy",
        "{ conv = 24, window = 3, padding = \"same\" }, \"batch_norm\", \"relu\", { conv = 24, window = 3, padding = \"same\" }, \"batch_norm\", \"relu\", \"global_mean_pool\", { dense = 10 }",
        96,
    ),
    (
        "residual",
        IMAGES,
        "sparse_cross_entropy",
        "{ conv = 32, window = 3, padding = \"same\" }, { residual = [{ conv = 32, window = 3, padding = \"same\", activation = \"relu\" }, { conv = 32, window = 3, padding = \"same\" }] }, \"global_mean_pool\", { dense = 10 }",
        96,
    ),
    (
        "by channel",
        IMAGES,
        "sparse_cross_entropy",
        "{ conv = 48, window = 1 }, { conv = 48, window = 3, padding = \"same\", groups = 48, activation = \"relu\" }, { conv = 64, window = 1 }, \"global_mean_pool\", { dense = 10 }",
        96,
    ),
    (
        "autoencoder",
        TO_IMAGES,
        "mse",
        "{ conv = 32, window = 3, padding = \"same\", stride = 2, activation = \"relu\" }, { upsample = 2 }, { conv = 32, window = 3, padding = \"same\", activation = \"relu\" }, { conv = 3, window = 1 }",
        96,
    ),
    (
        "language",
        TOKENS,
        "sparse_cross_entropy",
        "{ embedding = 4000, width = 192 }, { block = 4, causal = true }, { block = 4, causal = true }, { dense = 4000 }",
        48,
    ),
    (
        "lstm",
        TOKENS,
        "sparse_cross_entropy",
        "{ embedding = 4000, width = 192 }, { lstm = 128, sequences = true }, { dense = 4000 }",
        48,
    ),
    (
        "gru",
        TOKENS,
        "sparse_cross_entropy",
        "{ embedding = 4000, width = 192 }, { gru = 160, sequences = true }, { dense = 4000 }",
        48,
    ),
];

fn write(place: &Place, (name, data, loss, layers, batch): (&str, &str, &str, &str, usize)) -> String {
    let file = format!("{}.toml", name.replace(' ', "-"));
    let text = format!(
        "loss = \"{loss}\"\n\n[data]\n{data}\n\n[model]\nkind = \"sequential\"\nlayers = [{layers}]\n\n[optimizer]\nkind = \
         \"adam\"\nrate = 0.001\n\n[train]\nbatch = {batch}\nsteps = 2\n"
    );
    place.write(&file, &text);
    file
}

/// Runs the command in a folder, and returns the most memory that the system counted of it, if it ended well. It is looked
/// at until the end: what the system tells of a process that has ended has its parent's memory in it.
fn peak_of(place: &Place, arguments: &[&str]) -> u64 {
    let mut child = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(arguments)
        .current_dir(place.path("."))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the command");
    let mut peak = 0;
    let ended = loop {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let counted = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        // Before the command is there, the process is still this one.
        if status.starts_with("Name:\tplimsoll\n") {
            peak = peak.max(counted.unwrap_or(0) * 1024);
        }
        if let Some(ended) = child.try_wait().expect("the command") {
            break ended;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    };
    assert!(ended.success(), "{arguments:?} failed");
    peak
}

fn assert_stays_within(place: &Place, file: &str, spill: &[&str]) {
    let forecast = [&["forecast", file, "--frontier", "--json"], spill].concat();
    let shown = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(forecast)
        .current_dir(place.path("."))
        .output()
        .expect("a forecast");
    let frontier: Value = serde_json::from_slice(&shown.stdout).expect("JSON");
    let points = frontier["frontier"].as_array().expect("rows");
    for row in [points.len() / 3, 2 * points.len() / 3, points.len() - 1] {
        let budget = points[row]["budget_bytes"].as_u64().expect("a budget");
        let given = budget.to_string();
        let train =
            ["train", file, "--quiet", "--threads", "2", "--steps", "2", "--restart", "--budget", &given];
        let train = [&train[..], spill].concat();
        let peak = peak_of(place, &train);
        let arena = points[row]["peak_bytes"].as_u64().expect("a peak");
        assert!(peak > arena / 2, "{file}: {peak} bytes were seen of an arena of {arena}");
        let allowed = budget + budget / 20 + BESIDE;
        assert!(
            peak <= allowed,
            "{file} {spill:?}: {peak} bytes within a budget of {budget}, {allowed} with what is beside it"
        );
    }
}

#[test]
fn a_process_stays_within_its_budget_from_start_to_saved_weights() {
    let place = Place::new();
    for network in NETWORKS {
        let file = write(&place, network);
        assert_stays_within(&place, &file, &[]);
    }
}

#[test]
fn a_process_that_spills_to_a_file_stays_within_its_budget() {
    let place = Place::new();
    std::fs::create_dir(place.path("spilled")).expect("a folder");
    let spilled = ["perceptron", "cnn", "language"];
    for network in NETWORKS.into_iter().filter(|network| spilled.contains(&network.0)) {
        let file = write(&place, network);
        assert_stays_within(&place, &file, &["--spill", "spilled"]);
    }
    assert_eq!(
        std::fs::read_dir(place.path("spilled")).expect("the folder").count(),
        0,
        "nothing is left there"
    );
}
