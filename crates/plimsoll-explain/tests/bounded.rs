//! Small files that stand for gigabytes or hours: whatever they hold, reading, explaining and showing them stays within
//! the limits that were given, and says that the answer is a part.
//!
//! Each is read in a process of its own, which tells what the kernel says it took.

mod common;

use flate2::Compression;
use flate2::write::GzEncoder;
use plimsoll_explain::{
    Input, Limits, Progress, Style, VerdictKind, explain, read_files_within, read_input, show, write_html,
};
use plimsoll_memory::{Pool, PoolSettings, SegmentClass, TraceLine, peak_resident_bytes};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// What a process takes before it reads anything, and what views hold of a page while it is written.
const BESIDE: u64 = 48 << 20;

/// What became of a file in a process of its own.
#[derive(Debug)]
struct Ran {
    /// What was said: `whole`, `partial`, or `error` with its text.
    said: String,
    peak_bytes: u64,
    seconds: f64,
}

/// Reads, explains and shows a file in a process of its own.
fn run(bytes: &[u8], limits: Limits) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bomb");
    std::fs::write(&path, bytes).unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_process_that_reads_one_file", "--nocapture", "--ignored"])
        .env("PLIMSOLL_READ", &path)
        .env("PLIMSOLL_MEMORY", limits.memory_bytes.to_string())
        .env("PLIMSOLL_SECONDS", limits.time.as_secs().to_string())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find_map(|line| line.split_once("ran: ")).map(|(_, line)| line.to_string());
    let line = line.unwrap_or_else(|| panic!("{text}\n{}", String::from_utf8_lossy(&output.stderr)));
    let mut parts = line.splitn(3, ' ');
    let peak_bytes = parts.next().unwrap().parse().unwrap();
    let seconds = parts.next().unwrap().parse().unwrap();
    Ran { said: parts.next().unwrap().to_string(), peak_bytes, seconds }
}

/// Not a test: what [`run`] starts.
#[test]
#[ignore = "started by the tests in this file"]
#[expect(clippy::print_stdout, reason = "printing is all it is for")]
fn a_process_that_reads_one_file() {
    let Some(path) = std::env::var_os("PLIMSOLL_READ") else { return };
    let number = |name: &str| std::env::var(name).unwrap().parse::<u64>().unwrap();
    let limits = Limits {
        memory_bytes: number("PLIMSOLL_MEMORY"),
        time: Duration::from_secs(number("PLIMSOLL_SECONDS")),
    };
    let start = std::time::Instant::now();
    let said = match read_files_within(&[path.into()], &Progress::default(), limits) {
        Ok(recording) => {
            let explanation = explain(&recording);
            show(&explanation, Style::default(), &mut std::io::sink()).unwrap();
            write_html(&recording, &explanation, &mut std::io::sink()).unwrap();
            let first = explanation.verdicts[0].kind;
            let failed =
                recording.devices.iter().any(|device| device.failure.is_some() || device.sign.is_some());
            assert!(first != VerdictKind::Incomplete || recording.origin.partial);
            assert!(first == VerdictKind::Incomplete || !recording.origin.partial || failed);
            let events: usize =
                recording.devices.iter().filter_map(|d| d.trace.as_ref()).map(|t| t.events.len()).sum();
            let gap = recording.origin.gaps.first().cloned().unwrap_or_default();
            let part = if recording.origin.partial { "partial" } else { "whole" };
            format!("{part} {} devices, {events} events, {gap}", recording.devices.len())
        }
        Err(error) => format!("error {error}"),
    };
    println!("ran: {} {} {said}", peak_resident_bytes().unwrap(), start.elapsed().as_secs_f64());
}

