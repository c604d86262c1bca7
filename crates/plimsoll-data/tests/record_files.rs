//! Files of records read by number and as streams: the same values either way, in any order, from any thread, in little
//! memory.

use plimsoll_data::{Csv, Dataset, ErrorKind, RamBudget, Record, Result, Source};
use proptest::prelude::*;
use std::io::{Cursor, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;

/// A table of numbers, some with blank lines, quotes and spaces between, of more bytes than are kept in memory.
fn large_csv(folder: &TempDir) -> (PathBuf, String) {
    let mut text = "a,b,y,c\n".to_string();
    for row in 0..110_000u32 {
        let noise = row.wrapping_mul(2_654_435_761);
        let (a, b) = (f64::from(noise) / 7.0, noise as f32 * 1e-20);
        match row % 97 {
            0 => text += &format!("\n{a}, \"{b:e}\",{},-{row}.5\r\n", row % 10),
            1 => text += &format!("{a} ,{b:e},{}.0,1e-3\n", row % 10),
            _ => text += &format!("{a},{b:e},{},{row}\n", row % 10),
        }
    }
    assert!(text.len() > 4 << 20);
    let path = folder.path().join("large.csv");
    std::fs::write(&path, &text).unwrap();
    (path, text)
}

fn values(source: &impl Source, sample: usize) -> Vec<Vec<u8>> {
    let read = |(position, field): (usize, &plimsoll_data::Field)| {
        let mut bytes = vec![0; field.bytes()];
        source.read(sample, position, &mut bytes).unwrap();
        bytes
    };
    source.fields().iter().enumerate().map(read).collect()
}

fn record_values(source: &impl Source, sample: usize) -> Vec<Vec<u8>> {
    let mut record = Record::new(&source.fields().into());
    source.read_record(sample, &mut record).unwrap();
    (0..source.fields().len()).map(|position| record.bytes(position).to_vec()).collect()
}

#[test]
fn large_files_are_read_by_number_as_if_they_were_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let (path, text) = large_csv(&folder);
    let in_memory = Csv::label("y").read(Cursor::new(text)).unwrap();
    let in_place = Csv::label("y").open(&path).unwrap();
    assert_eq!(in_place.samples(), in_memory.samples());
    assert_eq!(in_place.fields(), in_memory.fields());
    for sample in 0..in_place.samples() {
        let (sample, apart) = (sample, (sample * 7919) % in_place.samples());
        assert_eq!(values(&in_place, sample), values(&in_memory, sample));
        assert_eq!(record_values(&in_place, apart), values(&in_memory, apart));
    }
}

#[test]
fn threads_read_one_file_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let (path, text) = large_csv(&folder);
    let in_memory = Csv::label("y").read(Cursor::new(text)).unwrap();
    let in_place = Csv::label("y").open(&path).unwrap();
    let samples = in_place.samples();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (in_memory, in_place) = (&in_memory, &in_place);
            scope.spawn(move || {
                for at in 0..20_000 {
                    let sample = if thread % 2 == 0 { at } else { (at * 7919 + thread) % samples };
                    assert_eq!(values(in_place, sample), values(in_memory, sample));
                }
            });
        }
    });
}

#[test]
fn a_large_file_is_read_in_a_small_part_of_its_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let (path, text) = large_csv(&folder);
    let budget = RamBudget::bytes(1 << 20);
    let in_place = Csv::label("y").budget(budget).open(&path).unwrap();
    assert!(in_place.resident_bytes() <= 1 << 20 && text.len() > 4 << 20, "{}", in_place.resident_bytes());
    let error = Csv::label("y").budget(RamBudget::bytes(256 << 10)).open(&path).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::OverBudget { limit: 262_144, .. }), "{error}");
}

