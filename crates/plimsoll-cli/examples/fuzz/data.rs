//! Readers of data that is trained on: files of records, and images. Tables and tokenizers are read by crates that panic now and
//! then, which is an error where they are called and would be a finding here: tests of their own spoil those.

use crate::mutate::Seed;
use crate::target::array_files;
use plimsoll::data::image::{Channels, decode};
use plimsoll::data::sources::{JsonLines, Key, RecordFiles, Streamed, TextTokens, TfRecord, Windows};
use plimsoll::data::{Csv, Element, Field, RamBudget, Record, Result, Source};
use std::path::{Path, PathBuf};

const BUDGET: RamBudget = RamBudget::bytes(64 << 20);
/// More pixels than any of the good images has, and as many as are decoded in no time.
const MOST_PIXELS: usize = 1 << 20;

/// Good files in whose names one of these stands.
pub(crate) fn files(parts: &[&str]) -> Vec<Seed> {
    parts.iter().flat_map(|part| array_files(part)).collect()
}

/// Does something with a file of these bytes, and removes it.
fn with_file<T>(bytes: &[u8], ending: &str, then: impl FnOnce(&Path) -> T) -> T {
    let path: PathBuf = std::env::temp_dir().join(format!("plimsoll-fuzz-{}.{ending}", std::process::id()));
    std::fs::write(&path, bytes).expect("a temporary file");
    let done = then(&path);
    let _ = std::fs::remove_file(&path);
    done
}

/// Says whether all went well; what went wrong is said. Errors quote what they are about, and commands print no character
/// that acts on a terminal.
fn is_well<T>(read: Result<T>) -> bool {
    read.map_err(|error| assert!(!error.to_string().is_empty())).is_ok()
}

/// Reads all records of a source.
fn read_all(source: &impl Source) -> Result<()> {
    let mut record = Record::new(&source.fields().into());
    (0..source.samples()).try_for_each(|sample| source.read_record(sample, &mut record))
}

/// Reads records by number and as a stream.
fn both_ways(opened: Result<RecordFiles>, streamed: Result<Streamed>) -> bool {
    let by_number = is_well(opened.and_then(|source| read_all(&source)));
    let in_order = is_well(streamed.and_then(|stream| {
        let (mut record, mut reader) = (Record::new(stream.fields()), stream.reader()?);
        while reader.next(&mut record)? {}
        Ok(())
    }));
    by_number | in_order
}

fn key(name: &str, element: Element, shape: &[usize]) -> Key {
    Key::of(Field::open(name, element, shape).expect("a field"))
}

/// Reads what may be JSON Lines, packed or not, its text also as tokens.
pub(crate) fn json_lines(bytes: &[u8]) -> bool {
    let words = Key::text("text", TextTokens::words(16, 50)).expect("a key");
    let texts = JsonLines::new(&[words]).expect("a key").budget(BUDGET);
    with_file(bytes, "jsonl", |path| both_ways(texts.open(path), texts.stream(path)));
    let keys = [key("text", Element::U8, &[Field::OPEN]), key("tokens", Element::I64, &[Field::OPEN])];
    let lines = JsonLines::new(&keys).expect("keys").budget(BUDGET);
    with_file(bytes, "jsonl", |path| both_ways(lines.open(path), lines.stream(path)))
}

/// Reads what may be TFRecord, packed or not.
pub(crate) fn tf_record(bytes: &[u8]) -> bool {
    let keys = [key("tokens", Element::I64, &[Field::OPEN]), key("label", Element::I64, &[])];
    let examples = TfRecord::new(&keys).expect("keys").budget(BUDGET);
    with_file(bytes, "tfrecord", |path| both_ways(examples.open(path), examples.stream(path)))
}

/// Reads what may be a csv file, packed or not: its numbers, a text in it, and windows of its rows.
pub(crate) fn csv_rows(bytes: &[u8]) -> bool {
    let rows = Csv::label("species").budget(BUDGET);
    let texts = rows.clone().text("length", TextTokens::bytes(9));
    let known = rows.clone().with_known_answer();
    with_file(bytes, "csv", |path| {
        is_well(known.open(path).and_then(|rows| read_all(&Windows::new(rows, 2, 1)?)));
        both_ways(texts.open(path), texts.stream(path))
    });
    with_file(bytes, "csv", |path| both_ways(rows.open(path), rows.stream(path)))
}

/// Decodes what may be an image.
pub(crate) fn image(bytes: &[u8]) -> bool {
    let mut pixels = vec![];
    let rgb = decode(bytes, Channels::Rgb, MOST_PIXELS, &mut pixels);
    if let Ok(shape) = rgb {
        assert_eq!(pixels.len(), shape.iter().product::<usize>());
    }
    is_well(rgb) & is_well(decode(bytes, Channels::Grey, MOST_PIXELS, &mut pixels))
}
