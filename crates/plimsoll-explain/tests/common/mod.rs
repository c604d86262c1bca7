//! What the tests of the readers share: fixtures, and a small pickler.

#![allow(dead_code, reason = "each test file uses a part")]

use flate2::read::GzDecoder;
use plimsoll_explain::{Device, Input, Recording, Result, read_input};
use plimsoll_memory::Action;
use std::io::Read;
use std::path::Path;

/// A fixture as it is on disk.
pub(crate) fn packed(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// A fixture, unpacked.
pub(crate) fn unpacked(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    GzDecoder::new(packed(name).as_slice()).read_to_end(&mut bytes).unwrap();
    bytes
}

/// Reads bytes, whatever they hold.
pub(crate) fn read(bytes: &[u8]) -> Result<Recording> {
    read_input(Input::bytes(bytes)?, "test")
}

/// What holds of every recording, however it was broken.
pub(crate) fn assert_laws(device: &Device) {
    if let Some(layout) = &device.layout {
        let mut end = 0;
        for segment in &layout.segments {
            assert!(segment.address >= end);
            let mut at = segment.address;
            for piece in &segment.pieces {
                assert_eq!(piece.address, at);
                assert!(piece.requested <= piece.bytes);
                assert!((piece.owner.0 as usize) < device.owners.count());
                at += piece.bytes;
            }
            end = segment.address + segment.bytes;
            assert_eq!(at, end);
        }
    }
    if let Some(trace) = &device.trace {
        let mut live: Vec<bool> = vec![false; trace.requests.len()];
        trace.initial.iter().for_each(|id| live[id.0 as usize] = true);
        assert!(trace.events.is_sorted_by_key(|event| event.time));
        for event in &trace.events {
            match event.action {
                Action::Allocate(id) => assert!(!std::mem::replace(&mut live[id.0 as usize], true)),
                Action::Free(id) => assert!(std::mem::replace(&mut live[id.0 as usize], false)),
                Action::Refuse(id) => assert!(!live[id.0 as usize]),
                Action::Mark(mark) => assert!((mark as usize) < trace.marks.len()),
                _ => {}
            }
        }
        assert!(trace.requests.iter().all(|r| (r.owner.0 as usize) < device.owners.count()));
        trace.peak_live();
        if let Some(at) = device.failure.as_ref().and_then(|failure| failure.event) {
            assert!(matches!(trace.events[at].action, Action::Refuse(_)));
        }
    }
}

/// Plain data, to be pickled.
#[derive(Clone)]
pub(crate) enum Data {
    Int(i64),
    Text(String),
    Bool(bool),
    List(Vec<Data>),
    Dict(Vec<(String, Data)>),
}

pub(crate) fn text(text: &str) -> Data {
    Data::Text(text.into())
}

pub(crate) fn dict(entries: &[(&str, Data)]) -> Data {
    Data::Dict(entries.iter().map(|(key, value)| (key.to_string(), value.clone())).collect())
}

/// A snapshot's event; a stack is given innermost first, as `(file, line, function)`.
pub(crate) fn event(action: &str, addr: i64, size: i64, time: i64, stack: &[(&str, i64, &str)]) -> Data {
    dict(&[
        ("action", text(action)),
        ("addr", Data::Int(addr)),
        ("size", Data::Int(size)),
        ("stream", Data::Int(0)),
        ("time_us", Data::Int(time)),
        ("frames", frames(stack)),
    ])
}

pub(crate) fn frames(stack: &[(&str, i64, &str)]) -> Data {
    let frame = |&(file, line, name): &(&str, i64, &str)| {
        dict(&[("name", text(name)), ("filename", text(file)), ("line", Data::Int(line))])
    };
    Data::List(stack.iter().map(frame).collect())
}

/// Pickles data under protocol 0, which is text, or 4, which is what PyTorch writes.
pub(crate) fn pickle(data: &Data, protocol: u8) -> Vec<u8> {
    let mut out = if protocol >= 2 { vec![0x80, protocol] } else { Vec::new() };
    let mut places = 0;
    write(data, protocol, &mut out, &mut places);
    out.push(b'.');
    out
}

fn write(data: &Data, protocol: u8, out: &mut Vec<u8>, places: &mut u32) {
    let mut remember = |out: &mut Vec<u8>| {
        match protocol {
            0 => out.extend(format!("p{places}\n").bytes()),
            _ => out.push(0x94),
        }
        *places += 1;
    };
    match data {
        Data::Int(number) if protocol == 0 => out.extend(format!("L{number}L\n").bytes()),
        Data::Int(number) => {
            out.extend([0x8a, 8]);
            out.extend(number.to_le_bytes());
        }
        Data::Bool(yes) if protocol == 0 => out.extend(if *yes { b"I01\n" } else { b"I00\n" }),
        Data::Bool(yes) => out.push(if *yes { 0x88 } else { 0x89 }),
        Data::Text(text) if protocol == 0 => {
            out.extend(format!("V{text}\n").bytes());
            remember(out);
        }
        Data::Text(text) => {
            out.push(b'X');
            out.extend((text.len() as u32).to_le_bytes());
            out.extend(text.bytes());
            remember(out);
        }
        Data::List(items) if protocol == 0 => {
            out.extend(b"(l");
            remember(out);
            for item in items {
                write(item, protocol, out, places);
                out.push(b'a');
            }
        }
        Data::List(items) => {
            out.push(b']');
            remember(out);
            out.push(b'(');
            for item in items {
                write(item, protocol, out, places);
            }
            out.push(b'e');
        }
        Data::Dict(entries) => {
            out.extend(if protocol == 0 { &b"(d"[..] } else { b"}" });
            remember(out);
            if protocol > 0 {
                out.push(b'(');
            }
            for (key, value) in entries {
                write(&Data::Text(key.clone()), protocol, out, places);
                write(value, protocol, out, places);
                if protocol == 0 {
                    out.push(b's');
                }
            }
            if protocol > 0 {
                out.push(b'u');
            }
        }
    }
}
