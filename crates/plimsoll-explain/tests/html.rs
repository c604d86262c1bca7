//! The page of an explanation, as text: it is whole in itself, it holds what it should, and names in a
//! recording stay names. That it works in a browser is checked by `tests/browser`.

use plimsoll_explain::{
    Advice, BookLine, Books, Device, Explanation, Failure, Format, Framework, Origin, Recording, Verdict,
    VerdictKind, explain, write_html,
};
use plimsoll_memory::{Action, Frame, OwnerId, Owners, Request, RequestId, Trace};
use proptest::prelude::*;
use sha2::{Digest, Sha256};

const HOSTILE: &str = "</script><!--<script>alert(1)</script>\" onload='alert(2)' &amp; \u{2028}\u{202e}";

/// A small run in which everything that has a name is called `name`.
fn run(name: &str) -> (Recording, Explanation) {
    let mut owners = Owners::default();
    let frame = Frame { name: name.into(), file: format!("{name}.py"), line: 3 };
    let owner = owners.child(OwnerId::UNKNOWN, frame);
    let mut trace = Trace { marks: vec![name.into()], ..Trace::default() };
    let first = trace.push_request(Request { bytes: 1000, address: 4096, stream: 0, owner });
    let second = trace.push_request(Request { bytes: 5000, address: 0, stream: 0, owner });
    trace.push(1, Action::Reserve { address: 4096, bytes: 8192 });
    trace.push(2, Action::Allocate(first));
    trace.push(3, Action::Mark(0));
    trace.push(4, Action::Refuse(second));
    let failure = Failure { requested: 5000, exact: true, event: Some(3), op: Some(name.into()) };
    let device = Device {
        name: name.into(),
        limit: Some(8192),
        trace: Some(trace),
        failure: Some(failure),
        owners: owners.into(),
        ..Device::default()
    };
    let origin = Origin {
        files: vec![name.into()],
        formats: vec![Format::TorchSnapshot],
        framework: Framework::PyTorch,
        gaps: vec![name.into()],
        partial: false,
    };
    let line = |bytes| BookLine { name: name.into(), bytes };
    let recording = Recording { origin, devices: vec![device] };
    let explanation = Explanation {
        verdicts: vec![Verdict {
            kind: VerdictKind::TooBig,
            sentence: name.into(),
            proof: (0..9).map(|fact| format!("fact {fact} {name}")).collect(),
        }],
        books: Books { of: name.into(), total_bytes: 8192, lines: vec![line(1000), line(7192)] },
        advice: vec![Advice {
            change: name.into(),
            would_survive: Some(true),
            peak_reserved_bytes: Some(1_234_567),
            because: name.into(),
            timeline: Some(vec![(0, 0, 0), (4, 1000, 4096)]),
        }],
        ..explain(&recording)
    };
    (recording, explanation)
}

fn page((recording, explanation): &(Recording, Explanation)) -> String {
    let mut page = Vec::new();
    write_html(recording, explanation, &mut page).unwrap();
    String::from_utf8(page).unwrap()
}

/// The JSON that the page's script reads.
fn meta(page: &str) -> serde_json::Value {
    let (_, after) = page.split_once(r#"id="meta">"#).unwrap();
    serde_json::from_str(after.split_once("</script>").unwrap().0).unwrap()
}

/// Every tag of a page, with its attributes.
fn tags(page: &str) -> Vec<String> {
    // What is within scripts and styles is not markup.
    let mut tags = Vec::new();
    let mut rest = page;
    while let Some(at) = rest.find('<') {
        rest = &rest[at..];
        let end = rest.find('>').unwrap_or(rest.len() - 1);
        let tag = rest[..=end].to_string();
        rest = &rest[end + 1..];
        for (open, close) in [("<script", "</script>"), ("<style", "</style>")] {
            if tag.starts_with(open) {
                rest = rest.split_once(close).unwrap().1;
            }
        }
        tags.push(tag);
    }
    tags
}

#[test]
fn the_page_is_whole_in_itself_and_forbids_to_load_anything() {
    let page = page(&run("GPU 0"));
    assert!(page.starts_with("<!doctype html>") && page.trim_end().ends_with("</html>"));
    assert!(page.contains("default-src 'none'"));
    for reference in ["http:", "https:", "src=", "href=", "@import", "url(", "fetch(", "import(", "WebSocket"]
    {
        assert!(!page.contains(reference), "{reference}");
    }
    assert!(!page.contains("{{") && !page.contains("}}\n<"), "a slot of the page was left empty");
}

/// What a content policy calls a text that it allows.
fn hash(text: &str) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digest = Sha256::digest(text);
    let bits: String = digest.iter().map(|byte| format!("{byte:08b}")).collect();
    let digit = |bits: &[u8]| {
        let bits = format!("{:0<6}", String::from_utf8_lossy(bits));
        char::from(DIGITS[usize::from_str_radix(&bits, 2).unwrap()])
    };
    format!("'sha256-{}='", bits.as_bytes().chunks(6).map(digit).collect::<String>())
}

