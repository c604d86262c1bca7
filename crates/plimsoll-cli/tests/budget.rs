//! `--budget`, `--frontier` and `--max-batch`: making it fit, and saying what that costs.

mod common;

use common::Place;
use serde_json::Value;

fn json(args: &[&str]) -> Value {
    let ran = Place::new().run(&[&["forecast", "--json"], args].concat());
    serde_json::from_str(&ran.stdout).expect("JSON and nothing else")
}

#[test]
fn the_frontier_is_data_and_monotone() {
    let report = json(&["gpt-small", "--frontier", "--exact"]);
    let points = report["frontier"].as_array().expect("a list");
    assert!(points.len() >= 10, "{report}");
    let number =
        |point: &Value, key: &str| point[key].as_f64().unwrap_or_else(|| panic!("no {key} in {point}"));
    for point in points {
        assert!(number(point, "peak_bytes") <= number(point, "budget_bytes"), "{point}");
        assert_eq!(point["micro_batches"], 1);
        for remedy in point["remedies"].as_array().expect("a list") {
            assert_eq!(remedy["class"], "exact", "{remedy}");
            assert!(remedy["words"].is_string() && remedy["bytes"].is_u64(), "{remedy}");
        }
    }
    for pair in points.windows(2) {
        assert!(number(&pair[1], "peak_bytes") <= number(&pair[0], "peak_bytes"), "{pair:?}");
        assert!(number(&pair[1], "step_seconds") >= number(&pair[0], "step_seconds"), "{pair:?}");
    }
    let floor = report["floor_bytes"].as_u64().expect("a floor");
    assert_eq!(points.last().and_then(|p| p["budget_bytes"].as_u64()), Some(floor));
    assert_eq!(report["fits"], true, "of this machine");
    let fits = |budget: u64| {
        json(&["gpt-small", "--frontier", "--exact", "--budget", &budget.to_string()])["fits"].clone()
    };
    assert_eq!(fits(floor), true);
    assert_eq!(fits(floor / 2), false);
}

#[test]
fn the_chart_has_a_line_for_each_budget_and_names_the_floor() {
    let chart = Place::new().succeed(&["forecast", "mlp-small", "--frontier"]).stdout;
    assert!(chart.lines().filter(|line| line.contains(" ms ")).count() >= 10, "{chart}");
    assert!(chart.contains("floor") && chart.contains("set by"), "{chart}");
}

#[test]
fn training_within_half_the_memory_stays_within_it() {
    let place = Place::new();
    let free = json(&["gpt-small", "--batch", "4"])["peak_bytes"].as_u64().expect("a peak");
    let budget = (free / 2).to_string();
    place.succeed(&[
        "train",
        "gpt-small",
        "--batch",
        "4",
        "--steps",
        "3",
        "--budget",
        &budget,
        "--spill",
        ".",
        "--quiet",
        "--out",
        "run",
    ]);
    let run = place.json("run/run.json");
    assert!(run["arena_bytes"].as_u64() <= Some(free / 2), "{run}");
    assert_eq!(run["arena_bytes"], run["predicted_peak_bytes"]);
    assert_eq!(run["allocations_after_first_step"], 0);
    assert_eq!(run["budget_bytes"].as_u64(), Some(free / 2));
    assert!(run["remedies"].as_array().is_some_and(|remedies| !remedies.is_empty()), "{run}");
}

#[test]
fn without_a_budget_a_gpu_recomputes_what_costs_next_to_nothing_and_moves_nothing_to_the_host() {
    let forecast = json(&["gpt2-124m", "--device", "h200"]);
    let remedies: Vec<_> =
        forecast["remedies"].as_array().expect("a list").iter().map(|r| &r["kind"]).collect();
    assert_eq!(remedies, ["chunked_loss", "recompute"], "{forecast}");
    assert_eq!(forecast["host_bytes"], 0, "{forecast}");
}

#[test]
fn a_gpu_that_is_not_here_can_be_planned_for() {
    let forecast = json(&["resnet50", "--device", "h200", "--budget", "6GiB"]);
    assert!(forecast["peak_bytes"].as_u64() <= Some(6 << 30), "{forecast}");
    assert!(forecast["step_seconds"].as_f64() < Some(0.1), "{forecast}");
    let error = Place::new().fail(&["forecast", "digits", "--device", "h2000"]);
    assert!(error.contains("h200"), "{error}");
}

#[test]
fn the_largest_batch_is_found_without_a_run() {
    let answer = json(&["gpt-small", "--max-batch", "--budget", "200MiB"]);
    let (plain, fitted) = (answer["max_batch"].as_u64(), answer["max_batch_with_remedies"].as_u64());
    assert!(plain > Some(4) && fitted > plain, "{answer}");
    // On the CPU a budget is for the data as well.
    let peak = |batch: Option<u64>| {
        let forecast = json(&["gpt-small", "--batch", &batch.unwrap_or(0).to_string()]);
        let data = forecast["process_use"]["data_bytes"].as_u64();
        Some(forecast["peak_bytes"].as_u64()? + data?)
    };
    assert_eq!(answer["budget_bytes"], 200 << 20);
    assert!(peak(plain) <= Some(200 << 20) && peak(plain.map(|b| b + 1)) > Some(200 << 20));
}

#[test]
fn a_larger_budget_never_gives_a_smaller_batch() {
    // Of logits of 24 MiB on, which is where these budgets are, all are made some rows at a time: more samples need less.
    let mut last = (0, 0);
    for budget in (60..180).step_by(6) {
        let answer = json(&["gpt-small", "--max-batch", "--budget", &format!("{budget}MiB")]);
        let batch = |key: &str| answer[key].as_u64().unwrap_or_else(|| panic!("no {key} in {answer}"));
        let (plain, fitted) = (batch("max_batch"), batch("max_batch_with_remedies"));
        assert!(
            plain >= last.0 && fitted >= last.1 && fitted >= plain,
            "{budget} MiB: {answer} after {last:?}"
        );
        last = (plain, fitted);
    }
    assert!(last.0 > 0, "{last:?}");
}
