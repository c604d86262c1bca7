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
