//! JSON Lines as Python's json module writes them (`scripts/export_records.py`), and saying where one is wrong.

use plimsoll_data::sources::{JsonLines, Key, Streamed};
use plimsoll_data::{Element, ErrorKind, Field, RamBudget, Record, Result, Source};
use proptest::prelude::*;
use std::path::{Path, PathBuf};

const OPEN: usize = Field::OPEN;

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn key(name: &str, element: Element, shape: &[usize]) -> Key {
    Key::of(Field::open(name, element, shape).unwrap())
}

fn lines() -> JsonLines {
    JsonLines::new(&[
        key("floats", Element::F32, &[2, 3]),
        key("class", Element::I32, &[]).called("label").classes(3),
        key("tokens", Element::I64, &[OPEN]),
        key("text", Element::U8, &[OPEN]),
        key("rows", Element::U8, &[OPEN, 2]),
        key("price", Element::F64, &[]),
        key("is_odd", Element::U8, &[]),
        key("whole", Element::I32, &[]),
    ])
    .unwrap()
}

const TEXTS: [&str; 5] = ["", "plain", "quotes \" and \\ and /", "lines\nand\ttabs\u{1}", "Grüße, 世界, 🌍"];

/// Sample `n` is what the script wrote.
fn check(record: &Record, n: usize) {
    let floats: Vec<f32> = (0..6).map(|k| (n as f64 / 2.0 + f64::from(k) / 10.0) as f32).collect();
    assert_eq!(record.get::<f32>("floats").unwrap(), floats);
    assert_eq!(record.shape_of("floats").unwrap(), [2, 3]);
    assert_eq!(record.get::<i32>("class").unwrap(), [n as i32 % 3]);
    let tokens: Vec<i64> = (0..n as u32).map(|k| (-1i64).pow(k) * 1000i64.pow(k)).collect();
    assert_eq!(record.get::<i64>("tokens").unwrap(), tokens);
    assert_eq!(record.get::<u8>("text").unwrap(), TEXTS[n].as_bytes());
    assert_eq!(record.shape_of("rows").unwrap(), [n, 2]);
    assert_eq!(record.get::<u8>("rows").unwrap(), [n as u8, n as u8 + 1].repeat(n));
    assert_eq!(record.get::<f64>("price").unwrap(), [0.1 + n as f64]);
    assert_eq!(record.get::<u8>("is_odd").unwrap(), [n as u8 % 2]);
    assert_eq!(record.get::<i32>("whole").unwrap(), [n as i32]);
}

#[test]
fn what_python_wrote_is_read_by_number_in_any_order() {
    let source = lines().open(file("records.jsonl")).unwrap();
    assert_eq!(source.samples(), 5);
    let mut record = Record::new(&source.fields().into());
    for n in [0, 1, 2, 3, 4, 2, 0, 4] {
        source.read_record(n, &mut record).unwrap();
        check(&record, n);
    }
    let mut class = [0; 4];
    source.read(4, 1, &mut class).unwrap();
    assert_eq!(i32::from_ne_bytes(class), 1);
    let error = source.read(0, 2, &mut []).unwrap_err();
    assert!(error.to_string().contains("read with the whole record"), "{error}");
}

fn count(streamed: &Streamed, look: impl Fn(&Record, usize)) -> Result<usize> {
    let (mut record, mut reader) = (Record::new(streamed.fields()), streamed.reader()?);
    let mut n = 0;
    while reader.next(&mut record)? {
        look(&record, n);
        n += 1;
    }
    Ok(n)
}

#[test]
fn what_was_packed_by_gzip_or_zstd_is_streamed() {
    for name in ["records.jsonl", "records.jsonl.gz", "records.jsonl.zst"] {
        assert_eq!(count(&lines().stream(file(name)).unwrap(), check).unwrap(), 5, "{name}");
    }
}

