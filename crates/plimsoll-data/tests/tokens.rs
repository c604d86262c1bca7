//! Text by tokenizers that the `tokenizers` library trained (`scripts/export_tokens.py`), compared with its own tokens.
#![cfg(feature = "tokenizers")]

use plimsoll_data::sources::{TokenizedText, Tokenizer};
use plimsoll_data::{Dataset, Source};
use proptest::prelude::*;
use std::path::{Path, PathBuf};

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tokens").join(name)
}

fn tokenizer(name: &str) -> Tokenizer {
    Tokenizer::open(file(&format!("{name}.json"))).unwrap()
}

/// What the library says of a tokenizer.
fn expected(name: &str) -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(file(&format!("{name}.expected.json"))).unwrap()).unwrap()
}

fn numbers(value: &serde_json::Value) -> Vec<i32> {
    value.as_array().unwrap().iter().map(|number| number.as_i64().unwrap() as i32).collect()
}

/// All tokens of a field, window after window.
fn tokens(source: &TokenizedText, field: usize) -> Vec<i32> {
    let mut window = vec![0; source.fields()[field].bytes()];
    let mut tokens = Vec::new();
    for sample in 0..source.samples() {
        source.read(sample, field, &mut window).unwrap();
        tokens.extend(window.chunks_exact(4).map(|bytes| i32::from_ne_bytes(bytes.try_into().unwrap())));
    }
    tokens
}

#[test]
fn a_text_has_the_tokens_that_the_library_gives_it() {
    let text = std::fs::read_to_string(file("text.txt")).unwrap();
    let line = text.lines().nth(1).unwrap();
    for name in ["bytes", "words"] {
        let (tokenizer, expected) = (tokenizer(name), expected(name));
        assert_eq!(tokenizer.vocabulary() as u64, expected["vocabulary"].as_u64().unwrap());
        let mut tokens = vec![-7];
        tokenizer.encode(&format!("{line}\n"), &mut tokens).unwrap();
        assert_eq!(tokens[0], -7);
        assert_eq!(tokens[1..], numbers(&expected["around"]), "{name}");
    }
}

#[test]
fn windows_are_the_text_and_the_token_that_follows() {
    for name in ["bytes", "words"] {
        let all = numbers(&expected(name)["text"]);
        let source = TokenizedText::open(&[file("text.txt"), file("text.txt")], &tokenizer(name), 8).unwrap();
        let windows = (all.len() - 1) / 8;
        assert_eq!(source.samples(), 2 * windows, "{name}");
        let once = &all[..windows * 8];
        assert_eq!(tokens(&source, 0), [once, once].concat(), "{name}");
        let next = &all[1..][..windows * 8];
        assert_eq!(tokens(&source, 1), [next, next].concat(), "{name}");
        assert!(source.resident_bytes() >= 8 * all.len() as u64);
        Dataset::new(source).unwrap().check_labels("next", tokenizer(name).vocabulary()).unwrap();
    }
}

#[test]
fn a_text_of_many_pieces_has_the_tokens_of_a_whole_one_also_in_a_file() {
    let (folder, tokenizer) = (tempfile::tempdir().unwrap(), tokenizer("words"));
    let (text, all) =
        (std::fs::read_to_string(file("text.txt")).unwrap(), numbers(&expected("words")["text"]));
    // Enough for tokens to go to a file: more than 16 MiB of them.
    let copies = (17 << 20) / 4 / all.len();
    let path = folder.path().join("many.txt");
    std::fs::write(&path, text.repeat(copies)).unwrap();
    let source = TokenizedText::open(&[&path], &tokenizer, all.len()).unwrap();
    assert_eq!(source.samples(), copies - 1);
    assert!(source.resident_bytes() < 1000, "{}", source.resident_bytes());
    let mut window = vec![0; 4 * all.len()];
    for sample in (0..source.samples()).step_by(997) {
        source.read(sample, 0, &mut window).unwrap();
        assert!(
            window.chunks_exact(4).zip(&all).all(|(bytes, token)| bytes == token.to_ne_bytes()),
            "{sample}"
        );
    }
}

