//! `plimsoll train`, from the command to the files.

mod common;

use common::{FLOWERS, Place};
use sha2::{Digest, Sha256};

/// What training leaves in a folder, logs left out.
const WRITTEN: [&str; 5] =
    ["checkpoints", "memory.jsonl", "run.json", "weights.safetensors", "workload.toml"];

#[test]
fn training_digits_reads_almost_all_held_out_digits_and_writes_what_it_says() {
    let place = Place::new();
    let ran = place.succeed(&["train", "digits"]);
    for part in
        ["fits: ", "activations", "accuracy", "runs/digits/weights.safetensors", "runs/digits/run.json"]
    {
        assert!(ran.stdout.contains(part), "no `{part}` in {}", ran.stdout);
    }
    assert!(ran.stderr.contains("loss"), "no progress in {}", ran.stderr);
    assert_eq!(place.results("runs/digits"), WRITTEN);

    let run = place.json("runs/digits/run.json");
    let accuracy = run["final_metrics"]["accuracy"].as_f64().expect("an accuracy");
    assert!(accuracy >= 0.95, "accuracy {accuracy}");
    assert_eq!(run["allocations_after_first_step"], 0);
    assert_eq!(run["predicted_peak_bytes"], run["arena_bytes"]);
    assert!(run["arena_bytes"].as_u64() > Some(0));
    assert!(run["steps_per_second"].as_f64() > Some(0.0));
    let losses: Vec<f64> =
        run["losses"].as_array().expect("losses").iter().filter_map(|x| x.as_f64()).collect();
    // 1,438 samples to train on, 32 at a time, 15 times.
    assert_eq!(losses.len(), 45 * 15);
    assert!(losses[losses.len() - 1] < losses[0] / 4.0);
}

#[test]
fn weights_are_a_safetensors_file_with_a_tensor_for_each_parameter() {
    let place = Place::new();
    place.succeed(&["train", "digits", "--steps", "1", "--out", "here"]);
    let bytes = std::fs::read(place.path("here/weights.safetensors")).expect("the weights");
    let (length, rest) = bytes.split_at(8);
    let length = u64::from_le_bytes(length.try_into().expect("eight bytes")) as usize;
    let header: serde_json::Value = serde_json::from_slice(&rest[..length]).expect("a header of JSON");
    assert_eq!(header["conv0/filter"]["shape"], serde_json::json!([3, 3, 1, 16]));
    assert_eq!(header["dense1/bias"]["shape"], serde_json::json!([10]));
}

#[test]
fn the_same_seed_gives_the_same_losses_and_another_seed_gives_others() {
    let place = Place::new();
    let losses = |out: &str, more: &[&str]| {
        let args = [&["train", "digits", "--steps", "12", "--quiet", "--out", out], more].concat();
        place.succeed(&args);
        place.json(&format!("{out}/run.json"))["losses"].clone()
    };
    let first = losses("a", &["--seed", "5"]);
    assert_eq!(first, losses("b", &["--seed", "5"]));
    assert_eq!(first, losses("c", &["--seed", "5", "--threads", "1"]));
    assert_ne!(first, losses("d", &["--seed", "6"]));
}

#[test]
fn training_says_as_much_as_is_asked_for_and_still_writes() {
    let place = Place::new();
    let full = place.succeed(&["train", "digits", "--steps", "1", "-v", "--out", "full"]).stdout;
    assert!(full.contains("peak ") && full.contains("largest at the peak"), "{full}");
    let ran = place.succeed(&["train", "digits", "--steps", "2", "--quiet"]);
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("", ""));
    assert_eq!(place.results("runs/digits"), WRITTEN);
}

