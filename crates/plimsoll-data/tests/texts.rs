//! Texts of samples as tokens: the same from files of every kind.

mod common;

use common::{describe, fixtures, open};
use plimsoll_data::sources::{Answer, TextTokens};
use plimsoll_data::{Csv, Dataset, Element};
use proptest::prelude::*;
use std::io::Cursor;

/// What the fixtures of records hold as `text`.
const TEXTS: [&str; 5] = ["", "plain", "quotes \" and \\ and /", "lines\nand\ttabs\u{1}", "Grüße, 世界, 🌍"];

fn rows(data: &Dataset) -> Vec<(Vec<i32>, i32)> {
    let (mut records, mut rows) = (data.records(0).unwrap(), Vec::new());
    while let Some(record) = records.read().unwrap() {
        rows.push((record.get::<i32>("tokens").unwrap().to_vec(), record.get::<i32>("label").unwrap()[0]));
    }
    rows
}

fn bytes(text: &str, length: usize) -> Vec<i32> {
    text.bytes().map(i32::from).chain(std::iter::repeat(0)).take(length).collect()
}

/// A cell with quotes around it.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}

#[test]
fn records_of_every_kind_give_the_same_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let lines: Vec<String> =
        TEXTS.iter().enumerate().map(|(n, text)| format!("7,{},{}\n", quoted(text), n % 3)).collect();
    std::fs::write(folder.path().join("records.csv"), format!("id,text,label\n{}", lines.concat())).unwrap();
    let expected: Vec<(Vec<i32>, i32)> =
        TEXTS.iter().enumerate().map(|(n, text)| (bytes(text, 12), n as i32 % 3)).collect();
    let files = [
        ("csv", folder.path().to_path_buf(), "records.csv", "label"),
        ("jsonl", fixtures(), "records.jsonl", "label"),
        ("jsonl", fixtures(), "records.jsonl.gz", "label"),
        ("tfrecord", fixtures(), "records.tfrecord", "label"),
    ];
    for (kind, folder, path, label) in files {
        let options =
            [("path", path), ("text", "text"), ("length", "12"), ("label", label), ("classes", "3")];
        let described = describe(kind, &folder, &options).unwrap();
        let tokens = described.tokens().unwrap();
        assert_eq!((tokens.length, tokens.vocabulary, described.answer()), (12, 256, Answer::Classes));
        let data = described.open().unwrap();
        let fields: Vec<(&str, Element, &[usize])> =
            data.fields().iter().map(|field| (field.name(), field.element(), field.shape())).collect();
        assert_eq!(fields, [("tokens", Element::I32, &[12][..]), ("label", Element::I32, &[])]);
        assert_eq!(rows(&data), expected, "{path}");
        let (_, words) = open(kind, &folder, &[&options[..], &[("words", "1000")]].concat()).unwrap();
        assert_eq!(rows(&words)[1].0.iter().filter(|&&token| token > 0).count(), 1, "{path}");
    }
}

#[cfg(feature = "parquet")]
#[test]
fn tables_give_the_tokens_of_a_column_of_texts() {
    for (kind, path) in [("parquet", "everything.parquet"), ("arrow", "everything.arrow")] {
        let options =
            [("path", path), ("text", "text"), ("length", "12"), ("label", "flag"), ("classes", "2")];
        let described = describe(kind, &fixtures().join("tables"), &options).unwrap();
        assert_eq!(described.tokens().unwrap().vocabulary, 256);
        for (row, (tokens, label)) in rows(&described.open().unwrap()).into_iter().enumerate() {
            assert_eq!(tokens, bytes(format!("row {}", "ä".repeat(row % 5)).trim(), 12), "{path}, row {row}");
            assert_eq!(label, i32::from(row % 3 == 0));
        }
        let numbers =
            [("path", path), ("text", "half"), ("length", "12"), ("label", "flag"), ("classes", "2")];
        let error = open(kind, &fixtures().join("tables"), &numbers).unwrap_err().to_string();
        assert!(error.contains("`half`: it is no column of texts"), "{error}");
    }
}