#[test]
fn the_page_allows_its_one_script_and_its_one_style_and_no_other() {
    let page = page(&run(HOSTILE));
    let between = |start: &str, end: &str| {
        let (_, rest) = page.split_once(start).unwrap();
        rest.split_once(end).unwrap().0.to_string()
    };
    let policy = between("Content-Security-Policy\" content=\"", "\">");
    let script = hash(&between("<script type=\"module\">", "</script>"));
    let style = hash(&between("<style>", "</style>"));
    assert_eq!(
        policy,
        format!(
            "default-src 'none'; script-src {script}; style-src {style}; base-uri 'none'; form-action 'none'"
        )
    );
    // A style or script of a single element would need more than that.
    let attributes =
        tags(&page).into_iter().filter(|tag| tag.contains(" style=") || tag.contains(" onclick="));
    assert_eq!(attributes.count(), 0);
}

#[test]
fn the_page_says_verdicts_books_and_advice_without_a_script() {
    let page = page(&run("GPU 0"));
    for said in
        ["Too big", "fact 0 GPU 0", "3 more facts", "7,192 bytes", "87.8 %", "8,192 bytes", "1,234,567 bytes"]
    {
        assert!(page.contains(said), "{said}");
    }
}

#[test]
fn of_a_fix_the_setting_or_the_command_alone_can_be_pasted() {
    let fix = |change: &str| {
        let (recording, mut explanation) = run("plain");
        explanation.advice[0].change = change.into();
        let page = page(&(recording, explanation));
        let start = page.find("<span class=\"change\">").unwrap() + "<span class=\"change\">".len();
        page[start..start + page[start..].find("</span>").unwrap()].to_string()
    };
    assert_eq!(fix("A_B=c:True (on Windows: d)"), "<code>A_B=c:True</code> (on Windows: d)");
    assert_eq!(fix("run `nvidia-smi` while it runs"), "run <code>nvidia-smi</code> while it runs");
    assert_eq!(fix("a smaller batch"), "a smaller batch");
    assert_eq!(fix("one ` alone"), "one ` alone");
}

#[test]
fn the_page_embeds_moments_lifetimes_and_the_replay_of_an_advice() {
    let meta = meta(&page(&run("GPU 0")));
    let device = &meta["devices"][0];
    assert_eq!(device["trace"]["moments"], 4);
    assert_eq!(device["trace"]["peak"], 2);
    assert_eq!(device["trace"]["failure"]["moment"], 4);
    assert_eq!(device["trace"]["bytes"][2], 1, "one request was granted");
    assert_eq!(device["trace"]["ranges"]["bytes"][2], 1);
    assert_eq!(device["advice"][0]["reserved"][2], 2);
    assert_eq!(device["groups"]["sites"][0], "GPU 0.py:3 GPU 0");
    assert_eq!(device["layouts"].as_array().map(Vec::len), Some(1));
    assert_eq!(device["layouts"][0]["moment"], 4, "as rebuilt for the refusal");
}

