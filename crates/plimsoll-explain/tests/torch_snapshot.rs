//! PyTorch's snapshots as they are read. The figures of real ones are those that `scripts/torch_oracle.py`
//! prints, which reads them by Python's own means.

mod common;

use common::{Data, assert_laws, dict, event, frames, packed, pickle, read, text, unpacked};
use plimsoll_explain::{Device, ErrorKind, Format, Framework};
use plimsoll_memory::{Action, Model, OwnerId, PieceState, SegmentClass, Trace};
use std::collections::BTreeMap;

fn only_device(bytes: &[u8]) -> Device {
    let mut recording = read(bytes).unwrap();
    assert_eq!(recording.origin.formats, [Format::TorchSnapshot]);
    assert_eq!(recording.origin.framework, Framework::PyTorch);
    assert_eq!(recording.origin.gaps, [""; 0]);
    assert_eq!(recording.devices.len(), 1);
    let device = recording.devices.remove(0);
    assert_laws(&device);
    device
}

/// How often each action happens: allocations, frees, refusals, reservations, releases, marks.
fn counts(trace: &Trace) -> [usize; 6] {
    let mut counts = [0; 6];
    for event in &trace.events {
        counts[match event.action {
            Action::Allocate(_) => 0,
            Action::Free(_) => 1,
            Action::Refuse(_) => 2,
            Action::Reserve { .. } => 3,
            Action::Release { .. } => 4,
            Action::Mark(_) => 5,
        }] += 1;
    }
    counts
}

/// What the oracle prints of a device.
struct Expected {
    segments: usize,
    blocks: usize,
    reserved: u64,
    active: u64,
    requested: u64,
    largest_free: u64,
    /// Allocations, frees, refusals, reservations, releases.
    actions: [usize; 5],
    /// How many requests were live before, of how many bytes, and what was reserved then.
    before: (usize, u64, u64),
    peak: u64,
}

fn assert_reads(name: &str, expected: &Expected) -> Device {
    let device = only_device(&packed(name));
    assert_eq!((device.name.as_str(), device.index), ("GPU 0", Some(0)));
    let layout = device.layout.as_ref().unwrap();
    assert_eq!((layout.segments.len(), layout.pieces().count()), (expected.segments, expected.blocks));
    assert_eq!(layout.reserved_bytes(), expected.reserved);
    assert_eq!(layout.live_bytes(), expected.active);
    assert_eq!(layout.requested_bytes(), expected.requested);
    assert_eq!(layout.largest_free(), expected.largest_free);
    let trace = device.trace.as_ref().unwrap();
    assert_eq!(counts(trace)[..5], expected.actions);
    let before: u64 = trace.initial.iter().map(|&id| trace.request(id).bytes).sum();
    let reserved_before: u64 = trace.initial_reserved.iter().map(|&(_, bytes)| bytes).sum();
    assert_eq!((trace.initial.len(), before, reserved_before), expected.before);
    assert_eq!(trace.peak_live().0, expected.peak);
    assert_eq!(trace.complete, expected.before == (0, 0, 0));
    let Some(Model::Caching(settings)) = &device.model else { panic!("{:?}", device.model) };
    assert_eq!(settings.max_split_bytes, None);
    assert_eq!(settings.roundup_power2_divisions, [0; 16]);
    device
}

#[test]
fn a_leak_is_read_with_its_failure_and_its_place() {
    let expected = Expected {
        segments: 108,
        blocks: 1557,
        reserved: 11_991_515_136,
        active: 11_640_477_184,
        requested: 11_589_050_224,
        largest_free: 140_509_184,
        actions: [7778, 6268, 1, 110, 2],
        before: (0, 0, 0),
        peak: 11_720_122_228,
    };
    let device = assert_reads("torch-leak.pickle.gz", &expected);
    let failure = device.failure.as_ref().unwrap();
    assert_eq!((failure.requested, failure.exact), (131_072_000, true));
    assert_eq!(device.device_free, Some(137_331_081_216));
    let trace = device.trace.as_ref().unwrap();
    assert_eq!(counts(trace)[5], 90);
    assert_eq!(trace.marks, ["Optimizer.step#Adam.step", "Optimizer.zero_grad#Adam.zero_grad"]);

    let mut by_owner: BTreeMap<OwnerId, u64> = BTreeMap::new();
    for piece in device.layout.as_ref().unwrap().pieces().filter(|p| p.state == PieceState::Live) {
        *by_owner.entry(piece.owner).or_default() += piece.bytes;
    }
    assert_eq!(by_owner.len(), 18);
    let (&owner, &bytes) = by_owner.iter().max_by_key(|&(_, bytes)| bytes).unwrap();
    assert_eq!(bytes, 6_051_379_200);
    let stack: Vec<_> =
        device.owners.stack(owner).map(|f| (f.file.as_str(), f.line, f.name.as_str())).collect();
    let innermost = ("site-packages/torch/nn/functional.py", 3504, "cross_entropy");
    assert_eq!(stack, [innermost, ("train.py", 15, "loss"), ("train.py", 32, "<module>")]);
}

