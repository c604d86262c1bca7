//! What `plimsoll train` leaves for others to look at, what it serves while it runs, and pictures of plans.

mod common;

use common::Place;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

/// A training that goes on until it is dropped, and where its page is.
struct Served {
    child: Child,
    address: String,
}

impl Served {
    fn start(place: &Place) -> Served {
        let mut child = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
            .args(["train", "digits", "--steps", "100000000", "--serve", "127.0.0.1:0", "--out", "run"])
            .current_dir(place.path("."))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the command");
        let out = BufReader::new(child.stdout.take().expect("its output"));
        let address = out
            .lines()
            .map_while(Result::ok)
            .find_map(|line| Some(line.split_once("http://")?.1.trim_end_matches('/').to_string()));
        Served { child, address: address.expect("an address") }
    }

    /// Sends a request as it is and returns the status and the body.
    fn ask(&self, request: &str) -> (String, String) {
        let mut stream = TcpStream::connect(&self.address).expect("a connection");
        stream.write_all(request.as_bytes()).expect("a request");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        (head.lines().next().unwrap_or_default().to_string(), body.to_string())
    }

    fn get(&self, path: &str) -> (String, String) {
        self.ask(&format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", self.address))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_run_leaves_event_files_a_log_and_a_page() {
    let place = Place::new();
    place.succeed(&[
        "train",
        "digits",
        "--steps",
        "20",
        "--out",
        "run",
        "--trace",
        "trace.json",
        "--log-every",
        "5",
    ]);
    let files = place.list("run");
    assert!(files.iter().any(|name| name.starts_with("events.out.tfevents.")), "{files:?}");
    assert!(files.contains(&"log.jsonl".into()) && files.contains(&"page.html".into()), "{files:?}");
    let steps: Vec<Value> = place
        .read("run/log.jsonl")
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON"))
        .filter(|line| line["event"] == "step")
        .map(|line| line["step"].clone())
        .collect();
    assert_eq!(Value::from(steps), serde_json::json!([1, 5, 10, 15, 20]));
    assert!(place.json("trace.json")["traceEvents"].as_array().is_some_and(|events| events.len() > 40));

    place.succeed(&["train", "digits", "--steps", "2", "--out", "bare", "--no-tensorboard", "--quiet"]);
    assert!(!place.list("bare").iter().any(|name| name.contains("tfevents")));
}

#[test]
fn weights_are_those_before_a_trace_was_taken() {
    let place = Place::new();
    place.succeed(&["train", "digits", "--steps", "5", "--out", "plain", "--quiet"]);
    place.succeed(&["train", "digits", "--steps", "5", "--out", "traced", "--quiet", "--trace", "t.json"]);
    let weights =
        |folder: &str| std::fs::read(place.path(folder).join("weights.safetensors")).expect("weights");
    assert!(weights("plain") == weights("traced"));
}

#[test]
fn a_page_is_served_while_training_runs_to_those_who_name_this_host() {
    let place = Place::new();
    let served = Served::start(&place);
    // Somebody who connects and says nothing holds nobody up.
    let _silent: Vec<TcpStream> =
        (0..4).map(|_| TcpStream::connect(&served.address).expect("a connection")).collect();
    let (status, page) = served.get("/");
    assert_eq!(status, "HTTP/1.1 200 OK");
    assert!(page.starts_with("<!doctype html>") && page.contains("connect-src 'self'"));
    let step =
        |body: &str| serde_json::from_str::<Value>(body).expect("JSON")["step"].as_u64().expect("a step");
    let first = step(&served.get("/data?since=0").1);
    let mut later = first;
    while later <= first {
        later = step(&served.get(&format!("/data?since={first}")).1);
    }
    let address = &served.address;
    for (request, expected) in [
        ("GET /data HTTP/1.1\r\nHost: evil.example\r\n\r\n".to_string(), "403"),
        ("GET /data HTTP/1.1\r\n\r\n".to_string(), "403"),
        (format!("GET /data HTTP/1.1\r\nHost: {address}\r\nHost: evil.example\r\n\r\n"), "403"),
        (format!("POST /data HTTP/1.1\r\nHost: {address}\r\n\r\n"), "405"),
        (format!("GET /../run.json HTTP/1.1\r\nHost: {address}\r\n\r\n"), "404"),
        (format!("GET /data?since=x HTTP/1.1\r\nHost: {address}\r\n\r\n"), "400"),
        (format!("\u{0} HTTP/1.1\r\nhost: {address}\r\n\r\n"), "405"),
    ] {
        let (status, _) = served.ask(&request);
        assert!(status.starts_with(&format!("HTTP/1.1 {expected} ")), "{request:?}: {status}");
    }
}

#[test]
fn the_server_ends_with_training() {
    let place = Place::new();
    let ran = place.succeed(&["train", "digits", "--steps", "20", "--serve", "127.0.0.1:0", "--quiet"]);
    let (_, address) = ran.stdout.split_once("http://").expect("an address even if all else is quiet");
    assert!(TcpStream::connect(address.trim().trim_end_matches('/')).is_err(), "nobody listens any more");
}

#[test]
fn an_address_that_cannot_be_served_at_is_an_error_before_training() {
    let place = Place::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("its address").to_string();
    let error = place.fail(&["train", "digits", "--steps", "2", "--serve", &address, "--out", "run"]);
    assert!(error.contains(&address) && error.contains("port 0"), "{error}");
    assert_eq!(place.list("run"), [""; 0], "nothing is left behind");
    let ran = place.run(&["train", "digits", "--serve", "nowhere"]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("HOST:PORT"), "{}", ran.stderr);
}

#[test]
fn a_plan_is_shown_as_text_data_and_a_page() {
    let place = Place::new();
    let ran = place.succeed(&["plan", "digits", "--html", "plan.html"]);
    assert!(ran.stdout.contains("of it is") && ran.stdout.contains("plan.html"), "{}", ran.stdout);
    assert!(place.read("plan.html").starts_with("<!doctype html>"));
    let plan: Value =
        serde_json::from_str(&place.succeed(&["plan", "digits", "--json"]).stdout).expect("JSON");
    let forecast = place.succeed(&["forecast", "digits", "--json"]).stdout;
    let forecast: Value = serde_json::from_str(&forecast).expect("JSON");
    assert_eq!(plan["peak_bytes"], forecast["peak_bytes"]);
    assert_eq!(plan["ledger"], forecast["ledger"]);
    // For a device that is not here, and within a budget.
    let ran = place.succeed(&["plan", "gpt-small", "--device", "a100-80g", "--budget", "150MiB"]);
    assert!(ran.stdout.contains("to fit: "), "{}", ran.stdout);
    let error = place.fail(&["plan", "digits", "--html", "absent/plan.html"]);
    assert!(error.contains("absent/plan.html"), "{error}");
}
