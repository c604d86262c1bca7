//! Plimsoll's own traces: what a pool dumps is read back as it was, and what is broken is told, never fatal.

use plimsoll_explain::{
    Device, ErrorKind, Format, Framework, Input, Progress, Recording, Result, read_files, read_input,
};
use plimsoll_memory::{Action, Block, OwnerId, Owners, Pool, PoolSettings, TraceFile};
use proptest::prelude::*;

/// A pool that did this and that: each number is a request, or what is freed.
fn dumped(steps: &[(u8, u64)], events: usize) -> TraceFile {
    let pool = Pool::host(PoolSettings {
        name: "test \"device\"".into(),
        live_limit: Some(3_000_000),
        events,
        ..PoolSettings::default()
    });
    let mut blocks: Vec<Block> = vec![];
    for &(what, number) in steps {
        match what {
            0 => pool.mark(["step", "epoch"][number as usize % 2]),
            1 => _ = pool.trim(),
            2 | 3 if !blocks.is_empty() => drop(blocks.swap_remove(number as usize % blocks.len())),
            _ => {
                let owner = pool.owner(["", "a", "a/b", "ünusual name/\"c\""][number as usize % 4]);
                blocks.extend(pool.allocate_for(owner, number).ok());
            }
        }
    }
    pool.dump()
}

fn written(file: &TraceFile) -> Vec<u8> {
    let mut bytes = vec![];
    file.write(&mut bytes).unwrap();
    bytes
}

fn read(bytes: &[u8]) -> Result<Recording> {
    read_input(Input::bytes(bytes)?, "memory.jsonl")
}

fn stack(owners: &Owners, owner: OwnerId) -> Vec<String> {
    owners.stack(owner).map(|frame| format!("{}:{}:{}", frame.name, frame.file, frame.line)).collect()
}

/// Nothing that is read may make whoever looks at it fail.
fn walk(device: &Device) {
    let trace = device.trace.as_ref().unwrap();
    trace.peak_live();
    for request in &trace.requests {
        stack(&device.owners, request.owner);
    }
    for event in &trace.events {
        match event.action {
            Action::Allocate(id) | Action::Free(id) | Action::Refuse(id) => _ = trace.request(id),
            Action::Mark(mark) => _ = &trace.marks[mark as usize],
            Action::Reserve { address, bytes } | Action::Release { address, bytes } => _ = address + bytes,
        }
    }
    if let Some(layout) = &device.layout {
        assert!(
            layout.requested_bytes() <= layout.live_bytes() && layout.live_bytes() <= layout.reserved_bytes()
        );
    }
}