#[test]
fn a_ring_that_wrapped_is_completed_from_the_end() {
    let expected = Expected {
        segments: 61,
        blocks: 220,
        reserved: 4_414_504_960,
        active: 862_944_768,
        requested: 849_345_140,
        largest_free: 648_019_968,
        actions: [19980, 20010, 0, 0, 0],
        before: (206, 986_464_100, 4_414_504_960),
        peak: 3_580_682_920,
    };
    let device = assert_reads("torch-frag.pickle.gz", &expected);
    let trace = device.trace.as_ref().unwrap();
    assert!(trace.initial.is_sorted_by_key(|&id| trace.request(id).address));
    let segments = device.layout.as_ref().unwrap().segments.iter().map(|s| (s.address, s.bytes));
    assert_eq!(trace.initial_reserved, segments.collect::<Vec<_>>());
}

#[test]
fn a_healthy_run_is_read_whole() {
    let expected = Expected {
        segments: 38,
        blocks: 187,
        reserved: 1_222_639_616,
        active: 426_512_384,
        requested: 416_288_260,
        largest_free: 140_509_184,
        actions: [4020, 3862, 0, 38, 0],
        before: (0, 0, 0),
        peak: 1_032_195_592,
    };
    let device = assert_reads("torch-healthy.pickle.gz", &expected);
    assert_eq!(device.failure, None);
    assert_eq!(counts(device.trace.as_ref().unwrap())[5], 24);
    let setting = device.settings.iter().find(|(name, _)| name == "expandable_segments");
    assert_eq!(setting.map(|(_, value)| value.as_str()), Some("False"));
}

#[test]
fn expandable_segments_are_told_by_their_class() {
    let expected = Expected {
        segments: 2,
        blocks: 8,
        reserved: 687_865_856,
        active: 68_157_440,
        requested: 68_157_440,
        largest_free: 448_397_312,
        actions: [10406, 10403, 0, 32, 0],
        before: (0, 0, 0),
        peak: 643_656_584,
    };
    let device = assert_reads("torch-varlen-expandable.pickle.gz", &expected);
    let layout = device.layout.as_ref().unwrap();
    assert!(layout.segments.iter().all(|segment| segment.class == SegmentClass::Expandable));
    assert!(matches!(device.model, Some(Model::Caching(settings)) if settings.expandable));
}

#[test]
fn streams_are_numbered_in_order_of_appearance() {
    let expected = Expected {
        segments: 9,
        blocks: 13,
        reserved: 184_549_376,
        active: 35_880_960,
        requested: 34_865_152,
        largest_free: 31_457_280,
        actions: [600, 597, 0, 9, 0],
        before: (0, 0, 0),
        peak: 85_393_408,
    };
    let device = assert_reads("torch-streams.pickle.gz", &expected);
    let streams = device.layout.as_ref().unwrap().segments.iter().map(|segment| segment.stream);
    assert_eq!(streams.clone().filter(|&stream| stream == 0).count(), 3);
    assert_eq!(streams.filter(|&stream| stream == 1).count(), 6);
}

