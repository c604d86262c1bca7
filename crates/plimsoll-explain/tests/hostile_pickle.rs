//! Pickles that want more than to be read: calls, bombs, lies about lengths, damage. None may be obeyed, and
//! none may panic, hang or take memory out of proportion.

mod common;

use common::{Data, assert_laws, dict, event, pickle, read, unpacked};
use plimsoll_explain::{ErrorKind, Recording, Result};
use proptest::prelude::*;

/// What a reader may answer to anything: an error that says something, or a recording that holds together.
fn answers(result: &Result<Recording>) {
    match result {
        Ok(recording) => recording.devices.iter().for_each(assert_laws),
        Err(error) => assert!(error.to_string().len() > 10),
    }
}

fn refused(bytes: &[u8]) -> String {
    let error = read(bytes).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Hostile, "{error}");
    error.to_string()
}

#[test]
fn nothing_is_called() {
    let cases: [(&[u8], &str); 14] = [
        (
            b"\x80\x02cos\nsystem\nU\x04exit\x85R.",
            "byte 2: the pickle's opcode GLOBAL would have looked up os.system",
        ),
        (b"(dp0\ncposix\nsystem\n.", "byte 5: the pickle's opcode GLOBAL would have looked up posix.system"),
        (b"\x80\x04\x8c\x02os\x94\x8c\x06system\x94\x93.", "STACK_GLOBAL would have looked up os.system"),
        (b"\x80\x04\x93", "STACK_GLOBAL would have looked up ?.?"),
        (b"\x80\x02(ibuiltins\neval\n.", "byte 3: the pickle's opcode INST would have called builtins.eval"),
        (b"\x80\x02NNR.", "REDUCE"),
        (b"\x80\x02}Nb.", "BUILD"),
        (b"\x80\x02(o.", "OBJ"),
        (b"\x80\x02N)\x81.", "NEWOBJ"),
        (b"\x80\x04N)}\x92.", "NEWOBJ_EX"),
        (b"\x80\x02\x82\x01.", "EXT1"),
        (b"\x80\x02Pweights\n.", "PERSID would have loaded the object \"weights\""),
        (b"\x80\x02NQ.", "BINPERSID"),
        (b"\x80\x05\x97.", "NEXT_BUFFER"),
    ];
    for (bytes, says) in cases {
        let error = refused(bytes);
        assert!(error.contains(says), "{error}");
        assert!(error.contains("Plimsoll reads plain data only"), "{error}");
    }
}

#[test]
fn a_call_within_a_snapshot_refuses_all_of_it() {
    let events = Data::List(vec![Data::List(vec![event("alloc", 4096, 100, 1, &[])])]);
    let mut bytes = pickle(&dict(&[("device_traces", events)]), 4);
    assert!(read(&bytes).is_ok());
    bytes.pop();
    let at = bytes.len();
    bytes.extend(b"cos\nsystem\n(Vtrue\ntR.");
    assert!(refused(&bytes).contains(&format!("byte {at}:")));
}

#[test]
fn a_million_lists_in_each_other_are_only_a_pickle_of_something_else() {
    for one in [&b"]"[..], b"(l", b"}", b"(", b"]\x94", b"]("] {
        let mut bytes = b"\x80\x04".to_vec();
        bytes.extend(one.repeat(1_000_000));
        answers(&read(&bytes));
        bytes.extend(b"a".repeat(1_000_000));
        bytes.push(b'.');
        answers(&read(&bytes));
    }
}

#[test]
fn twenty_million_values_are_out_of_proportion() {
    for one in [&b"N"[..], b"]", b"(", b"}", b"K\x01", b"h\x00"] {
        let mut bytes = b"\x80\x04]\x94".to_vec();
        bytes.extend(one.repeat(20_000_000));
        assert!(refused(&bytes).contains("out of all proportion"));
    }
    // The same in batches, so that the stack stays short.
    let mut bytes = b"\x80\x04]\x94".to_vec();
    let mut batch = b"(".to_vec();
    batch.extend(b"N".repeat(1000));
    batch.push(b'e');
    bytes.extend(batch.repeat(10_000));
    assert!(refused(&bytes).contains("out of all proportion"));
}

#[test]
fn remembering_more_than_there_is_is_out_of_proportion() {
    let mut bytes = b"\x80\x04N".to_vec();
    bytes.extend([0x94].repeat(20_000_000));
    assert!(refused(&bytes).contains("out of all proportion"));
    // Places far apart take no room between them, be they all over or ever a little further on.
    for (step, count) in [(0x9e37_79b1_u32, 100_000_u32), (4000, 100_000), (4000, 2_000_000)] {
        let mut bytes = b"\x80\x04]".to_vec();
        for place in 0..count {
            bytes.push(b'r');
            bytes.extend(place.wrapping_mul(step).to_le_bytes());
        }
        bytes.push(b'.');
        answers(&read(&bytes));
    }
    answers(&read(b"(lp18446744073709551615\ng18446744073709551615\n."));
}

