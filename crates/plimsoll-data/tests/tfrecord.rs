//! TFRecord files as TensorFlow writes them (`scripts/export_records.py`), and saying where one is wrong.

use plimsoll_data::sources::{Key, TfRecord};
use plimsoll_data::{Element, ErrorKind, Field, Record, Result, Source};
use std::path::{Path, PathBuf};

const OPEN: usize = Field::OPEN;

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn key(name: &str, element: Element, shape: &[usize]) -> Key {
    Key::of(Field::open(name, element, shape).unwrap())
}

fn examples() -> TfRecord {
    TfRecord::new(&[
        key("floats", Element::F32, &[OPEN, 3]),
        key("class", Element::I32, &[]).called("label").classes(3),
        key("tokens", Element::I64, &[OPEN]),
        key("text", Element::U8, &[OPEN]),
        key("empty", Element::F64, &[OPEN]),
    ])
    .unwrap()
}

const TEXTS: [&str; 5] = ["", "plain", "quotes \" and \\ and /", "lines\nand\ttabs\u{1}", "Grüße, 世界, 🌍"];

fn floats(n: usize) -> Vec<f32> {
    (0..6).map(|k| (n as f64 / 2.0 + f64::from(k) / 10.0) as f32).collect()
}

/// Sample `n` is what the script wrote.
fn check(record: &Record, n: usize) {
    assert_eq!(record.get::<f32>("floats").unwrap(), floats(n));
    assert_eq!(record.shape_of("floats").unwrap(), [2, 3]);
    assert_eq!(record.get::<i32>("class").unwrap(), [n as i32 % 3]);
    let tokens: Vec<i64> = (0..n as u32).map(|k| (-1i64).pow(k) * 1000i64.pow(k)).collect();
    assert_eq!(record.get::<i64>("tokens").unwrap(), tokens);
    assert_eq!(record.get::<u8>("text").unwrap(), TEXTS[n].as_bytes());
    assert!(record.get::<f64>("empty").unwrap().is_empty());
}

#[test]
fn what_tensorflow_wrote_is_read_by_number_in_any_order() {
    let source = examples().open(file("records.tfrecord")).unwrap();
    assert_eq!(source.samples(), 5);
    let mut record = Record::new(&source.fields().into());
    for n in [4, 3, 2, 1, 0, 3] {
        source.read_record(n, &mut record).unwrap();
        check(&record, n);
    }
    assert!(source.resident_bytes() < 10_000);
}

#[test]
fn what_tensorflow_wrote_is_streamed_packed_or_not() {
    for name in ["records.tfrecord", "records.tfrecord.gz"] {
        let streamed = examples().stream(file(name)).unwrap();
        let (mut record, mut reader) = (Record::new(streamed.fields()), streamed.reader().unwrap());
        for n in 0..5 {
            assert!(reader.next(&mut record).unwrap());
            check(&record, n);
        }
        assert!(!reader.next(&mut record).unwrap());
    }
}

#[test]
fn numbers_with_a_tag_each_are_read_like_packed_ones() {
    let keys = [key("floats", Element::F64, &[6]), key("label", Element::I64, &[])];
    let source = TfRecord::new(&keys).unwrap().open(file("unpacked.tfrecord")).unwrap();
    let mut record = Record::new(&source.fields().into());
    for n in 0..5 {
        source.read_record(n, &mut record).unwrap();
        let expected: Vec<f64> = floats(n).into_iter().map(f64::from).collect();
        assert_eq!(record.get::<f64>("floats").unwrap(), expected);
        assert_eq!(record.get::<i64>("label").unwrap(), [n as i64 % 3]);
    }
}

#[test]
fn several_files_are_read_as_one() {
    let keys = [key("floats", Element::F32, &[6]), key("label", Element::U8, &[])];
    let source = TfRecord::new(&keys).unwrap().open(file("*.tfrecord")).unwrap();
    assert_eq!(source.samples(), 10);
    let mut bytes = [0; 24];
    for n in 0..10 {
        source.read(n, 0, &mut bytes).unwrap();
        assert_eq!(
            bytes.as_chunks().0.iter().map(|&value| f32::from_ne_bytes(value)).collect::<Vec<_>>(),
            floats(n % 5)
        );
    }
}

/// Opens a file of these bytes and reads all of it.
fn read(bytes: &[u8], examples: &TfRecord) -> Result<usize> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.tfrecord");
    std::fs::write(&path, bytes).unwrap();
    let source = examples.open(&path)?;
    let mut record = Record::new(&source.fields().into());
    (0..source.samples()).try_for_each(|sample| source.read_record(sample, &mut record))?;
    Ok(source.samples())
}