#[test]
fn what_was_given_back_before_the_failure_is_read() {
    let expected = Expected {
        segments: 3,
        blocks: 5,
        reserved: 157_286_400,
        active: 68_157_440,
        requested: 68_157_440,
        largest_free: 88_080_384,
        actions: [622, 619, 1, 31, 28],
        before: (0, 0, 0),
        peak: 560_989_448,
    };
    let device = assert_reads("torch-toobig.pickle.gz", &expected);
    assert_eq!(device.failure.as_ref().unwrap().requested, 6_442_450_944);
    assert_eq!(device.device_free, Some(149_165_309_952));
}

fn segment(entries: &[(&str, Data)]) -> Data {
    let known = [
        ("device", Data::Int(0)),
        ("address", Data::Int(4096)),
        ("total_size", Data::Int(2048)),
        ("stream", Data::Int(0)),
        ("segment_type", text("small")),
    ];
    dict(&known.iter().chain(entries).cloned().collect::<Vec<_>>())
}

fn block(size: i64, state: &str, entries: &[(&str, Data)]) -> Data {
    let known = [("size", Data::Int(size)), ("state", text(state))];
    dict(&known.iter().chain(entries).cloned().collect::<Vec<_>>())
}

#[test]
fn the_first_snapshots_were_lists_of_segments_whose_blocks_have_a_history() {
    let served = |size, line| {
        let stack = frames(&[("model.py", line, "forward"), ("train.py", 1, "main")]);
        dict(&[("addr", Data::Int(4096)), ("frames", stack), ("real_size", Data::Int(size))])
    };
    let history = Data::List(vec![served(900, 7), served(100, 3)]);
    let blocks = Data::List(vec![
        block(1024, "active_allocated", &[("history", history.clone())]),
        block(512, "active_pending_free", &[]),
        block(512, "inactive", &[("history", history)]),
    ]);
    let snapshot = Data::List(vec![segment(&[("blocks", blocks)])]);
    for protocol in [0, 2, 3, 4, 5] {
        let device = only_device(&pickle(&snapshot, protocol));
        let layout = device.layout.as_ref().unwrap();
        let pieces: Vec<_> = layout.pieces().map(|p| (p.address, p.bytes, p.requested, p.state)).collect();
        let expected = [
            (4096, 1024, 900, PieceState::Live),
            (5120, 512, 512, PieceState::Pending),
            (5632, 512, 0, PieceState::Free),
        ];
        assert_eq!(pieces, expected);
        let owner = layout.pieces().next().unwrap().owner;
        assert_eq!(device.owners.stack(owner).map(|frame| frame.line).collect::<Vec<_>>(), [7, 1]);
        assert!(device.trace.is_none());
    }
}

fn snapshot(segments: Vec<Data>, traces: Vec<Vec<Data>>) -> Data {
    let traces = traces.into_iter().map(Data::List).collect();
    dict(&[("segments", Data::List(segments)), ("device_traces", Data::List(traces))])
}

#[test]
fn devices_without_segments_or_events_are_left_out() {
    let events = vec![
        event("segment_alloc", 8192, 2048, 1, &[]),
        event("alloc", 8192, 100, 2, &[("train.py", 3, "main")]),
        event("snapshot", 0, 0, 3, &[]),
    ];
    let data = snapshot(vec![segment(&[])], vec![vec![], vec![], events]);
    for protocol in [0, 4] {
        let recording = read(&pickle(&data, protocol)).unwrap();
        let names: Vec<_> = recording.devices.iter().map(|device| device.name.as_str()).collect();
        assert_eq!(names, ["GPU 0", "GPU 2"]);
        assert_eq!(recording.origin.gaps, ["2048 bytes of segments belong to no block: taken as free"]);
        recording.devices.iter().for_each(assert_laws);
        let trace = recording.devices[1].trace.as_ref().unwrap();
        assert_eq!(counts(trace), [1, 0, 0, 1, 0, 1]);
        assert_eq!(trace.marks, ["snapshot"]);
    }
}

#[test]
fn pages_mapped_and_unmapped_in_parts_are_walked_back() {
    // At the end 4096..6144 is mapped. Of it 5120..6144 was mapped in the recording, after 6144..7168 had been
    // unmapped, which was there before.
    let events = vec![
        event("segment_unmap", 6144, 1024, 1, &[]),
        event("segment_map", 5120, 1024, 2, &[]),
        event("free_completed", 6200, 10, 3, &[("train.py", 3, "main")]),
    ];
    let blocks = Data::List(vec![block(2048, "inactive", &[("address", Data::Int(4096))])]);
    let segment = segment(&[("blocks", blocks), ("is_expandable", Data::Bool(true))]);
    let device = only_device(&pickle(&snapshot(vec![segment], vec![events]), 4));
    let trace = device.trace.as_ref().unwrap();
    assert_eq!(trace.initial_reserved, [(4096, 1024), (6144, 1024)]);
    assert_eq!(trace.request(trace.initial[0]).bytes, 10);
    assert!(!trace.complete);
}

