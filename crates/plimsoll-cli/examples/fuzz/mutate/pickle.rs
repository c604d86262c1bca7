//! Pickles, instruction by instruction.

use super::bytes::EXTREMES;
use super::repeat_until;
use crate::random::Random;
use std::ops::Range;

/// Removes, repeats, moves and exchanges instructions, changes what they push, and takes others from another file.
pub(super) fn edit(bytes: &[u8], other: &[u8], random: &mut Random) -> Vec<u8> {
    let all = instructions(bytes);
    let at = random.below(all.len());
    let run = run_at(&all, at, random);
    let place = all.get(at).map_or(0, |instruction| instruction.start);
    match random.below(8) {
        0 => [&bytes[..run.start], &bytes[run.end..]].concat(),
        1 => {
            let times = random.up_to_power(12).min((1 << 16) / run.len().max(1) + 1);
            [&bytes[..run.end], &bytes[run.clone()].repeat(times), &bytes[run.end..]].concat()
        }
        2 => {
            let to = all.get(random.below(all.len())).map_or(0, |instruction| instruction.start);
            [&bytes[..to], &bytes[run], &bytes[to..]].concat()
        }
        3 => {
            let others = instructions(other);
            let from = random.below(others.len());
            let taken = run_at(&others, from, random);
            [&bytes[..place], &other[taken], &bytes[place..]].concat()
        }
        4 => [&bytes[..place], &[random.next() as u8], &bytes[place..]].concat(),
        5 => {
            // Another value of this file, in the place of this one.
            let from = all.get(random.below(all.len())).cloned().unwrap_or(0..0);
            let end = all.get(at).map_or(0, |instruction| instruction.end);
            [&bytes[..place], &bytes[from], &bytes[end..]].concat()
        }
        _ => {
            let end = all.get(at).map_or(0, |instruction| instruction.end);
            [&bytes[..place], &number(random), &bytes[end..]].concat()
        }
    }
}

pub(super) fn blown_up(bytes: &[u8], most: usize, random: &mut Random) -> Vec<u8> {
    let all = instructions(bytes);
    let at = random.below(all.len());
    let run = run_at(&all, at, random);
    repeat_until(bytes.to_vec(), run.start, run.end, most)
}

/// The bytes of some instructions from the one at a place on.
fn run_at(all: &[Range<usize>], at: usize, random: &mut Random) -> Range<usize> {
    let last = (at + random.up_to_power(8) - 1).min(all.len().saturating_sub(1));
    match (all.get(at), all.get(last)) {
        (Some(first), Some(last)) => first.start..last.end,
        _ => 0..0,
    }
}

/// An instruction that pushes or asks for an extreme number.
fn number(random: &mut Random) -> Vec<u8> {
    let bytes = random.pick(&EXTREMES).to_le_bytes();
    match random.below(6) {
        0 => [&b"J"[..], &bytes[..4]].concat(),
        1 => [&b"\x8a\x08"[..], &bytes].concat(),
        2 => [&b"\x8a\x09"[..], &bytes, &[random.next() as u8]].concat(),
        3 => {
            let reals = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, -1.5, 1e-310];
            [&b"G"[..], &random.pick(&reals).to_be_bytes()].concat()
        }
        4 => [&b"j"[..], &bytes[..4]].concat(),
        _ => [&b"X"[..], &bytes[..4], &[b'x'; 9]].concat(),
    }
}

/// Where each instruction stands. From one that is not known on, each byte is taken for one.
fn instructions(bytes: &[u8]) -> Vec<Range<usize>> {
    let mut all = Vec::new();
    let mut start = 0;
    while start < bytes.len() {
        let end = (start + length(&bytes[start..])).min(bytes.len());
        all.push(start..end);
        start = end;
    }
    all
}

/// The bytes that the first instruction takes.
fn length(bytes: &[u8]) -> usize {
    let counted = |width: usize| {
        let mut count = [0; 8];
        let given = bytes.get(1..=width).unwrap_or(&[]);
        count[..given.len()].copy_from_slice(given);
        (u64::from_le_bytes(count) as usize).saturating_add(1 + width)
    };
    let lines = |count: usize| {
        let ends = bytes.iter().enumerate().filter(|&(_, &byte)| byte == b'\n');
        ends.map(|(at, _)| at + 1).nth(count - 1).unwrap_or(bytes.len())
    };
    match bytes[0] {
        b'K' | b'h' | b'q' | 0x80 | 0x82 => 2,
        b'M' | 0x83 => 3,
        b'J' | b'r' | b'j' | 0x84 => 5,
        b'G' | 0x95 => 9,
        b'U' | b'C' | 0x8a | 0x8c => counted(1),
        b'T' | b'X' | b'B' | 0x8b => counted(4),
        0x8d | 0x8e | 0x96 => counted(8),
        b'I' | b'L' | b'F' | b'S' | b'V' | b'p' | b'g' | b'P' => lines(1),
        b'c' | b'i' => lines(2),
        _ => 1,
    }
}
