//! `plimsoll explain` and `plimsoll replay`: from what a program left behind to why, and to what else.

mod common;

use common::Place;
use serde_json::Value;

/// A recording that the libraries' tests are made with.
fn recorded(name: &str) -> String {
    format!("{}/../plimsoll-explain/tests/data/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn json(args: &[&str]) -> Value {
    json_in(&Place::new(), args)
}

fn json_in(place: &Place, args: &[&str]) -> Value {
    serde_json::from_str(&place.succeed(args).stdout).expect("JSON and nothing else")
}

fn keys(value: &Value) -> Vec<&str> {
    let mut keys: Vec<&str> = value.as_object().expect("an object").keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}

#[test]
fn a_leak_is_explained_with_its_line_books_map_timeline_and_owners() {
    let ran = Place::new().succeed(&["explain", &recorded("torch-leak.pickle.gz")]);
    for part in [
        "pytorch-snapshot · PyTorch",
        "train.py:15",
        "books of",
        "memory map at the refusal (event ",
        "timeline:",
        "X out of",
        "who held memory at the refusal (event ",
        "what to change",
    ] {
        assert!(ran.stdout.contains(part), "no `{part}` in {}", ran.stdout);
    }
    assert_eq!(ran.stderr, "");
}

#[test]
fn explain_and_replay_count_events_alike() {
    let file = recorded("torch-leak.pickle.gz");
    let refused = json(&["explain", &file, "--json"])["moment"]["event"].clone();
    // Within what the recorded allocator had when it refused the request, its replay is refused the same one.
    let limit = json(&["explain", &file, "--json"])["moment"]["reserved_bytes"].to_string();
    let replayed = json(&["replay", &file, "--allocator", "caching", "--limit", &limit, "--json"]);
    assert_eq!(replayed["devices"][0]["replays"][0]["failed_at"]["event"], refused);
}

#[test]
fn nothing_that_is_piped_has_colour() {
    let ran = Place::new().succeed(&["explain", &recorded("torch-frag.pickle.gz")]);
    assert!(!ran.stdout.contains('\x1b'), "{}", ran.stdout);
}

#[test]
fn the_width_is_what_the_shell_says() {
    let file = recorded("torch-frag.pickle.gz");
    let ran = Place::new().shell(&format!("COLUMNS=132 $PLIMSOLL explain {file}"));
    let widest = ran.stdout.lines().map(|line| line.chars().count()).max();
    assert_eq!(ran.code, Some(0));
    assert!((81..=132).contains(&widest.expect("lines")), "{widest:?} in {}", ran.stdout);
}

#[test]
fn an_explanation_is_data_for_other_programs_and_its_books_are_closed() {
    for (file, kind) in [
        ("torch-leak.pickle.gz", "leaking"),
        ("torch-frag.pickle.gz", "reserved-idle"),
        ("torch-healthy.pickle.gz", "healthy"),
        ("log/jax-fragmented.log.gz", "fragmented"),
    ] {
        let report = json(&["explain", &recorded(file), "--json"]);
        assert_eq!(keys(&report), ["advice", "books", "moment", "others", "source", "verdicts"]);
        let kinds: Vec<&str> = report["verdicts"]
            .as_array()
            .expect("verdicts")
            .iter()
            .filter_map(|verdict| verdict["kind"].as_str())
            .collect();
        assert!(kinds.contains(&kind), "{file}: {kinds:?}");
        let lines = report["books"]["lines"].as_array().expect("lines");
        let sum: u64 = lines.iter().filter_map(|line| line["bytes"].as_u64()).sum();
        assert_eq!(Some(sum), report["books"]["total_bytes"].as_u64(), "{file}");
    }
}

#[test]
fn a_page_is_written_beside_the_text() {
    let place = Place::new();
    let ran = place.succeed(&["explain", &recorded("torch-healthy.pickle.gz"), "--html", "page.html"]);
    assert!(ran.stdout.ends_with("written to page.html\n"), "{}", ran.stdout);
    let page = place.read("page.html");
    assert!(page.to_ascii_lowercase().starts_with("<!doctype html>"), "{}", &page[..100]);
    let error = place.fail(&["explain", &recorded("torch-healthy.pickle.gz"), "--html", "no/page.html"]);
    assert!(error.starts_with("cannot write no/page.html: "), "{error}");
    assert_eq!(place.list("."), ["page.html"]);
}

#[test]
fn a_page_never_takes_the_place_of_what_it_is_made_of() {
    let place = Place::new();
    let recorded = std::fs::read(recorded("torch-healthy.pickle.gz")).expect("a recording");
    place.write("run.pickle.gz", "");
    std::fs::write(place.path("run.pickle.gz"), &recorded).expect("a copy");
    std::fs::hard_link(place.path("run.pickle.gz"), place.path("hard.html")).expect("a link");
    #[cfg(unix)]
    std::os::unix::fs::symlink("run.pickle.gz", place.path("soft.html")).expect("a link");
    for page in ["run.pickle.gz", "./run.pickle.gz", "../PLACE/run.pickle.gz", "hard.html", "soft.html"] {
        let folder = place.path("").file_name().expect("a name").to_string_lossy().into_owned();
        let page = page.replace("PLACE", &folder);
        let error = place.fail(&["explain", "run.pickle.gz", "--html", &page]);
        assert!(error.starts_with("the page would overwrite run.pickle.gz"), "{page}: {error}");
        assert_eq!(std::fs::read(place.path("run.pickle.gz")).expect("the recording"), recorded);
    }
}

#[test]
fn within_less_memory_than_a_file_needs_the_answer_is_said_to_be_a_part() {
    let file = recorded("torch-frag.pickle.gz");
    let ran = Place::new().succeed(&["explain", &file, "--max-memory", "8MiB"]);
    assert!(ran.stdout.contains("Incomplete: "), "{}", ran.stdout);
    let report = json(&["explain", &file, "--max-memory", "8MiB", "--json"]);
    assert_eq!(report["source"]["partial"], true);
    assert_eq!(report["verdicts"][0]["kind"], "incomplete");
}

#[test]
fn within_less_memory_than_a_file_needs_a_replay_is_said_to_be_of_a_part_before_all_else() {
    let file = recorded("torch-frag.pickle.gz");
    let whole = json(&["replay", &file, "--allocator", "caching", "--json"]);
    assert_eq!(whole["source"]["partial"], false);
    let ran = Place::new().succeed(&["replay", &file, "--allocator", "caching", "--max-memory", "8MiB"]);
    assert!(ran.stdout.starts_with("Incomplete: "), "{}", ran.stdout);
    assert!(ran.stdout.contains("8.00 MiB of memory"), "{}", ran.stdout);
    let part = json(&["replay", &file, "--allocator", "caching", "--max-memory", "8MiB", "--json"]);
    assert_eq!(part["source"]["partial"], true);
    let events = |report: &Value| report["devices"][0]["events"].as_u64().expect("events");
    assert!(events(&part) < events(&whole));
    let error = Place::new().fail(&["replay", &file, "--max-memory", "4KiB"]);
    assert!(error.contains("out of all proportion"), "{error}");
}

#[test]
fn nothing_in_names_or_files_controls_the_terminal() {
    let place = Place::new();
    let evil = "\u{1b}[2J\u{202e}\u{9b}x.txt";
    place.write(evil, "CUDA out of \u{1b}]0;owned\u{7} \u{202e}nothing\n");
    let error = place.fail(&["explain", evil]);
    let controls = |text: &str| text.chars().any(|c| (c.is_control() && c != '\n') || c == '\u{202e}');
    assert!(!controls(&error) && error.contains(r"\u{1b}[2J"), "{error:?}");
    let ran = place.succeed(&["explain", &recorded("torch-healthy.pickle.gz"), "--html", evil]);
    assert!(!controls(&ran.stdout), "{:?}", ran.stdout);
}

#[test]
fn files_of_one_run_are_joined() {
    let place = Place::new();
    place.write(
        "oom.txt",
        "CUDA out of memory. Tried to allocate 126.00 MiB. GPU 0 has a total capacity of 139.80 GiB of which \
         127.90 GiB is free. Including non-PyTorch memory, this process has 11.89 GiB memory in use. 11.18 GiB \
         allowed; Of the allocated memory 10.96 GiB is allocated by PyTorch, and 209.78 MiB is reserved by \
         PyTorch but unallocated.\n",
    );
    let report = json_in(&place, &["explain", &recorded("torch-leak.pickle.gz"), "oom.txt", "--json"]);
    assert_eq!(report["source"]["formats"], serde_json::json!(["pytorch-snapshot", "pytorch-oom-message"]));
    assert!(report["source"]["files"].as_array().is_some_and(|files| files.len() == 2), "{report}");
}

#[test]
fn what_cannot_be_read_is_named_with_the_reason() {
    let place = Place::new();
    place.write("notes.txt", "nothing about memory\n");
    place.write("nothing", "");
    let error = place.fail(&["explain", "notes.txt"]);
    assert!(error.starts_with("notes.txt: ") && error.contains("nothing about a device's memory"), "{error}");
    place.write("packed.zip", "PK\x03\x04\x14\x00\x00\x00");
    let error = place.fail(&["explain", "packed.zip"]);
    assert!(error.starts_with("packed.zip: is none of the formats that can be read: "), "{error}");
    assert_eq!(place.fail(&["explain", "nothing"]), "nothing: is empty\n");
    assert!(place.fail(&["explain", "gone.pickle"]).starts_with("gone.pickle: cannot be read: "));
    assert!(place.fail(&["replay", "packed.zip"]).starts_with("packed.zip: is none of the formats"));
}

#[test]
fn every_allocator_is_replayed_and_the_recorded_one_takes_what_it_took() {
    let report = json(&["replay", &recorded("torch-frag.pickle.gz"), "--json"]);
    assert_eq!(keys(&report), ["devices", "source"]);
    let device = &report["devices"][0];
    let replays = device["replays"].as_array().expect("replays");
    let names: Vec<&str> = replays.iter().filter_map(|replay| replay["allocator"].as_str()).collect();
    assert_eq!(names, ["bfc", "bfc-growth", "caching", "expandable", "two-ended", "paged", "planned"]);
    let bound = device["lower_bound_bytes"].as_u64().expect("a bound");
    for replay in replays.iter().filter(|replay| replay["survives"] == true) {
        assert!(replay["peak_reserved_bytes"].as_u64() >= Some(bound), "{replay}");
    }
    let peak = |name: &str| {
        let replay = replays.iter().find(|replay| replay["allocator"] == name).expect("a replay");
        replay["peak_reserved_bytes"].as_f64().expect("bytes")
    };
    let took = device["recorded"]["peak_reserved_bytes"].as_f64().expect("bytes");
    assert!((peak("caching") / took - 1.0).abs() < 0.02, "{} of {took}", peak("caching"));
    assert!(peak("expandable") < peak("caching") && peak("planned") <= peak("expandable"), "{device}");
    let own: Vec<&Value> = replays.iter().filter(|replay| replay["recorded_under"] == true).collect();
    assert_eq!((own.len(), &own[0]["allocator"]), (1, &"caching".into()));
}

#[test]
fn without_time_one_allocator_is_replayed_and_the_others_are_named() {
    let file = recorded("torch-frag.pickle.gz");
    let report = json(&["replay", &file, "--seconds", "0", "--json"]);
    let device = &report["devices"][0];
    assert_eq!(device["replays"].as_array().expect("replays").len(), 1);
    let left_out = ["bfc-growth", "caching", "expandable", "two-ended", "paged", "planned"];
    assert_eq!(device["left_out"], serde_json::json!(left_out));
    let ran = Place::new().succeed(&["replay", &file, "--seconds", "0"]);
    assert!(ran.stdout.contains("no time was left for bfc-growth, caching,"), "{}", ran.stdout);
    let named = json(&["replay", &file, "--seconds", "0", "--allocator", "planned", "--json"]);
    assert_eq!(named["devices"][0]["replays"][0]["allocator"], "planned");
}

#[test]
fn a_limit_that_is_too_small_ends_a_replay_at_a_request_that_is_named() {
    let file = recorded("torch-leak.pickle.gz");
    let ran = Place::new().succeed(&["replay", &file, "--allocator", "caching", "--limit", "3GiB"]);
    for part in
        ["lower bound  ", "limit        3.00 GiB\n", "caching", "no, event ", "asked for at train.py:15 loss"]
    {
        assert!(ran.stdout.contains(part), "no `{part}` in {}", ran.stdout);
    }
    assert!(!ran.stdout.contains("expandable"), "{}", ran.stdout);
    let replayed = json(&["replay", &file, "--allocator", "caching", "--limit", "3GiB", "--json"]);
    let event = &replayed["devices"][0]["replays"][0]["failed_at"]["event"];
    assert!(ran.stdout.contains(&format!("no, event {event}\n")), "{event} in {}", ran.stdout);
    let plan = json(&["replay", &file, "--allocator", "planned", "--limit", "2GiB", "--json"]);
    assert_eq!(plan["devices"][0]["replays"][0]["survives"], false);
    assert_eq!(plan["devices"][0]["limit_bytes"], 2_u64 << 30);
}

#[test]
fn a_log_has_no_requests_to_replay_and_an_allocator_must_exist() {
    let place = Place::new();
    let error = place.fail(&["replay", &recorded("log/jax-fragmented.log.gz")]);
    assert!(error.contains("holds no sequence of requests to replay"), "{error}");
    let ran = place.run(&["replay", "x", "--allocator", "slab"]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("there are bfc, bfc-growth, caching"), "{}", ran.stderr);
}
