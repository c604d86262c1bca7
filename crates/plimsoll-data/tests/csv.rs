//! Reading csv files as people have them, and saying where one is wrong.

mod common;

use std::io::{Cursor, Write};

use plimsoll_data::sources::{TableColumn, Windows};
use plimsoll_data::{Columns, Csv, Dataset, ErrorKind, Result, Source};
use proptest::prelude::*;

fn read(text: &str) -> Result<Columns> {
    Csv::label("y").read(Cursor::new(text))
}

fn features(columns: &impl Source, sample: usize) -> Vec<f32> {
    let mut bytes = vec![0; columns.fields()[0].bytes()];
    columns.read(sample, 0, &mut bytes).unwrap();
    bytes.chunks(4).map(|bytes| f32::from_ne_bytes(bytes.try_into().unwrap())).collect()
}

fn answer(columns: &impl Source, sample: usize) -> [u8; 4] {
    let mut bytes = [0; 4];
    columns.read(sample, 1, &mut bytes).unwrap();
    bytes
}

fn refusal(text: &str) -> String {
    read(text).unwrap_err().to_string()
}

proptest! {
    #[test]
    fn what_is_written_is_what_is_read(
        rows in prop::collection::vec((prop::num::f32::NORMAL, any::<i32>(), prop::num::f32::NORMAL), 1..50),
        newline in prop::sample::select(vec!["\n", "\r\n", "\n\n"]),
    ) {
        let mut text = format!("a,y,b{newline}");
        for (a, y, b) in &rows {
            text += &format!("{a:e},{y}, {b}{newline}");
        }
        let columns = read(&text).unwrap();
        prop_assert_eq!(columns.samples(), rows.len());
        for (sample, (a, y, b)) in rows.iter().enumerate() {
            prop_assert_eq!(features(&columns, sample), [*a, *b]);
            prop_assert_eq!(i32::from_ne_bytes(answer(&columns, sample)), *y);
        }
    }

    #[test]
    fn no_text_makes_it_panic(text in "([a-z0-9.,\"\n\r -]|y,|\u{feff}|é){0,80}") {
        let _ = read(&text);
        let _ = read(&format!("x,y\n{text}"));
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        let _ = Csv::label("y").read(Cursor::new([b"x,y\n", &bytes[..]].concat()));
    }
}

proptest! {
    /// The outside oracle is Rust's own parser, of the same number with a point.
    #[test]
    fn fractions_after_a_comma_are_those_after_a_point(
        numbers in prop::collection::vec("-?[0-9]{1,9},[0-9]{1,12}(e-?[0-9])?", 1..20),
        delimiter in prop::sample::select(vec![';', '\t', '|', ',']),
    ) {
        let csv = Csv::target("y").decimal_comma().delimiter(delimiter);
        let quote = if delimiter == ',' { "\"" } else { "" };
        let mut text = format!("a{delimiter}y\n");
        for number in &numbers {
            text += &format!("{quote}{number}{quote}{delimiter}{quote}{number}{quote}\n");
        }
        let columns = csv.read(Cursor::new(&text)).unwrap();
        for (sample, number) in numbers.iter().enumerate() {
            let expected: f32 = number.replace(',', ".").parse().unwrap();
            prop_assert_eq!(features(&columns, sample)[0].to_bits(), expected.to_bits());
            prop_assert_eq!(answer(&columns, sample), expected.to_ne_bytes());
        }
    }
}

#[test]
fn points_where_fractions_follow_a_comma_are_refused_and_names_keep_theirs() {
    let csv = Csv::label("y").decimal_comma().delimiter(';');
    let error = csv.read(Cursor::new("a;y\n1,5;0\n1.234,5;1\n")).unwrap_err().to_string();
    assert!(error.contains("line 3") && error.contains("`a`") && error.contains("1234,5"), "{error}");
    let csv = csv.column("a", TableColumn::categories(["1,5", "v1.2"]));
    let columns = csv.read(Cursor::new("a;y\nv1.2;0\n1,5;1\n")).unwrap();
    assert_eq!((features(&columns, 0), features(&columns, 1)), (vec![0.0, 1.0], vec![1.0, 0.0]));
    let error = refusal("a,y\n\"1,5\",0\n");
    assert!(error.contains("say `decimal = \",\"`"), "{error}");
}