#[test]
fn a_copied_and_edited_workload_trains_on_a_file_of_ones_own() {
    let place = Place::new();
    let mut csv = "length,width,species\n".to_string();
    for i in 0..40 {
        let species = i % 2;
        csv +=
            &format!("{},{},{species}\n", f64::from(species) + 0.01 * f64::from(i), 1.0 - f64::from(species));
    }
    place.write("data.csv", &csv);
    place.write("flowers.toml", &FLOWERS.replace("epochs = 40", "epochs = 40\nheld_out = 0.25"));
    place.succeed(&["train", "flowers.toml"]);
    assert_eq!(place.json("runs/flowers/run.json")["final_metrics"]["accuracy"], 1.0);
}

#[test]
fn a_column_of_numbers_can_be_predicted_too() {
    let place = Place::new();
    let rows: String =
        (0..32).map(|i| format!("{},{}\n", 0.1 * f64::from(i), 0.2 * f64::from(i) + 1.0)).collect();
    place.write("data.csv", &format!("x,y\n{rows}"));
    let text = FLOWERS
        .replace("loss = \"sparse_cross_entropy\"\nmetrics = [\"accuracy\"]", "loss = \"mse\"")
        .replace("label = \"species\"\nclasses = 2", "target = \"y\"")
        .replace("{ dense = 2 }", "{ dense = 1 }");
    place.write("line.toml", &text);
    place.succeed(&["train", "line.toml"]);
    let losses = place.json("runs/line/run.json")["losses"].clone();
    let last = losses.as_array().and_then(|losses| losses.last()?.as_f64()).expect("a last loss");
    assert!(last < 0.1, "loss {last}");
}

#[test]
fn every_step_may_have_another_length() {
    let place = Place::new();
    let text = r#"
loss = "sparse_cross_entropy"
data = { kind = "synthetic-tokens", samples = 64, length = 24, vocabulary = 50 }
model = { kind = "gpt", layers = 1, width = 16, heads = 2, context = 24, vocabulary = 50 }
optimizer = { kind = "adam", rate = 0.01 }
train = { batch = 4, steps = 30, lengths = [3, 24] }
"#;
    place.write("lengths.toml", text);
    place.succeed(&["train", "lengths.toml"]);
    let run = place.json("runs/lengths/run.json");
    assert_eq!(run["losses"].as_array().map(Vec::len), Some(30));
    assert_eq!(run["allocations_after_first_step"], 0);
    assert_eq!(run["predicted_peak_bytes"], run["arena_bytes"]);
    let losses = |run: &serde_json::Value| -> Vec<f64> {
        run["losses"].as_array().into_iter().flatten().filter_map(serde_json::Value::as_f64).collect()
    };
    for (name, buckets) in [("multiples", "8"), ("list", "[6, 16, 24]")] {
        let padded = text.replace("[3, 24]", &format!("[3, 24], buckets = {buckets}"));
        place.write(&format!("{name}.toml"), &padded);
        place.succeed(&["train", &format!("{name}.toml")]);
        let other = place.json(&format!("runs/{name}/run.json"));
        assert_eq!(other["allocations_after_first_step"], 0);
        for (a, b) in losses(&run).iter().zip(losses(&other)) {
            assert!((a - b).abs() < 1e-3, "{name}: {a} and {b}");
        }
    }
}

#[test]
fn a_budget_that_is_large_enough_is_kept_and_one_that_is_not_is_refused_before_training() {
    let place = Place::new();
    place.succeed(&["train", "digits", "--steps", "2", "--budget", "64MiB", "--out", "fits"]);
    let bytes = place.json("fits/run.json")["arena_bytes"].as_u64().expect("bytes");
    let error = place.fail(&["train", "digits", "--budget", &(bytes / 8).to_string(), "--out", "over"]);
    assert!(error.contains("budget") && error.contains(&(bytes / 8).to_string()), "{error}");
    assert!(!place.path("over").exists());
}

#[cfg(unix)]
#[test]
fn a_full_disk_is_an_error_that_leaves_nothing_half_written() {
    let place = Place::new();
    // Beyond 8 blocks, writes fail as on a full disk.
    let script = "trap '' XFSZ; ulimit -f 8; $PLIMSOLL train digits --steps 1 --out full";
    let error = place.shell(script).error();
    assert!(error.contains("full/checkpoints/") && error.contains("states.safetensors"), "{error}");
    assert_eq!(place.results("full"), Vec::<String>::new());
}