/// Tokenizers of the kinds that treat what is around a word each in its own way: with line ends at the end of words, with
/// spaces at their beginning and one before the whole text, and without words.
fn kinds() -> Vec<(&'static str, Tokenizer)> {
    let folder = tempfile::tempdir().unwrap();
    let mut found = vec![("bytes", tokenizer("bytes")), ("words", tokenizer("words"))];
    let bytes = std::fs::read(file("bytes.json")).unwrap();
    let bytes: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    let mut lines = bytes.clone();
    let pattern = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    lines["pre_tokenizer"] = serde_json::json!({ "type": "Sequence", "pretokenizers": [
        { "type": "Split", "pattern": { "Regex": pattern }, "behavior": "Isolated", "invert": false },
        { "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false },
    ] });
    let mut vocabulary = vec![("<unk>".to_string(), 0)];
    let text = "▁abcdefghijklmnopqrstuvwxyz.,'!\nTI1234éï";
    vocabulary.extend(text.chars().enumerate().map(|(at, letter)| (letter.to_string(), at + 1)));
    let merged = ["▁t", "he", "\n\n", ".\n", "▁the", "▁▁"];
    vocabulary.extend(merged.iter().enumerate().map(|(at, of)| (of.to_string(), 100 + at)));
    let merges = [["▁", "t"], ["h", "e"], ["\n", "\n"], [".", "\n"], ["▁t", "he"], ["▁", "▁"]];
    let pieces = |pre_tokenizer: serde_json::Value| {
        serde_json::json!({ "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
            "normalizer": { "type": "Sequence", "normalizers": [
                { "type": "Prepend", "prepend": "▁" },
                { "type": "Replace", "pattern": { "String": " " }, "content": "▁" },
            ] },
            "pre_tokenizer": pre_tokenizer, "post_processor": null, "decoder": null,
            "model": { "type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": null,
                "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
                "vocab": vocabulary.iter().cloned().collect::<std::collections::BTreeMap<_, _>>(), "merges": merges },
        })
    };
    let split = serde_json::json!({ "type": "Split", "pattern": { "String": "▁" }, "behavior": "MergedWithNext",
        "invert": false });
    for (name, json) in
        [("lines", lines), ("whole", pieces(serde_json::Value::Null)), ("spaces", pieces(split))]
    {
        let path = folder.path().join(name);
        std::fs::write(&path, serde_json::to_vec(&json).unwrap()).unwrap();
        found.push((name, Tokenizer::open(&path).unwrap()));
    }
    found
}

#[test]
fn where_a_long_text_is_parted_makes_no_difference_to_its_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("long.txt");
    // Blank lines, spaces before line ends and after them, apostrophes and no line ends at all, where pieces end.
    let shapes = ["the end.\n\nIt's the ", "the cat \n  don't\n\n\n   ", "thethe' 1234567é ", "don're'the"];
    for (name, tokenizer) in kinds() {
        for shape in shapes {
            // The first piece ends at other places of the shape by turns.
            for shift in (0..shape.chars().count()).step_by(3) {
                let text = "t".repeat(shift) + &shape.repeat((5 << 18) / shape.len());
                std::fs::write(&path, &text).unwrap();
                let mut all = vec![];
                tokenizer.encode(&text, &mut all).unwrap();
                if name == "words" {
                    // Those that it puts around every text.
                    all.remove(0);
                    all.pop();
                }
                let source = TokenizedText::open(&[&path], &tokenizer, 50).unwrap();
                let whole = source.samples() * 50;
                assert!((all.len() - 50..all.len()).contains(&whole), "{name}, {shape:?} after {shift}");
                let found = tokens(&source, 0);
                let differs = found.iter().zip(&all).position(|(one, other)| one != other);
                assert_eq!(differs, None, "{name}, {shape:?} after {shift}, of {whole}");
                // One place is enough where the library is slow.
                if name != "bytes" {
                    break;
                }
            }
        }
    }
}

#[test]
fn what_is_no_text_or_too_short_is_refused() {
    let (folder, tokenizer) = (tempfile::tempdir().unwrap(), tokenizer("bytes"));
    let path = folder.path().join("text");
    let refusal = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        TokenizedText::open(&[&path], &tokenizer, 4).unwrap_err().to_string()
    };
    assert!(refusal(b"abc \xff def").contains("text, byte 4: it is no UTF-8 from here on"));
    assert!(refusal("caf\u{e9}".as_bytes().split_last().unwrap().1).contains("byte 3: it is no UTF-8"));
    assert!(refusal(b"").contains("0 tokens in all) has no window of 4 tokens"));
    let error = Tokenizer::open(file("text.txt")).unwrap_err().to_string();
    assert!(error.contains("text.txt: it is no tokenizer"), "{error}");
    assert!(Tokenizer::open(file("none.json")).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn a_spoiled_tokenizer_is_refused_or_used_but_never_panics(
        name in prop::sample::select(vec!["bytes", "words"]),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in prop::option::weighted(0.2, any::<prop::sample::Index>()),
    ) {
        let mut bytes = std::fs::read(file(&format!("{name}.json"))).unwrap();
        for (place, byte) in changes {
            *place.get_mut(&mut bytes) = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokenizer.json");
        std::fs::write(&path, bytes).unwrap();
        if let Ok(tokenizer) = Tokenizer::open(&path) {
            let _ = tokenizer.encode("The lazy dog, 東京!", &mut Vec::new());
        }
    }
}

/// Text in which words, their contractions, numbers, signs and spaces of many kinds meet.
fn any_text() -> impl Strategy<Value = String> {
    let pieces = [
        "a", "Dog", "é", "東京", "ǅ", "ʰ", "١", "Ⅷ", "½", "7", "42", "'", "'s", "'ll", "'LL", "’", " ", "  ",
        "\n", "\r\n", "\t", "\u{a0}", "\u{3000}", "\u{85}", "\u{200b}", "e\u{301}", "🙂", "—", ".", "...",
        "_", "\u{0}", "<|end|>", "<|e",
    ];
    let piece = prop_oneof![4 => proptest::sample::select(pieces.to_vec()).prop_map(str::to_string), 1 => any::<String>()];
    proptest::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

proptest! {
    /// Of byte-level tokenizers words are found here, and looked up; with a token that is none of these among them.
    #[test]
    fn any_text_has_the_tokens_that_the_library_gives_it(texts in proptest::collection::vec(any_text(), 1..4)) {
        let folder = tempfile::tempdir().unwrap();
        let mut library = tokenizers::Tokenizer::from_file(file("bytes.json")).unwrap();
        library.with_truncation(None).unwrap();
        let added = tokenizers::AddedToken::from("<|end|>", true);
        for added in [None, Some(added)] {
            library.add_special_tokens(added).unwrap();
            let path = folder.path().join("tokenizer.json");
            library.save(&path, false).unwrap();
            let tokenizer = Tokenizer::open(&path).unwrap();
            for text in &texts {
                let expected = library.encode(text.as_str(), true).unwrap();
                let mut found = vec![];
                tokenizer.encode(text, &mut found).unwrap();
                let expected: Vec<i32> = expected.get_ids().iter().map(|&id| id as i32).collect();
                prop_assert_eq!(&found, &expected, "{:?}", text);
            }
        }
    }
}
