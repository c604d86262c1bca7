//! An explanation is of one moment: books, address map, holders and verdicts agree, and every view says which it is.

use plimsoll_explain::{
    Device, Explanation, Failure, Format, Framework, MomentKind, Origin, Progress, Recording, Style, explain,
    read_files, show, write_html,
};
use plimsoll_memory::{
    Action, CachingSettings, Frame, Layout, Model, OwnerId, Owners, Piece, PieceState, Request, RequestId,
    Segment, SegmentClass, Trace,
};
use proptest::prelude::*;
use std::path::PathBuf;

const MIB: u64 = 1 << 20;
const START: u64 = 0x7000_0000;

/// A program that held 90 of 100 MiB when 40 more were refused, and freed 60 of them as it unwound, before its
/// snapshot was written.
fn unwound() -> Recording {
    let mut owners = Owners::default();
    let mut line = |name: &str, line| {
        owners.child(OwnerId::UNKNOWN, Frame { name: name.into(), file: "train.py".into(), line })
    };
    let (weights, activations) = (line("build", 3), line("forward", 9));
    let mut trace = Trace { complete: true, ..Trace::default() };
    trace.push(0, Action::Reserve { address: START, bytes: 100 * MIB });
    let ask = |trace: &mut Trace, bytes, offset, owner| {
        let id = trace.push_request(Request { bytes, address: START + offset, stream: 0, owner });
        trace.push(1, Action::Allocate(id));
        id
    };
    // Asked for are 100 bytes less than what the allocator rounds to.
    ask(&mut trace, 30 * MIB - 100, 0, weights);
    let first = ask(&mut trace, 40 * MIB, 30 * MIB, activations);
    let second = ask(&mut trace, 20 * MIB, 75 * MIB, activations);
    let refused = trace.push_request(Request { bytes: 40 * MIB, address: 0, stream: 0, owner: activations });
    trace.push(2, Action::Refuse(refused));
    trace.push(3, Action::Free(first));
    trace.push(4, Action::Free(second));

    let live = Piece {
        address: START,
        bytes: 30 * MIB,
        requested: 30 * MIB - 100,
        state: PieceState::Live,
        owner: weights,
    };
    let free = Piece {
        address: START + 30 * MIB,
        bytes: 70 * MIB,
        requested: 0,
        state: PieceState::Free,
        owner: OwnerId::UNKNOWN,
    };
    let class = SegmentClass::Large;
    let segment = Segment { address: START, bytes: 100 * MIB, stream: 0, class, pieces: vec![live, free] };
    let device = Device {
        name: "GPU 0".into(),
        limit: Some(100 * MIB),
        model: Some(Model::Caching(CachingSettings::default())),
        layout: Some(Layout { segments: vec![segment] }),
        failure: Some(Failure { requested: 40 * MIB, exact: true, event: Some(4), op: None }),
        trace: Some(trace),
        owners: owners.into(),
        ..Device::default()
    };
    recording_of(device)
}

fn recording_of(device: Device) -> Recording {
    let origin = Origin {
        files: vec!["snapshot.pickle".into()],
        formats: vec![Format::TorchSnapshot],
        framework: Framework::PyTorch,
        gaps: Vec::new(),
        partial: false,
    };
    Recording { origin, devices: vec![device] }
}

fn read(files: &[&str]) -> Recording {
    let data = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let paths: Vec<PathBuf> = files.iter().map(|file| data.join(file)).collect();
    read_files(&paths, &Progress::default()).unwrap()
}

/// The bytes that the books say were in use.
fn in_use(explanation: &Explanation) -> u64 {
    let lines = explanation.books.lines.iter().filter(|line| line.name.starts_with("in use"));
    lines.map(|line| line.bytes).sum()
}

