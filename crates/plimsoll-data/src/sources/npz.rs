//! Where the members of a `.npz` file are. It is a ZIP file; a member that is not compressed is a `.npy` file that lies in
//! it as it is, and is read from there. One that is compressed (`numpy.savez_compressed`) is unpacked once, since its samples
//! cannot be found otherwise.
//!
//! Format: <https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT>, of which NumPy uses the records below, and those
//! of 64 bits for what has 4 GiB or more.

use super::bytes::Bytes;
use super::collected::Collected;
use crate::Result;
use flate2::Crc;
use flate2::read::DeflateDecoder;
use std::io::{self, Read};
use std::ops::Range;

const END: &[u8; 4] = b"PK\x05\x06";
const END_BYTES: u64 = 22;
const LONGEST_COMMENT: u64 = u16::MAX as u64;
const LOCATOR_64: &[u8; 4] = b"PK\x06\x07";
const LOCATOR_64_BYTES: u64 = 20;
const END_64: &[u8; 4] = b"PK\x06\x06";
const END_64_BYTES: u64 = 56;
const ENTRY: &[u8; 4] = b"PK\x01\x02";
const ENTRY_BYTES: usize = 46;
const MEMBER: &[u8; 4] = b"PK\x03\x04";
const MEMBER_BYTES: u64 = 30;
/// The mark of the 64-bit numbers of an entry, and of a 32-bit number that stands there instead.
const NUMBERS_64: u16 = 1;
const SEE_64: u64 = u32::MAX as u64;
/// So many names of members are shown.
const MOST_LISTED: usize = 12;
/// The largest list of members that is read.
const LONGEST_LIST: u64 = 16 << 20;

/// What is not compressed, and the number of DEFLATE.
const STORED: u16 = 0;
const DEFLATED: u16 = 8;
/// No byte of what is compressed becomes more bytes than this.
const MOST_PACKED: u64 = 1032;
/// Is unpacked at a time.
const CHUNK: usize = 64 << 10;

/// A member of a `.npz` file.
#[derive(Debug)]
pub(super) struct Member {
    /// Where its bytes are.
    pub(super) range: Range<u64>,
    /// What they become, if they are compressed.
    pub(super) packed: Option<Packed>,
}

/// What a member is when it is unpacked.
#[derive(Debug)]
pub(super) struct Packed {
    bytes: u64,
    checksum: u32,
}

/// The member with this name, which may leave out `.npy`.
pub(super) fn find(file: &Bytes, name: &str) -> Result<Member> {
    let asked = name.strip_suffix(".npy").unwrap_or(name);
    let mut known = Vec::new();
    for entry in List::read(file)? {
        let Entry { name: found, head, extra } = entry?;
        if found == asked {
            return member(file, name, &head, &extra);
        }
        known.push(found);
    }
    Err(file.error(None, None, format!("it has no member {name:?}; there are: {}", listed(&known))))
}

/// The error for a file of which no member is named.
pub(super) fn refuse_unnamed(file: &Bytes) -> crate::Error {
    let names = || -> Result<Vec<String>> { List::read(file)?.map(|entry| Ok(entry?.name)).collect() };
    match names() {
        Ok(names) => {
            let example = format!("data.npz:{}", names.first().map_or("x", |name| name));
            let reason = format!(
                "it is a .npz file: name one of its members, as in {example:?}; there are: {}",
                listed(&names)
            );
            file.error(None, None, reason)
        }
        Err(error) => error,
    }
}

fn listed(names: &[String]) -> String {
    let names: Vec<String> = names.iter().take(MOST_LISTED).map(|name| format!("{name:?}")).collect();
    names.join(", ")
}

/// What a `.npz` file says of its members, one after the other.
struct List<'a> {
    file: &'a Bytes,
    start: u64,
    bytes: Vec<u8>,
    at: usize,
}