#[cfg(unix)]
#[test]
fn a_full_disk_leaves_the_files_of_an_earlier_run_as_they_were() {
    let place = Place::new();
    place.succeed(&["train", "digits", "--steps", "1", "--out", "again"]);
    let before = (place.read("again/run.json"), std::fs::read(place.path("again/weights.safetensors")).ok());
    let script = "trap '' XFSZ; ulimit -f 8; $PLIMSOLL train digits --steps 3 --out again";
    place.shell(script).error();
    assert_eq!(place.results("again"), WRITTEN[1..], "the checkpoint of a run that had ended made room");
    assert_eq!(
        before,
        (place.read("again/run.json"), std::fs::read(place.path("again/weights.safetensors")).ok())
    );
}

#[test]
fn a_watched_run_shows_what_holds_its_memory_and_that_it_does_not_grow() {
    let place = Place::new();
    let plain = place.succeed(&["train", "digits", "--steps", "20", "--out", "plain"]);
    assert!(!plain.stderr.contains("arena"), "not asked for: {}", plain.stderr);
    let ran = place
        .succeed(&["train", "digits", "--steps", "20", "--budget", "4MiB", "--watch", "--out", "watched"]);
    let lines: Vec<&str> = ran.stderr.lines().filter(|line| line.starts_with("step ")).collect();
    assert_eq!(lines.len(), 10, "{}", ran.stderr);
    for line in lines {
        for said in ["loss", "arena", "of 4.00 MiB budget", "parameters", "grown since the first step 0 B"] {
            assert!(line.contains(said), "no `{said}` in {line}");
        }
        assert!(!line.contains('\u{1b}'), "no colour where it is piped: {line}");
    }
    let refused = place.run(&["train", "digits", "--watch", "--quiet"]);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
}

#[test]
fn the_memory_trace_of_a_run_holds_its_arena_its_budget_and_every_category_of_its_ledger() {
    let place = Place::new();
    place.succeed(&["train", "digits", "--steps", "1", "--budget", "4MiB", "--quiet", "--out", "here"]);
    let run = place.json("here/run.json");
    let text = std::fs::read_to_string(place.path("here/memory.jsonl")).expect("the trace");
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines[0]["plimsoll-trace"], 1);
    assert_eq!((&lines[0]["kind"], &lines[0]["limit"]), (&"compiled".into(), &(4 << 20).into()));
    let reserves: Vec<_> = lines.iter().filter_map(|line| line.get("reserve")).collect();
    assert_eq!(reserves.len(), 1);
    assert_eq!(reserves[0][2], run["arena_bytes"]);
    assert_eq!(lines.iter().filter(|line| line.get("mark").is_some()).count(), 2);
    // What is live at the peak, by the outermost name of its owner, is the ledger.
    let owners: Vec<_> = lines.iter().filter_map(|line| line.get("owner")).collect();
    let category = |mut owner: u64| loop {
        let of = &owners[owner as usize - 1];
        match of[0].as_u64().expect("a parent") {
            0 => break of[1].as_str().expect("a name").to_string(),
            parent => owner = parent,
        }
    };
    let mut held = std::collections::BTreeMap::new();
    for piece in lines.iter().filter_map(|line| line.get("piece")).filter(|piece| piece[3] == "live") {
        let owner = piece[4].as_u64().expect("an owner");
        *held.entry(category(owner)).or_insert(0) += piece[1].as_u64().expect("bytes");
    }
    for (name, bytes) in run["ledger"].as_object().expect("a ledger") {
        if name != "padding" {
            assert_eq!(held.get(name).copied().unwrap_or(0), bytes.as_u64().expect("bytes"), "{name}");
        }
    }
}

