//! Files that are nearly what they should be.
//!
//! Bytes that are changed anywhere are mostly refused at the first of them. So most mutants are made within the form that
//! a format has: instructions of a pickle, fields of a protocol buffer with the lengths around them mended, words, numbers
//! and lines of text. The rest is bytes: flips, cuts, splices, lengths that lie.

mod bytes;
mod pickle;
mod protobuf;
mod text;

use crate::random::Random;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write;

/// One mutant of so many is as large as may be: a piece of it is repeated until then.
const ONE_IS_LARGE: usize = 1 << 15;

/// The most bytes that a packed mutant has once it is unpacked.
const MOST_UNPACKED: usize = 64 << 20;

/// What a file is made of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Pickle,
    Protobuf,
    Text,
}

/// A good file, to be spoiled.
pub(crate) struct Seed {
    pub(crate) form: Form,
    pub(crate) bytes: Vec<u8>,
}

/// Makes a mutant of one of the seeds, of small ones more often: they are read sooner, and a change in them matters more.
/// What may be packed is so now and then, and then its packing is spoiled as well.
pub(crate) fn mutant(seeds: &[Seed], most_bytes: usize, may_be_packed: bool, random: &mut Random) -> Vec<u8> {
    let seed = choose(seeds, random);
    let is_large = random.once_in(ONE_IS_LARGE);
    let is_packed = may_be_packed && random.once_in(if is_large { 2 } else { 64 });
    let mut bytes = seed.bytes.clone();
    let edits = random.up_to_power(3);
    for _ in 0..edits {
        bytes = edit(bytes, seed.form, seeds, random);
    }
    if is_large {
        let most = if is_packed { MOST_UNPACKED } else { most_bytes };
        bytes = blown_up(bytes, seed.form, most, random);
    }
    if is_packed {
        bytes = packed(&bytes);
        if random.once_in(2) {
            bytes = bytes::edit(bytes, &seed.bytes, random);
        }
    }
    bytes.truncate(most_bytes);
    bytes
}

/// A seed, with the inverse square of its length as its weight.
fn choose<'a>(seeds: &'a [Seed], random: &mut Random) -> &'a Seed {
    let weight = |seed: &Seed| 1.0 / (seed.bytes.len().max(1) as f64).powi(2);
    let all: f64 = seeds.iter().map(weight).sum();
    let mut place = all * (random.next() >> 11) as f64 / (1_u64 << 53) as f64;
    let found = seeds.iter().find(|seed| {
        place -= weight(seed);
        place < 0.0
    });
    found.unwrap_or(&seeds[seeds.len() - 1])
}

fn edit(bytes: Vec<u8>, form: Form, seeds: &[Seed], random: &mut Random) -> Vec<u8> {
    let other = &choose(seeds, random).bytes;
    if random.once_in(4) {
        return bytes::edit(bytes, other, random);
    }
    match form {
        Form::Pickle => pickle::edit(&bytes, other, random),
        Form::Protobuf => protobuf::edit(&bytes, random),
        Form::Text => text::edit(bytes, other, random),
    }
}

/// A file in which one piece, a whole one of its form, is repeated until there is no room.
fn blown_up(bytes: Vec<u8>, form: Form, most: usize, random: &mut Random) -> Vec<u8> {
    match form {
        Form::Pickle => pickle::blown_up(&bytes, most, random),
        Form::Protobuf => protobuf::blown_up(&bytes, most, random),
        Form::Text => text::blown_up(bytes, most, random),
    }
}

/// Repeats a range of bytes in its place, until there are so many in all.
fn repeat_until(mut bytes: Vec<u8>, start: usize, end: usize, most: usize) -> Vec<u8> {
    let times = most.saturating_sub(bytes.len()) / (end - start).max(1);
    let repeated = bytes[start..end].repeat(times);
    drop(bytes.splice(end..end, repeated));
    bytes
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    // Nothing can go wrong in memory.
    let _ = encoder.write_all(bytes);
    encoder.finish().unwrap_or_default()
}