/// What is said of a member: its name without `.npy`, the fixed part, and what is said besides.
struct Entry {
    name: String,
    head: Vec<u8>,
    extra: Vec<u8>,
}

impl List<'_> {
    fn read(file: &Bytes) -> Result<List<'_>> {
        let (start, length) = list(file)?;
        if length > LONGEST_LIST {
            let reason = format!("its list of members has {length} bytes; at most {LONGEST_LIST} are read");
            return Err(file.error(None, Some(start), reason));
        }
        Ok(List { file, start, bytes: file.read_vec(start, length)?, at: 0 })
    }

    fn entry(&mut self) -> Result<Entry> {
        let spoiled =
            || self.file.error(None, Some(self.start + self.at as u64), "the list of members is spoiled");
        let rest = &self.bytes[self.at..];
        let head = rest.get(..ENTRY_BYTES).filter(|entry| entry.starts_with(ENTRY)).ok_or_else(spoiled)?;
        let [name, extra, comment] = [28, 30, 32].map(|at| usize::from(u16_at(head, at)));
        let texts = rest.get(ENTRY_BYTES..ENTRY_BYTES + name + extra + comment).ok_or_else(spoiled)?;
        let found = String::from_utf8_lossy(&texts[..name]);
        let found = found.strip_suffix(".npy").unwrap_or(&found).to_string();
        let entry = Entry { name: found, head: head.to_vec(), extra: texts[name..][..extra].to_vec() };
        self.at += ENTRY_BYTES + texts.len();
        Ok(entry)
    }
}

impl Iterator for List<'_> {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Result<Entry>> {
        if self.at >= self.bytes.len() {
            return None;
        }
        let entry = self.entry();
        if entry.is_err() {
            self.at = self.bytes.len();
        }
        Some(entry)
    }
}

/// Where the list of members begins, and its bytes.
fn list(file: &Bytes) -> Result<(u64, u64)> {
    let tail = file.len().min(END_BYTES + LONGEST_COMMENT);
    let first = file.len() - tail;
    let bytes = file.read_vec(first, tail)?;
    let is_end = |at: &usize| {
        let record = &bytes[*at..];
        record.starts_with(END)
            && record.len() >= END_BYTES as usize
            && usize::from(u16_at(record, 20)) == record.len() - END_BYTES as usize
    };
    let Some(end) = (0..bytes.len()).rev().find(is_end) else {
        return Err(file.error(
            None,
            Some(file.len()),
            "it does not end as a .npz file does: it is cut off or none",
        ));
    };
    let (length, start) = (u64::from(u32_at(&bytes[end..], 12)), u64::from(u32_at(&bytes[end..], 16)));
    if length != SEE_64 && start != SEE_64 {
        return Ok((start, length));
    }
    let spoiled = |at: u64| file.error(None, Some(at), "the end of the .npz file is spoiled");
    let end = first + end as u64;
    let locator_at = end.checked_sub(LOCATOR_64_BYTES).ok_or_else(|| spoiled(end))?;
    let locator = file.read_vec(locator_at, LOCATOR_64_BYTES)?;
    if !locator.starts_with(LOCATOR_64) {
        return Err(spoiled(locator_at));
    }
    let at = u64_at(&locator, 8);
    let record = file.read_vec(at, END_64_BYTES)?;
    if !record.starts_with(END_64) {
        return Err(spoiled(at));
    }
    Ok((u64_at(&record, 48), u64_at(&record, 40)))
}