#[test]
fn a_file_is_read_from_its_path() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"height,weight\n1.5,60\n1.75,80.5").unwrap();
    let columns = Csv::target("weight").open(file.path()).unwrap();
    assert_eq!(columns.fields()[1].name(), "target");
    assert_eq!(features(&columns, 1), [1.75]);
    assert_eq!(f32::from_ne_bytes(answer(&columns, 1)), 80.5);
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = Csv::label("y").open("no/such.csv").unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Io { .. }));
    assert!(error.to_string().starts_with("no/such.csv: "), "{error}");
    assert!(std::error::Error::source(&error).is_some());
}

#[test]
fn quotes_spaces_and_a_byte_order_mark_are_taken_off() {
    let columns = read("\u{feff}\"a, in \"\"m\"\"\", b ,\"y\"\n\"1.5\", 2 ,\" 1 \"\n").unwrap();
    assert_eq!(features(&columns, 0), [1.5, 2.0]);
    assert_eq!(i32::from_ne_bytes(answer(&columns, 0)), 1);
}

#[test]
fn other_delimiters_can_be_named() {
    let columns = Csv::label("y").delimiter('\t').read(Cursor::new("a\tb\ty\n1\t2\t3\n")).unwrap();
    assert_eq!(features(&columns, 0), [1.0, 2.0]);
}

#[test]
fn class_numbers_may_be_written_as_reals() {
    let columns = read("x,y\n1,2.0\n").unwrap();
    assert_eq!(i32::from_ne_bytes(answer(&columns, 0)), 2);
}

#[test]
fn wrong_cells_are_named_by_line_and_column() {
    let cases = [
        (
            "x,y\n1,0\n\ntwo,1\n",
            "line 4, column `x`: `two` is not a number; list the column's `categories`, or `ignore` it",
        ),
        (
            "x,y\n1,0\n,1\n",
            "line 3, column `x`: the cell is empty; fill it, remove the row, or say what is `missing` in the column",
        ),
        (
            "x,y\n1,0\n\"1,5\",1\n",
            "line 3, column `x`: `1,5` is not a number as it is read: say `decimal = \",\"` if fractions follow a comma, or write it with a point and no commas, as 1234.5",
        ),
        (
            "x,y\nnan,0\n",
            "line 2, column `x`: `nan` is no number; replace it, remove the row, or say what is `missing` in the column",
        ),
        ("x,y\n1e60,0\n", "line 2, column `x`: `1e60` is not a finite f32; replace it, or remove the row"),
        (
            "x,y\n1,cat\n",
            "line 2, column `y`: `cat` is not a class number; number the classes 0, 1, 2 and so on, or list their names as the classes",
        ),
        (
            "x,y\n1,0.5\n",
            "line 2, column `y`: `0.5` is not a class number; number the classes 0, 1, 2 and so on, or list their names as the classes",
        ),
        ("x,y\n1,0\n2\n", "line 3: it has 1 cells where the header has 2"),
        ("x,y\n1,0,5\n", "line 2: it has 3 cells where the header has 2"),
        (
            "x,y\n\"1,0\n",
            "line 2, column `x`: the quotes of `\"1,0` are not closed: write a quote that is part of a cell twice",
        ),
    ];
    for (text, message) in cases {
        assert_eq!(refusal(text), message);
    }
}

#[test]
fn an_empty_last_cell_is_seen_when_cells_are_parted_by_tabs() {
    let error = Csv::label("x").delimiter('\t').read(Cursor::new("x\tz\n1\t\n")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "line 2, column `z`: the cell is empty; fill it, remove the row, or say what is `missing` in the column"
    );
}

