//! What holds of every reader and every view, whatever a file holds: a file that is cut says so before all else, and
//! nothing in it reaches a terminal, a JSON reader or a browser as anything but text.

mod common;

use plimsoll_explain::{
    Explanation, Format, Input, Recording, Style, VerdictKind, explain, read_input, show, write_html,
};
use proptest::prelude::*;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A recording that is kept here.
struct Fixture {
    name: String,
    packed: Vec<u8>,
    unpacked: Vec<u8>,
    /// What is said of all of it.
    kinds: Vec<VerdictKind>,
}

/// Every recording that is kept here, the largest left out.
fn fixtures() -> &'static [Fixture] {
    static FIXTURES: OnceLock<Vec<Fixture>> = OnceLock::new();
    FIXTURES.get_or_init(|| {
        let mut paths = Vec::new();
        collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data"), &mut paths);
        paths.sort();
        let fixtures = paths.into_iter().filter_map(|path| {
            let packed = std::fs::read(&path).unwrap();
            let mut unpacked = Vec::new();
            Input::bytes(&packed).unwrap().read_to_end(&mut unpacked).unwrap();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let small = unpacked.len() < 1 << 20 && !name.ends_with(".md");
            small.then(|| {
                let kinds = kinds(&explain(&read(&unpacked, &name).unwrap()));
                Fixture { name, packed, unpacked, kinds }
            })
        });
        fixtures.collect()
    })
}

fn collect(folder: &Path, paths: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { collect(&path, paths) } else { paths.push(path) }
    }
}

fn read(bytes: &[u8], name: &str) -> plimsoll_explain::Result<Recording> {
    read_input(Input::bytes(bytes)?, name)
}

fn kinds(explanation: &Explanation) -> Vec<VerdictKind> {
    explanation.verdicts.iter().map(|verdict| verdict.kind).collect()
}

/// All that is shown of a recording: as text, as JSON, as a page.
fn views(recording: &Recording) -> [String; 3] {
    let explanation = explain(recording);
    let (mut text, mut page) = (Vec::new(), Vec::new());
    show(&explanation, Style::default(), &mut text).unwrap();
    write_html(recording, &explanation, &mut page).unwrap();
    let json = format!("{:#}", explanation.to_json());
    [String::from_utf8(text).unwrap(), json, String::from_utf8(page).unwrap()]
}

/// What may be said of a part of a file: that it is a part, that memory ran out, or what the whole says.
fn check_part(fixture: &Fixture, part: &[u8], what: &str) {
    let Ok(recording) = read(part, &fixture.name) else { return };
    recording.devices.iter().for_each(common::assert_laws);
    let explanation = explain(&recording);
    let said = kinds(&explanation);
    let first = said[0] == VerdictKind::Incomplete;
    assert!(!first || recording.origin.partial);
    // A log that shows a failure is answered with what the rest cannot change.
    let is_text =
        matches!(recording.origin.formats[..], [Format::BfcLog | Format::TorchMessage | Format::Log]);
    if is_text
        && (said == [VerdictKind::Full] || recording.origin.partial && fixture.kinds.contains(&said[0]))
    {
        return;
    }
    assert!(first || !recording.origin.partial, "{} {what}: {said:?}", fixture.name);
    // The first lines of a log are a log, unless they end within a dump.
    let between = part.ends_with(b"\n") || fixture.unpacked.get(part.len()) == Some(&b'\n');
    let is_log = between && recording.origin.formats == [Format::BfcLog];
    let same = is_log || said == fixture.kinds;
    assert!(first || same, "{} {what}: {said:?}, not {:?}", fixture.name, fixture.kinds);
    if first {
        assert!(
            said[1..].iter().all(|kind| fixture.kinds.contains(kind)),
            "{} {what}: {said:?}",
            fixture.name
        );
        assert!(explanation.advice.is_empty());
        let [text, ..] = views(&recording);
        let verdict = text.lines().position(|line| line.starts_with("Incomplete: "));
        assert!(verdict.is_some_and(|line| line <= 6), "{text}");
    }
}

