//! What people and programs see of an explanation.

use plimsoll_explain::{
    Advice, BookLine, Books, Device, Explanation, Failure, Format, Framework, Origin, Recording, Style,
    Verdict, VerdictKind, explain, show,
};
use plimsoll_memory::{
    Action, Frame, Layout, OwnerId, Owners, Piece, PieceState, Request, Segment, SegmentClass, Trace,
};
use proptest::prelude::*;
use serde_json::json;

const MIB: u64 = 1 << 20;

fn frame(name: &str, file: &str, line: u32) -> Frame {
    Frame { name: name.into(), file: file.into(), line }
}

/// A segment of pieces told by size and state, one after the other.
fn segment(address: u64, class: SegmentClass, owner: OwnerId, pieces: &[(u64, PieceState)]) -> Segment {
    let mut at = address;
    let pieces: Vec<Piece> = pieces
        .iter()
        .map(|&(bytes, state)| {
            let requested = if state == PieceState::Free { 0 } else { bytes };
            let piece = Piece { address: at, bytes, requested, state, owner };
            at += bytes;
            piece
        })
        .collect();
    Segment { address, bytes: at - address, stream: 0, class, pieces }
}

/// A run of ten steps that keeps one request of each, and fails.
fn recording() -> Recording {
    let mut owners = Owners::default();
    let main = owners.child(OwnerId::UNKNOWN, frame("<module>", "train.py", 32));
    let loss = owners.child(main, frame("loss", "train.py", 15));
    let mut trace = Trace { complete: true, marks: vec!["step".into()], ..Trace::default() };
    trace.push(0, Action::Reserve { address: 0x1000_0000, bytes: 400 * MIB });
    let ask =
        |trace: &mut Trace, bytes, owner| trace.push_request(Request { bytes, address: 0, stream: 0, owner });
    for step in 0..10 {
        let kept = ask(&mut trace, 30 * MIB, loss);
        let passing = ask(&mut trace, 60 * MIB, main);
        trace.push(1000 * step, Action::Allocate(kept));
        trace.push(1000 * step + 1, Action::Allocate(passing));
        trace.push(1000 * step + 2, Action::Free(passing));
        trace.push(1000 * step + 3, Action::Mark(0));
    }
    let refused = ask(&mut trace, 200 * MIB, main);
    trace.push(20_000, Action::Refuse(refused));
    let event = Some(trace.events.len() - 1);
    let (live, free, pending) = (PieceState::Live, PieceState::Free, PieceState::Pending);
    let segments = vec![
        segment(
            0x1000_0000,
            SegmentClass::Large,
            loss,
            &[(300 * MIB, live), (96 * MIB, free), (2 * MIB, pending)],
        ),
        segment(0x4000_0000, SegmentClass::Small, loss, &[(MIB, live), (MIB, free)]),
    ];
    let device = Device {
        name: "GPU 0".into(),
        capacity: Some(500 * MIB),
        failure: Some(Failure { requested: 200 * MIB, exact: true, event, op: None }),
        layout: Some(Layout { segments }),
        trace: Some(trace),
        owners: owners.into(),
        ..Device::default()
    };
    let origin = Origin {
        files: vec!["snapshot.pickle".into()],
        formats: vec![Format::TorchSnapshot],
        framework: Framework::PyTorch,
        gaps: vec!["the file ends in the middle of an event".into()],
        partial: false,
    };
    Recording { origin, devices: vec![device] }
}

/// What is found in a recording, with other words for verdicts, books and advice.
fn explanation(recording: &Recording) -> Explanation {
    let line = |name: &str, bytes| BookLine { name: name.into(), bytes };
    Explanation {
        verdicts: vec![Verdict {
            kind: VerdictKind::Leaking,
            sentence: "Leaking: each step keeps 30.0 MiB more, allocated at train.py:15 loss.".into(),
            proof: vec!["10 steps, 31,457,280 bytes more after each".into()],
        }],
        books: Books {
            of: "the device".into(),
            total_bytes: 500 * MIB,
            lines: vec![
                line("live", 303 * MIB),
                line("free in the pool", 97 * MIB),
                line("unknown", 100 * MIB),
            ],
        },
        advice: vec![
            Advice {
                change: "detach the loss before it is kept at train.py:15".into(),
                would_survive: Some(true),
                peak_reserved_bytes: Some(90 * MIB),
                because: "replayed without what step after step kept".into(),
                timeline: None,
            },
            Advice {
                change: "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True".into(),
                would_survive: None,
                peak_reserved_bytes: None,
                because: "the trace does not begin with the program".into(),
                timeline: None,
            },
        ],
        ..explain(recording)
    }
}

