//! Protocol buffers, field by field; the lengths of all that is around a changed field are mended.

use super::bytes::EXTREMES;
use super::repeat_until;
use crate::random::Random;
use std::ops::Range;

/// A field: where it stands, and what it holds.
struct Field {
    whole: Range<usize>,
    number: u64,
    value: Value,
}

enum Value {
    Varint(u64),
    Fixed,
    Bytes(Range<usize>),
}

/// How deep a field is looked for.
const DEEPEST: u32 = 12;

/// Changes one field somewhere.
pub(super) fn edit(bytes: &[u8], random: &mut Random) -> Vec<u8> {
    let what = random.below(9);
    at_some_depth(bytes, DEEPEST, random, &mut |bytes, fields, random| {
        let at = random.below(fields.len());
        let Some(field) = fields.get(at) else { return bytes.to_vec() };
        let (before, whole, after) =
            (&bytes[..field.whole.start], &bytes[field.whole.clone()], &bytes[field.whole.end..]);
        match what {
            0 => [before, after].concat(),
            1 => {
                let times = random.up_to_power(10).min((1 << 16) / whole.len().max(1) + 1);
                [before, &whole.repeat(times), after].concat()
            }
            2 => {
                let other = bytes[random.pick(fields).whole.clone()].to_vec();
                [before, &other, after].concat()
            }
            3 => {
                [before, &varint_field(random.pick(&[1, 2, 3, 4, 5, 6, 7, 19, u64::MAX >> 3]), random), after]
                    .concat()
            }
            4 => {
                // The value of one field under the number of another.
                let number = random.pick(fields).number;
                let renumbered = match &field.value {
                    Value::Bytes(range) => bytes_field(number, &bytes[range.clone()]),
                    Value::Varint(value) => [key(number, 0), varint(*value)].concat(),
                    Value::Fixed => varint_field(&number, random),
                };
                [before, &renumbered, after].concat()
            }
            5 => {
                // A message within itself.
                let times = random.up_to_power(9).min((1 << 12) / whole.len().max(1) + 1);
                let nested = (0..times).fold(whole.to_vec(), |inner, _| bytes_field(field.number, &inner));
                [before, &nested, after].concat()
            }
            _ => {
                let changed = match &field.value {
                    Value::Bytes(range) if random.once_in(2) => {
                        let text = [&bytes[range.clone()], &[random.next() as u8]].concat();
                        bytes_field(field.number, &text[random.below(text.len())..])
                    }
                    Value::Bytes(_) => bytes_field(field.number, b""),
                    Value::Varint(_) | Value::Fixed => varint_field(&field.number, random),
                };
                [before, &changed, after].concat()
            }
        }
    })
}

pub(super) fn blown_up(bytes: &[u8], most: usize, random: &mut Random) -> Vec<u8> {
    // The keys and lengths around it take a few bytes themselves.
    let most = most - 256;
    let beside = bytes.len();
    at_some_depth(bytes, DEEPEST, random, &mut |bytes, fields, random| match fields {
        [] => bytes.to_vec(),
        _ => {
            let Range { start, end } = random.pick(fields).whole.clone();
            repeat_until(bytes.to_vec(), start, end, most.saturating_sub(beside - bytes.len()))
        }
    })
}

/// What becomes of a message, given its fields.
type Change<'a> = dyn FnMut(&[u8], &[Field], &mut Random) -> Vec<u8> + 'a;

/// Changes a message that is somewhere within another, or is that one.
fn at_some_depth(bytes: &[u8], depth: u32, random: &mut Random, change: &mut Change<'_>) -> Vec<u8> {
    let fields = fields(bytes);
    if depth > 0 && !random.once_in(4) && !fields.is_empty() {
        let field = random.pick(&fields);
        if let Value::Bytes(range) = &field.value
            && !range.is_empty()
        {
            let inner = at_some_depth(&bytes[range.clone()], depth - 1, random, change);
            let mended = bytes_field(field.number, &inner);
            return [&bytes[..field.whole.start], &mended, &bytes[field.whole.end..]].concat();
        }
    }
    change(bytes, &fields, random)
}

/// The fields of what may be a message, up to where it is none.
fn fields(bytes: &[u8]) -> Vec<Field> {
    let mut fields = Vec::new();
    let mut start = 0;
    while let Some((key, after_key)) = read_varint(bytes, start) {
        let (value, end) = match key & 7 {
            0 => match read_varint(bytes, after_key) {
                Some((value, end)) => (Value::Varint(value), end),
                None => break,
            },
            1 => (Value::Fixed, after_key + 8),
            2 => match read_varint(bytes, after_key) {
                Some((length, from)) if length <= (bytes.len() - from) as u64 => {
                    let end = from + length as usize;
                    (Value::Bytes(from..end), end)
                }
                _ => break,
            },
            5 => (Value::Fixed, after_key + 4),
            _ => break,
        };
        if key < 8 || end > bytes.len() {
            break;
        }
        fields.push(Field { whole: start..end, number: key >> 3, value });
        start = end;
    }
    fields
}

fn read_varint(bytes: &[u8], start: usize) -> Option<(u64, usize)> {
    let mut value = 0;
    for (count, &byte) in bytes.get(start..)?.iter().take(10).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * count);
        if byte < 0x80 {
            return Some((value, start + count + 1));
        }
    }
    None
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

fn key(number: u64, kind: u64) -> Vec<u8> {
    varint(number << 3 | kind)
}

fn bytes_field(number: u64, bytes: &[u8]) -> Vec<u8> {
    [&key(number, 2)[..], &varint(bytes.len() as u64), bytes].concat()
}

/// A field of an extreme number, as a varint or as eight bytes.
fn varint_field(number: &u64, random: &mut Random) -> Vec<u8> {
    let value = *random.pick(&EXTREMES);
    if random.once_in(4) {
        return [&key(*number, 1)[..], &value.to_le_bytes()].concat();
    }
    [key(*number, 0), varint(value)].concat()
}