#[test]
fn the_values_of_a_small_file_are_kept_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("small.csv");
    std::fs::write(&path, "a,b,y\n1,2,0\n3,4,1\n").unwrap();
    let small = Csv::label("y").open(&path).unwrap();
    assert_eq!(small.resident_bytes(), 2 * 3 * 4);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(values(&small, 1), [bytemuck(&[3.0, 4.0]), 1i32.to_ne_bytes().to_vec()]);
}

fn bytemuck(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

#[test]
fn a_file_that_changes_after_it_was_opened_is_an_error_and_no_wrong_sample() {
    let folder = tempfile::tempdir().unwrap();
    let (path, text) = large_csv(&folder);
    let in_place = Csv::label("y").open(&path).unwrap();
    std::fs::write(&path, "z".repeat(text.len())).unwrap();
    let mut out = [0; 12];
    let error = in_place.read(100_000, 0, &mut out).unwrap_err();
    assert!(error.to_string().contains("the file was changed after it was opened"), "{error}");
    let ErrorKind::File { path: named, sample: Some(100_000), offset: Some(_), .. } = error.kind() else {
        panic!("{error}")
    };
    assert_eq!(*named, path);
    std::fs::write(&path, text.replace(",1e-3", ",none")).unwrap();
    let error = in_place.read(1, 0, &mut out).unwrap_err();
    assert!(error.to_string().contains("`c`: `none` is not a number"), "{error}");
}

#[test]
fn errors_in_files_name_the_file_and_the_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bad.csv");
    std::fs::write(&path, "x,y\n1,0\n\ntwo,1\n").unwrap();
    let expected = format!(
        "{}: line 4, column `x`: `two` is not a number; list the column's `categories`, or `ignore` it",
        path.display()
    );
    assert_eq!(Csv::label("y").open(&path).unwrap_err().to_string(), expected);
    let streamed = Csv::label("y").stream(&path).unwrap();
    let (mut record, mut reader) = (Record::new(streamed.fields()), streamed.reader().unwrap());
    assert!(reader.next(&mut record).unwrap());
    assert_eq!(reader.next(&mut record).unwrap_err().to_string(), expected);
}

#[test]
fn labels_of_a_file_are_known_without_reading_it_again() {
    let folder = tempfile::tempdir().unwrap();
    let (path, _) = large_csv(&folder);
    let data = Dataset::new(Csv::label("y").open(&path).unwrap()).unwrap();
    std::fs::write(&path, "").unwrap();
    data.check_labels("label", 10).unwrap();
    data.check().unwrap();
}

/// All records of a stream, each as the bytes of its fields.
fn streamed(of: &plimsoll_data::sources::Streamed) -> Result<Vec<Vec<Vec<u8>>>> {
    let (mut record, mut reader) = (Record::new(of.fields()), of.reader()?);
    let mut all = Vec::new();
    while reader.next(&mut record)? {
        all.push((0..of.fields().len()).map(|position| record.bytes(position).to_vec()).collect());
    }
    Ok(all)
}

#[test]
fn several_files_are_read_one_after_the_other_by_a_pattern_or_a_list() {
    let folder = tempfile::tempdir().unwrap();
    for (name, rows) in
        [("train-2.csv", "5,0\n6,1\n"), ("train-1.csv", "3,1\n"), ("other.csv", "9,0\n"), ("train-3.csv", "")]
    {
        std::fs::write(folder.path().join(name), format!("x,y\n{rows}")).unwrap();
    }
    let pattern = folder.path().join("train-*.csv");
    let list = ["train-1.csv", "train-2.csv"].map(|name| folder.path().join(name));
    for source in [Csv::target("y").open(&pattern).unwrap(), Csv::target("y").open(list).unwrap()] {
        let features: Vec<_> =
            (0..source.samples()).map(|sample| values(&source, sample).remove(0)).collect();
        assert_eq!(features, [3f32, 5.0, 6.0].map(|value| bytemuck(&[value])));
    }
    let streamed = streamed(&Csv::target("y").stream(&pattern).unwrap()).unwrap();
    assert_eq!(streamed.len(), 3);

    let none = folder.path().join("no-*.csv");
    let error = Csv::target("y").open(&none).unwrap_err();
    assert_eq!(error.to_string(), format!("{}: no file matches this pattern", none.display()));
    let error = Csv::target("y").open(Vec::<&Path>::new()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Empty { .. }), "{error}");
}

