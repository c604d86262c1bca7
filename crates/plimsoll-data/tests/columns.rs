//! Columns of tables that are not plain numbers: names, categories, missing values, numbers far from one.

mod common;

use plimsoll_data::sources::{JsonLines, Key, TableColumn};
use plimsoll_data::{Columns, Csv, Element, Field, Result, Source};
use proptest::prelude::*;
use std::io::Cursor;

const PEOPLE: &str = "id,sex,age,port,survived\n\
                      1,male,22,S,no\n\
                      2, female ,38,C,yes\n\
                      3,\"female\",,S,yes\n\
                      4,male,NA,,no\n";

/// As a workload would say it.
fn people() -> Csv {
    Csv::label("survived")
        .class_names(["no", "yes"])
        .ignore(["id"])
        .column("sex", TableColumn::categories(["female", "male"]))
        .column("age", TableColumn::number().missing(30.0).standardised(30.0, 4.0))
        .column("port", TableColumn::categories(["", "C", "S"]))
}

fn read(csv: &Csv, text: &str) -> Result<Columns> {
    csv.read(Cursor::new(text))
}

fn features(source: &impl Source, sample: usize) -> Vec<f32> {
    let mut bytes = vec![0; source.fields()[0].bytes()];
    source.read(sample, 0, &mut bytes).unwrap();
    bytes.chunks(4).map(|bytes| f32::from_ne_bytes(bytes.try_into().unwrap())).collect()
}

fn label(source: &impl Source, sample: usize) -> i32 {
    let mut bytes = [0; 4];
    source.read(sample, 1, &mut bytes).unwrap();
    i32::from_ne_bytes(bytes)
}

fn refusal(csv: &Csv, text: &str) -> String {
    read(csv, text).unwrap_err().to_string()
}

#[test]
fn names_become_classes_and_categories_and_numbers_are_standardised() {
    let people = read(&people(), PEOPLE).unwrap();
    let rows: Vec<Vec<f32>> = (0..4).map(|row| features(&people, row)).collect();
    assert_eq!(rows[0], [0.0, 1.0, -2.0, 0.0, 0.0, 1.0]);
    assert_eq!(rows[1], [1.0, 0.0, 2.0, 0.0, 1.0, 0.0]);
    assert_eq!(rows[2], [1.0, 0.0, 0.0, 0.0, 0.0, 1.0]);
    assert_eq!(rows[3], [0.0, 1.0, 0.0, 1.0, 0.0, 0.0]);
    assert_eq!((0..4).map(|row| label(&people, row)).collect::<Vec<_>>(), [0, 1, 1, 0]);
}

#[test]
fn features_that_are_listed_come_in_that_order_from_any_file() {
    let csv = people().features(["age", "sex"]);
    let read_there = read(&csv, PEOPLE).unwrap();
    assert_eq!(features(&read_there, 0), [-2.0, 0.0, 1.0]);
    let turned = "survived,extra,sex,age,port,id\nno,-,male,22,S,1\n";
    assert_eq!(features(&read(&csv, turned).unwrap(), 0), [-2.0, 0.0, 1.0]);
}

#[test]
fn a_file_without_the_answer_has_features_where_these_are_asked_for_alone() {
    let text = "id,sex,age,port\n5,male,30,C\n";
    assert!(refusal(&people(), text).contains("survived"));
    let asked = read(&people().without_answer(), text).unwrap();
    assert_eq!((asked.fields().len(), features(&asked, 0)), (1, vec![0.0, 1.0, 0.0, 0.0, 1.0, 0.0]));
    let with_answers = read(&people().without_answer(), &PEOPLE.replace(",no", ",anything")).unwrap();
    assert_eq!((with_answers.fields().len(), features(&with_answers, 1)[0]), (1, 1.0));
}

#[test]
fn a_name_that_is_not_listed_is_refused_with_those_that_are() {
    let unknown = refusal(&people(), &PEOPLE.replace("1,male,22", "1,mal,22"));
    assert!(
        unknown.contains("line 2, column `sex`: `mal` is none of") && unknown.contains("`female`, `male`"),
        "{unknown}"
    );
    let unknown = refusal(&people(), &PEOPLE.replace("S,yes", "S,maybe"));
    assert!(
        unknown.contains("line 4, column `survived`: `maybe` is none of") && unknown.contains("`no`, `yes`"),
        "{unknown}"
    );
}

#[test]
fn text_in_a_column_of_numbers_is_refused_with_what_to_do() {
    let plain = refusal(&Csv::label("y"), "x,y\nred,0\n");
    assert!(
        plain.contains("line 2, column `x`: `red` is not a number") && plain.contains("`categories`"),
        "{plain}"
    );
    let missing = refusal(&Csv::label("y"), "x,y\nNaN,0\n");
    assert!(missing.contains("column `x`") && missing.contains("`missing`"), "{missing}");
    let named = refusal(&Csv::label("y"), "x,y\n1,red\n");
    assert!(named.contains("list their names as the classes"), "{named}");
}