fn text(explanation: &Explanation, style: Style) -> String {
    let mut out = Vec::new();
    show(explanation, style, &mut out).expect("a vector takes all");
    String::from_utf8(out).expect("text")
}

/// The line that starts so, spaces aside.
fn line<'a>(text: &'a str, start: &str) -> &'a str {
    let found = text.lines().find(|line| line.trim_start().starts_with(start));
    found.unwrap_or_else(|| panic!("no `{start}` in\n{text}"))
}

#[test]
fn the_parts_come_in_order_from_the_verdict_to_the_gaps() {
    let recording = recording();
    let text = text(&explanation(&recording), Style::default());
    let parts = [
        "snapshot.pickle",
        "pytorch-snapshot · PyTorch · GPU 0 · at the refusal (event 42)",
        "Leaking: each step keeps 30.0 MiB more",
        "  · 10 steps, 31,457,280 bytes more after each",
        "what to change",
        "books of the device, at the refusal (event 42)",
        "memory map at the refusal (event 42): 400 MiB in 2 segments",
        "timeline: 360 MiB live at most, 400 MiB reserved at most",
        "who held memory at the refusal (event 42): 303 MiB",
        "about this recording",
        "  · the file ends in the middle of an event",
    ];
    let mut rest = text.as_str();
    for part in parts {
        let at = rest.find(part).unwrap_or_else(|| panic!("no `{part}` after the one before in\n{text}"));
        rest = &rest[at + part.len()..];
    }
}

#[test]
fn the_books_have_a_line_for_each_and_the_total() {
    let recording = recording();
    let text = text(&explanation(&recording), Style::default());
    let live = line(&text, "live");
    for part in ["303 MiB", "317,718,528", "60.6 %", "██"] {
        assert!(live.contains(part), "no `{part}` in {live}");
    }
    assert!(line(&text, "total").ends_with("500 MiB  524,288,000  100.0 %"), "{text}");
}

#[test]
fn the_map_shows_what_is_live_free_and_pending_and_names_the_largest_hole() {
    let recording = recording();
    let text = text(&explanation(&recording), Style::default());
    let row = line(&text, "398 MiB");
    assert!(row.contains("│████") && row.ends_with("75.9 % live large"), "{row}");
    let map: String = text.lines().skip_while(|line| !line.starts_with("memory map")).take(12).collect();
    assert!(map.contains("····") && map.contains('█'), "{text}");
    assert!(line(&text, "2.00 MiB").ends_with("50.0 % live small"), "{text}");
    assert!(
        line(&text, "2 holes").contains("97.0 MiB together; the largest is 96.0 MiB at 0x22c00000"),
        "{text}"
    );
    assert!(
        line(&text, "largest segments").contains("398 MiB at 0x10000000, 2.00 MiB at 0x40000000"),
        "{text}"
    );
}

#[test]
fn the_timeline_grows_and_marks_steps_and_the_failure() {
    let recording = recording();
    let text = text(&explanation(&recording), Style::default());
    let chart: Vec<&str> = text.lines().filter(|line| line.contains('┤')).collect();
    assert_eq!(chart.len(), 10);
    let live = |line: &str| line.chars().filter(|c| ('▁'..='█').contains(c)).count();
    assert!(chart.windows(2).all(|rows| live(rows[0]) <= live(rows[1])), "{text}");
    assert!(chart[0].contains("400 MiB ┤") && chart[0].contains('░'), "{text}");
    let marks = text.lines().skip_while(|line| !line.contains('└')).nth(1).expect("marks");
    assert_eq!((marks.matches('\'').count(), marks.matches('X').count()), (10, 1), "{text}");
    assert!(text.contains("42 events over 0.020 s: █ live, ░ reserved, ' mark (10), X out of"), "{text}");
}

#[test]
fn owners_are_named_by_call_site_with_their_caller_at_the_peak_too_where_nothing_was_refused() {
    let mut recording = recording();
    let device = &mut recording.devices[0];
    (device.failure, device.layout) = (None, None);
    device.trace.as_mut().expect("a trace").events.pop();
    let text = text(&explanation(&recording), Style::default());
    let (_, at_end) = text.split_once("who held memory at the end of the recording: 300 MiB").expect(&text);
    let (_, text) = at_end.split_once("who held memory at the peak (event 39): 360 MiB").expect(&text);
    let owner = text.lines().find(|line| line.contains("train.py:15 loss  from train.py:32 <module>"));
    let owner = owner.unwrap_or_else(|| panic!("{text}"));
    assert!(owner.contains("300 MiB   83.3 %       10"), "{text}");
}