/// The member that an entry is about.
fn member(file: &Bytes, name: &str, entry: &[u8], extra: &[u8]) -> Result<Member> {
    let fail = |at: Option<u64>, reason: String| file.error(None, at, reason);
    let (is_encrypted, method) = (u16_at(entry, 8) & 1 == 1, u16_at(entry, 10));
    if is_encrypted || ![STORED, DEFLATED].contains(&method) {
        let what = if is_encrypted { "encrypted" } else { "compressed otherwise than by DEFLATE" };
        let reason =
            format!("the member {name:?} is {what}: save it with numpy.savez or numpy.savez_compressed");
        return Err(fail(None, reason));
    }
    let [unpacked, packed, local] = [24, 20, 42].map(|at| u64::from(u32_at(entry, at)));
    // In this order the numbers stand that have no room above.
    let mut wide = numbers_64(extra).iter().map(|&number| u64::from_le_bytes(number));
    let mut widened = |number: u64| if number == SEE_64 { wide.next().unwrap_or(number) } else { number };
    let (bytes, length, local) = (widened(unpacked), widened(packed), widened(local));
    let head = file.read_vec(local, MEMBER_BYTES)?;
    if !head.starts_with(MEMBER) {
        return Err(fail(Some(local), format!("the member {name:?} does not begin here, as the list says")));
    }
    let names = u64::from(u16_at(&head, 26)) + u64::from(u16_at(&head, 28));
    let start = local + MEMBER_BYTES + names;
    match start.checked_add(length) {
        Some(end) if end <= file.len() => {
            let packed = (method == DEFLATED).then(|| Packed { bytes, checksum: u32_at(entry, 16) });
            Ok(Member { range: start..end, packed })
        }
        _ => Err(fail(
            Some(start),
            format!("the member {name:?} has {length} bytes, more than the file has here"),
        )),
    }
}

/// Unpacks a compressed member: into memory, or into an unnamed file if it is large.
pub(super) fn unpack(file: &Bytes, name: &str, range: Range<u64>, packed: &Packed) -> Result<Bytes> {
    let fail = |reason: String| file.error(None, Some(range.start), format!("the member {name:?} {reason}"));
    let (there, needed) = (range.end - range.start, packed.bytes);
    if needed > there.saturating_mul(MOST_PACKED) {
        return Err(fail(format!(
            "is said to become {needed} bytes, more than its {there} can: the file is spoiled"
        )));
    }
    let mut unpacking =
        DeflateDecoder::new(io::BufReader::with_capacity(CHUNK, Part { file, range: range.clone() }));
    let (mut made, mut checksum, mut chunk) =
        (Collected::new("an unpacked array"), Crc::new(), vec![0; CHUNK]);
    loop {
        let read = match unpacking.read(&mut chunk) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(fail(format!("cannot be unpacked: {error}"))),
        };
        if made.bytes() + read as u64 > needed {
            return Err(fail(format!(
                "becomes more than the {needed} bytes that the list says: the file is spoiled"
            )));
        }
        checksum.update(&chunk[..read]);
        made.add(&chunk[..read])?;
    }
    if made.bytes() < needed || checksum.sum() != packed.checksum {
        let (bytes, sum) = (made.bytes(), checksum.sum());
        return Err(fail(format!(
            "becomes {bytes} bytes with the checksum {sum:08x}, where the list says {needed} and {:08x}: the file is spoiled",
            packed.checksum
        )));
    }
    made.finish(file.path())
}

/// A part of a file, read from its beginning to its end.
struct Part<'a> {
    file: &'a Bytes,
    range: Range<u64>,
}

impl Read for Part<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let bytes = out.len().min(usize::try_from(self.range.end - self.range.start).unwrap_or(usize::MAX));
        self.file.read(self.range.start, &mut out[..bytes]).map_err(io::Error::other)?;
        self.range.start += bytes as u64;
        Ok(bytes)
    }
}

/// The 64-bit numbers among what is said of a member besides.
fn numbers_64(mut extra: &[u8]) -> &[[u8; 8]] {
    while extra.len() >= 4 {
        let (mark, length) = (u16_at(extra, 0), usize::from(u16_at(extra, 2)));
        let Some(content) = extra.get(4..4 + length) else { break };
        if mark == NUMBERS_64 {
            return content.as_chunks().0;
        }
        extra = &extra[4 + length..];
    }
    &[]
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}
