//! Kinds of `[data]` that need a feature: what they give with it, and what is said without.

mod common;

use common::fixtures;
#[cfg(any(feature = "parquet", feature = "tokenizers"))]
use plimsoll_data::sources::Answer;
#[cfg(feature = "parquet")]
use plimsoll_data::{Dataset, Element};

#[cfg(not(feature = "parquet"))]
#[test]
fn tables_say_how_to_build_with_what_reads_them() {
    for kind in ["parquet", "arrow"] {
        let options = [("path", "everything.parquet"), ("label", "flag"), ("classes", "2")];
        let error = common::describe(kind, &fixtures().join("tables"), &options).unwrap_err().to_string();
        assert!(error.starts_with("this kind of file needs the feature `parquet`, which"), "{error}");
        assert!(error.contains("cargo install --path crates/plimsoll-cli --features parquet"), "{error}");
    }
}

#[cfg(not(feature = "tokenizers"))]
#[test]
fn tokenizers_say_how_to_build_with_them() {
    let options = [("path", "text.txt"), ("tokenizer", "words.json"), ("length", "8")];
    let error = common::describe("text", &fixtures().join("tokens"), &options).unwrap_err().to_string();
    assert!(error.starts_with("text by a tokenizer needs the feature `tokenizers`, which"), "{error}");
    assert!(error.contains("cargo install --path crates/plimsoll-cli --features tokenizers"), "{error}");
}

#[cfg(feature = "tokenizers")]
#[test]
fn text_by_a_tokenizer_has_its_vocabulary_and_its_tokens() {
    let folder = fixtures().join("tokens");
    for name in ["bytes", "words"] {
        let expected = std::fs::read(folder.join(format!("{name}.expected.json"))).unwrap();
        let expected: serde_json::Value = serde_json::from_slice(&expected).unwrap();
        let tokenizer = if name == "bytes" { "bytes.json" } else { "words.json" };
        let options = [("path", "text.t?t"), ("tokenizer", tokenizer), ("length", "8")];
        let described = common::describe("text", &folder, &options).unwrap();
        let tokens = described.tokens().unwrap();
        assert_eq!(tokens.vocabulary as u64, expected["vocabulary"].as_u64().unwrap());
        assert_eq!((tokens.length, described.answer()), (8, Answer::Classes));
        let data = described.open().unwrap();
        let (mut records, mut window) = (data.records(0).unwrap(), 0);
        while let Some(record) = records.read().unwrap() {
            let next = &expected["text"].as_array().unwrap()[8 * window + 1..][..8];
            let next: Vec<i32> = next.iter().map(|token| token.as_i64().unwrap() as i32).collect();
            assert_eq!(record.get::<i32>("next").unwrap(), next);
            window += 1;
        }
        assert_eq!(window, (expected["text"].as_array().unwrap().len() - 1) / 8);
    }
    let missing =
        [("path", "text.txt"), ("tokenizer", "none.json"), ("length", "8"), ("missing", "ask for it")];
    let error = common::describe("text", &folder, &missing).unwrap_err().to_string();
    assert!(error.ends_with("none.json: there is no such file; ask for it"), "{error}");
    let (_, bytes) = common::open("text", &folder, &[("path", "text.txt"), ("length", "8")]).unwrap();
    assert!(bytes.samples() > 0);
}

/// The rows of an epoch: features, and label or target.
#[cfg(feature = "parquet")]
fn rows(data: &Dataset) -> Vec<(Vec<f32>, f32)> {
    let (mut records, mut rows) = (data.records(0).unwrap(), vec![]);
    while let Some(record) = records.read().unwrap() {
        let answer = match record.fields()[1].element() {
            Element::I32 => record.get::<i32>("label").unwrap()[0] as f32,
            _ => record.get::<f32>("target").unwrap()[0],
        };
        rows.push((record.get::<f32>("features").unwrap().to_vec(), answer));
    }
    rows
}

