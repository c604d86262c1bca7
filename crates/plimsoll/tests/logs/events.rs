//! Event files, read by a decoder of TFRecord and protocol buffers in a page of its own.

use super::Told;
use plimsoll::logs::{Pace, TensorBoard};
use plimsoll::{Observer, Spec};
use std::collections::BTreeMap;
use std::path::Path;

/// An event, as far as tests look into it.
#[derive(Debug, Default, PartialEq)]
struct Event {
    time: f64,
    step: u64,
    version: Option<String>,
    restarts: bool,
    scalars: BTreeMap<String, f32>,
    histograms: BTreeMap<String, Histogram>,
}

#[derive(Debug, Default, PartialEq)]
struct Histogram {
    /// Minimum, maximum, count, sum, sum of squares.
    facts: [f64; 5],
    limits: Vec<f64>,
    buckets: Vec<f64>,
}

/// A field of a message: a number, eight or four bytes, or a slice.
enum Field<'a> {
    Varint(u64),
    Fixed64([u8; 8]),
    Fixed32([u8; 4]),
    Bytes(&'a [u8]),
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first().expect("the rest of a number");
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return number;
        }
    }
    panic!("a number of more than ten bytes");
}

fn fields(mut bytes: &[u8]) -> Vec<(u64, Field<'_>)> {
    let mut fields = vec![];
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let field = match tag & 7 {
            0 => Field::Varint(varint(&mut bytes)),
            1 => Field::Fixed64(take(&mut bytes, 8).try_into().expect("eight bytes")),
            2 => {
                let length = varint(&mut bytes) as usize;
                Field::Bytes(take(&mut bytes, length))
            }
            5 => Field::Fixed32(take(&mut bytes, 4).try_into().expect("four bytes")),
            kind => panic!("a field of kind {kind}"),
        };
        fields.push((tag >> 3, field));
    }
    fields
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> &'a [u8] {
    let (taken, rest) = bytes.split_at(length);
    *bytes = rest;
    taken
}

/// CRC-32C bit by bit, masked as TFRecord has it.
fn masked_crc(bytes: &[u8]) -> u32 {
    let crc = !bytes.iter().fold(!0u32, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| crc >> 1 ^ (0x82f6_3b78 * (crc & 1)))
    });
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}