#[test]
fn structures_that_hold_themselves_are_safe() {
    // A list in itself, a dict in itself, a snapshot whose segments are itself.
    answers(&read(b"\x80\x04]\x94h\x00a."));
    answers(&read(b"\x80\x04}\x94\x8c\x08segmentsh\x00s."));
    answers(&read(b"\x80\x04}\x94(\x8c\x08segments]\x94h\x01a\x8c\x0ddevice_tracesh\x01u."));
    // An event whose frames are the list that it is put into, which goes on to be filled.
    let event = b"}(\x8c\x06action\x8c\x05alloc\x8c\x04addrK\x08\x8c\x04sizeK\x08\x8c\x06framesh\x00u";
    let mut bytes = b"\x80\x04]\x94(".to_vec();
    bytes.extend(event.repeat(3));
    bytes.extend(b"e(");
    bytes.extend(event.repeat(3));
    bytes.extend(b"e.");
    answers(&read(&bytes));
    // A frame put into lists, released as one of them becomes a stack, and used again.
    let frame = b"}\x94(\x8c\x08filename\x8c\x01f\x8c\x04name\x8c\x01n\x8c\x04lineK\x01u";
    let mut bytes = b"\x80\x04]\x94".to_vec();
    bytes.extend(frame);
    bytes.extend(b"a]\x94(h\x01h\x01e0h\x00h\x01a.");
    answers(&read(&bytes));
}

#[test]
fn a_billion_laughs_stay_small() {
    // Each list holds the one before ten times; told out, there would be 10^1000 items.
    let mut bytes = b"\x80\x04]\x94".to_vec();
    for place in 0..1000_u32 {
        bytes.extend(b"]\x94(");
        for _ in 0..10 {
            bytes.push(b'j');
            bytes.extend(place.to_le_bytes());
        }
        bytes.push(b'e');
    }
    bytes.push(b'.');
    answers(&read(&bytes));
    // As segments, and as the events of devices.
    let traces = bytes[2..bytes.len() - 1].to_vec();
    let mut bytes = b"\x80\x04}\x8c\x08segments".to_vec();
    bytes.extend(&traces);
    bytes.push(b's');
    bytes.extend(b"\x8c\x0ddevice_tracesje\x03\x00\x00s.");
    answers(&read(&bytes));
}

#[test]
fn a_large_dict_put_into_many_lists_is_looked_at_once() {
    let mut bytes = b"\x80\x04]\x94]\x94(".to_vec();
    bytes.extend(b"N".repeat(1_000_000));
    bytes.extend(b"e0(");
    bytes.extend(b"h\x01".repeat(1_000_000));
    bytes.extend(b"e.");
    answers(&read(&bytes));
}

#[test]
fn declared_lengths_are_not_believed() {
    let huge = (1_u64 << 60).to_le_bytes();
    for opcode in [0x8d_u8, 0x8e, 0x95, 0x96] {
        let mut bytes = vec![0x80, 4, opcode];
        bytes.extend(huge);
        bytes.extend(b"abc");
        answers(&read(&bytes));
    }
    assert!(refused(&[&[0x80, 4, 0x8d][..], &huge].concat()).contains("1152921504606846976 bytes"));
    for opcode in [b'X', b'B', b'T', 0x8b] {
        for length in [u32::MAX, i32::MAX as u32, 1 << 31] {
            let mut bytes = vec![0x80, 4, opcode];
            bytes.extend(length.to_le_bytes());
            bytes.extend(b"abc");
            answers(&read(&bytes));
        }
    }
    // A number of a million bytes that is really there is passed over.
    let mut bytes = b"\x80\x04}\x94(\x8c\x08segments]\x8c\x01n\x8b".to_vec();
    bytes.extend(1_000_000_u32.to_le_bytes());
    bytes.extend(vec![0x7f; 1_000_000]);
    bytes.extend(b"u.");
    assert_eq!(read(&bytes).unwrap_err().kind(), ErrorKind::Empty);
}

