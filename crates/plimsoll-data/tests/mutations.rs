//! Files that were cut, changed and spliced: whatever is in them, reading ends with values or an error that can be
//! printed.

use plimsoll_data::sources::{JsonLines, Key, RecordFiles, Streamed, TfRecord};
use plimsoll_data::{Csv, Element, Field, RamBudget, Record, Result, Source};
use proptest::prelude::*;
use std::path::Path;

const CSV: &[u8] = b"a,\"b\",y,c\n1.5,-2,0,\" 3 \"\r\n\n1e3,.5,1,7\n 1,2,2.0,3\n";

fn fixture(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)).unwrap()
}

/// What happens to a file.
#[derive(Clone, Debug)]
enum Change {
    Cut(usize),
    Set(usize, u8),
    Insert(usize, Vec<u8>),
    /// A part of it again, elsewhere.
    Copy(usize, usize, usize),
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        let end = bytes.len() + 1;
        match self {
            Change::Cut(at) => bytes.truncate(at % end),
            Change::Set(at, byte) if !bytes.is_empty() => {
                let at = at % bytes.len();
                bytes[at] = *byte;
            }
            Change::Set(..) => {}
            Change::Insert(at, more) => drop(bytes.splice(at % end..at % end, more.iter().copied())),
            Change::Copy(from, length, to) => {
                let from = from % end;
                let part = bytes[from..bytes.len().min(from + length)].to_vec();
                drop(bytes.splice(to % end..to % end, part));
            }
        }
    }
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let telling = prop::sample::select(b"[]{}\",:\\ue-+.019nt\n\r\t \x00\x7f\x80\xff".to_vec());
    let byte = prop_oneof![telling, any::<u8>()];
    let at = || 0usize..2000;
    prop::collection::vec(
        prop_oneof![
            1 => at().prop_map(Change::Cut),
            4 => (at(), byte.clone()).prop_map(|(at, byte)| Change::Set(at, byte)),
            2 => (at(), prop::collection::vec(byte, 1..20)).prop_map(|(at, more)| Change::Insert(at, more)),
            1 => (at(), 1usize..300, at()).prop_map(|(from, length, to)| Change::Copy(from, length, to)),
        ],
        1..6,
    )
}

/// Reads a file in both ways. What is streamed to its end without error is the same by number.
fn read(
    bytes: &[u8],
    open: impl Fn(&Path) -> Result<RecordFiles>,
    stream: impl Fn(&Path) -> Result<Streamed>,
) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mutant");
    std::fs::write(&path, bytes).unwrap();
    let mut streamed = Vec::new();
    let all = stream(&path).and_then(|stream| {
        let (mut record, mut reader) = (Record::new(stream.fields()), stream.reader()?);
        while reader.next(&mut record)? {
            streamed.push(record.clone());
        }
        Ok(())
    });
    let source = match open(&path) {
        Ok(source) => source,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let mut record = Record::new(&source.fields().into());
    let mut is_read = true;
    for sample in 0..source.samples() {
        match source.read_record(sample, &mut record) {
            Ok(()) => {
                if let Some(other) = streamed.get(sample) {
                    let positions = 0..source.fields().len();
                    assert!(
                        { positions }
                            .all(|at| record.bytes(at) == other.bytes(at)
                                && record.shape(at) == other.shape(at))
                    );
                }
            }
            Err(error) => {
                assert!(!error.to_string().is_empty());
                is_read = false;
            }
        }
    }
    if is_read {
        all.unwrap();
        assert_eq!(streamed.len(), source.samples());
    }
}

fn key(name: &str, element: Element, shape: &[usize]) -> Key {
    Key::of(Field::open(name, element, shape).unwrap())
}

const BUDGET: RamBudget = RamBudget::bytes(8 << 20);

fn read_json_lines(bytes: &[u8]) {
    let keys = [
        key("floats", Element::F32, &[Field::OPEN, Field::OPEN]),
        key("label", Element::I32, &[]).classes(3),
        key("tokens", Element::I64, &[Field::OPEN]),
        key("text", Element::U8, &[Field::OPEN]),
    ];
    let lines = JsonLines::new(&keys).unwrap().budget(BUDGET);
    read(bytes, |path| lines.open(path), |path| lines.stream(path));
}

fn read_examples(bytes: &[u8]) {
    let keys = [
        key("floats", Element::F32, &[Field::OPEN, 3]),
        key("label", Element::I32, &[]).classes(3),
        key("tokens", Element::I64, &[Field::OPEN]),
        key("text", Element::U8, &[Field::OPEN]),
    ];
    let examples = TfRecord::new(&keys).unwrap().budget(BUDGET);
    read(bytes, |path| examples.open(path), |path| examples.stream(path));
}

fn read_csv(bytes: &[u8]) {
    let csv = Csv::label("y").budget(BUDGET);
    read(bytes, |path| csv.open(path), |path| csv.stream(path));
}

/// The records of a file of examples, with the checksums that their bytes have now.
fn with_right_checksums(mut bytes: Vec<u8>) -> Vec<u8> {
    let masked =
        |bytes: &[u8]| crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes();
    let mut at = 0;
    while let Some(head) = bytes.get(at..at + 8) {
        let length = u64::from_le_bytes(head.try_into().unwrap()) as usize % 1000;
        if at + 16 + length > bytes.len() {
            break;
        }
        bytes[at..at + 8].copy_from_slice(&(length as u64).to_le_bytes());
        let checksum = masked(&bytes[at..at + 8]);
        bytes[at + 8..at + 12].copy_from_slice(&checksum);
        let checksum = masked(&bytes[at + 12..at + 12 + length]);
        bytes[at + 12 + length..at + 16 + length].copy_from_slice(&checksum);
        at += 16 + length;
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_table_makes_it_panic(changes in changes()) {
        let mut bytes = CSV.to_vec();
        changes.iter().for_each(|change| change.apply(&mut bytes));
        read_csv(&bytes);
    }

    #[test]
    fn no_json_makes_it_panic(changes in changes()) {
        let mut bytes = fixture("records.jsonl");
        changes.iter().for_each(|change| change.apply(&mut bytes));
        read_json_lines(&bytes);
    }

    #[test]
    fn no_example_makes_it_panic(changes in changes(), is_right: bool) {
        let mut bytes = fixture("records.tfrecord");
        changes.iter().for_each(|change| change.apply(&mut bytes));
        read_examples(&if is_right { with_right_checksums(bytes) } else { bytes });
    }

    #[test]
    fn no_packed_file_makes_it_panic(changes in changes(), is_gzip: bool) {
        let mut bytes = fixture(if is_gzip { "records.jsonl.gz" } else { "records.jsonl.zst" });
        changes.iter().for_each(|change| change.apply(&mut bytes));
        read_json_lines(&bytes);
    }
}
