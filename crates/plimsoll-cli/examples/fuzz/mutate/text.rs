//! Text: words, numbers and lines.

use super::repeat_until;
use crate::random::Random;
use std::ops::Range;

/// Numbers that are not what was expected.
const NUMBERS: [&str; 26] = [
    "0",
    "1",
    "-1",
    "2",
    "255",
    "65536",
    "2147483648",
    "4294967295",
    "4294967296",
    "1099511627776",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "99999999999999999999999999999999",
    "0.5",
    "-0.0",
    "1e18",
    "1e308",
    "1e999",
    "1e-400",
    "nan",
    "inf",
    "-inf",
    "0x10",
];

/// What ends, opens or stands between things, and what no text should have.
const MARKS: [&[u8]; 28] = [
    b"{",
    b"}",
    b"[",
    b"]",
    b"(",
    b")",
    b"\"",
    b"'",
    b",",
    b";",
    b":",
    b"=",
    b".",
    b"-",
    b"#",
    b"|",
    b"\\",
    b"\n",
    b"\r",
    b"\t",
    b"\0",
    b" ",
    b"\x1b[2J",
    b"\\u202e",
    b"\xff",
    "\u{202e}".as_bytes(),
    "\u{feff}".as_bytes(),
    "é".as_bytes(),
];

/// Changes a number, a word or a line, or sets a mark.
pub(super) fn edit(mut bytes: Vec<u8>, other: &[u8], random: &mut Random) -> Vec<u8> {
    let word = word_at(&bytes, random.below(bytes.len()));
    let line = line_at(&bytes, random.below(bytes.len()));
    match random.below(12) {
        0..=2 => {
            // The next number from there on.
            let digit = bytes[word.start..].iter().position(u8::is_ascii_digit);
            let number = digit.map_or(word.clone(), |at| word_at(&bytes, word.start + at));
            drop(bytes.splice(number, random.pick(&NUMBERS).bytes()));
        }
        3 => drop(bytes.drain(word)),
        4 => {
            let piece = other[word_at(other, random.below(other.len()))].to_vec();
            drop(bytes.splice(word, piece));
        }
        5 => {
            let piece = bytes[word_at(&bytes, random.below(bytes.len()))].to_vec();
            drop(bytes.splice(word.start..word.start, piece));
        }
        6 => drop(bytes.splice(word.start..word.start, random.pick(&MARKS).iter().copied())),
        7 => drop(bytes.drain(line)),
        8 => {
            let times = random.up_to_power(8).min((1 << 16) / line.len().max(1) + 1);
            let piece = bytes[line.clone()].repeat(times);
            drop(bytes.splice(line.start..line.start, piece));
        }
        9 => {
            let (piece, to) = (bytes[line].to_vec(), line_at(&bytes, random.below(bytes.len())).start);
            drop(bytes.splice(to..to, piece));
        }
        10 => {
            let piece = other[line_at(other, random.below(other.len()))].to_vec();
            drop(bytes.splice(line.start..line.start, piece));
        }
        _ => {
            // A word or a mark again and again: what nests, nests deep.
            let piece = if random.once_in(2) { &bytes[word.clone()] } else { *random.pick(&MARKS) };
            let times = random.up_to_power(13).min((1 << 16) / piece.len().max(1) + 1);
            let piece = piece.repeat(times);
            drop(bytes.splice(word.start..word.start, piece));
        }
    }
    bytes
}

pub(super) fn blown_up(bytes: Vec<u8>, most: usize, random: &mut Random) -> Vec<u8> {
    let at = random.below(bytes.len());
    let Range { start, end } = match random.below(3) {
        0 => word_at(&bytes, at),
        1 => at..(at + random.up_to_power(10)).min(bytes.len()),
        _ => line_at(&bytes, at),
    };
    repeat_until(bytes, start, end, most)
}

/// The word or number around a byte, or the one byte.
fn word_at(bytes: &[u8], at: usize) -> Range<usize> {
    around(bytes, at, |byte| !(byte.is_ascii_alphanumeric() || b"_.+-".contains(&byte)))
}

/// The line around a byte, with its end.
fn line_at(bytes: &[u8], at: usize) -> Range<usize> {
    let line = around(bytes, at, |byte| byte == b'\n');
    line.start..(line.end + 1).min(bytes.len())
}

fn around(bytes: &[u8], at: usize, ends: impl Fn(u8) -> bool) -> Range<usize> {
    let start = bytes[..at].iter().rposition(|&byte| ends(byte)).map_or(0, |before| before + 1);
    let end = bytes[at..].iter().position(|&byte| ends(byte)).map_or(bytes.len(), |after| at + after);
    if start < end { start..end } else { at..(at + 1).min(bytes.len()) }
}
