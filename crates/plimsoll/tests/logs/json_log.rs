//! The log as lines of JSON.

use super::Told;
use plimsoll::logs::{JsonLog, Pace};
use plimsoll::{Control, Observer, Observers, Progress, Saved, Spec, Validation};
use proptest::prelude::*;
use serde_json::Value;
use std::path::Path;

fn lines(folder: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(folder.join(JsonLog::FILE)).expect("the log");
    assert!(text.is_empty() || text.ends_with('\n'));
    text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

fn events(lines: &[Value]) -> Vec<(&str, u64)> {
    let of = |line: &Value| line["step"].as_u64().expect("a step");
    lines.iter().map(|line| (line["event"].as_str().expect("an event"), of(line))).collect()
}

#[test]
fn a_run_is_a_line_for_its_start_its_steps_and_its_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let spec = Spec::find("digits").expect("a workload").steps(25);
    let (data, _) = spec.datasets().expect("data");
    let mut log = JsonLog::new(folder.path()).pace(Pace::every(10));
    let trained = spec.trainer().fit(&data, None, &mut log).expect("training");
    drop(log);
    let lines = lines(folder.path());
    assert_eq!(
        events(&lines),
        [("started", 0), ("step", 1), ("step", 10), ("step", 20), ("step", 25), ("ended", 25)]
    );
    assert_eq!(lines[0]["peak_bytes"], trained.report.predicted_peak_bytes);
    assert_eq!(lines[0]["steps"], 25);
    assert_eq!(lines[3]["loss"].as_f64().map(|loss| loss as f32), Some(trained.report.losses[19]));
    assert!(lines[3]["metrics"]["accuracy"].is_f64());
    assert_eq!(
        lines[5]["metrics"]["loss"].as_f64().map(|loss| loss as f32),
        trained.report.losses.last().copied()
    );
}

#[test]
fn all_moments_are_told_and_a_run_that_is_cut_short_says_where() {
    let folder = tempfile::tempdir().expect("a folder");
    let told = Told::new();
    let mut log = JsonLog::new(folder.path()).pace(Pace::every(100));
    told.start(&mut log, 0, 100);
    told.steps(&mut log, 1..=5, 100);
    let metrics = [("a \"quoted\" </name>\u{7}".to_string(), 0.5), ("not a number".to_string(), f64::NAN)];
    let validation = Validation { epoch: 1, step: 5, metrics: &metrics };
    log.validated(&validation, &mut Control::default()).expect("a validation");
    let saved = Saved { path: Path::new("somewhere"), step: 5, bytes: 7, best: true };
    log.saved(&saved).expect("a checkpoint");
    told.steps(&mut log, 6..=7, 100);
    drop(log);
    let lines = lines(folder.path());
    assert_eq!(
        events(&lines),
        [("started", 0), ("step", 1), ("validation", 5), ("saved", 5), ("stopped", 7)]
    );
    assert_eq!(lines[2]["metrics"]["a \"quoted\" </name>\u{7}"], 0.5);
    assert!(lines[2]["metrics"]["not a number"].is_null());
    assert_eq!(lines[3]["bytes"], 7);
    assert_eq!(lines[4]["loss"], 7.0);
}

#[test]
fn a_run_that_an_observer_stops_says_why_and_has_its_last_loss() {
    let folder = tempfile::tempdir().expect("a folder");
    let spec = Spec::find("digits").expect("a workload").steps(100);
    let (data, _) = spec.datasets().expect("data");
    struct StopsAt(usize);
    impl Observer for StopsAt {
        fn step(&mut self, progress: &Progress<'_>, control: &mut Control) -> plimsoll::Result<()> {
            if progress.step == self.0 {
                control.stop("it is late");
            }
            Ok(())
        }
    }
    let log = JsonLog::new(folder.path()).pace(Pace::every(50));
    let mut observers = Observers::new().with(log).with(StopsAt(7));
    let trained = spec.trainer().fit(&data, None, &mut observers).expect("training");
    drop(observers);
    let lines = lines(folder.path());
    let last = lines.last().expect("lines");
    assert_eq!(
        (&last["event"], &last["how"], &last["why"]),
        (&"ended".into(), &"stopped".into(), &"it is late".into())
    );
    assert_eq!(last["step"].as_u64(), Some(trained.report.losses.len() as u64));
    assert_eq!(last["loss"].as_f64().map(|loss| loss as f32), trained.report.losses.last().copied());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// However often a run is cut short and goes on from an earlier step, its log reads as if it had not been.
    #[test]
    fn a_log_that_was_resumed_has_every_step_once(cuts in proptest::collection::vec((1usize..30, 0usize..30), 0..5), torn in any::<bool>()) {
        let folder = tempfile::tempdir().expect("a folder");
        let told = Told::new();
        let (mut from, steps) = (0, 60);
        for (further, back) in cuts {
            let mut log = JsonLog::new(folder.path()).pace(Pace::every(1));
            told.start(&mut log, from, steps);
            let end = (from + further).min(steps - 1);
            told.steps(&mut log, from + 1..=end, steps);
            drop(log);
            if torn {
                let path = folder.path().join(JsonLog::FILE);
                let text = std::fs::read(&path).expect("the log");
                std::fs::write(&path, &text[..text.len() - 3]).expect("the log");
            }
            from = end.saturating_sub(back);
        }
        let mut log = JsonLog::new(folder.path()).pace(Pace::every(1));
        told.start(&mut log, from, steps);
        told.steps(&mut log, from + 1..=steps, steps);
        log.ended(&told.report).expect("the end");
        let lines = lines(folder.path());
        let all = events(&lines);
        prop_assert!(all.windows(2).all(|pair| pair[0].1 <= pair[1].1), "{:?}", all);
        let logged: Vec<u64> = all.iter().filter(|event| event.0 == "step").map(|event| event.1).collect();
        prop_assert_eq!(logged, (1..=steps as u64).collect::<Vec<_>>());
        prop_assert_eq!(all.last(), Some(&("ended", steps as u64)));
    }
}

#[test]
fn what_is_no_log_is_written_over_when_a_run_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join(JsonLog::FILE), b"\x00\xff no log\n{\"step\":1}\n").expect("a file");
    let told = Told::new();
    told.start(&mut JsonLog::new(folder.path()), 3, 10);
    assert_eq!(events(&lines(folder.path())), [("started", 3), ("stopped", 3)]);
}

#[test]
fn a_folder_that_is_not_there_is_an_error_before_training_begins() {
    let folder = tempfile::tempdir().expect("a folder");
    let spec = Spec::find("digits").expect("a workload").steps(2);
    let (data, _) = spec.datasets().expect("data");
    let mut log = JsonLog::new(folder.path().join("absent"));
    let error = spec.trainer().fit(&data, None, &mut log).expect_err("no folder");
    assert!(error.to_string().contains("log.jsonl"), "{error}");
}

#[test]
fn steps_that_are_thinned_by_time_are_few_and_have_the_first_and_the_last() {
    let mut pace = Pace::by_time();
    let mut logged = vec![];
    for step in 1..=200_000 {
        if pace.is_due(step, 200_000) {
            logged.push(step);
            pace.written();
        }
    }
    assert_eq!([logged[0], logged[logged.len() - 1]], [1, 200_000]);
    assert!(logged.len() < 50_000, "{} of 200,000 steps", logged.len());
}
