//! `plimsoll forecast` and `plimsoll bench`: what a workload takes, and how long.

mod common;

use common::Place;
use serde_json::Value;

fn forecast(args: &[&str]) -> Value {
    let ran = Place::new().succeed(&[&["forecast", "--json"], args].concat());
    serde_json::from_str(&ran.stdout).expect("JSON and nothing else")
}

#[test]
fn the_ledger_of_every_workload_sums_to_its_peak() {
    let listed = Place::new().succeed(&["workloads"]).stdout;
    let names: Vec<&str> = listed
        .lines()
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert_eq!(names.len(), 14);
    for name in names {
        let forecast = forecast(&[name]);
        let ledger = forecast["ledger"].as_object().expect("a ledger");
        let sum: u64 = ledger.values().filter_map(Value::as_u64).sum();
        assert_eq!(Some(sum), forecast["peak_bytes"].as_u64(), "{name}");
        for category in
            ["parameters", "gradients", "optimizer", "activations", "workspace", "inputs", "padding"]
        {
            assert!(ledger.contains_key(category), "{name} has no {category}");
        }
        assert!(forecast["lower_bound_bytes"].as_u64() <= forecast["peak_bytes"].as_u64(), "{name}");
        assert!(forecast["kernels"].as_u64() > Some(0), "{name}");
        assert!(forecast["plan_seconds"].as_f64() > Some(0.0), "{name}");
    }
}

#[test]
fn the_large_workloads_have_as_many_parameters_as_their_papers_say() {
    for (name, parameters) in [("gpt2-124m", 124_439_808), ("resnet50", 25_557_032), ("vgg16", 138_357_544)] {
        let forecast = forecast(&[name]);
        assert_eq!(forecast["trainable_parameters"], parameters, "{name}");
        // Adam remembers two numbers for each parameter, all in f32.
        assert!(forecast["ledger"]["optimizer"].as_u64() >= Some(8 * parameters), "{name}");
    }
}

#[test]
fn a_larger_batch_takes_more() {
    let peak = |batch: &str| forecast(&["cnn-small", "--batch", batch])["peak_bytes"].as_u64();
    assert!(peak("64") > peak("32"));
    assert_eq!(peak("128"), forecast(&["cnn-small"])["peak_bytes"].as_u64());
}

#[test]
fn the_forecast_is_what_training_then_takes() {
    let place = Place::new();
    place.succeed(&["train", "digits", "--steps", "3", "--quiet", "--out", "run"]);
    assert_eq!(place.json("run/run.json")["arena_bytes"], forecast(&["digits"])["peak_bytes"]);
}

#[test]
fn what_a_gpu_will_have_taken_is_foretold_in_parts_that_sum() {
    let report = forecast(&["digits", "--device", "h200"]);
    let part = |name: &str| report["device_use"][name].as_u64().expect("a part");
    let sum = part("arena_bytes") + part("context_bytes") + part("code_bytes");
    assert_eq!(report["device_use_bytes"].as_u64(), Some(sum), "{report}");
    assert_eq!(
        report["peak_bytes"].as_u64().map(|peak| peak.next_multiple_of(2 << 20)),
        Some(part("arena_bytes"))
    );
    assert!(part("context_bytes") > 500_000_000 && part("code_bytes") >= 2 << 20, "{report}");
    let text = Place::new().succeed(&["forecast", "digits", "--device", "h200"]).stdout;
    assert!(text.contains("context and libraries"), "{text}");
    // No driver counts the CPU's memory, and nobody has said what the driver of this card takes.
    for device in ["cpu", "t4"] {
        assert_eq!(forecast(&["digits", "--device", device])["device_use_bytes"], Value::Null, "{device}");
    }
}

#[test]
fn steps_that_come_up_later_are_foretold_too() {
    let code = |file: &str, train: &str| {
        let place = Place::new();
        let text = place.succeed(&["workloads", "gpt-varlen"]).stdout;
        let (head, _) = text.split_once("[train]").expect("a section");
        place.write(file, &format!("{head}[train]\n{train}"));
        let report = place.succeed(&["forecast", file, "--device", "h200", "--json"]).stdout;
        let report: Value = serde_json::from_str(&report).expect("JSON");
        report["device_use"]["code_bytes"].as_u64().expect("a part")
    };
    let one = code("one.toml", "batch = 8\nsteps = 200");
    let many = code("many.toml", "batch = 8\nsteps = 200\nbatches = [1, 2, 3, 4, 5, 6, 7, 8]");
    assert!(many >= 2 * one, "{many} for eight steps, {one} for one");
    let later = code("later.toml", "batch = 8\nsteps = 200\nlengths = [16, 256]");
    assert!(later >= 8 * many, "{later} for a hundred lengths and more, {many} for eight steps");
}

#[test]
fn a_forecast_for_people_names_the_largest_values() {
    let text = Place::new().succeed(&["forecast", "mlp-small"]).stdout;
    for part in
        ["mlp-small: ", "peak", "parameters", "optimizer", "largest", "dense0/weight", "f32[784, 100]"]
    {
        assert!(text.contains(part), "no `{part}` in {text}");
    }
}

#[test]
fn a_bench_reports_the_time_of_a_step() {
    let ran = Place::new().succeed(&["bench", "mlp-small", "--steps", "3", "--threads", "1", "--json"]);
    let report: Value = serde_json::from_str(&ran.stdout).expect("JSON and nothing else");
    assert_eq!((&report["steps"], &report["threads"]), (&3.into(), &1.into()));
    for key in ["median_seconds", "ready_seconds", "first_step_seconds", "arena_bytes"] {
        assert!(report[key].as_f64() > Some(0.0), "{key} in {report}");
    }
    assert!(report["ready_seconds"].as_f64() < report["first_step_seconds"].as_f64(), "{report}");
    if cfg!(target_os = "linux") {
        assert!(report["peak_rss_over_start_bytes"].as_u64() >= report["arena_bytes"].as_u64(), "{report}");
    }
    let text = Place::new().succeed(&["bench", "mlp-small", "--steps", "2"]).stdout;
    for part in ["step ", " ms ", "ready ", "first step ", "arena "] {
        assert!(text.contains(part), "no `{part}` in {text}");
    }
}
