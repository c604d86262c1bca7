//! PyTorch's profiler traces as they are read. The figures of the real one are those that
//! `scripts/torch_oracle.py` prints.

mod common;

use common::{assert_laws, packed, read, unpacked};
use plimsoll_explain::{ErrorKind, Format, Framework, Recording};
use plimsoll_memory::{Action, OwnerId};
use proptest::prelude::*;
use std::collections::BTreeMap;

fn laws(recording: &Recording) {
    recording.devices.iter().for_each(assert_laws);
}

#[test]
fn a_real_trace_is_read_with_who_asked() {
    let recording = read(&packed("torch-cpu-chrome-trace.json.gz")).unwrap();
    assert_eq!(recording.origin.formats, [Format::TorchChromeTrace]);
    assert_eq!(recording.origin.framework, Framework::PyTorch);
    assert_eq!(recording.origin.gaps, [""; 0]);
    laws(&recording);
    let [device] = &recording.devices[..] else { panic!() };
    assert_eq!((device.name.as_str(), device.index), ("CPU", None));
    let trace = device.trace.as_ref().unwrap();
    assert_eq!((trace.requests.len(), trace.initial.len()), (122, 0));
    let frees = trace.events.iter().filter(|event| matches!(event.action, Action::Free(_)));
    assert_eq!(frees.count(), 109);
    assert_eq!(trace.peak_live().0, 4_048_024);
    assert_eq!((device.peak_live, device.live, device.reserved), (Some(4_048_024), Some(1_628_260), None));
    assert_eq!(trace.marks, ["Optimizer.step#Adam.step", "Optimizer.zero_grad#Adam.zero_grad"]);
    let marks = trace.events.iter().filter(|event| matches!(event.action, Action::Mark(_)));
    assert_eq!(marks.count(), 4);

    let mut by_op: BTreeMap<&str, u64> = BTreeMap::new();
    for request in &trace.requests {
        *by_op.entry(&device.owners.frame(request.owner).unwrap().name).or_default() += request.bytes;
    }
    let expected = [
        ("aten::mm", 1_888_256),
        ("aten::empty_strided", 1_628_376),
        ("aten::sqrt", 1_628_240),
        ("aten::div", 1_628_240),
    ];
    for (op, bytes) in expected {
        assert_eq!(by_op[op], bytes, "{op}");
    }
    let outermost = device.owners.stack(trace.requests[0].owner).last().unwrap();
    assert_eq!((outermost.file.as_str(), outermost.line, outermost.name.as_str()), ("tp.py", 6, "<module>"));
}

fn memory(ts: f64, bytes: i64, addr: u64, device: (i64, i64)) -> String {
    format!(
        r#"{{"ph":"i","cat":"cpu_instant_event","s":"t","name":"[memory]","pid":1,"tid":2,"ts":{ts},"args":
        {{"Total Reserved":2097152,"Total Allocated":4096,"Bytes":{bytes},"Device Id":{},"Device Type":{},
        "Addr":{addr},"Ev Idx":1}}}}"#,
        device.1, device.0
    )
}

fn span(cat: &str, name: &str, ts: f64, dur: f64, tid: &str) -> String {
    format!(
        r#"{{"ph":"X","cat":"{cat}","name":"{name}","pid":1,"tid":{tid},"ts":{ts},"dur":{dur},"args":{{}}}}"#
    )
}

