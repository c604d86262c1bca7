//! Traces of steps, in the format of Chrome and Perfetto.

use plimsoll::Spec;
use serde_json::Value;
use std::collections::BTreeMap;

/// The trace of a workload's step, and how many kernels that has.
fn trace(name: &str, tight: bool) -> (Value, usize) {
    let folder = tempfile::tempdir().expect("a folder");
    let spec = Spec::find(name).expect("a workload").batch(8).steps(1);
    let (data, _) = spec.datasets().expect("data");
    let mut trainer = spec.trainer().exact(true);
    if tight {
        trainer = trainer.spill(folder.path());
        let floor = trainer.frontier(&data, None).expect("a frontier").floor_bytes;
        trainer = trainer.budget(floor);
    }
    let mut training = trainer.compile(&data, None).expect("a plan");
    training.fit(&mut ()).expect("training");
    let path = folder.path().join("trace.json");
    training.step_trace().expect("times").save(&path).expect("a file");
    let trace = serde_json::from_slice(&std::fs::read(&path).expect("the file")).expect("JSON");
    (trace, training.plan_picture().kernels.len())
}

/// The complete events of each track, and the names of tracks.
type Tracks = (BTreeMap<u64, Vec<(f64, f64)>>, BTreeMap<u64, String>);

/// Holds every event to what readers of the format need.
fn checked(trace: &Value) -> Tracks {
    let (mut tracks, mut names): Tracks = Default::default();
    for event in trace["traceEvents"].as_array().expect("a list of events") {
        assert!(event["name"].is_string() && event["pid"].is_u64(), "{event}");
        let at = event["ts"].as_f64();
        match event["ph"].as_str().expect("a phase") {
            "X" => {
                let (from, length) = (at.expect("a time"), event["dur"].as_f64().expect("a duration"));
                assert!(from >= 0.0 && length >= 0.0, "{event}");
                for key in ["flops", "bytes", "live_bytes"] {
                    assert!(event["args"][key].is_u64(), "{key}: {event}");
                }
                assert!(event["args"]["buffers"].is_array(), "{event}");
                tracks
                    .entry(event["tid"].as_u64().expect("a track"))
                    .or_default()
                    .push((from, from + length));
            }
            "C" => {
                assert!(at.is_some(), "{event}");
                let counted = event["args"].as_object().expect("counters");
                assert!(!counted.is_empty() && counted.values().all(Value::is_u64), "{event}");
            }
            "M" => {
                let name = event["args"]["name"].as_str().expect("a name").to_string();
                if event["name"] == "thread_name" {
                    names.insert(event["tid"].as_u64().expect("a track"), name);
                }
            }
            phase => panic!("a phase {phase}"),
        }
    }
    for (track, events) in &mut tracks {
        events.sort_by(|a, b| a.0.total_cmp(&b.0));
        let apart = |pair: &[(f64, f64)]| pair[0].1 <= pair[1].0 + 1e-6 * pair[1].0.max(1.0);
        assert!(events.windows(2).all(apart), "events of track {track} overlap");
        assert!(names.contains_key(track), "track {track} has no name");
    }
    (tracks, names)
}

#[test]
fn a_trace_has_every_kernel_and_what_is_live_while_it_runs() {
    let (trace, kernels) = trace("digits", false);
    let (tracks, names) = checked(&trace);
    assert_eq!(tracks[&1].len(), kernels);
    assert_eq!(names[&1], "kernels");
    assert_eq!(tracks.len(), 1, "nothing is copied");
    let events = trace["traceEvents"].as_array().expect("a list");
    let live = |event: &&Value| event["ph"] == "C";
    assert_eq!(events.iter().filter(live).count(), kernels);
    let total = |event: &Value| {
        event["args"].as_object().map(|of| of.values().filter_map(Value::as_u64).sum::<u64>())
    };
    let most = events.iter().filter(live).filter_map(total).max();
    assert!(most.is_some() && most <= trace["otherData"]["peak_bytes"].as_u64());
    assert!(tracks[&1].iter().any(|(from, to)| to > from), "some kernel takes time");
}

#[test]
fn copies_to_the_host_have_tracks_of_their_own() {
    let (trace, _) = trace("gpt-small", true);
    let (tracks, names) = checked(&trace);
    assert!(tracks.len() > 1);
    assert!(names.iter().filter(|&(&track, _)| track > 1).all(|(_, name)| name.contains("copies")));
    let kinds: Vec<&str> = trace["traceEvents"]
        .as_array()
        .expect("a list")
        .iter()
        .filter(|event| event["tid"].as_u64() > Some(1))
        .filter_map(|event| event["cat"].as_str())
        .collect();
    assert!(kinds.contains(&"copy_out") && kinds.contains(&"copy_back"), "{kinds:?}");
}
