//! `plimsoll forecast` and `plimsoll bench`: what a workload takes, and how long.

mod common;

use common::Place;
use serde_json::Value;

fn forecast(args: &[&str]) -> Value {
    let ran = Place::new().run(&[&["forecast", "--json"], args].concat());
    let forecast: Value = serde_json::from_str(&ran.stdout).expect("JSON and nothing else");
    // The largest workloads need more than many machines have.
    let code = if forecast["fits"] == false { 1 } else { 0 };
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(code), ""), "{args:?}\n{forecast}");
    forecast
}

#[test]
fn the_ledger_of_every_workload_sums_to_its_peak() {
    let listed = Place::new().succeed(&["workloads"]).stdout;
    let names: Vec<&str> = listed
        .lines()
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert_eq!(names.len(), 17);
    // Some read files that do not ship: what it takes to get them is said instead.
    let on_files =
        [("mnist", "to get MNIST"), ("mnist-cnn", "to get MNIST"), ("moby-dick", "to get the text")];
    for (name, remedy) in on_files {
        let error = Place::new().fail(&["forecast", name]);
        assert!(error.contains(remedy), "{error}");
    }
    for name in names.into_iter().filter(|name| on_files.iter().all(|(known, _)| known != name)) {
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
    // No driver counts the CPU's memory. Nobody has said what that of this card takes: as much as was measured of another.
    assert_eq!(forecast(&["digits", "--device", "cpu"])["device_use_bytes"], Value::Null);
    let other = forecast(&["digits", "--device", "t4"]);
    assert_eq!(other["device_use"]["context_bytes"].as_u64(), Some(part("context_bytes")), "{other}");
}

#[test]
fn whether_it_fits_is_said_first_with_what_would_where_it_does_not() {
    let place = Place::new();
    let fits = place.succeed(&["forecast", "gpt2-124m", "--device", "rtx4090"]).stdout;
    let answer = fits.lines().nth(2).expect("a line after the title");
    assert!(answer.starts_with("fits: ") && answer.contains(" of 23.6 GiB, "), "{fits}");
    assert!(fits.contains("by the datasheet of rtx4090, not measured"), "{fits}");

    let ran = place.run(&["forecast", "gpt2-124m", "--batch", "64", "--device", "t4"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(1), ""));
    let lines: Vec<&str> = ran.stdout.lines().skip(2).collect();
    assert!(lines[0].starts_with("does not fit: needs ") && lines[0].ends_with("t4 has 14.6 GiB"));
    assert_eq!(lines[1], "what would fit:", "{}", ran.stdout);
    assert!(lines[2].trim_start().starts_with("a budget of "), "{}", ran.stdout);
}

#[test]
fn what_is_said_to_fit_a_device_does() {
    let place = Place::new();
    let ran = place.run(&["forecast", "gpt2-124m", "--batch", "64", "--device", "t4", "--json"]);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    let report: Value = serde_json::from_str(&ran.stdout).expect("JSON and nothing else");
    assert_eq!(report["fits"], false);
    assert_eq!(report["needed_bytes"], report["device_use_bytes"]);
    let alternatives = report["alternatives"].as_array().expect("a list");
    let change = |start: &str| {
        let found = alternatives.iter().find_map(|of| of["change"].as_str()?.strip_prefix(start));
        found.unwrap_or_else(|| panic!("no {start} in {report}")).replace(' ', "")
    };
    for (option, value) in [("--budget", change("a budget of ")), ("--batch", change("batch "))] {
        let batch = if option == "--budget" { &["--batch", "64"][..] } else { &[] };
        let fits = forecast(&[&["gpt2-124m", "--device", "t4", option, &value], batch].concat());
        assert_eq!(fits["fits"], true, "{option} {value}: {fits}");
        assert!(fits["needed_bytes"].as_u64() <= report["memory_bytes"].as_u64(), "{fits}");
        let of = |json: &Value| json["needed_bytes"].clone();
        assert!(alternatives.iter().any(|alternative| of(alternative) == of(&fits)), "{report} {fits}");
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
fn a_forecast_in_full_names_the_largest_values() {
    let text = Place::new().succeed(&["forecast", "mlp-small", "-v"]).stdout;
    for part in
        ["mlp-small: ", "peak", "parameters", "optimizer", "largest", "dense0/weight", "f32[784, 100]"]
    {
        assert!(text.contains(part), "no `{part}` in {text}");
    }
}

#[test]
fn a_forecast_in_short_has_at_most_eight_lines_and_says_what_matters() {
    let place = Place::new();
    for (args, parts) in [
        ("gpt-small", &["fits: ", "arena ", "activations", "step ", "remedies ", "process "][..]),
        ("gpt2-1.5b --device h200", &["fits: ", "step ", "device ", "context"]),
        ("gpt2-124m --device rtx4090 --budget 5GiB", &["fits: ", "not measured", "remedies "]),
    ] {
        for columns in [60, 80, 200] {
            let ran = place.shell(&format!("COLUMNS={columns} $PLIMSOLL forecast {args}"));
            assert_eq!(ran.code, Some(0), "{}", ran.stderr);
            let (_, forecast) = ran.stdout.split_once("\n\n").expect("a title");
            assert!(forecast.lines().count() <= 8, "{columns}: {}", ran.stdout);
            for part in parts {
                assert!(forecast.contains(part), "{columns}: no `{part}` in {}", ran.stdout);
            }
        }
    }
}

#[test]
fn all_that_is_printed_fits_sixty_columns() {
    let place = Place::new();
    place.write("a.csv", "id,lower,upper,size\na,0,3,4\nb,3,9,4\n");
    place.succeed(&["train", "digits", "--steps", "1", "--quiet", "--out", "run"]);
    for args in [
        "forecast gpt2-varlen --device rtx4090",
        "forecast gpt2-varlen --device rtx4090 -v",
        "forecast gpt-small --budget 120MiB -v",
        "forecast gpt-small --frontier",
        "forecast gpt-small --max-batch --budget 200MiB",
        "forecast gpt2-124m --batch 64 --device t4",
        "summary resnet50 --depth 4 --device cpu",
        "bench digits --steps 1",
        "bench digits --kernels",
        "devices",
        "workloads",
        "pack a.csv",
        "replay run",
        "explain run",
        "train digits --steps 2",
        "selftest --device cpu --only gelu",
    ] {
        let ran = place.shell(&format!("COLUMNS=60 $PLIMSOLL {args}"));
        assert!(ran.code == Some(0) || args.contains("t4"), "{args}: {}", ran.stderr);
        assert!(!ran.stdout.is_empty(), "{args}");
        for line in ran.stdout.lines() {
            assert!(line.chars().count() <= 60, "{args}: {line}");
        }
    }
}

#[test]
fn a_bench_reports_the_time_of_a_step() {
    let ran = Place::new().succeed(&["bench", "mlp-small", "--steps", "3", "--threads", "1", "--json"]);
    let report: Value = serde_json::from_str(&ran.stdout).expect("JSON and nothing else");
    assert_eq!((&report["steps"], &report["threads"]), (&3.into(), &1.into()));
    for key in ["median_seconds", "predicted_seconds", "ready_seconds", "first_step_seconds", "arena_bytes"] {
        assert!(report[key].as_f64() > Some(0.0), "{key} in {report}");
    }
    assert!(report["ready_seconds"].as_f64() < report["first_step_seconds"].as_f64(), "{report}");
    if cfg!(target_os = "linux") {
        assert!(report["peak_rss_over_start_bytes"].as_u64() >= report["arena_bytes"].as_u64(), "{report}");
    }
    let text = Place::new().succeed(&["bench", "mlp-small", "--steps", "2"]).stdout;
    for part in ["step ", " ms ", "predicted ", "ready ", "first step ", "arena "] {
        assert!(text.contains(part), "no `{part}` in {text}");
    }
}