#[test]
fn columns_that_are_said_to_be_two_things_or_none_are_refused() {
    let of = |csv: Csv| refusal(&csv, PEOPLE);
    assert!(of(people().ignore(["sex"])).contains("`sex`"));
    assert!(of(people().ignore(["survived"])).contains("to be predicted"));
    assert!(of(people().features(["age", "age"])).contains("twice"));
    assert!(of(people().features(["age", "id"])).contains("ignored"));
    assert!(of(people().ignore(["nobody"])).contains("`nobody`"));
    assert!(
        of(Csv::label("survived").features(Vec::<String>::new()))
            .contains("no column to predict `survived` from")
    );
    let twice = TableColumn::categories(["male", " male "]);
    assert!(of(Csv::label("survived").column("sex", twice)).contains("listed twice"));
    let flat = TableColumn::number().standardised(0.0, 0.0);
    assert!(of(Csv::label("survived").column("age", flat)).contains("deviation"));
    assert!(of(Csv::label("survived").class_names(["yes", "yes"])).contains("listed twice"));
}

#[test]
fn classes_of_json_lines_are_names_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("reviews.jsonl");
    let text = "{\"x\": 1, \"mood\": \"bad\"}\n{\"mood\": \"go\\u006fd\", \"x\": 2}\n";
    std::fs::write(&path, text).unwrap();
    let x = Key::of(Field::new("features", Element::F32, &[]).unwrap()).called("x");
    let mood = || Key::of(Field::new("label", Element::I32, &[]).unwrap()).called("mood");
    let lines = JsonLines::new(&[x.clone(), mood().class_names(["good", "bad"]).unwrap()]).unwrap();
    let lines = lines.open(&path).unwrap();
    assert_eq!((label(&lines, 0), label(&lines, 1)), (1, 0));
    let lines = JsonLines::new(&[x, mood().class_names(["good", "fair"]).unwrap()]).unwrap();
    let error = lines.open(&path).unwrap_err().to_string();
    assert!(error.contains("`mood`") && error.contains("`bad` is none of"), "{error}");
    assert!(mood().class_names(Vec::<String>::new()).is_err());
}

#[cfg(feature = "parquet")]
#[test]
fn columns_of_parquet_and_arrow_are_read_as_those_of_csv() {
    for (kind, path) in [("parquet", "tables/everything.parquet"), ("arrow", "tables/everything.arrow")] {
        let values = [
            ("path", path),
            ("label", "kind"),
            ("classes", "a,bb,ccc"),
            ("features", "count,flag,half"),
            ("columns.count.mean", "1000"),
            ("columns.count.deviation", "500"),
            ("columns.flag.categories", "0,1"),
        ];
        let (_, data) =
            common::open(kind, &common::fixtures(), &values).unwrap_or_else(|error| panic!("{error}"));
        let mut records = data.records(0).unwrap();
        for row in 0..50 {
            let record: &plimsoll_data::Record = records.read().unwrap().unwrap();
            let flag = if row % 3 == 0 { [0.0, 1.0] } else { [1.0, 0.0] };
            let count = (row as f32 * 1000.0 - 1000.0) / 500.0;
            assert_eq!(record.get::<f32>("features").unwrap(), [count, flag[0], flag[1], row as f32 / 4.0]);
            assert_eq!(record.get::<i32>("label").unwrap(), [row % 3]);
        }
        let text = [("path", path), ("target", "single"), ("features", "kind")];
        let error = common::open(kind, &common::fixtures(), &text).unwrap_err().to_string();
        assert!(error.contains("`kind`") && error.contains("`categories`"), "{error}");
    }
}

/// A cell of a column of numbers, and what it says.
fn cell() -> impl Strategy<Value = (String, Option<f64>)> {
    prop_oneof![
        (-1e6..1e6).prop_map(|value: f64| (value.to_string(), Some(value))),
        prop::sample::select(vec!["", "NA", "nan", "null", "?"]).prop_map(|cell| (cell.to_string(), None)),
    ]
}

proptest! {
    #[test]
    fn every_row_is_what_its_cells_say(
        rows in prop::collection::vec((cell(), 0usize..3, any::<i16>(), 0usize..4), 1..40),
        mean in -1e3..1e3f64,
        deviation in 1e-2..1e3f64,
        missing in -1e3..1e3f64,
    ) {
        let (colours, kinds) = (["red", "green", "dark blue"], ["a", "b", "c", "d"]);
        let mut text = "number,note,colour,kind,plain\n".to_string();
        for ((number, _), colour, plain, kind) in &rows {
            text += &format!("{number},\"a, note\",\"{}\",{},{plain}\n", colours[*colour], kinds[*kind]);
        }
        let csv = Csv::label("kind")
            .class_names(kinds)
            .ignore(["note"])
            .column("colour", TableColumn::categories(colours))
            .column("number", TableColumn::number().missing(missing).standardised(mean, deviation));
        let columns = read(&csv, &text).unwrap();
        for (sample, ((_, number), colour, plain, kind)) in rows.iter().enumerate() {
            let mut wanted = vec![((number.unwrap_or(missing) - mean) / deviation) as f32];
            wanted.extend((0..3).map(|at| if at == *colour { 1.0 } else { 0.0 }));
            wanted.push(f32::from(*plain));
            prop_assert_eq!(features(&columns, sample), wanted);
            prop_assert_eq!(label(&columns, sample), *kind as i32);
        }
    }

    #[test]
    fn no_text_makes_columns_panic(text in "([a-z0-9.,\"\n\r -]|NA|,|male|é){0,80}") {
        let _ = read(&people(), &format!("id,sex,age,port,survived\n{text}"));
        let _ = read(&people().without_answer(), &text);
    }
}