#[test]
fn advice_says_whether_it_helps_or_that_nobody_can_tell() {
    let recording = recording();
    let text = text(&explanation(&recording), Style::default());
    let first = line(&text, "detach the loss before it is kept at");
    assert!(first.contains("yes") && first.ends_with("90.0 MiB"), "{first}");
    assert!(text.contains("    replayed without what step after step kept"), "{text}");
    let second = line(&text, "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True");
    assert!(second.contains("unknown") && second.ends_with('–'), "{second}");
}

#[test]
fn a_recording_of_four_numbers_is_shown_without_map_timeline_and_owners() {
    let mut recording = recording();
    recording.devices = vec![Device { name: "GPU 0".into(), ..Device::default() }];
    let text = text(&explanation(&recording), Style::default());
    for part in ["memory map", "timeline", "who held"] {
        assert!(!text.contains(part), "{text}");
    }
    assert!(text.contains("books of the device"), "{text}");
}

#[test]
fn other_devices_follow_under_their_names() {
    let recording = recording();
    let mut explained = explanation(&recording);
    let mut other = explanation(&recording);
    other.device = "GPU 1".into();
    other.verdicts[0].sentence = "Healthy: nothing is wrong here.".into();
    explained.others.push(other);
    let text = text(&explained, Style::default());
    let at = text.find("\nGPU 1\n").expect("the other device");
    assert!(text[at..].contains("Healthy: nothing is wrong here."), "{text}");
}

#[test]
fn colour_is_only_where_it_is_wanted() {
    let recording = recording();
    let explained = explanation(&recording);
    let coloured = text(&explained, Style { width: 80, colour: true });
    let plain = text(&explained, Style { width: 80, colour: false });
    assert!(coloured.contains("\x1b[1;31mLeaking") && !plain.contains('\x1b'));
    let mut stripped = String::new();
    for part in coloured.split('\x1b') {
        stripped += part.strip_prefix('[').and_then(|code| Some(code.split_once('m')?.1)).unwrap_or(part);
    }
    let trimmed: Vec<&str> = stripped.lines().map(str::trim_end).collect();
    assert_eq!(trimmed, plain.lines().collect::<Vec<_>>());
}

#[test]
fn hostile_strings_do_not_reach_the_terminal() {
    const EVIL: &str = "\x1b]0;owned\x07\x1b[2J\r\u{9b}31m\u{202e}";
    let mut recording = recording();
    recording.origin.files = vec![EVIL.into()];
    recording.origin.gaps = vec![EVIL.into()];
    let device = &mut recording.devices[0];
    device.name = EVIL.into();
    let owner = std::sync::Arc::make_mut(&mut device.owners).child(OwnerId::UNKNOWN, frame(EVIL, EVIL, 1));
    device.layout.as_mut().expect("a layout").segments[0].pieces[0].owner = owner;
    let mut explained = explanation(&recording);
    explained.device = EVIL.into();
    explained.verdicts[0].sentence = EVIL.into();
    explained.verdicts[0].proof = vec![EVIL.into()];
    explained.books.of = EVIL.into();
    explained.books.lines[0].name = EVIL.into();
    explained.advice[0].change = EVIL.into();
    explained.advice[0].because = EVIL.into();
    let text = text(&explained, Style::default());
    let bad = text.chars().find(|&c| (c.is_control() && c != '\n') || c == '\u{202e}');
    assert_eq!(bad, None, "{text}");
    assert!(text.contains("owned"), "{text}");
}

