//! How fast files of records are read, and in how much memory: files of some 200 MB, made in a temporary folder. Each
//! way of reading is a process of its own, so that its peak is its own. The lower bound for csv is its parser alone,
//! over text that is in memory.
//!
//! Run with: `cargo bench -p plimsoll-data --bench records [MEGABYTES]`

#![allow(clippy::print_stdout)]

use plimsoll_data::sources::{JsonLines, Key, RecordFiles, Streamed, TfRecord};
use plimsoll_data::{Csv, Element, Field, Record, Source};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

const COLUMNS: usize = 20;
/// Samples that are read in no order.
const RANDOM: usize = 200_000;

const CASES: [(&str, &str); 13] = [
    ("csv: the parser alone", "csv"),
    ("csv: streamed", "csv"),
    ("csv: opened, all rows checked", "csv"),
    ("csv: in order", "csv"),
    ("csv: in order, field by field", "csv"),
    ("csv: at random", "csv"),
    ("csv: in turns", "csv"),
    ("csv.gz: streamed", "csv.gz"),
    ("jsonl: opened, all checked", "jsonl"),
    ("jsonl: in order", "jsonl"),
    ("tfrecord: opened", "tfrecord"),
    ("tfrecord: in order", "tfrecord"),
    ("tfrecord: at random", "tfrecord"),
];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    match &arguments[..] {
        [case, path] => run(case, Path::new(path)),
        other => {
            let megabytes = other.first().and_then(|text| text.parse().ok()).unwrap_or(200);
            let folder = tempfile::tempdir().expect("a temporary folder");
            write(folder.path(), megabytes << 20).expect("files in a temporary folder");
            println!("{:32} {:>10} {:>12} {:>10} {:>10}", "", "MB/s", "records/s", "peak MiB", "held KiB");
            for (case, kind) in CASES {
                let path = folder.path().join("data").with_extension(kind);
                let program = std::env::current_exe().expect("this program");
                assert!(Command::new(program).arg(case).arg(path).status().expect("this program").success());
            }
        }
    }
}

/// The same numbers in each format.
fn write(folder: &Path, bytes: usize) -> std::io::Result<()> {
    let file = |kind: &str| File::create(folder.join("data").with_extension(kind)).map(BufWriter::new);
    let (mut csv, mut jsonl, mut tfrecord) = (file("csv")?, file("jsonl")?, file("tfrecord")?);
    let mut packed = flate2::write::GzEncoder::new(file("csv.gz")?, flate2::Compression::fast());
    let mut header: Vec<String> = (0..COLUMNS).map(|at| format!("x{at}")).collect();
    header.push("y\n".to_string());
    csv.write_all(header.join(",").as_bytes())?;
    packed.write_all(header.join(",").as_bytes())?;
    let (mut state, mut written) = (1u64, 0);
    let mut row = 0;
    while written < bytes {
        let mut value = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as f32 / (1u32 << 30) as f32 - 1.0
        };
        let values: Vec<f32> = (0..COLUMNS).map(|_| value()).collect();
        let text: Vec<String> = values.iter().map(f32::to_string).collect();
        let (text, label) = (text.join(","), row % 10);
        let line = format!("{text},{label}\n");
        written += line.len();
        csv.write_all(line.as_bytes())?;
        packed.write_all(line.as_bytes())?;
        writeln!(jsonl, "{{\"x\": [{text}], \"y\": {label}, \"id\": \"row {row}\"}}")?;
        tfrecord.write_all(&example(&values, label))?;
        row += 1;
    }
    packed.finish()?.flush()
}

/// A record with an example of `x`, floats, and `y`, a whole number below 128.
fn example(values: &[f32], label: u8) -> Vec<u8> {
    let message = |number: u8, bytes: &[u8]| {
        let length = [bytes.len() as u8 & 127 | 128, (bytes.len() >> 7) as u8];
        [&[number << 3 | 2], &length[..], bytes].concat()
    };
    let packed: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let entry =
        |name: &str, list: Vec<u8>| message(1, &[message(1, name.as_bytes()), message(2, &list)].concat());
    let floats = entry("x", message(2, &message(1, &packed)));
    let label = entry("y", message(3, &message(1, &[label])));
    let bytes = message(1, &[floats, label].concat());
    let masked =
        |bytes: &[u8]| crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes();
    let length = (bytes.len() as u64).to_le_bytes();
    [&length[..], &masked(&length), &bytes, &masked(&bytes)].concat()
}

fn keys() -> [Key; 2] {
    let field = |name, element, shape: &[usize]| Field::new(name, element, shape).expect("a field");
    let features = Key::of(field("features", Element::F32, &[COLUMNS])).called("x");
    [features, Key::of(field("label", Element::I32, &[])).called("y").classes(10)]
}