#[test]
fn a_snapshot_is_never_healthy_or_leaking_by_what_is_left_of_it() {
    for fixture in fixtures() {
        for percent in [1, 5, 10, 25, 50, 75, 82, 90, 99] {
            let part = &fixture.unpacked[..fixture.unpacked.len() * percent / 100];
            check_part(fixture, part, &format!("at {percent} %"));
        }
    }
}

#[test]
fn a_log_cut_at_any_byte_is_said_to_be_cut() {
    for fixture in fixtures().iter().filter(|fixture| fixture.unpacked.len() < 20_000) {
        let step = 1 + fixture.unpacked.len() / 1000;
        for at in (0..fixture.unpacked.len()).step_by(step) {
            check_part(
                fixture,
                &fixture.unpacked[..at],
                &format!("cut at {at} of {}", fixture.unpacked.len()),
            );
        }
    }
}

#[test]
fn the_first_lines_of_a_dump_say_only_that_memory_ran_out() {
    let whole = common::unpacked("log/jax-leak-grow.log.gz");
    let text = String::from_utf8_lossy(&whole);
    let lines: Vec<&str> = text.lines().collect();
    let dump = lines.iter().position(|line| line.contains("BFCAllocator dump")).unwrap();
    let recording = read((lines[..dump + 60].join("\n") + "\n").as_bytes(), "log").unwrap();
    let explanation = explain(&recording);
    assert_eq!(kinds(&explanation), [VerdictKind::Full]);
    assert!(explanation.books.of.contains("as far as it could be read"), "{}", explanation.books.of);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn a_file_cut_anywhere_says_so_first_or_says_what_the_whole_says(
        fixture in 0..fixtures().len(), at in any::<prop::sample::Index>(), packed in any::<bool>(),
    ) {
        let fixture = &fixtures()[fixture];
        let whole = if packed { &fixture.packed } else { &fixture.unpacked };
        let at = at.index(whole.len());
        check_part(fixture, &whole[..at], &format!("cut at {at} of {}", whole.len()));
    }

    #[test]
    fn no_damage_to_any_file_breaks_a_reader_or_a_view(
        fixture in 0..fixtures().len(),
        damage in prop::collection::vec((any::<[prop::sample::Index; 3]>(), any::<u8>(), 0..4_u8), 1..12),
    ) {
        let mut bytes = fixtures()[fixture].unpacked.clone();
        for ([at, to, length], byte, kind) in damage {
            let (at, to) = (at.index(bytes.len()), to.index(bytes.len()));
            let end = (at + length.index(400)).min(bytes.len());
            match kind {
                0 => bytes[at] = byte,
                1 => drop(bytes.drain(at..end)),
                _ => {
                    let piece = bytes[at..end].repeat(usize::from(byte % 4) + 1);
                    drop(bytes.splice(to..to, piece));
                }
            }
            if bytes.is_empty() {
                return Ok(());
            }
        }
        if let Ok(recording) = read(&bytes, "damaged") {
            recording.devices.iter().for_each(common::assert_laws);
            let explanation = explain(&recording);
            let sum = explanation.books.lines.iter().map(|line| line.bytes).sum::<u64>();
            prop_assert_eq!(sum, explanation.books.total_bytes);
            views(&recording);
        }
    }
}

/// What a terminal or a browser would obey.
const MARKS: [char; 17] = [
    '\u{7f}', '\u{85}', '\u{9b}', '\u{61c}', '\u{200e}', '\u{200f}', '\u{2028}', '\u{2029}', '\u{202a}',
    '\u{202b}', '\u{202c}', '\u{202d}', '\u{202e}', '\u{2066}', '\u{2067}', '\u{2068}', '\u{2069}',
];

fn obeyed() -> impl Iterator<Item = char> {
    (0..32).filter_map(char::from_u32).chain(MARKS)
}