#[test]
fn json_has_exactly_the_keys_that_are_promised() {
    let recording = recording();
    let mut explained = explanation(&recording);
    explained.others.push(explanation(&recording));
    let value = explained.to_json();
    let keys = |value: &serde_json::Value| {
        let mut keys: Vec<String> = value.as_object().expect("an object").keys().cloned().collect();
        keys.sort();
        keys
    };
    assert_eq!(keys(&value), ["advice", "books", "moment", "others", "source", "verdicts"]);
    assert_eq!(keys(&value["others"][0]), keys(&value));
    assert_eq!(
        value["source"],
        json!({
            "files": ["snapshot.pickle"],
            "formats": ["pytorch-snapshot"],
            "framework": "PyTorch",
            "device": "GPU 0",
            "gaps": ["the file ends in the middle of an event"],
            "partial": false,
        })
    );
    let of_moment = [
        "event",
        "fragmentation",
        "holders",
        "kind",
        "label",
        "live_bytes",
        "refused_bytes",
        "requested_bytes",
        "reserved_bytes",
    ];
    assert_eq!(keys(&value["moment"]), of_moment);
    assert_eq!(value["moment"]["label"], "at the refusal (event 42)");
    assert_eq!((&value["moment"]["kind"], &value["moment"]["event"]), (&json!("refusal"), &json!(42)));
    assert_eq!(keys(&value["moment"]["holders"][0]), ["allocations", "bytes", "caller", "site"]);
    assert_eq!(
        keys(&value["moment"]["fragmentation"]),
        ["free_bytes", "holes", "largest_hole_address", "largest_hole_bytes"]
    );
    assert_eq!(keys(&value["verdicts"][0]), ["kind", "proof", "sentence"]);
    assert_eq!(value["verdicts"][0]["kind"], "leaking");
    assert_eq!(keys(&value["books"]), ["lines", "of", "total_bytes"]);
    assert_eq!(value["books"]["lines"][2], json!({ "name": "unknown", "bytes": 100 * MIB }));
    assert_eq!(keys(&value["advice"][0]), ["because", "change", "peak_reserved_bytes", "would_survive"]);
    assert_eq!(value["advice"][0]["peak_reserved_bytes"], 90 * MIB);
    assert!(
        value["advice"][1]["would_survive"].is_null() && value["advice"][1]["peak_reserved_bytes"].is_null()
    );
}

#[test]
fn verdict_kinds_have_the_names_of_the_json() {
    use VerdictKind::{
        Fragmented, Full, Healthy, HostMemory, Leaking, LimitLow, NotMemory, OtherProcess, RefusedWithRoom,
        ReservedIdle, TooBig, TransientPeak,
    };
    let kinds = [
        TooBig,
        Fragmented,
        Leaking,
        ReservedIdle,
        TransientPeak,
        LimitLow,
        OtherProcess,
        RefusedWithRoom,
        HostMemory,
        NotMemory,
        Full,
        Healthy,
    ];
    let names = json!(kinds);
    let expected = json!([
        "too-big",
        "fragmented",
        "leaking",
        "reserved-idle",
        "transient-peak",
        "limit-low",
        "other-process",
        "refused-with-room",
        "host-memory",
        "not-memory",
        "full",
        "healthy"
    ]);
    assert_eq!(names, expected);
}

fn states() -> impl Strategy<Value = PieceState> {
    prop_oneof![Just(PieceState::Live), Just(PieceState::Free), Just(PieceState::Pending)]
}

proptest! {
    #[test]
    fn whatever_lies_where_the_page_is_as_wide_as_asked_and_the_map_is_short(
        segments in prop::collection::vec(prop::collection::vec((1_u64..1 << 34, states()), 1..6), 0..60),
        width in 80_usize..200,
    ) {
        let mut recording = recording();
        let segments = segments.iter().enumerate().map(|(index, pieces)| {
            segment((index as u64 + 1) << 40, SegmentClass::Expandable, OwnerId::UNKNOWN, pieces)
        });
        recording.devices[0].layout = Some(Layout { segments: segments.collect() });
        let text = text(&explanation(&recording), Style { width, colour: false });
        for line in text.lines() {
            prop_assert!(line.chars().count() <= width, "{} > {width}: {line}", line.chars().count());
        }
        prop_assert!(text.lines().filter(|line| line.contains('│')).count() <= 18, "{}", text);
    }
}

#[test]
fn sizes_beyond_all_addresses_are_shown_without_failing() {
    let mut recording = recording();
    let piece = Piece {
        address: u64::MAX,
        bytes: u64::MAX,
        requested: u64::MAX,
        state: PieceState::Live,
        owner: OwnerId::UNKNOWN,
    };
    let segment = Segment {
        address: u64::MAX,
        bytes: u64::MAX,
        stream: 0,
        class: SegmentClass::Any,
        pieces: vec![piece, piece],
    };
    for count in [1, 2] {
        recording.devices[0].layout = Some(Layout { segments: vec![segment.clone(); count] });
        text(&explanation(&recording), Style { width: 0, colour: true });
    }
    let trace = recording.devices[0].trace.as_mut().expect("a trace");
    trace.requests[0].bytes = u64::MAX;
    recording.devices[0].layout = None;
    text(&explanation(&recording), Style::default());
}