/// Checks that a file stays within limits, far below the usual ones so that it shows soon.
fn stays_within(name: &str, bytes: &[u8]) -> Ran {
    assert!(bytes.len() <= 10 << 20, "{name} has {} bytes", bytes.len());
    let limits = Limits { memory_bytes: 48 << 20, time: Duration::from_secs(6) };
    let ran = run(bytes, limits);
    assert!(ran.peak_bytes <= limits.memory_bytes + BESIDE, "{name} of {} bytes: {ran:?}", bytes.len());
    assert!(ran.seconds <= limits.time.as_secs_f64(), "{name} of {} bytes: {ran:?}", bytes.len());
    ran
}

fn is_partial(name: &str, bytes: &[u8]) {
    let ran = stays_within(name, bytes);
    assert!(
        ran.said.starts_with("partial ") || ran.said.contains("out of all proportion"),
        "{name}: {ran:?}"
    );
}

/// Packs pieces, each so many times. Members of gzip follow one another, so that repeating costs nothing.
fn gzip(pieces: &[(&[u8], usize)]) -> Vec<u8> {
    let mut packed = Vec::new();
    for &(piece, times) in pieces {
        let together = (1_usize << 20).div_ceil(piece.len().max(1)).clamp(1, times.max(1));
        let member = |count: usize| {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
            (0..count).for_each(|_| encoder.write_all(piece).unwrap());
            encoder.finish().unwrap()
        };
        let whole = member(together);
        (0..times / together).for_each(|_| packed.extend_from_slice(&whole));
        packed.extend(member(times % together));
    }
    packed
}

/// A protocol buffer's field of bytes.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2];
    varint(bytes.len() as u64, &mut field);
    field.extend_from_slice(bytes);
    field
}