#[test]
fn contradictions_are_said() {
    let events = vec![
        event("alloc", 4096, 100, 1, &[]),
        event("alloc", 4096, 200, 2, &[]),
        event("free_completed", 4096, 200, 3, &[]),
        event("free_completed", 4096, 200, 4, &[]),
        event("hibernate", 4096, 200, 5, &[]),
        event("alloc", 4096, i64::MAX, 6, &[]),
        event("alloc", -1, 10, 7, &[]),
    ];
    let far =
        [("device", Data::Int(0)), ("address", Data::Int(i64::MAX)), ("total_size", Data::Int(i64::MAX))];
    let blocks = Data::List(vec![block(4096, "inactive", &[]), block(2048, "inactive", &[])]);
    let segments = vec![segment(&[("blocks", blocks)]), segment(&[]), dict(&far)];
    let recording = read(&pickle(&snapshot(segments, vec![events]), 4)).unwrap();
    assert_laws(&recording.devices[0]);
    assert_eq!(
        recording.origin.gaps,
        [
            "1 segments overlap others, are empty or larger than any device: left out",
            "1 blocks do not fit into their segment: left out",
            "GPU 0: 1 allocations at an address that was never freed; they were taken as freed by then",
            "GPU 0: 1 events that contradict those before, or are more than can be counted",
            "1 events of kinds that are not known: left out",
            "3 entries without a size or address, or of sizes that no device has: left out",
        ]
    );
}

#[test]
fn a_pickle_of_something_else_is_no_snapshot() {
    for data in [Data::List(vec![Data::Int(1)]), dict(&[("weights", Data::List(vec![]))])] {
        let error = read(&pickle(&data, 4)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnknownFormat, "{error}");
    }
    let error = read(&pickle(&snapshot(vec![], vec![vec![], vec![]]), 4)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Empty, "{error}");
}

#[test]
fn a_snapshot_cut_short_gives_what_came_before() {
    let whole = unpacked("torch-leak.pickle.gz");
    let expected = only_device(&whole);
    let all = expected.trace.as_ref().unwrap().events.len();
    let mut last = 0;
    for cut in (0..whole.len()).step_by(whole.len() / 151) {
        match read(&whole[..cut]) {
            Err(error) if cut == 0 => assert_eq!(error.kind(), ErrorKind::UnknownFormat),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Malformed);
                assert!(error.to_string().contains(&format!("cut short at byte {cut}")), "{error}");
                assert_eq!(last, 0, "what was read from {last} events on is lost at byte {cut}");
            }
            Ok(recording) => {
                assert_eq!(recording.origin.gaps.len(), 1, "{:?}", recording.origin.gaps);
                assert!(recording.origin.gaps[0].contains(&format!("cut short at byte {cut}")));
                let [device] = &recording.devices[..] else { panic!() };
                assert_laws(device);
                let layout = device.layout.as_ref().unwrap();
                assert!(layout.reserved_bytes() <= 11_991_515_136);
                if let Some(trace) = &device.trace {
                    assert_eq!(layout, expected.layout.as_ref().unwrap());
                    assert!(trace.events.len() >= last && trace.events.len() <= all);
                    last = trace.events.len();
                }
            }
        }
    }
    assert!(last > all * 95 / 100, "{last} of {all}");
}

#[test]
fn packing_cut_short_gives_what_came_before() {
    let whole = packed("torch-healthy.pickle.gz");
    let recording = read(&whole[..whole.len() / 2]).unwrap();
    assert!(recording.origin.gaps[0].contains("within its packing"), "{:?}", recording.origin.gaps);
    assert_laws(&recording.devices[0]);
    assert!(recording.devices[0].trace.as_ref().unwrap().events.len() > 2000);
}