fn doubles(bytes: &[u8]) -> Vec<f64> {
    bytes.chunks_exact(8).map(|number| f64::from_le_bytes(number.try_into().expect("eight bytes"))).collect()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

fn histogram(bytes: &[u8]) -> Histogram {
    let mut histogram = Histogram::default();
    for field in fields(bytes) {
        match field {
            (at @ 1..=5, Field::Fixed64(number)) => {
                histogram.facts[at as usize - 1] = f64::from_le_bytes(number)
            }
            (6, Field::Bytes(limits)) => histogram.limits = doubles(limits),
            (7, Field::Bytes(buckets)) => histogram.buckets = doubles(buckets),
            (at, _) => panic!("field {at} of a histogram"),
        }
    }
    histogram
}

fn event(bytes: &[u8]) -> Event {
    let mut event = Event::default();
    for field in fields(bytes) {
        match field {
            (1, Field::Fixed64(time)) => event.time = f64::from_le_bytes(time),
            (2, Field::Varint(step)) => event.step = step,
            (3, Field::Bytes(version)) => event.version = Some(text(version)),
            (5, Field::Bytes(summary)) => {
                for (at, value) in fields(summary) {
                    let (1, Field::Bytes(value)) = (at, value) else { panic!("field {at} of a summary") };
                    let mut tag = String::new();
                    for field in fields(value) {
                        match field {
                            (1, Field::Bytes(name)) => tag = text(name),
                            (2, Field::Fixed32(number)) => {
                                event.scalars.insert(tag.clone(), f32::from_le_bytes(number));
                            }
                            (5, Field::Bytes(of)) => {
                                event.histograms.insert(tag.clone(), histogram(of));
                            }
                            (at, _) => panic!("field {at} of a value"),
                        }
                    }
                }
            }
            (7, Field::Bytes(session)) => {
                event.restarts = fields(session).iter().any(|field| matches!(field, (1, Field::Varint(1))));
            }
            (at, _) => panic!("field {at} of an event"),
        }
    }
    event
}

/// The events of all files of a folder, file by file.
fn read(folder: &Path) -> Vec<Vec<Event>> {
    let mut files: Vec<_> =
        std::fs::read_dir(folder).expect("the folder").flatten().map(|e| e.path()).collect();
    files.retain(|path| path.to_string_lossy().contains("events.out.tfevents."));
    files.sort();
    files.iter().map(|path| decode(&std::fs::read(path).expect("the file"))).collect()
}

fn decode(mut bytes: &[u8]) -> Vec<Event> {
    let mut events = vec![];
    while !bytes.is_empty() {
        let length = take(&mut bytes, 8);
        assert_eq!(take(&mut bytes, 4), masked_crc(length).to_le_bytes(), "of a length");
        let record = take(&mut bytes, u64::from_le_bytes(length.try_into().expect("eight bytes")) as usize);
        assert_eq!(take(&mut bytes, 4), masked_crc(record).to_le_bytes(), "of a record");
        events.push(event(record));
    }
    events
}

#[test]
fn event_files_have_losses_metrics_speeds_memory_and_histograms() {
    let folder = tempfile::tempdir().expect("a folder");
    let spec = Spec::find("digits").expect("a workload").steps(60);
    let (data, _) = spec.datasets().expect("data");
    let mut log = TensorBoard::new(folder.path()).pace(Pace::every(7)).histograms(20);
    let trained = spec.trainer().fit(&data, None, &mut log).expect("training");
    let files = read(folder.path());
    let [events] = &files[..] else { panic!("{} files", files.len()) };
    assert_eq!(events[0].version.as_deref(), Some("brain.Event:2"));
    assert!(events.windows(2).all(|pair| pair[0].step <= pair[1].step && pair[0].time <= pair[1].time));

    let losses: Vec<(u64, f32)> =
        events.iter().filter_map(|e| Some((e.step, *e.scalars.get("loss")?))).collect();
    let steps = [1, 7, 14, 21, 28, 35, 42, 49, 56, 60];
    assert_eq!(losses, steps.map(|step| (step, trained.report.losses[step as usize - 1])));
    let last = events.iter().rfind(|event| event.scalars.contains_key("loss")).expect("the last step");
    assert_eq!(last.scalars["memory/arena"], trained.report.arena_bytes as f32);
    for (category, bytes) in trained.report.ledger.lines().filter(|&(_, bytes)| bytes > 0) {
        assert_eq!(last.scalars[&format!("memory/at_peak/{}", category.name())], bytes as f32);
    }
    for tag in ["accuracy", "speed/steps_per_second", "speed/samples_per_second"] {
        assert!(last.scalars.contains_key(tag), "{tag}: {last:?}");
    }

    let drawn: Vec<&Event> = events.iter().filter(|event| !event.histograms.is_empty()).collect();
    assert_eq!(drawn.iter().map(|event| event.step).collect::<Vec<_>>(), [20, 40, 60]);
    for (name, weight) in &trained.weights {
        let Histogram { facts: [min, max, count, sum, squares], limits, buckets } =
            &drawn[2].histograms[&format!("parameters/{name}")];
        let values: Vec<f64> = weight.values.iter().map(|&value| f64::from(value)).collect();
        assert_eq!(*count, values.len() as f64, "{name}");
        assert_eq!(
            [*min, *max],
            [
                values.iter().copied().fold(f64::INFINITY, f64::min),
                values.iter().copied().fold(f64::NEG_INFINITY, f64::max)
            ]
        );
        assert!((sum - values.iter().sum::<f64>()).abs() < 1e-9 && *squares >= 0.0, "{name}");
        assert_eq!(limits.len(), buckets.len());
        assert!(limits.windows(2).all(|pair| pair[0] < pair[1]), "{name}: {limits:?}");
        // Every number is in the bucket that ends above it.
        let mut below = 0.0;
        for (&limit, &bucket) in limits.iter().zip(buckets) {
            below += bucket;
            let nearly = |value: &&f64| (**value - limit).abs() > 1e-9 * limit.abs();
            let lower = values.iter().filter(nearly).filter(|&&value| value < limit).count() as f64;
            let beside = values.len() as f64 - values.iter().filter(nearly).count() as f64;
            assert!((lower..=lower + beside).contains(&below), "{name}: {below} below {limit}, not {lower}");
        }
        assert_eq!(below, *count, "{name}");
    }
}

#[test]
fn a_resumed_run_adds_a_file_that_supersedes_later_steps_and_a_new_one_begins_anew() {
    let folder = tempfile::tempdir().expect("a folder");
    let foreign = folder.path().join("events.out.tfevents.1.somebody.1");
    std::fs::write(&foreign, b"").expect("a file");
    let told = Told::new();
    {
        let mut log = TensorBoard::new(folder.path()).pace(Pace::every(10));
        told.start(&mut log, 0, 100);
        told.steps(&mut log, 1..=55, 100);
        // And is killed, which flushes what there is.
    }
    std::fs::remove_file(&foreign).expect("nobody removes what is not ours");
    // A file of another process has another name.
    let first =
        std::fs::read_dir(folder.path()).expect("the folder").flatten().next().expect("a file").path();
    std::fs::rename(&first, folder.path().join("events.out.tfevents.0000000001.host.1.plimsoll"))
        .expect("renamed");
    let mut log = TensorBoard::new(folder.path()).pace(Pace::every(10));
    told.start(&mut log, 40, 100);
    told.steps(&mut log, 41..=100, 100);
    log.ended(&told.report).expect("the end");
    let files = read(folder.path());
    assert_eq!(files.len(), 2);
    let steps = |events: &[Event]| -> Vec<u64> {
        events.iter().filter(|event| event.scalars.contains_key("loss")).map(|event| event.step).collect()
    };
    assert_eq!(steps(&files[0]), [1, 10, 20, 30, 40, 50, 55], "the last step in any case");
    assert_eq!(steps(&files[1]), [41, 50, 60, 70, 80, 90, 100]);
    assert_eq!(files[1][0].version.as_deref(), Some("brain.Event:2"));
    assert!(files[1][1].restarts && files[1][1].step == 41, "{:?}", files[1][1]);

    told.start(&mut TensorBoard::new(folder.path()), 0, 100);
    let files = read(folder.path());
    assert_eq!(files.len(), 1);
    assert_eq!(files[0].len(), 1, "nothing but the version");
}