/// Checks that no view of a file has a character that is obeyed. Lines end where views end them.
fn check_views(name: &str, bytes: &[u8], obeyed: char) {
    let file = format!("evil{obeyed}.log");
    let texts = match read(bytes, &file) {
        Ok(recording) => {
            let views = views(&recording);
            serde_json::from_str::<serde_json::Value>(&views[1]).unwrap();
            views.to_vec()
        }
        Err(error) => vec![error.to_string()],
    };
    for text in texts {
        let found = text.chars().find(|&c| c != '\n' && (c.is_control() || MARKS.contains(&c)));
        assert_eq!(found, None, "{name} with {obeyed:?}");
    }
}

/// The bytes with every `word` replaced by one as long with `evil` in it.
fn replaced(bytes: &[u8], word: &str, evil: char) -> Vec<u8> {
    let mut evil_word = format!("e{evil}");
    while evil_word.len() < word.len() {
        evil_word.push('x');
    }
    assert_eq!(evil_word.len(), word.len());
    let mut out = bytes.to_vec();
    let mut found = 0;
    for at in 0..out.len().saturating_sub(word.len()) {
        if &out[at..at + word.len()] == word.as_bytes() {
            out[at..at + word.len()].copy_from_slice(evil_word.as_bytes());
            found += 1;
        }
    }
    assert!(found > 0, "no {word} to replace");
    out
}

/// The same for JSON, in which controls are escaped.
fn replaced_in_json(bytes: &[u8], word: &str, evil: char) -> Vec<u8> {
    let text = String::from_utf8_lossy(bytes);
    assert!(text.contains(word), "no {word} to replace");
    text.replace(word, &format!("e\\u{:04x}x", evil as u32)).into_bytes()
}

#[test]
fn nothing_in_a_name_is_obeyed_by_what_shows_it() {
    let cases: [(&str, &[&str]); 4] = [
        ("torch-streams.pickle.gz", &["<module>", "train.py"]),
        ("xplane/jax-frag.xplane.pb.gz", &["GPU_0_bfc"]),
        ("profile/jax-fragmented.pprof.gz", &["<module>", "train.py"]),
        ("log/jax-fragmented.log.gz", &["GPU_0_bfc"]),
    ];
    for (name, words) in cases {
        let bytes = common::unpacked(name);
        let words: Vec<&str> =
            words.iter().copied().filter(|word| String::from_utf8_lossy(&bytes).contains(word)).collect();
        assert!(!words.is_empty(), "{name}");
        for evil in obeyed() {
            for word in &words {
                check_views(name, &replaced(&bytes, word, evil), evil);
            }
        }
    }
    let json = [
        ("torch-cpu-chrome-trace.json.gz", "aten::"),
        ("profile/tensorflow.memory_profile.json.gz", "mklcpu"),
        ("profile/tensorflow.memory_profile.json.gz", "RandomStandardNormal"),
    ];
    for (name, word) in json {
        let bytes = common::unpacked(name);
        let step = if bytes.len() > 100_000 { 8 } else { 1 };
        for evil in obeyed().step_by(step) {
            check_views(name, &replaced_in_json(&bytes, word, evil), evil);
        }
    }
    for evil in obeyed() {
        let message = format!(
            "Traceback (most recent call last):\n  File \"tr{evil}ain.py\", line 3, in f{evil}g\nCUDA out of memory. \
             Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 8.00 GiB of which 1.00 GiB is free. Of the \
             allocated memory 6.00 GiB is allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but unallocated.\n"
        );
        check_views("a message", message.as_bytes(), evil);
        check_views("a pickle that calls", format!("\u{1}(dp0\nco{evil}s\nsy{evil}stem\n.").as_bytes(), evil);
        check_views("a pickle that calls", format!("(dp0\nco{evil}s\nsy{evil}stem\n.").as_bytes(), evil);
        check_views("a pickle with a bad number", format!("(dp0\nI{evil}1\n.").as_bytes(), evil);
        check_views("nothing", format!("no{evil}thing").as_bytes(), evil);
    }
}