#[cfg(feature = "tokenizers")]
#[test]
fn a_tokenizer_gives_the_tokens_around_a_text_and_those_that_fill_up() {
    use plimsoll_data::sources::Tokenizer;
    use plimsoll_data::{Record, Source};
    let tokenizer = || Tokenizer::open(fixtures().join("tokens/words.json")).unwrap();
    let mut expected = Vec::new();
    tokenizer().encode("the lazy dog", &mut expected).unwrap();
    let length = expected.len();
    let text = "text,y\nthe lazy dog,1\n";
    for (room, expected) in [
        (length + 2, [&expected[..], &[tokenizer().padding(); 2]].concat()),
        (length - 1, expected[..length - 1].to_vec()),
    ] {
        let csv = Csv::label("y").text("text", TextTokens::tokenizer(room, tokenizer()));
        let source = csv.read(Cursor::new(text)).unwrap();
        let mut record = Record::new(&source.fields().into());
        source.read_record(0, &mut record).unwrap();
        assert_eq!(record.get::<i32>("tokens").unwrap(), expected);
    }
}

#[test]
fn what_does_not_go_with_a_text_is_refused() {
    let of = |more: &[(&'static str, &'static str)]| {
        let options = [&[("path", "x.csv"), ("label", "y"), ("classes", "2")], more].concat();
        describe("csv", &fixtures(), &options).unwrap_err().to_string()
    };
    for (more, expected) in [
        (&[("text", "t"), ("length", "8"), ("features", "a")][..], "leave out `features`"),
        (&[("text", "t")], "length"),
        (&[("words", "10")], "`words` is that of a `text`, and there is none"),
        (&[("text", "t"), ("length", "8"), ("words", "1")], "at least 2 `words`"),
        (&[("text", "t"), ("length", "8"), ("words", "3000000000")], "fewer of them"),
        (&[("text", "t"), ("length", "8"), ("words", "9"), ("tokenizer", "t.json")], "not both"),
    ] {
        let error = of(more);
        assert!(error.contains(expected), "{error}");
    }
    let read = |csv: Csv| csv.read(Cursor::new("t,y\nwords,0\n")).unwrap_err().to_string();
    assert!(read(Csv::label("y").text("u", TextTokens::bytes(4))).contains("`u`"));
    assert!(read(Csv::label("y").text("y", TextTokens::bytes(4))).contains("not the text"));
}

proptest! {
    #[test]
    fn texts_over_several_lines_are_what_was_written(
        texts in prop::collection::vec("[a-c\",\n\r é]{0,12}", 1..20),
        at_hand in any::<bool>(),
    ) {
        let mut file = "text,y\n".to_string();
        for (n, text) in texts.iter().enumerate() {
            file += &format!("{},{n}\n", quoted(text));
        }
        let csv = Csv::label("y").text("text", TextTokens::bytes(30));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("texts.csv");
        std::fs::write(&path, &file).unwrap();
        let data = match at_hand {
            true => Dataset::new(csv.read(Cursor::new(&file)).unwrap()).unwrap(),
            false => Dataset::new(csv.open(&path).unwrap()).unwrap(),
        };
        let expected: Vec<(Vec<i32>, i32)> =
            texts.iter().enumerate().map(|(n, text)| (bytes(text.trim(), 30), n as i32)).collect();
        prop_assert_eq!(rows(&data), expected);
    }
}

proptest! {
    #[test]
    fn any_text_reads_the_same_at_hand_and_from_a_file(text in "([ab0-9\",\n\r ]|,0\n|\",\"){0,60}") {
        let csv = Csv::label("y").text("text", TextTokens::bytes(8));
        let text = format!("text,y\n{text}");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.csv");
        std::fs::write(&path, &text).unwrap();
        let said = |read: plimsoll_data::Result<Dataset>| match read {
            Ok(data) => format!("{:?}", rows(&data)),
            Err(error) => {
                let error = error.to_string();
                let place = error.find("line ").map_or("", |at| &error[at..]);
                place.to_string()
            }
        };
        let at_hand = said(csv.read(Cursor::new(&text)).and_then(Dataset::new));
        prop_assert_eq!(at_hand, said(csv.open(&path).and_then(Dataset::new)));
    }
}

#[test]
fn lines_are_counted_within_cells_too() {
    let text = "note,y\n\"one\n\ntwo\",0\nthree,1\nfour,x\n";
    let csv = Csv::label("y").text("note", TextTokens::bytes(4));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notes.csv");
    std::fs::write(&path, text).unwrap();
    let [read, opened] = [csv.read(Cursor::new(text)).unwrap_err(), csv.open(&path).unwrap_err()];
    assert!(read.to_string().starts_with("line 6, column `y`: `x`"), "{read}");
    assert!(opened.to_string().contains("notes.csv: line 6, column `y`: `x`"), "{opened}");
}