#[test]
fn names_that_are_markup_stay_names() {
    let (tame, hostile) = (page(&run("GPU 0")), page(&run(HOSTILE)));
    let kinds = |page: &str| -> Vec<String> {
        let name = |tag: String| tag.split([' ', '>']).next().unwrap_or_default().to_string();
        tags(page).into_iter().map(name).collect()
    };
    assert_eq!(kinds(&tame), kinds(&hostile));
    assert!(!hostile.contains("<script>alert"), "a name is markup");
    assert!(!tags(&hostile).iter().any(|tag| tag.contains("onload='")), "a name is an attribute");
    assert!(!hostile.contains(['\u{2028}', '\u{202e}']), "a name turns or breaks lines");
    let frames = &meta(&hostile)["devices"][0]["owners"]["frames"];
    assert!(frames[0][0].as_str().unwrap().starts_with("</script><!--<script>alert(1)"));
}

#[test]
fn every_device_is_shown_with_what_is_said_of_it_and_one_of_which_nothing_is_said_too() {
    let (mut recording, mut explanation) = run("GPU 0");
    let (other, of_other) = run("GPU 1");
    recording.devices.insert(0, other.devices[0].clone());
    recording.devices.push(Device { name: "GPU 2".into(), reserved: Some(77), ..Device::default() });
    explanation.others.push(of_other);
    let page = page(&(recording, explanation));
    let meta = meta(&page);
    let names: Vec<_> = meta["devices"].as_array().unwrap().iter().map(|d| d["name"].clone()).collect();
    assert_eq!(names, ["GPU 0", "GPU 1", "GPU 2"]);
    assert_eq!(page.matches(r#"<section class="device""#).count(), 3);
    assert!(page.contains(r#"<span title="77 bytes">"#));
}

#[test]
fn a_page_of_a_hundred_thousand_events_stays_small() {
    let (mut recording, explanation) = run("GPU 0");
    let trace = recording.devices[0].trace.as_mut().unwrap();
    let mut state = 1u64;
    for n in 0..50_000u64 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (bytes, address) = (1 + (state >> 40), 4096 + (state >> 20));
        let id = trace.push_request(Request { bytes, address, stream: 0, owner: OwnerId(1) });
        trace.push(5 + 31 * n, Action::Allocate(id));
        trace.push(5 + 31 * n + (state & 15), Action::Free(id));
    }
    let bytes = page(&(recording, explanation)).len();
    assert!(bytes < 6_000_000, "{bytes} bytes, of numbers that do not compress");
}

fn action() -> impl Strategy<Value = Action> {
    let number = prop_oneof![0..u64::MAX, Just(u64::MAX), 0..100u64];
    prop_oneof![
        (0u32..6).prop_map(|id| Action::Allocate(RequestId(id))),
        (0u32..6).prop_map(|id| Action::Free(RequestId(id))),
        (0u32..6).prop_map(|id| Action::Refuse(RequestId(id))),
        (number.clone(), number.clone()).prop_map(|(address, bytes)| Action::Reserve { address, bytes }),
        (number.clone(), number).prop_map(|(address, bytes)| Action::Release { address, bytes }),
        any::<u32>().prop_map(Action::Mark),
    ]
}

proptest! {
    #[test]
    fn whatever_was_recorded_the_page_is_written(
        requests in proptest::collection::vec((any::<u64>(), any::<u64>(), any::<u32>()), 0..5),
        actions in proptest::collection::vec(action(), 0..30),
        initial in proptest::collection::vec(0u32..6, 0..5),
        name in ".*",
    ) {
        let (mut recording, explanation) = run(&name);
        let mut trace = Trace { marks: vec![name.clone()], ..Trace::default() };
        for (bytes, address, owner) in requests {
            trace.push_request(Request { bytes, address, stream: 0, owner: OwnerId(owner) });
        }
        trace.initial = initial.into_iter().map(RequestId).collect();
        actions.into_iter().for_each(|action| trace.push(0, action));
        recording.devices[0].trace = Some(trace);
        let page = page(&(recording, explanation));
        prop_assert_eq!(page.matches("</script>").count(), 3);
        meta(&page);
    }
}