#[cfg(feature = "parquet")]
#[test]
fn a_column_of_a_table_is_predicted_from_all_other_numbers() {
    // What `export_tables.py` calls `everything`; `flag` and `half` have a place between them.
    let features = |row: usize| {
        let x = row as f32;
        let before = [x / 2.0 - 3.0, (row as f64 / 3.0) as f32];
        let between = [x - 25.0, x * -300.0, x * 1000.0, x * -70000.0];
        let large = [(row as i64 + 4_000_000_000) as f32, (row as i64 * 1_000_000_007) as f32, x * 5.0];
        (before, x / 4.0, between, large, f32::from(u8::from(row.is_multiple_of(3))), [x, x + 1.0, x + 2.0])
    };
    for (kind, name) in [("parquet", "everything.parquet"), ("arrow", "everything.arrow")] {
        let folder = fixtures().join("tables");
        let label = [("path", name), ("label", "flag"), ("classes", "2")];
        let (answer, data) = common::open(kind, &folder, &label).unwrap();
        assert_eq!((answer, data.samples()), (Answer::Classes, 50));
        // Small tables are kept, and can be split and shuffled.
        assert!(data.split(0.5, 1).is_ok() && data.resident_bytes() >= 50 * 14 * 4);
        for (row, found) in rows(&data).into_iter().enumerate() {
            let (before, half, between, large, flag, triple) = features(row);
            assert_eq!(found, ([&before[..], &[half], &between, &large, &triple].concat(), flag), "{row}");
        }
        let (answer, data) = common::open(kind, &folder, &[("path", name), ("target", "half")]).unwrap();
        assert_eq!(answer, Answer::Number);
        for (row, found) in rows(&data).into_iter().enumerate() {
            let (before, half, between, large, flag, triple) = features(row);
            assert_eq!(found, ([&before[..], &between, &large, &[flag], &triple].concat(), half), "{row}");
        }
        let refusal = |options: &[(&'static str, &'static str)]| {
            common::open(kind, &folder, &[&[("path", name)], options].concat()).unwrap_err().to_string()
        };
        let said = refusal(&[("label", "byte"), ("classes", "10")]);
        assert!(said.ends_with(&format!(
            "{name}, sample 2: column `byte`: the label 10 is outside of 0..10; number the classes from 0, or declare more \
             of them"
        )), "{said}");
        let said = refusal(&[("label", "double"), ("classes", "10")]);
        assert!(
            said.contains("sample 1: column `double`: 0.333") && said.contains("is not a class number"),
            "{said}"
        );
        assert!(
            refusal(&[("target", "flagg")]).contains("there is no field `flagg`; the fields are: single")
        );
        assert!(
            refusal(&[("target", "kind")])
                .contains("field `kind`: it is to be predicted, but is no column of numbers")
        );
        assert!(refusal(&[]).contains("exactly one of `label`"));
    }
    let options = [("path", "[gz]*.parquet"), ("target", "single")];
    let error = common::open("parquet", &fixtures().join("tables"), &options).unwrap_err().to_string();
    assert!(error.contains("gzip.parquet: it has no column of numbers to predict `single` from"), "{error}");
    let nulls = fixtures().join("tables");
    let error = common::open("parquet", &nulls, &[("path", "nulls.parquet"), ("target", "number")])
        .unwrap_err()
        .to_string();
    assert!(error.contains("nulls.parquet, sample 1: column `number`: the row is null"), "{error}");
}

#[cfg(feature = "parquet")]
#[test]
fn a_large_table_is_read_in_its_order_and_not_kept() {
    let options = [("path", "wide.parquet"), ("label", "class"), ("classes", "3")];
    let (_, data) = common::open("parquet", &fixtures().join("tables"), &options).unwrap();
    assert!(data.source().is_none());
    let mut records = data.records(0).unwrap();
    for row in 0..17_000 {
        let record = records.read().unwrap().unwrap();
        let features = record.get::<f32>("features").unwrap();
        assert!(features.len() == 1024 && features.iter().all(|&x| x == (row % 7) as f32), "{row}");
        assert_eq!(record.get::<i32>("label").unwrap(), [row % 3]);
    }
    assert!(records.read().unwrap().is_none());
}

#[cfg(feature = "parquet")]
#[test]
fn tables_that_a_pattern_names_are_read_as_one_if_they_have_the_same_columns() {
    let (folder, tables) = (tempfile::tempdir().unwrap(), fixtures().join("tables"));
    for name in ["a.parquet", "b.parquet"] {
        std::fs::copy(tables.join("everything.parquet"), folder.path().join(name)).unwrap();
    }
    let options = [("path", "*.parquet"), ("label", "flag"), ("classes", "2")];
    let (_, both) = common::open("parquet", folder.path(), &options).unwrap();
    let (_, one) =
        common::open("parquet", &tables, &[&[("path", "everything.parquet")], &options[1..]].concat())
            .unwrap();
    assert_eq!(rows(&both), [rows(&one), rows(&one)].concat());
    std::fs::copy(tables.join("wide.parquet"), folder.path().join("c.parquet")).unwrap();
    let options = [("path", "*.parquet"), ("target", "class")];
    let error = common::open("parquet", folder.path(), &options).unwrap_err().to_string();
    assert!(error.contains("there is no field `class`"), "{error}");
}
