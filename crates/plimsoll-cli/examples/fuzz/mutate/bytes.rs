//! Bytes, whatever they mean.

use crate::random::Random;

/// Numbers at which something ends.
pub(super) const EXTREMES: [u64; 16] = [
    0,
    1,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x1_0000_0000,
    1 << 40,
    i64::MAX as u64,
    1 << 63,
    u64::MAX - 7,
    u64::MAX,
];

/// Changes bytes, cuts, repeats, moves and takes pieces from another file.
pub(super) fn edit(mut bytes: Vec<u8>, other: &[u8], random: &mut Random) -> Vec<u8> {
    let start = random.below(bytes.len());
    let end = (start + random.up_to_power(10)).min(bytes.len());
    match random.below(9) {
        0 => bytes.truncate(start),
        1 => bytes.iter_mut().skip(start).take(1).for_each(|byte| *byte = random.next() as u8),
        2 | 3 => bytes.iter_mut().skip(start).take(1).for_each(|byte| *byte ^= 1 << random.below(8)),
        4 => drop(bytes.drain(start..end)),
        5 => {
            let times = random.up_to_power(8).min((1 << 16) / (end - start).max(1) + 1);
            let piece = bytes[start..end].repeat(times);
            drop(bytes.splice(start..start, piece));
        }
        6 => {
            let (piece, to) = (bytes[start..end].to_vec(), random.below(bytes.len()));
            drop(bytes.splice(to..to, piece));
        }
        7 => {
            let from = random.below(other.len());
            let piece = other[from..(from + end - start).min(other.len())].to_vec();
            drop(bytes.splice(start..end, piece));
        }
        _ => lie_about_a_length(&mut bytes[start..], random),
    }
    bytes
}

/// Writes a number over the first bytes, as files have them: of one to eight bytes, in either order, an extreme one or one
/// next to what was there.
fn lie_about_a_length(bytes: &mut [u8], random: &mut Random) {
    let width = (1_usize << random.below(4)).min(bytes.len());
    let mut old = [0; 8];
    old[..width].copy_from_slice(&bytes[..width]);
    let number = match random.below(4) {
        0 => u64::from_le_bytes(old).wrapping_add(1),
        1 => u64::from_le_bytes(old).wrapping_sub(1),
        _ => *random.pick(&EXTREMES),
    };
    let mut new = number.to_le_bytes();
    if random.once_in(4) {
        new[..width].reverse();
    }
    bytes[..width].copy_from_slice(&new[..width]);
}