#[test]
fn what_is_packed_and_damaged_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["records.jsonl.gz", "records.jsonl.zst"] {
        let mut bytes = std::fs::read(file(name)).unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, &bytes[..bytes.len() - 3]).unwrap();
        let error = count(&lines().stream(&path).unwrap(), |_, _| ()).unwrap_err();
        assert!(error.to_string().contains("cannot be read"), "{error}");
        // The checksum is at the end of both.
        let last = bytes.len() - 5;
        bytes[last] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        assert!(count(&lines().stream(&path).unwrap(), |_, _| ()).is_err(), "{name}");
    }
}

/// Opens a file of these lines.
fn open(text: &str, keys: &[Key]) -> Result<Vec<Record>> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.jsonl");
    std::fs::write(&path, text).unwrap();
    let source = JsonLines::new(keys)?.open(&path)?;
    let mut record = Record::new(&source.fields().into());
    (0..source.samples())
        .map(|sample| source.read_record(sample, &mut record).map(|()| record.clone()))
        .collect()
}

#[test]
fn what_is_wrong_is_named_by_file_record_byte_and_key() {
    let keys = [
        key("x", Element::F32, &[2]),
        key("n", Element::U8, &[]).classes(200),
        key("t", Element::U8, &[OPEN]),
    ];
    let good = r#"{"x": [1, 2], "n": 7, "t": "a"}"#;
    assert_eq!(open(good, &keys).unwrap()[0].get::<f32>("x").unwrap(), [1.0, 2.0]);
    let cases = [
        (r#"{"x": [1, 2], "t": "a"}"#, 0, "`n`: the record has no such key; its keys are: x, t"),
        (
            r#"{"x": [1], "n": 7, "t": "a"}"#,
            6,
            "`x`: an array has 1 values where its field has 2, x: f32 [2]",
        ),
        (
            r#"{"x": [1, 2, 3], "n": 7, "t": "a"}"#,
            6,
            "`x`: an array has more than the 2 values of its field, x: f32 [2]",
        ),
        (r#"{"x": [1, "two"], "n": 7, "t": "a"}"#, 10, "`x`: a text stands where a number is expected"),
        (
            r#"{"x": [1, NaN], "n": 7, "t": "a"}"#,
            10,
            "`x`: a value that is not finite stands where a number is expected",
        ),
        (
            r#"{"x": [1, 1e99], "n": 7, "t": "a"}"#,
            10,
            "`x`: 1e99 is not a finite f32; replace it, or remove the record",
        ),
        (r#"{"x": null, "n": 7, "t": "a"}"#, 6, "`x`: `n` stands where `[` is expected"),
        (r#"{"x": [1, 2], "n": 7.5, "t": "a"}"#, 19, "`n`: 7.5 is not a whole number"),
        (
            r#"{"x": [1, 2], "n": 300, "t": "a"}"#,
            19,
            "`n`: the label 300 is outside of 0..200; number the classes from 0, or declare more of them",
        ),
        (
            r#"{"x": [1, 2], "n": 99999999999999999999, "t": "a"}"#,
            19,
            "`n`: 99999999999999999999 does not fit i64",
        ),
        (r#"{"x": [1, 2], "n": 7, "t": "\ud800"}"#, 28, "`t`: this escape stands for no character"),
        (r#"{"x": [1, 2], "n": 7, "t": "a"} {}"#, 32, "something follows the object; each line holds one"),
        (r#"{"x": [1, 2], "n": 7, "t": "a"#, 28, "`t`: a text does not end on the line"),
        (
            r#"[1]"#,
            0,
            "an array stands where an object is expected; each line holds one: `jq -c '.[]'` writes them so",
        ),
        (r#"{"x": [1, 2]"#, 12, "it ends where `}` is expected: it is cut off, or goes on on another line"),
    ];
    for (line, byte, reason) in cases {
        let error = open(&format!("{good}\n{line}\n"), &keys).unwrap_err();
        let ErrorKind::File { path, sample, offset, reason: told } = error.kind() else { panic!("{error}") };
        assert!(path.ends_with("x.jsonl"));
        assert_eq!(
            (told.as_str(), *sample, *offset),
            (reason, Some(1), Some(good.len() as u64 + 1 + byte)),
            "{line}"
        );
    }
}

#[test]
fn arrays_that_are_not_there_take_no_memory() {
    // 20,000 arrays of which the first has 20,000 values and the others one would have 400 million.
    let line = format!("{{\"x\": [[{}0]{}]}}", "0,".repeat(20_000), ",[1]".repeat(20_000));
    let error = open(&line, &[key("x", Element::F32, &[OPEN, OPEN])]).unwrap_err();
    assert!(error.to_string().contains("not all as long as the first"), "{error}");
}

#[test]
fn deep_values_are_refused_before_the_stack_ends() {
    let line = format!("{{\"a\": {}1{}, \"x\": 1}}", "[".repeat(100_000), "]".repeat(100_000));
    let error = open(&line, &[key("x", Element::F32, &[])]).unwrap_err();
    assert!(error.to_string().contains("more than 128 deep"), "{error}");
}

#[test]
fn keys_that_cannot_be_taken_are_refused() {
    let of = |keys: &[Key]| JsonLines::new(keys).unwrap_err().to_string();
    let x = key("x", Element::F32, &[]);
    assert!(of(&[]).starts_with("no key is taken"));
    assert_eq!(
        of(&[x.clone(), key("y", Element::F32, &[]).called("x")]),
        "field `y`: the key `x` is taken twice"
    );
    assert_eq!(of(&[x.clone(), x.clone().called("z")]), "field `x`: there already is a field of this name");
    assert_eq!(of(&[x.classes(3)]), "field `x`: classes are whole numbers, this field is f32");
}

#[test]
fn open_records_are_read_by_number_from_large_files_in_little_memory() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.jsonl");
    let word = |n: usize| "word ".repeat(n * 7919 % 50);
    let text: String = (0..40_000).map(|n| format!("{{\"id\": {n}, \"text\": \"{}\"}}\n", word(n))).collect();
    std::fs::write(&path, &text).unwrap();
    let keys = [key("text", Element::U8, &[OPEN]), key("id", Element::I64, &[])];
    let source = JsonLines::new(&keys).unwrap().budget(RamBudget::bytes(3 << 20)).open(&path).unwrap();
    let mut record = Record::new(&source.fields().into());
    for at in 0..40_000 {
        let sample = if at % 2 == 0 { at } else { at * 7919 % 40_000 };
        source.read_record(sample, &mut record).unwrap();
        assert_eq!(record.get::<i64>("id").unwrap(), [sample as i64]);
        assert_eq!(record.get::<u8>("text").unwrap(), word(sample).as_bytes());
    }
    assert!(source.resident_bytes() < 3 << 20);
}

proptest! {
    #[test]
    fn whatever_serde_writes_is_read(
        numbers in prop::collection::vec(prop::num::f64::NORMAL | prop::num::f64::ZERO, 0..20),
        whole: i64,
        text in ".{0,20}",
        other in ".{0,5}",
    ) {
        prop_assume!(!["numbers", "whole", "text"].contains(&other.as_str()));
        let mut object = serde_json::json!({ "numbers": numbers, "whole": whole, "text": text });
        object[other] = serde_json::json!([{ "a": null }, text, "\u{7f}\u{10ffff}"]);
        let numbers_key = key("numbers", Element::F64, &[OPEN]);
        let keys = [numbers_key, key("whole", Element::I64, &[]), key("text", Element::U8, &[OPEN])];
        let records = open(&object.to_string(), &keys).unwrap();
        prop_assert_eq!(records[0].get::<f64>("numbers").unwrap(), numbers);
        prop_assert_eq!(records[0].get::<i64>("whole").unwrap(), [whole]);
        prop_assert_eq!(records[0].get::<u8>("text").unwrap(), text.as_bytes());
    }
}