#[test]
fn wrong_headers_are_refused() {
    assert_eq!(refusal("a,b\n1,0\n"), "there is no field `y` in the header; the fields are: a, b");
    for (header, written) in [("x;y", ";"), ("\"x\";\"y\"", ";"), ("y\tx", "\\t"), ("x | y", "|")] {
        let told = format!("say what stands between cells, as `delimiter = \"{written}\"`");
        assert!(refusal(&format!("{header}\n1;2\n")).ends_with(&told), "{header}");
    }
    assert!(refusal("x,y\r1,0\r").starts_with("line 1: its lines end with CR alone"));
    assert_eq!(refusal("a,a,y\n1,0,0\n"), "line 1: two columns are named `a`");
    assert_eq!(refusal("y\n1\n"), "line 1: it has no column to predict `y` from");
}

#[test]
fn a_file_without_header_or_rows_is_refused() {
    assert_eq!(refusal("\n \n"), "the csv text has no header line: there is nothing to train on");
    assert_eq!(refusal("x,y\n\n"), "the csv text has a header but no rows: there is nothing to train on");
}

#[test]
fn text_that_is_not_utf_8_is_named_by_line() {
    let error = Csv::label("y").read(Cursor::new(b"x,y\n1,\xff\n")).unwrap_err();
    assert_eq!(error.to_string(), "line 2: this is not UTF-8 text; save the file as UTF-8");
}

proptest! {
    #[test]
    fn windows_are_the_rows_of_the_file_and_what_comes_after_them(
        values in prop::collection::vec(-1000i32..1000, 4..40),
        window in 1usize..5,
        horizon in 1usize..4,
    ) {
        let text: String = values.iter().map(|value| format!("x{value},{value}\n")).collect();
        let csv = Csv::target("y").ignore(["name"]).with_known_answer();
        let rows = csv.read(Cursor::new(format!("name,y\n{text}"))).unwrap();
        let windows = match Windows::new(rows, window, horizon) {
            Ok(windows) => windows,
            Err(error) => {
                prop_assert!(values.len() < window + horizon, "{}", error);
                return Ok(());
            }
        };
        prop_assert_eq!(windows.samples(), values.len() + 1 - window - horizon);
        for sample in 0..windows.samples() {
            let expected: Vec<f32> = values[sample..sample + window].iter().map(|&value| value as f32).collect();
            prop_assert_eq!(features(&windows, sample), expected);
            let next = values[sample + window - 1 + horizon] as f32;
            prop_assert_eq!(answer(&windows, sample), next.to_ne_bytes());
        }
        let split = Dataset::new(windows).unwrap().split_in_order(0.5);
        if let Ok(split) = split {
            let first = |data: &Dataset| data.records(0).unwrap().read().unwrap().unwrap().get::<f32>("features").unwrap()[0];
            prop_assert_eq!(first(&split.train), values[0] as f32);
            prop_assert_eq!(first(&split.held_out), values[split.train.samples()] as f32);
        }
    }
}

#[test]
fn a_window_of_a_text_or_of_packed_rows_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let options = [("path", "x.csv"), ("target", "y"), ("window", "3")];
    let of = |more: &[(&'static str, &'static str)]| {
        common::describe("csv", folder.path(), &[&options[..], more].concat())
    };
    let error = of(&[("text", "t"), ("length", "3")]).unwrap_err().to_string();
    assert!(error.contains("a `text` is none"), "{error}");
    let alone = [("path", "x.csv"), ("target", "y"), ("horizon", "3")];
    let error = common::describe("csv", folder.path(), &alone).unwrap_err().to_string();
    assert!(error.contains("that of a `window`"), "{error}");
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    packed.write_all(b"y\n1\n2\n3\n4\n").unwrap();
    std::fs::write(folder.path().join("x.csv"), packed.finish().unwrap()).unwrap();
    let error = of(&[]).unwrap().open().unwrap_err().to_string();
    assert!(error.contains("x.csv: it is packed"), "{error}");
}