fn terminal(explanation: &Explanation) -> String {
    let mut out = Vec::new();
    show(explanation, Style::default(), &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn page(recording: &Recording, explanation: &Explanation) -> String {
    let mut out = Vec::new();
    write_html(recording, explanation, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// What the page's script reads of the first device.
fn described(page: &str) -> serde_json::Value {
    let (_, after) = page.split_once(r#"id="meta">"#).unwrap();
    let meta: serde_json::Value = serde_json::from_str(after.split_once("</script>").unwrap().0).unwrap();
    meta["devices"][0].clone()
}

#[test]
fn memory_freed_after_the_refusal_is_live_in_the_books_on_the_map_and_among_the_holders() {
    let explanation = explain(&unwound());
    let snapshot = &explanation.snapshot;
    assert_eq!(snapshot.moment.to_string(), "at the refusal (event 5)");
    let layout = snapshot.layout.as_ref().unwrap();
    assert_eq!(layout.live_bytes(), 90 * MIB);
    assert_eq!(in_use(&explanation), 90 * MIB, "{:?}", explanation.books);
    assert_eq!(snapshot.live_bytes, Some(90 * MIB));
    assert_eq!(layout.segments[0].class, SegmentClass::Large, "what the segment is for does not change");
    let held: Vec<_> =
        snapshot.holders.iter().map(|held| (held.site.location.as_str(), held.bytes)).collect();
    assert_eq!(held, [("train.py:9 forward", 60 * MIB), ("train.py:3 build", 30 * MIB - 100)]);
    let found = snapshot.fragmentation.unwrap();
    assert_eq!((found.holes, found.free_bytes), (2, 10 * MIB));
    assert_eq!((found.largest_hole_bytes, found.largest_hole_address), (5 * MIB, START + 70 * MIB));
    let verdict = &explanation.verdicts[0];
    assert!(verdict.sentence.contains("130 MiB needed at once"), "{verdict:?}");
}

#[test]
fn the_terminal_the_json_and_the_page_say_which_moment_they_show() {
    let recording = unwound();
    let explanation = explain(&recording);
    let label = "at the refusal (event 5)";

    let text = terminal(&explanation);
    for part in [
        format!("GPU 0 · {label}"),
        format!("books of the limit of GPU 0, {label}"),
        format!("memory map {label}: 100 MiB in 1 segment"),
        "90.0 % live large".to_string(),
        format!("who held memory {label}: 90.0 MiB"),
    ] {
        assert!(text.contains(&part), "no `{part}` in\n{text}");
    }
    assert!(!text.contains("at the end"), "another moment in\n{text}");

    let json = explanation.to_json();
    assert_eq!(json["moment"]["label"], label);
    assert_eq!(json["moment"]["live_bytes"], in_use(&explanation));
    assert_eq!(json["moment"]["refused_bytes"], 40 * MIB);
    assert_eq!(json["moment"]["holders"][0]["site"], "train.py:9 forward");

    let page = page(&recording, &explanation);
    for part in [
        format!("Verdicts, books, map and holders are <b>{label}</b>."),
        format!("<dt>In use {label}</dt><dd><span title=\"94,371,840 bytes\">90.0 MiB</span>"),
        format!("Books of the limit of GPU 0, {label}"),
    ] {
        assert!(page.contains(&part), "no `{part}`");
    }
}

#[test]
fn the_page_opens_at_the_refusal_with_the_map_and_the_figures_of_the_books() {
    let recording = unwound();
    let explanation = explain(&recording);
    let device = described(&page(&recording, &explanation));
    assert_eq!(device["explained"]["label"], "at the refusal (event 5)");
    assert_eq!(device["explained"]["moment"], 5);
    assert_eq!(device["explained"]["live"], in_use(&explanation));
    // Its layout has three live pieces and two holes; that of the end, which is kept too, one of each.
    let layouts: Vec<_> = device["layouts"].as_array().unwrap().iter().collect();
    let pieces = |at: usize| (&layouts[at]["moment"], &layouts[at]["pieces"]["bytes"][2]);
    assert_eq!(layouts.len(), 2);
    assert_eq!(pieces(0), (&5.into(), &5.into()));
    assert_eq!(pieces(1), (&7.into(), &2.into()));
}

#[test]
fn a_recording_in_which_nothing_was_refused_is_shown_at_its_end() {
    let mut recording = unwound();
    let device = &mut recording.devices[0];
    device.failure = None;
    device.trace.as_mut().unwrap().events.retain(|event| !matches!(event.action, Action::Refuse(_)));
    let explanation = explain(&recording);
    assert_eq!(explanation.snapshot.moment.kind, MomentKind::End);
    assert_eq!((in_use(&explanation), explanation.snapshot.live_bytes), (30 * MIB, Some(30 * MIB)));
    let text = terminal(&explanation);
    assert!(text.contains("memory map at the end of the recording: 100 MiB"), "{text}");
    assert!(text.contains("who held memory at the peak (event 4): 90.0 MiB"), "{text}");
    assert_eq!(explanation.to_json()["moment"]["label"], "at the end of the recording");
    assert!(page(&recording, &explanation).contains("are <b>at the end of the recording</b>"));
}

#[test]
fn what_lay_where_at_the_end_is_rebuilt_from_the_trace_where_no_layout_was_recorded() {
    let mut recording = unwound();
    let device = &mut recording.devices[0];
    (device.failure, device.layout) = (None, None);
    device.trace.as_mut().unwrap().events.truncate(3);
    let explanation = explain(&recording);
    let layout = explanation.snapshot.layout.as_ref().unwrap();
    assert_eq!((layout.live_bytes(), layout.reserved_bytes()), (70 * MIB, 100 * MIB));
    assert_eq!(in_use(&explanation), 70 * MIB);
}

#[test]
fn a_request_outside_every_segment_leaves_no_map_that_contradicts_the_books() {
    let mut recording = unwound();
    let trace = recording.devices[0].trace.as_mut().unwrap();
    trace.requests[1].address = 0x100;
    let explanation = explain(&recording);
    assert_eq!(explanation.snapshot.layout, None);
    assert_eq!(in_use(&explanation), 90 * MIB - 100);
}

#[test]
fn a_profile_of_the_peak_is_shown_at_the_peak_and_a_message_at_the_refusal() {
    let explanation = explain(&read(&["profile/tensorflow.memory_profile.json.gz"]));
    assert_eq!(explanation.snapshot.moment.kind, MomentKind::Peak);
    assert!(terminal(&explanation).contains("at the peak"), "{}", terminal(&explanation));
    let explanation = explain(&read(&["explained/torch-leak.oom.txt"]));
    assert_eq!(explanation.to_json()["moment"]["label"], "at the refusal");
}

#[test]
fn a_list_of_owners_without_a_total_is_in_the_books_as_it_is_among_the_holders() {
    let live_by_owner = vec![(OwnerId::UNKNOWN, 70 * MIB, 2)];
    let device = Device { name: "GPU 0".into(), live_by_owner, ..Device::default() };
    let explanation = explain(&recording_of(device));
    assert_eq!((explanation.snapshot.live_bytes, in_use(&explanation)), (Some(70 * MIB), 70 * MIB));
    assert_eq!(explanation.snapshot.holders[0].count, 2);
}

#[test]
fn what_was_in_use_at_the_peak_is_not_told_of_a_refusal() {
    let device = Device {
        name: "GPU 0".into(),
        live: Some(70 * MIB),
        live_by_owner: vec![(OwnerId::UNKNOWN, 70 * MIB, 1)],
        reported_at_peak: true,
        failure: Some(Failure { requested: MIB, exact: true, event: None, op: None }),
        ..Device::default()
    };
    let explanation = explain(&recording_of(device));
    assert_eq!(explanation.snapshot.moment.to_string(), "at the refusal");
    assert_eq!((explanation.snapshot.live_bytes, in_use(&explanation)), (None, 0));
    assert!(explanation.snapshot.holders.is_empty());
}

#[test]
fn maps_and_books_agree_on_recordings_of_real_programs() {
    for files in [
        &["torch-leak.pickle.gz"][..],
        &["torch-toobig.pickle.gz"],
        &["torch-frag.pickle.gz"],
        &["torch-streams.pickle.gz"],
        &["explained/torch-expleak.pickle.gz"],
        &["explained/torch-fragoom2.pickle.gz", "explained/torch-fragoom2.oom.txt"],
        &["replay/torch-transient.pickle.gz"],
        &["replay/torch-other.pickle.gz", "explained/torch-other.oom.txt"],
        &["log/jax-fragmented.log.gz"],
        &["log/jax-toobig.log.gz", "xplane/jax-toobig.xplane.pb.gz"],
    ] {
        let explanation = explain(&read(files));
        let snapshot = &explanation.snapshot;
        let layout = snapshot.layout.as_ref().unwrap_or_else(|| panic!("{files:?} has no map"));
        assert_eq!(Some(layout.live_bytes()), snapshot.live_bytes, "{files:?}");
        assert_eq!(layout.live_bytes(), in_use(&explanation), "{files:?}: {:?}", explanation.books);
        let held: u64 = snapshot.holders.iter().map(|held| held.bytes).sum();
        assert_eq!(Some(held), snapshot.requested_bytes, "{files:?}");
        assert!(terminal(&explanation).contains(&format!("memory map {}", snapshot.moment)), "{files:?}");
    }
}

proptest! {
    #[test]
    fn the_peak_is_where_most_was_live(sizes in prop::collection::vec((1_u64..1000, any::<bool>()), 1..60)) {
        let mut trace = Trace::default();
        let mut live: Vec<RequestId> = Vec::new();
        for (bytes, frees) in sizes {
            if frees && !live.is_empty() {
                let id = live.swap_remove(bytes as usize % live.len());
                trace.push(0, Action::Free(id));
            } else {
                let request = Request { bytes, address: 0, stream: 0, owner: OwnerId::UNKNOWN };
                let id = trace.push_request(request);
                live.push(id);
                trace.push(0, Action::Allocate(id));
            }
        }
        let expected = trace.peak_live();
        let recording = recording_of(Device { trace: Some(trace), ..Device::default() });
        let explanation = explain(&recording);
        let peak = explanation.peak.as_ref().unwrap();
        prop_assert_eq!((peak.live_bytes, peak.moment.event), expected);
        prop_assert_eq!(peak.holders.iter().map(|held| held.bytes).sum::<u64>(), peak.live_bytes);
        let shown = described(&page(&recording, &explanation))["trace"]["peak"].as_u64();
        prop_assert_eq!(shown, peak.moment.event.map(|event| event as u64 + 1));
    }
}