fn steps() -> impl Strategy<Value = Vec<(u8, u64)>> {
    prop::collection::vec((0u8..12, 0u64..700_000), 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_a_pool_dumps_is_read_back_as_it_was(steps in steps(), events in 1usize..60) {
        let file = dumped(&steps, events);
        prop_assume!(!file.trace.requests.is_empty() || file.layout.is_some());
        let recording = read(&written(&file)).unwrap();
        prop_assert_eq!(&recording.origin.gaps, &Vec::<String>::new());
        prop_assert_eq!(recording.origin.framework, Framework::Plimsoll);
        prop_assert_eq!(&recording.origin.formats, &[Format::Plimsoll]);
        let device = &recording.devices[0];
        prop_assert_eq!(&device.name, &file.device);
        prop_assert_eq!((device.capacity, device.limit), (file.capacity, file.limit));
        prop_assert_eq!(&device.layout, &file.layout);
        let trace = device.trace.as_ref().unwrap();
        prop_assert_eq!(&trace.requests, &file.trace.requests);
        prop_assert_eq!(&trace.events, &file.trace.events);
        prop_assert_eq!(&trace.initial, &file.trace.initial);
        prop_assert_eq!(&trace.initial_reserved, &file.trace.initial_reserved);
        prop_assert_eq!(&trace.marks, &file.trace.marks);
        prop_assert_eq!(trace.complete, file.trace.complete);
        prop_assert_eq!(device.owners.count(), file.owners.count());
        for owner in (0..file.owners.count() as u32).map(OwnerId) {
            prop_assert_eq!(stack(&device.owners, owner), stack(&file.owners, owner));
        }
        let refused = trace.events.iter().rposition(|event| matches!(event.action, Action::Refuse(_)));
        prop_assert_eq!(device.failure.as_ref().and_then(|failure| failure.event), refused);
    }

    #[test]
    fn flipped_bytes_are_an_error_or_a_part_that_holds_together(
        steps in steps(),
        flips in prop::collection::vec((any::<usize>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = written(&dumped(&steps, 30));
        for (at, flip) in flips {
            let at = at % bytes.len();
            bytes[at] ^= flip;
        }
        if let Ok(recording) = read(&bytes) {
            walk(&recording.devices[0]);
        }
    }
}

#[test]
fn a_file_cut_anywhere_says_so_or_that_it_is_none() {
    let program: Vec<(u8, u64)> = (0..25).map(|n| (n as u8 % 7, n * 31_337)).collect();
    let whole = written(&dumped(&program, 100));
    for length in 0..whole.len() {
        match read(&whole[..length]) {
            Ok(recording) => {
                assert!(recording.origin.gaps.iter().any(|gap| gap.contains("cut short")), "at {length}");
                walk(&recording.devices[0]);
            }
            Err(error) => {
                let kinds = [ErrorKind::UnknownFormat, ErrorKind::Malformed, ErrorKind::Empty];
                assert!(kinds.contains(&error.kind()), "at {length}: {error}");
            }
        }
    }
}

#[test]
fn lines_that_do_not_hold_together_are_left_out_and_counted() {
    let header = "{\"plimsoll-trace\":1,\"device\":\"cpu\",\"kind\":\"eager\",\"capacity\":null,\"limit\":null,\
                  \"complete\":true,\"marks\":[\"step\"],\"notes\":[]}\n";
    let lines = [
        "{\"owner\":[0,\"model\",\"\",0]}",
        "{\"owner\":[7,\"orphan\",\"\",0]}",
        "{\"allocate\":[5,1000,4096,1,0]}",
        "{\"allocate\":[4,18446744073709551615,8192,1,0]}",
        "{\"free\":[6,1]}",
        "{\"free\":[6,0]}",
        "{\"free\":[6,0]}",
        "{\"free\":[6,99]}",
        "{\"mark\":[7,1]}",
        "{\"reserve\":[7,18446744073709551615,1]}",
        "{\"release\":[7,0,1]}",
        "{\"segment\":[4096,100,0,\"any\"]}",
        "{\"piece\":[4096,200,0,\"free\",0]}",
        "{\"end\":true}",
        "{\"mark\":[9,0]}",
        "{\"unheard\":[1]}",
        "{\"mark\":[9,0]}",
    ];
    let recording = read((header.to_string() + &lines.join("\n") + "\n").as_bytes()).unwrap();
    let gaps = recording.origin.gaps.join("\n");
    assert!(gaps.contains("10 lines") && gaps.contains("line 3"), "{gaps}");
    assert!(
        gaps.contains("the layout at the end is incomplete") && gaps.contains("line 17 cannot be understood"),
        "{gaps}"
    );
    let device = &recording.devices[0];
    walk(device);
    let trace = device.trace.as_ref().unwrap();
    assert_eq!(trace.events.len(), 2);
    assert_eq!(stack(&device.owners, trace.requests[0].owner), ["model::0"]);
}

#[test]
fn another_version_is_refused_by_its_number() {
    let error = read(b"{\"plimsoll-trace\":9,\"device\":\"cpu\",\"kind\":\"eager\",\"capacity\":null,\"limit\":null,\"complete\":true,\"marks\":[],\"notes\":[]}\n");
    assert!(error.unwrap_err().to_string().contains("version 9"));
}

#[test]
fn owners_nested_without_end_and_lines_without_end_are_bounded() {
    let mut bytes = written(&dumped(&[(9, 1000)], 10));
    bytes.truncate(bytes.len() - "{\"end\":true}\n".len());
    for parent in 1..5000 {
        bytes.extend(format!("{{\"owner\":[{parent},\"deeper\",\"\",0]}}\n").bytes());
    }
    let recording = read(&bytes).unwrap();
    assert!(recording.devices[0].owners.count() < 300);
    bytes.extend(std::iter::repeat_n(b'[', 3 << 20));
    let gaps = read(&bytes).unwrap().origin.gaps;
    assert!(gaps.iter().any(|gap| gap.contains("longer than")), "{gaps:?}");
}

#[test]
fn the_directory_of_a_run_stands_for_the_trace_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_path_buf();
    let error = read_files(std::slice::from_ref(&path), &Progress::default()).unwrap_err();
    assert!(error.to_string().contains("memory.jsonl"), "{error}");
    let file = dumped(&[(9, 1000), (9, 5_000_000)], 10);
    std::fs::write(path.join("memory.jsonl"), written(&file)).unwrap();
    let recording = read_files(&[path], &Progress::default()).unwrap();
    assert!(recording.origin.files[0].ends_with("memory.jsonl"));
    assert_eq!(recording.devices[0].failure.as_ref().unwrap().requested, 5_000_000);
}