#[test]
fn a_folder_that_cannot_be_written_is_known_before_the_training() {
    let place = Place::new();
    place.write("taken", "a file");
    let ran = place.run(&["train", "digits", "--out", "taken/runs"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""));
    assert!(ran.stderr.contains("cannot make the folder taken/runs"), "{}", ran.stderr);
}

#[test]
fn a_folder_that_a_run_has_is_refused_to_another() {
    let place = Place::new();
    let _held = plimsoll::RunFolder::open(place.path("here")).expect("a folder");
    let ran = place.run(&["train", "digits", "--steps", "1", "--out", "here"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("another run is writing into the folder here"), "{}", ran.stderr);
}

#[test]
fn whatever_runs_share_a_folder_the_report_is_that_of_the_weights_beside_it() {
    let place = Place::new();
    let seeds: Vec<String> = (0..6).map(|seed| seed.to_string()).collect();
    std::thread::scope(|scope| {
        for seed in &seeds {
            let place = &place;
            scope.spawn(move || {
                let args = ["train", "digits", "--steps", "3", "--seed", seed, "--quiet", "--out", "shared"];
                let ran = place.run(&args);
                let refused = ran.stderr.contains("another run is writing");
                assert!(ran.code == Some(0) || refused, "{}", ran.stderr);
            });
        }
    });
    let weights = std::fs::read(place.path("shared/weights.safetensors")).expect("weights");
    let digest: String = Sha256::digest(weights).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(place.json("shared/run.json")["weights_sha256"], digest);
    assert_eq!(place.results("shared"), WRITTEN);
}

#[test]
fn drafts_of_a_run_that_was_killed_are_removed_by_the_next() {
    let place = Place::new();
    std::fs::create_dir(place.path("here")).expect("a folder");
    place.write("here/.weights.safetensors.123.draft", "half of it");
    place.write("here/notes.draft", "mine");
    place.succeed(&["train", "digits", "--steps", "1", "--quiet", "--out", "here"]);
    assert_eq!(
        place.results("here"),
        ["checkpoints", "memory.jsonl", "notes.draft", "run.json", "weights.safetensors", "workload.toml"]
    );
}

#[test]
fn training_ends_even_if_nobody_reads_what_it_prints() {
    let place = Place::new();
    let script =
        "{ $PLIMSOLL train digits --steps 2 2>errors; echo $? >status; } | head -c 1 >/dev/null; sleep 0.1";
    place.shell(script);
    assert_eq!((place.read("status").as_str(), place.read("errors").contains("error")), ("0\n", false));
    assert_eq!(place.results("runs/digits"), WRITTEN);
}

#[test]
fn results_stay_in_one_folder_whatever_the_workload_is_called() {
    let place = Place::new();
    place.write("data.csv", "a,species\n0,0\n1,1\n2,0\n3,1\n");
    let workload = FLOWERS.replace("epochs = 40", "steps = 1");
    for (file, folder) in [("...toml", "workload"), ("a b\u{7}.toml", "a b_"), (".hidden.toml", "hidden")] {
        place.write(file, &workload);
        place.succeed(&["train", &format!("./{file}"), "--quiet"]);
        assert!(place.list("runs").contains(&folder.to_string()), "{file}: {:?}", place.list("runs"));
    }
    place.write("named.toml", &format!("name = \"..\"\n{workload}"));
    let ran = place.run(&["train", "named.toml"]);
    assert!(ran.stderr.contains("`name` is that of a folder too"), "{}", ran.stderr);
    assert!(!place.list("").contains(&"weights.safetensors".to_string()));
}

#[test]
fn a_batch_of_any_size_is_cut_to_the_data() {
    let place = Place::new();
    for batch in ["100000000", "18446744073709551615"] {
        let ran = place.succeed(&["train", "digits", "--steps", "1", "--batch", batch]);
        assert!(ran.stdout.contains("1438"), "{}", ran.stdout);
        place.succeed(&["bench", "digits", "--steps", "1", "--batch", batch]);
    }
}