fn run(case: &str, path: &Path) {
    let csv = || Csv::label("y").open(path).expect("a csv file");
    let jsonl = || JsonLines::new(&keys()).and_then(|lines| lines.open(path)).expect("JSON lines");
    let tfrecord = || TfRecord::new(&keys()).and_then(|examples| examples.open(path)).expect("examples");
    // The files were just written: all cases find them in the operating system's cache.
    let (mut start, mut held) = (Instant::now(), 0);
    let mut opened = |source: RecordFiles| {
        held = source.resident_bytes();
        start = Instant::now();
        source
    };
    let records = match case {
        "csv: in turns" => return in_turns(path),
        "csv: the parser alone" => {
            let text = std::fs::read(path).expect("a csv file");
            start = Instant::now();
            parse_alone(&text)
        }
        "csv: streamed" | "csv.gz: streamed" => stream(&Csv::label("y").stream(path).expect("a csv file")),
        "csv: opened, all rows checked" => csv().samples(),
        "jsonl: opened, all checked" => jsonl().samples(),
        "tfrecord: opened" => tfrecord().samples(),
        "csv: in order" => in_order(&opened(csv())),
        "csv: in order, field by field" => by_field(&opened(csv())),
        "csv: at random" => at_random(&opened(csv())),
        "jsonl: in order" => in_order(&opened(jsonl())),
        "tfrecord: in order" => in_order(&opened(tfrecord())),
        _ => at_random(&opened(tfrecord())),
    };
    let seconds = start.elapsed().as_secs_f64();
    let megabytes = std::fs::metadata(path).expect("a file").len() as f64 / 1e6;
    let rate = if records == RANDOM { "-".to_string() } else { format!("{:.0}", megabytes / seconds) };
    let per_second = format!("{:.0}", records as f64 / seconds);
    println!("{case:32} {rate:>10} {per_second:>12} {:>10} {:>10}", peak_kib() >> 10, held >> 10);
}

fn parse_alone(text: &[u8]) -> usize {
    let (mut rows, mut sum) = (0, 0.0);
    let mut start = 0;
    for end in memchr::memchr_iter(b'\n', text) {
        let mut cell = start;
        while rows > 0 && cell < end {
            let (value, length) = fast_float2::parse_partial::<f32, _>(&text[cell..end]).expect("a number");
            sum += value;
            cell += length + 1;
        }
        rows += 1;
        start = end + 1;
    }
    std::hint::black_box(sum);
    rows - 1
}

/// The parser alone, the stream and the reader by number, some rows each in turn: their times are compared though the
/// machine does other things meanwhile.
fn in_turns(path: &Path) {
    const ROWS: usize = 5000;
    let text = std::fs::read(path).expect("a csv file");
    let source = Csv::label("y").open(path).expect("a csv file");
    let streamed = Csv::label("y").stream(path).expect("a csv file");
    let mut reader = streamed.reader().expect("a stream");
    let mut record = Record::new(streamed.fields());
    let ends: Vec<usize> = memchr::memchr_iter(b'\n', &text).skip(1).step_by(ROWS).collect();
    let (mut by_stream, mut by_number) = (Vec::new(), Vec::new());
    let time = |work: &mut dyn FnMut()| {
        let start = Instant::now();
        work();
        start.elapsed().as_secs_f64()
    };
    for (turn, part) in ends.windows(2).enumerate() {
        let alone = time(&mut || assert_eq!(parse_alone(&text[part[0]..=part[1]]), ROWS));
        let stream =
            time(&mut || (0..ROWS).for_each(|_| assert!(reader.next(&mut record).expect("a record"))));
        let first = turn * ROWS;
        let number = time(&mut || {
            (first..first + ROWS)
                .for_each(|sample| source.read_record(sample, &mut record).expect("a record"));
        });
        by_stream.push(100.0 * alone / stream);
        by_number.push(100.0 * alone / number);
    }
    let median = |shares: &mut Vec<f64>| {
        shares.sort_by(f64::total_cmp);
        shares[shares.len() / 2]
    };
    println!(
        "csv: of the speed of the parser alone, in turns: streamed {:.0} %, by number in order {:.0} %",
        median(&mut by_stream),
        median(&mut by_number)
    );
}

fn stream(of: &Streamed) -> usize {
    let (mut record, mut reader) = (Record::new(of.fields()), of.reader().expect("a stream"));
    let mut records = 0;
    while reader.next(&mut record).expect("a record") {
        records += 1;
    }
    records
}

fn in_order(source: &RecordFiles) -> usize {
    let mut record = Record::new(&source.fields().into());
    (0..source.samples()).for_each(|sample| source.read_record(sample, &mut record).expect("a record"));
    source.samples()
}

/// As batches are read: 32 times one field, then 32 times the other.
fn by_field(source: &RecordFiles) -> usize {
    let (mut features, mut label) = ([0; 4 * COLUMNS], [0; 4]);
    for first in (0..source.samples()).step_by(32) {
        let batch = first..source.samples().min(first + 32);
        batch.clone().for_each(|sample| source.read(sample, 0, &mut features).expect("features"));
        { batch }.for_each(|sample| source.read(sample, 1, &mut label).expect("a label"));
    }
    source.samples()
}

fn at_random(source: &RecordFiles) -> usize {
    let mut record = Record::new(&source.fields().into());
    for at in 0..RANDOM {
        let sample = (at as u64).wrapping_mul(11_400_714_819_323_198_485) % source.samples() as u64;
        source.read_record(sample as usize, &mut record).expect("a record");
    }
    RANDOM
}

/// The most memory that this process has had, where the system tells.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse().ok()).unwrap_or(0)
}