fn refusal(bytes: &[u8], examples: &TfRecord) -> (String, Option<usize>, Option<u64>) {
    let error = read(bytes, examples).unwrap_err();
    let ErrorKind::File { path, sample, offset, reason } = error.kind() else { panic!("{error}") };
    assert!(path.ends_with("x.tfrecord"));
    (reason.clone(), *sample, *offset)
}

#[test]
fn damage_is_found_by_checksums_and_named_by_record_and_byte() {
    let bytes = std::fs::read(file("records.tfrecord")).unwrap();
    let second = 16 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let third = second + 16 + u64::from_le_bytes(bytes[second..][..8].try_into().unwrap()) as usize;
    assert_eq!(read(&bytes, &examples()).unwrap(), 5);
    let changed = |at: usize| {
        let mut bytes = bytes.clone();
        bytes[at] ^= 0x10;
        refusal(&bytes, &examples())
    };
    let length = "the checksum of a record's length is wrong: the file is damaged, or no TFRecord file";
    assert_eq!(changed(second), (length.to_string(), Some(1), Some(second as u64)));
    assert_eq!(changed(second + 9), (length.to_string(), Some(1), Some(second as u64)));
    let data = "the checksum of the record is wrong: the file is damaged";
    assert_eq!(changed(second + 40), (data.to_string(), Some(1), Some(second as u64 + 12)));
    assert_eq!(changed(third - 1), (data.to_string(), Some(1), Some(second as u64 + 12)));

    let cut = refusal(&bytes[..third - 1], &examples());
    let reason = format!(
        "the record has {} bytes, of which {} are there: the file is cut off",
        third - second,
        third - second - 1
    );
    assert_eq!(cut, (reason, Some(1), Some(second as u64)));
    let cut = refusal(&bytes[..second + 5], &examples());
    assert_eq!(cut.0, "5 bytes are left where a record begins with 12: the file is cut off");
    assert!(read(&[], &examples()).unwrap_err().to_string().contains("has no records"));
}

#[test]
fn keys_that_are_missing_or_of_another_type_are_named() {
    let bytes = std::fs::read(file("records.tfrecord")).unwrap();
    let reason = |key: Key| refusal(&bytes, &TfRecord::new(&[key]).unwrap()).0;
    let missing = reason(key("pixels", Element::F32, &[]));
    assert!(missing.starts_with("`pixels`: the record has no such key; its keys are: "), "{missing}");
    assert!(missing.contains("tokens"), "{missing}");
    assert_eq!(
        reason(key("floats", Element::I32, &[6])),
        "`floats`: it is a float_list, which can be taken as f32 or f64 and not as i32"
    );
    assert_eq!(
        reason(key("text", Element::F32, &[OPEN])),
        "`text`: it is a bytes_list, which can be taken as u8 and not as f32"
    );
    assert_eq!(reason(key("unused", Element::U8, &[OPEN])), "`unused`: it has 2 values of bytes, not one");
    assert_eq!(
        reason(key("floats", Element::F32, &[5])),
        "`floats`: it has 6 values, which is no sample of its field, floats: f32 [5]"
    );
    assert_eq!(
        reason(key("floats", Element::F32, &[OPEN, 4])),
        "`floats`: it has 6 values, which is no sample of its field, floats: f32 [?, 4]"
    );
    assert!(
        reason(key("label", Element::I32, &[]).classes(2))
            .starts_with("`label`: the label 2 is outside of 0..2")
    );
    assert!(reason(key("tokens", Element::U8, &[OPEN])).ends_with("-1000 does not fit u8"));
    let error = TfRecord::new(&[key("x", Element::F32, &[OPEN, OPEN])]).unwrap_err();
    assert!(error.to_string().contains("at most one axis"), "{error}");
}

#[test]
fn a_length_that_is_only_claimed_takes_no_memory() {
    // A length of almost 2^63 with its right checksum, as only malice writes it.
    let length = (u64::MAX / 2).to_le_bytes();
    let checksum = crc32c::crc32c(&length).rotate_right(15).wrapping_add(0xa282_ead8);
    let bytes = [&length[..], &checksum.to_le_bytes(), &[0; 100]].concat();
    assert!(read(&bytes, &examples()).is_err());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    std::fs::write(&path, &bytes).unwrap();
    let streamed = examples().stream(&path).unwrap();
    let (mut record, mut reader) = (Record::new(streamed.fields()), streamed.reader().unwrap());
    let error = reader.next(&mut record).unwrap_err();
    assert!(error.to_string().contains("more than 1073741824 bytes"), "{error}");
}