#[test]
fn files_with_other_columns_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("a.csv"), "x,y\n1,0\n").unwrap();
    std::fs::write(path("b.csv"), "y,x\n1,0\n").unwrap();
    let error = Csv::label("y").open([path("a.csv"), path("b.csv")]).unwrap_err().to_string();
    let (a, b) = (path("a.csv").display().to_string(), path("b.csv").display().to_string());
    assert!(error.starts_with(&format!("{b}: its column 1 is `y` where that of {a} is `x`")), "{error}");
}

#[test]
fn files_that_end_in_tsv_are_parted_by_tabs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("table.tsv");
    std::fs::write(&path, "a\ty\n1.5\t1\n").unwrap();
    assert_eq!(values(&Csv::label("y").open(&path).unwrap(), 0)[0], bytemuck(&[1.5]));
    let packed = folder.path().join("table.tsv.gz");
    std::fs::write(&packed, gzip(b"a\ty\n1.5\t1\n")).unwrap();
    assert_eq!(streamed(&Csv::label("y").stream(&packed).unwrap()).unwrap()[0][0], bytemuck(&[1.5]));
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(bytes).unwrap();
    packed.finish().unwrap()
}

#[test]
fn packed_files_are_streamed_whatever_their_names_and_not_read_by_number() {
    let folder = tempfile::tempdir().unwrap();
    let (path, text) = large_csv(&folder);
    let packed = folder.path().join("packed.csv");
    // Two members, as programs that pack in parallel write them.
    let (first, second) = text.as_bytes().split_at(text.len() / 3);
    std::fs::write(&packed, [gzip(first), gzip(second)].concat()).unwrap();
    let plain = streamed(&Csv::label("y").stream(&path).unwrap()).unwrap();
    assert_eq!(plain.len(), 110_000);
    assert!(plain == streamed(&Csv::label("y").stream(&packed).unwrap()).unwrap());

    let by_number = Csv::label("y").open(&path).unwrap();
    assert!((0..110_000).all(|sample| values(&by_number, sample) == plain[sample]));

    let error = Csv::label("y").open(&packed).unwrap_err();
    assert!(error.to_string().contains("read it as a stream, or unpack it"), "{error}");
}

proptest! {
    /// The quick way through a line, which files and text share, finds what Rust's own parser finds.
    #[test]
    fn cells_are_numbers_as_rust_reads_them(
        cell in "[ ]?[+-]?[0-9]{0,12}[.]?[0-9]{0,12}([eE][+-]?[0-9]{0,2})?[ ]?|inf|NaN|1_0|0x1|[.]|-",
    ) {
        let read = Csv::target("y").read(Cursor::new(format!("x,y\n{cell},1\n")));
        match cell.trim().parse::<f32>() {
            Ok(value) if value.is_finite() => {
                prop_assert_eq!(values(&read.unwrap(), 0)[0].clone(), bytemuck(&[value]));
            }
            _ => prop_assert!(read.is_err()),
        }
    }
}

#[test]
fn a_record_of_other_fields_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.csv");
    std::fs::write(&path, "x,y\n1,0\n").unwrap();
    let source = Csv::label("y").open(&path).unwrap();
    let other = plimsoll_data::Field::new("features", plimsoll_data::Element::F32, &[7]).unwrap();
    let fields: Arc<[_]> = [other.clone(), other.named("label").unwrap()].into();
    assert!(source.read_record(0, &mut Record::new(&fields)).is_err());
    assert!(matches!(
        source.read_record(1, &mut Record::new(&source.fields().into())).unwrap_err().kind(),
        ErrorKind::NoSuchSample { sample: 1, samples: 1 }
    ));
}