#[test]
fn events_out_of_order_on_several_devices_and_threads_find_their_place() {
    let entries = [
        memory(30.0, -512, 64, (1, 1)),
        memory(20.0, 512, 64, (1, 1)),
        memory(10.0, -100, 8, (0, -1)),
        memory(25.5, 256, u64::MAX, (1, 0)),
        span("cpu_op", "aten::add", 19.0, 2.0, "2"),
        span("cpu_op", "aten::mul", 24.0, 9.0, "3"),
        span("python_function", "train.py(7): step", 5.0, 15.5, "2"),
        span("user_annotation", "ProfilerStep#3", 12.0, 50.0, "2"),
        span("kernel", "gemm", 0.0, 99.0, "2"),
        r#"{"ph":"X","name":7,"tid":"x","args":[[]],"ts":null}"#.to_string(),
        "[1, {}]".to_string(),
        "null".to_string(),
    ];
    let list = format!("[{}]", entries.join(",\n"));
    let object = format!(r#"{{"schemaVersion": 1, "traceEvents": {list}, "traceName": "x"}}"#);
    for json in [list, object] {
        let recording = read(json.as_bytes()).unwrap();
        laws(&recording);
        assert_eq!(recording.origin.gaps, [""; 0]);
        let names: Vec<_> = recording.devices.iter().map(|d| (d.name.as_str(), d.index)).collect();
        assert_eq!(names, [("CPU", None), ("GPU 0", Some(0)), ("GPU 1", Some(1))]);
        let trace = |at: usize| recording.devices[at].trace.as_ref().unwrap();
        assert_eq!(trace(0).initial.len(), 1, "freed without having been allocated");
        assert_eq!(trace(1).requests[0].owner, OwnerId::UNKNOWN, "the span is of another thread");
        assert_eq!((trace(1).requests[0].address, trace(1).events[1].time), (u64::MAX, 25));
        let device = &recording.devices[2];
        let stack: Vec<_> = device.owners.stack(trace(2).requests[0].owner).collect();
        assert_eq!(stack.iter().map(|frame| frame.name.as_str()).collect::<Vec<_>>(), ["aten::add", "step"]);
        assert_eq!((stack[1].file.as_str(), stack[1].line), ("train.py", 7));
        assert_eq!(trace(2).marks, ["ProfilerStep#3"]);
        assert_eq!(device.reserved, Some(2_097_152));
    }
}

#[test]
fn a_trace_without_memory_says_how_to_record_it() {
    let error = read(br#"{"traceEvents": [{"ph": "X", "ts": 1}]}"#).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Empty);
    assert!(error.to_string().contains("profile_memory=True"), "{error}");
}

#[test]
fn a_trace_cut_short_gives_what_came_before() {
    let whole = unpacked("torch-cpu-chrome-trace.json.gz");
    let mut last = 0;
    for cut in (1..whole.len()).step_by(whole.len() / 97) {
        match read(&whole[..cut]) {
            Ok(recording) => {
                laws(&recording);
                assert!(
                    recording.origin.gaps[0].contains("cut short at line"),
                    "{:?}",
                    recording.origin.gaps
                );
                let count = recording.devices[0].trace.as_ref().unwrap().requests.len();
                assert!(count >= last);
                last = count;
            }
            Err(error) => {
                assert!(
                    matches!(
                        error.kind(),
                        ErrorKind::Malformed | ErrorKind::UnknownFormat | ErrorKind::Empty
                    ),
                    "{error}"
                );
                assert_eq!(last, 0);
            }
        }
    }
    assert_eq!(last, 122);
    let packed = packed("torch-cpu-chrome-trace.json.gz");
    let recording = read(&packed[..packed.len() - 4000]).unwrap();
    assert!(recording.origin.gaps[0].contains("within its packing"), "{:?}", recording.origin.gaps);
}

#[test]
fn texts_and_nesting_out_of_all_proportion_are_refused() {
    let deep = format!(r#"{{"traceEvents": {}"#, "[".repeat(5_000_000));
    let long = format!(r#"{{"traceEvents": [], "x": "{}""#, "\\\"".repeat(5_000_000));
    let digits = format!(r#"{{"traceEvents": [{}"#, "1".repeat(5_000_000));
    for hostile in [deep, long, digits] {
        let error = read(hostile.as_bytes()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Hostile, "{error}");
    }
}

#[test]
fn sizes_that_overflow_are_left_out() {
    let mut entries: Vec<_> = (0..70_000).map(|at| memory(at as f64, 1 << 44, at, (1, 0))).collect();
    entries.push(memory(80_000.0, i64::MAX, 1, (1, 0)));
    entries.push(memory(80_000.0, i64::MIN, 1, (1, 0)));
    let recording = read(format!("[{}]", entries.join(",")).as_bytes()).unwrap();
    laws(&recording);
    assert_eq!(recording.origin.gaps.len(), 2, "{:?}", recording.origin.gaps);
}

#[test]
fn devices_without_end_are_left_out_and_said() {
    let entries: Vec<_> = (0..1000).map(|at| memory(at as f64, 1, 8, (1, at))).collect();
    let recording = read(format!("[{}]", entries.join(",")).as_bytes()).unwrap();
    assert_eq!(recording.devices.len(), 128);
    assert!(recording.origin.gaps[0].starts_with("872 "), "{:?}", recording.origin.gaps);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn damage_never_breaks_the_reader(
        flips in prop::collection::vec((0..1_000_000_usize, any::<u8>()), 1..8),
    ) {
        let mut bytes = unpacked("torch-cpu-chrome-trace.json.gz");
        let length = bytes.len();
        for (at, byte) in flips {
            bytes[at % length] = byte;
        }
        if let Ok(recording) = read(&bytes) {
            laws(&recording);
        }
    }
}