fn count(number: u8, value: u64) -> Vec<u8> {
    let mut field = vec![number << 3];
    varint(value, &mut field);
    field
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

const EVENT: &[u8] = b"}\x94(\x8c\x06action\x8c\x05alloc\x8c\x04addrK\x08\x8c\x04sizeK\x08u";

#[test]
fn lists_of_a_pickle_that_are_named_again_and_again() {
    // One event, three million times in a list, the list a thousand times.
    let start: &[u8] = b"\x80\x04}(\x8c\x0ddevice_traces](]\x94(";
    let named =
        [(start, 1), (EVENT, 1), (&b"h\x01"[..], 3_000_000), (b"e", 1), (b"h\x00", 1000), (b"eu.", 1)];
    stays_within("an event named often", &gzip(&named));
    // Three million events, the list of them a thousand times.
    let start: &[u8] = b"\x80\x04}(\x8c\x0ddevice_traces](]\x94(";
    let event = b"}(\x8c\x06action\x8c\x05alloc\x8c\x04addrK\x08\x8c\x04sizeK\x08u";
    let batch = [&b"("[..], &event.repeat(1000), b"e"].concat();
    let start = &start[..start.len() - 1];
    let many = [(start, 1), (&batch[..], 3000), (b"h\x00", 1000), (b"eu.", 1)];
    is_partial("events named often", &gzip(&many));
    // Blocks that a thousand segments share.
    let blocks: &[u8] = b"\x80\x04}(\x8c\x08segments](](";
    let block: &[u8] = b"}(\x8c\x04sizeK\x08\x8c\x05state\x8c\x10active_allocatedu";
    let mut shared = vec![(blocks.to_vec(), 1), (block.to_vec(), 60_000), (b"e\x94".to_vec(), 1)];
    for address in 1..1000_u32 {
        let mut segment = b"}(\x8c\x07addressJ".to_vec();
        segment.extend((address << 20).to_le_bytes());
        segment.extend(b"\x8c\x0atotal_sizeJ\x00\x00\x10\x00\x8c\x06blocksh\x00u");
        shared.push((segment, 1));
    }
    shared.push((b"eu.".to_vec(), 1));
    let shared: Vec<(&[u8], usize)> =
        shared.iter().map(|(piece, times)| (piece.as_slice(), *times)).collect();
    stays_within("blocks shared by segments", &gzip(&shared));
    // Marks that are named a million times, on each of a hundred devices.
    let annotation = b"}\x94(\x8c\x04name\x8c\x01m\x8c\x07time_usK\x01\x8c\x05stage\x8c\x05STARTu";
    let marks: [(&[u8], usize); 6] = [
        (b"\x80\x04}(\x8c\x14external_annotations](", 1),
        (annotation, 1),
        (b"h\x00", 1_000_000),
        (b"e\x8c\x0ddevice_traces](", 1),
        (&[&b"]"[..], EVENT, b"a"].concat(), 100),
        (b"eu.", 1),
    ];
    stays_within("marks named often", &gzip(&marks));
}

#[test]
fn call_stacks_that_every_device_would_have_a_copy_of() {
    let mut bytes = b"\x80\x04(".to_vec();
    for line in 0..200_u8 {
        bytes.extend(b"}\x94(\x8c\x08filename\x8c\x01f\x8c\x04lineK");
        bytes.extend([line, 0x8c, 4]);
        bytes.extend(b"nameX\x00\x08\x00\x00");
        bytes.extend([b'a' + line % 20; 2048]);
        bytes.push(b'u');
    }
    bytes.extend(b"1}(\x8c\x0ddevice_traces](");
    let mut state = 1_u32;
    for _ in 0..128 {
        bytes.extend(b"](");
        for _ in 0..3 {
            bytes.extend(b"}(\x8c\x06action\x8c\x05alloc\x8c\x04addrK\x08\x8c\x04sizeK\x08\x8c\x06frames](");
            for _ in 0..1000 {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                bytes.extend([b'h', (state >> 24) as u8 % 200]);
            }
            bytes.extend(b"eu");
        }
        bytes.push(b'e');
    }
    bytes.extend(b"eu.");
    stays_within("stacks of devices", &gzip(&[(&bytes, 1)]));
}

#[test]
fn what_a_pickle_remembers_and_never_uses() {
    is_partial("values", &gzip(&[(b"\x80\x04]\x94(", 1), (b"N", 40_000_000)]));
    is_partial("places", &gzip(&[(b"\x80\x04]", 1), (b"]\x940", 40_000_000)]));
    is_partial("lists", &gzip(&[(b"\x80\x04]", 1), (b"]", 40_000_000)]));
    let long = [b'x'; 1 << 16];
    let text = [&b"X\x00\x00\x01\x00"[..], &long, b"\x940"].concat();
    stays_within("texts", &gzip(&[(b"\x80\x04]", 1), (&text, 2000)]));
}

/// A profile of events of so many pools under scopes of so many names.
fn xplane(pools: u64, names: u64, length: usize, marks: u64) -> Vec<u8> {
    let named =
        |id: u64, name: &[u8]| [count(1, id), field(2, &[count(1, id), field(2, name)].concat())].concat();
    let mut plane = field(2, b"/host:CPU");
    plane.extend(field(4, &named(1, b"MemoryAllocation")));
    for name in 0..names {
        let text = [format!("{name:08}").as_bytes(), &vec![b'n'; length]].concat();
        plane.extend(field(4, &named(10 + name, &text)));
    }
    plane.extend(field(5, &named(1, b"allocator_name")));
    plane.extend(field(5, &named(2, b"step_num")));
    let mut line = Vec::new();
    for name in 0..names {
        line.extend(field(4, &[count(1, 10 + name), count(2, name), count(3, 1 << 40)].concat()));
    }
    for mark in 0..marks {
        let stat = field(4, &count(1, 2));
        line.extend(field(4, &[count(1, 10 + mark % names.max(1)), count(2, names), stat].concat()));
    }
    for pool in 0..pools {
        let stat = field(4, &[count(1, 1), field(5, format!("pool {}", pool % 256).as_bytes())].concat());
        line.extend(field(4, &[count(1, 1), count(2, names + pool), count(3, 0), stat].concat()));
    }
    plane.extend(field(3, &line));
    field(1, &plane)
}

#[test]
fn names_of_a_profile_that_every_pool_would_have_a_copy_of() {
    stays_within("names and pools", &gzip(&[(&xplane(256, 200, 4096, 0), 1)]));
    stays_within("many names and pools", &gzip(&[(&xplane(256, 20_000, 100, 0), 1)]));
    is_partial("marks and pools", &gzip(&[(&xplane(256, 16, 4096, 20_000), 1)]));
    is_partial("events", &gzip(&[(&xplane(300_000, 1, 1, 0), 1)]));
}

#[test]
fn lists_of_nothing_in_a_memory_profile() {
    for list in
        ["sampledTimelineSnapshots", "memoryProfileSnapshots", "activeAllocations", "specialAllocations"]
    {
        let start = format!(r#"{{"memoryProfilePerAllocator":{{"GPU_0_bfc":{{"{list}":[{{}}"#);
        is_partial(list, &gzip(&[(start.as_bytes(), 1), (b",{}", 20_000_000)]));
    }
    let start = br#"{"memoryProfilePerAllocator":{"GPU_0_bfc":{"a":""#;
    stays_within("a text", &gzip(&[(start, 1), (b"x", 200_000_000)]));
    let start = br#"{"memoryProfilePerAllocator":{"#;
    stays_within("a name", &gzip(&[(start, 1), (b"\"", 1), (b"x", 200_000_000)]));
}

#[test]
fn tables_of_a_pprof_profile() {
    let kind = field(1, &[count(1, 1), count(2, 2)].concat());
    let sample = |locations: u64| {
        let mut sample = Vec::new();
        (1..=locations).for_each(|location| sample.extend(count(1, location)));
        sample.extend(count(2, 100));
        field(2, &sample)
    };
    let strings = [field(6, b""), field(6, b"space"), field(6, b"bytes")].concat();
    // Names that are not text take three times their bytes as such, and every place has its own.
    let mut profile = [kind.clone(), sample(200)].concat();
    for place in 1..=200_u64 {
        let line = field(4, &[count(1, place), count(2, place)].concat());
        profile.extend(field(4, &[count(1, place), line].concat()));
        profile.extend(field(5, &[count(1, place), count(2, 3), count(4, 3)].concat()));
    }
    profile.extend(&strings);
    profile.extend(field(6, &[0xff; 4096]));
    stays_within("names that are no text", &gzip(&[(&profile, 1)]));
    let mut places = [kind.clone(), sample(1)].concat();
    for place in 1..=60_000_u64 {
        let line = field(4, &[count(1, 1), count(2, place)].concat());
        places.extend(field(4, &[count(1, place), line].concat()));
        places.extend(field(2, &[count(1, place), count(2, 100)].concat()));
    }
    places.extend(field(5, &[count(1, 1), count(2, 3), count(4, 3)].concat()));
    places.extend(&strings);
    places.extend(field(6, &[0xff; 4096]));
    is_partial("places of one name that is no text", &gzip(&[(&places, 1)]));
    let start = [kind, sample(1)].concat();
    is_partial("strings", &gzip(&[(&start, 1), (&field(6, b""), 20_000_000)]));
    is_partial("samples", &gzip(&[(&start, 1), (&strings, 1), (&sample(0), 10_000_000)]));
}

#[test]
fn chrome_events_without_end() {
    let memory = br#",{"ph":"i","name":"[memory]","ts":1,"args":{"Addr":1,"Bytes":1}}"#;
    let span = br#",{"ph":"X","cat":"cpu_op","name":"a","ts":1,"dur":1}"#;
    let mark = br#",{"ph":"X","cat":"user_annotation","name":"a","ts":1}"#;
    let start: &[u8] = br#"{"traceEvents":[{"ph":"i","name":"[memory]","ts":1,"args":{"Addr":1,"Bytes":1}}"#;
    is_partial("memory events", &gzip(&[(start, 1), (memory, 4_000_000)]));
    is_partial("spans", &gzip(&[(start, 1), (span, 4_000_000)]));
    is_partial("marks", &gzip(&[(start, 1), (mark, 4_000_000)]));
    stays_within("nothings", &gzip(&[(start, 1), (b",{}", 100_000_000)]));
}

#[test]
fn logs_without_end() {
    stays_within("newlines", &gzip(&[(b"\n", 2_500_000_000)]));
    let out_of_memory = b"loss 0.5, GPU memory at 98 %, allocating tensor\n";
    stays_within("telling lines", &gzip(&[(out_of_memory, 5_000_000)]));
    let mut dumps = Vec::new();
    for thread in 0..16 {
        let prefix = format!("I1115 07:05:33.483864 {thread} bfc_allocator.cc:119] ");
        dumps.extend(format!("{prefix}BFCAllocator dump for GPU_{thread}_bfc\n").into_bytes());
        for chunk in 0..15_000 {
            let line = format!("{prefix}InUse at {:x} of size 256 by op op{chunk}\n", 256 * (chunk + 1));
            dumps.extend(line.into_bytes());
        }
    }
    is_partial("open dumps", &gzip(&[(&dumps, 1)]));
    let line = "CUDA out of memory. Tried to allocate 2.00 GiB. ".repeat(2000);
    stays_within("one line", &gzip(&[(line.as_bytes(), 1000)]));
}

#[test]
fn a_trace_of_plimsolls_own_without_end() {
    let pool = Pool::host(PoolSettings { events: 8, ..PoolSettings::default() });
    drop(pool.allocate_for(pool.owner("a"), 4096));
    let mut header = Vec::new();
    pool.dump().write(&mut header).unwrap();
    header.truncate(header.iter().position(|&byte| byte == b'\n').unwrap() + 1);
    for line in [TraceLine::Allocate(1, 64, 64, 0, 0), TraceLine::Segment(64, 0, 0, SegmentClass::Any)] {
        let line = serde_json::to_string(&line).unwrap() + "\n";
        is_partial(&line, &gzip(&[(&header, 1), (line.as_bytes(), 2_000_000)]));
    }
}

#[test]
fn what_a_real_file_takes_is_far_below_the_limits() {
    let ran = run(&common::packed("torch-frag.pickle.gz"), Limits::default());
    assert!(ran.said.starts_with("whole"), "{ran:?}");
    assert!(ran.peak_bytes < 256 << 20, "{ran:?}");
}

#[test]
fn within_limits_that_are_too_small_a_real_file_is_answered_in_part() {
    for name in ["torch-frag.pickle.gz", "xplane/jax-train.xplane.pb.gz", "torch-cpu-chrome-trace.json.gz"] {
        let bytes = common::packed(name);
        let limits = Limits { memory_bytes: 256 << 10, ..Limits::default() };
        match read_input(Input::bytes(&bytes).unwrap().within(limits), name) {
            Ok(recording) => {
                assert!(recording.origin.partial, "{name}");
                assert!(
                    recording.origin.gaps[0].contains("256 KiB of memory"),
                    "{:?}",
                    recording.origin.gaps
                );
                assert_eq!(explain(&recording).verdicts[0].kind, VerdictKind::Incomplete);
            }
            Err(error) => assert!(error.to_string().contains("out of all proportion"), "{error}"),
        }
    }
}

#[cfg(unix)]
#[test]
fn a_pipe_that_nobody_writes_to_is_waited_for_as_long_as_the_limits_allow() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let limits = Limits { time: Duration::from_millis(300), ..Limits::default() };
    let error = read_files_within(&[pipe], &Progress::default(), limits).unwrap_err();
    assert!(error.to_string().contains("is anything writing to it?"), "{error}");
}

#[cfg(unix)]
#[test]
fn a_device_without_end_is_read_as_long_as_the_limits_allow() {
    let limits = Limits { time: Duration::from_millis(300), ..Limits::default() };
    for device in ["/dev/zero", "/dev/urandom"] {
        if Path::new(device).exists() {
            let _ = read_files_within(&[device.into()], &Progress::default(), limits);
        }
    }
}