/// Events whose stacks of a thousand frames, of names of a hundred thousand bytes, all differ.
fn deep_stacks(events: u32, devices: u32) -> Vec<u8> {
    let mut bytes = b"\x80\x04(".to_vec();
    for line in 0..200_u8 {
        bytes.extend(b"}\x94(\x8c\x08filename\x8c\x01f\x8c\x04lineK");
        bytes.extend([line, 0x8c, 4]);
        bytes.extend(b"nameX\xa0\x86\x01\x00");
        bytes.extend(vec![b'a' + line % 20; 100_000]);
        bytes.push(b'u');
    }
    bytes.extend(b"1}(\x8c\x0ddevice_traces](");
    let mut state = 1_u32;
    for _ in 0..devices {
        bytes.extend(b"](");
        for _ in 0..events {
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
    bytes
}

#[test]
fn call_stacks_without_end_are_left_out_and_said() {
    let recording = read(&deep_stacks(600, 1)).unwrap();
    assert!(recording.origin.partial);
    assert!(recording.origin.gaps[0].contains("1.00 GiB of memory"), "{:?}", recording.origin.gaps);
    assert!(recording.devices[0].owners.count() > 100_000);
    recording.devices.iter().for_each(assert_laws);
    // All devices share them, however many there are.
    let devices = read(&deep_stacks(1, 100)).unwrap().devices;
    assert_eq!(devices.len(), 100);
    assert!(devices.iter().all(|device| std::sync::Arc::ptr_eq(&device.owners, &devices[0].owners)));
}

#[test]
fn different_names_without_end_are_left_out_and_said() {
    let mut bytes = b"\x80\x04}(\x8c\x0ddevice_traces](](".to_vec();
    for number in 0..400_000_u32 {
        let user = [b'x'; 200];
        bytes.extend(b"}(\x8c\x06action\x8c\x08snapshot\x8c\x0duser_metadata\x8c\xd0");
        bytes.extend(format!("{number:08}").bytes());
        bytes.extend(user);
        bytes.push(b'u');
    }
    bytes.extend(b"eeu.");
    let recording = read(&bytes).unwrap();
    assert!(recording.origin.gaps[0].contains("different names"), "{:?}", recording.origin.gaps);
    assert_eq!(recording.devices[0].trace.as_ref().unwrap().events.len(), 400_000);
}

#[test]
fn bytes_live_that_no_device_has_do_not_overflow() {
    let events = (0..200_000).map(|at| event("alloc", at * 512, 1 << 44, at, &[])).collect();
    let frees = (0..200_000).map(|at| event("free_completed", at * 512 + 1, 1 << 44, at, &[])).collect();
    let traces = Data::List(vec![Data::List(events), Data::List(frees)]);
    let recording = read(&pickle(&dict(&[("device_traces", traces)]), 4)).unwrap();
    answers(&Ok(recording.clone()));
    assert_eq!(recording.devices.len(), 2);
    assert_eq!(recording.origin.gaps.len(), 2, "{:?}", recording.origin.gaps);
}

/// Real pickles, of several sizes and versions of what is in them.
const REAL: [&str; 3] = ["torch-streams.pickle.gz", "torch-toobig.pickle.gz", "torch-healthy.pickle.gz"];

#[test]
fn a_real_pickle_cut_anywhere_answers() {
    for name in REAL {
        let whole = unpacked(name);
        for cut in (0..2000).chain((2000..whole.len()).step_by(whole.len() / 200)) {
            answers(&read(&whole[..cut]));
        }
    }
}

/// A real pickle of events, segments and deep stacks.
fn real() -> Vec<u8> {
    thread_local!(static BYTES: Vec<u8> = unpacked(REAL[0]));
    BYTES.with(Vec::clone)
}

/// How many damaged pickles are tried; `PLIMSOLL_FUZZ_RUNS` asks for more.
fn runs() -> u32 {
    std::env::var("PLIMSOLL_FUZZ_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(2000)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(runs()))]

    #[test]
    fn damage_never_breaks_the_reader(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
    ) {
        let mut bytes = real();
        for (at, byte) in flips {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        answers(&read(&bytes));
    }

    #[test]
    fn stretches_put_elsewhere_never_break_the_reader(
        moves in prop::collection::vec((any::<[prop::sample::Index; 2]>(), 1..300_usize), 1..10),
        length in any::<prop::sample::Index>(),
    ) {
        // Whole opcodes meet a stack and a memo that they were not made for.
        let mut bytes = real();
        for ([from, to], length) in moves {
            let from = from.index(bytes.len());
            let stretch = bytes[from..(from + length).min(bytes.len())].to_vec();
            let to = to.index(bytes.len());
            bytes.splice(to..to, stretch);
        }
        bytes.truncate(length.index(bytes.len()) + 1);
        answers(&read(&bytes));
    }

    #[test]
    fn opcodes_in_any_order_never_break_the_reader(
        opcodes in prop::collection::vec(
            prop::sample::select(b"(.012NJKM\x88\x89\x8a]}l)td\x85\x86\x87aseu\x90\x8f\x91\x94q\x00hU\x01X".to_vec()),
            0..400,
        ),
    ) {
        answers(&read(&[&[0x80, 4][..], &opcodes].concat()));
    }
}
