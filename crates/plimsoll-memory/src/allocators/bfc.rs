//! TensorFlow's and JAX's allocator: best fit with coalescing (BFC), as in XLA's `bfc_allocator.cc`.
//!
//! Sizes are rounded to 256 bytes. Free chunks are kept in bins of doubling size, each sorted by size and
//! address; searching the bins upwards finds the same chunk as one set sorted by size and address, which is what
//! is kept here. A chunk is split if it is twice the request or leaves 128 MiB, and a freed one is joined with
//! free neighbours. Memory comes in regions: all of the limit at once, or regions that double.
//!
//! Newer JAX divides the one region of a pool that does not grow: requests go into holes first and only then
//! into the untouched part above all of them, the central gap, from which exactly what is needed is cut. A
//! second kind of request, which XLA serves from the upper end, is not told apart in any recording and is not
//! modelled.

use super::{LARGEST_REQUEST, Moved, check_size, layout_of, live_rooms, piece, take};
use crate::allocator::{Allocator, BfcSettings};
use crate::bytes::format_bytes;
use crate::error::{Error, ErrorKind, Result};
use crate::layout::{Layout, Segment, SegmentClass};
use crate::source::Source;
use std::collections::{BTreeMap, BTreeSet};

/// All sizes are multiples of this.
const GRAIN: u64 = 256;
/// The first region of a pool that grows.
const FIRST_REGION: u64 = 2 << 20;
/// A chunk that would leave so much is split in any case.
const MOST_WASTE: u64 = 128 << 20;

/// TensorFlow's and JAX's allocator.
#[derive(Debug)]
pub(crate) struct Bfc {
    settings: BfcSettings,
    limit: u64,
    /// Bytes of the next region; grows as regions are taken.
    next_region: u64,
    chunks: BTreeMap<u64, Chunk>,
    /// Free chunks by size and address, the central gap excepted.
    free: BTreeSet<(u64, u64)>,
    /// The address of the central gap, in a divided pool that has one left.
    gap: Option<u64>,
    regions: BTreeMap<u64, Region>,
    reserved: u64,
}

#[derive(Debug, Clone, Copy)]
struct Chunk {
    bytes: u64,
    /// The bytes asked for; `None` while it is free.
    live: Option<u64>,
    /// The address of its region.
    region: u64,
}

#[derive(Debug, Clone, Copy)]
struct Region {
    bytes: u64,
    /// How many of its chunks are in use.
    live: u64,
}

impl Bfc {
    /// A pool of at most `limit` bytes. Without a limit there is nothing to take all of: it grows then.
    pub(crate) fn new(mut settings: BfcSettings, limit: Option<u64>) -> Bfc {
        settings.growth |= limit.is_none();
        settings.partitioned &= !settings.growth;
        let limit = limit.unwrap_or(u64::MAX);
        let next_region = if settings.growth { limit.min(FIRST_REGION) } else { limit };
        Bfc {
            settings,
            limit,
            next_region,
            chunks: BTreeMap::new(),
            free: BTreeSet::new(),
            gap: None,
            regions: BTreeMap::new(),
            reserved: 0,
        }
    }

    /// Takes over what a recording began with: its regions, with what was live in them.
    pub(crate) fn resume(&mut self, start: &Layout, source: &mut dyn Source) -> Result<Moved> {
        let mut moved = Moved::new();
        for segment in &start.segments {
            let bytes = segment.bytes.next_multiple_of(grain(source));
            let address = self.add_region(bytes, source)?;
            let (before, rooms) = live_rooms(segment);
            let mut at = address;
            self.chunks.remove(&address);
            let mut put = |chunks: &mut BTreeMap<u64, Chunk>, bytes: u64, live: Option<u64>| {
                if bytes > 0 {
                    chunks.insert(at, Chunk { bytes, live, region: address });
                    at += bytes;
                }
            };
            put(&mut self.chunks, before, None);
            for (piece, room) in rooms {
                moved.insert(piece.address, piece.address - segment.address + address);
                let rounded = round(piece.bytes).min(room);
                let kept = if splits(room, rounded) { rounded } else { room };
                put(&mut self.chunks, kept, Some(piece.requested));
                put(&mut self.chunks, room - kept, None);
                self.region(address).live += 1;
            }
            put(&mut self.chunks, bytes - segment.bytes, None);
            self.next_region = self.next_region.max(bytes.saturating_mul(2));
            let free = self.chunks.range(address..address + bytes).filter(|(_, c)| c.live.is_none());
            let free: Vec<u64> = free.map(|(&a, _)| a).collect();
            for chunk in free {
                if self.chunks.get(&chunk).is_some_and(|c| c.live.is_none()) {
                    self.insert_free(chunk);
                }
            }
        }
        Ok(moved)
    }

    fn region(&mut self, address: u64) -> &mut Region {
        self.regions.get_mut(&address).expect("every chunk lies in a region")
    }

    /// Takes a region, as one chunk that is in no set yet.
    fn add_region(&mut self, bytes: u64, source: &mut dyn Source) -> Result<u64> {
        let address = take(source, bytes)?;
        self.regions.insert(address, Region { bytes, live: 0 });
        self.chunks.insert(address, Chunk { bytes, live: None, region: address });
        self.reserved += bytes;
        Ok(address)
    }

    /// Takes a region that `rounded` bytes fit into, or less than planned if the device refuses.
    fn extend(&mut self, rounded: u64, source: &mut dyn Source) -> bool {
        let grain = grain(source);
        let available = self.limit.saturating_sub(self.reserved) / grain * grain;
        if rounded > available {
            return false;
        }
        let mut increased = false;
        while rounded > self.next_region {
            self.next_region = self.next_region.saturating_mul(2).max(grain);
            increased = true;
        }
        let wanted = self.next_region.min(LARGEST_REQUEST).next_multiple_of(grain);
        let mut bytes = wanted.min(available);
        let address = loop {
            match self.add_region(bytes, source) {
                Ok(address) => break address,
                Err(_) => {
                    // A tenth less each time, in single precision as XLA computes it.
                    let less = ((bytes as f32 * 0.9) as u64).next_multiple_of(grain);
                    bytes = less.min(bytes.saturating_sub(grain));
                    if bytes < rounded || bytes == 0 {
                        return false;
                    }
                }
            }
        };
        if !increased {
            self.next_region = self.next_region.saturating_mul(2);
        }
        self.insert_free(address);
        true
    }

    /// Places a request in the smallest hole that holds it, or in the gap.
    fn place(&mut self, requested: u64, rounded: u64) -> Option<u64> {
        let hole = self.free.range((rounded, 0)..).next().copied();
        let (bytes, address, exactly) = match hole {
            Some((bytes, address)) => (bytes, address, false),
            None => {
                let gap = self.gap?;
                let bytes = self.chunks[&gap].bytes;
                (bytes >= rounded).then_some((bytes, gap, true))?
            }
        };
        self.remove_free(bytes, address);
        let chunk = self.chunks.get_mut(&address).expect("a free chunk is a chunk");
        chunk.live = Some(requested);
        let region = chunk.region;
        if bytes > rounded && (exactly || splits(bytes, rounded)) {
            chunk.bytes = rounded;
            let rest = address + rounded;
            self.chunks.insert(rest, Chunk { bytes: bytes - rounded, live: None, region });
            if exactly {
                self.gap = Some(rest);
            } else {
                self.free.insert((bytes - rounded, rest));
            }
        }
        self.region(region).live += 1;
        Some(address)
    }

    fn remove_free(&mut self, bytes: u64, address: u64) {
        if self.gap == Some(address) {
            self.gap = None;
        } else {
            self.free.remove(&(bytes, address));
        }
    }

    /// Joins a chunk that has become free with its free neighbours and makes it found.
    fn insert_free(&mut self, address: u64) {
        let chunk = self.chunks[&address];
        let (mut start, mut bytes) = (address, chunk.bytes);
        let next = self.chunks.range(address + 1..).next().map(|(&a, &c)| (a, c));
        let joins = |c: &Chunk| c.region == chunk.region && c.live.is_none();
        if let Some((at, next)) = next.filter(|(_, c)| joins(c)) {
            self.remove_free(next.bytes, at);
            self.chunks.remove(&at);
            bytes += next.bytes;
        }
        let before = self.chunks.range(..address).next_back().map(|(&a, &c)| (a, c));
        if let Some((at, before)) = before.filter(|(_, c)| joins(c)) {
            self.remove_free(before.bytes, at);
            self.chunks.remove(&address);
            bytes += before.bytes;
            start = at;
        }
        self.chunks.insert(start, Chunk { bytes, live: None, region: chunk.region });
        let region = self.regions[&chunk.region];
        let ends_region = start + bytes == chunk.region + region.bytes;
        if self.settings.partitioned && ends_region && self.gap.is_none() {
            self.gap = Some(start);
        } else {
            self.free.insert((bytes, start));
        }
    }

    /// Gives back regions that hold nothing.
    fn release_empty(&mut self, source: &mut dyn Source) -> u64 {
        let empty: Vec<(u64, u64)> =
            self.regions.iter().filter(|(_, r)| r.live == 0).map(|(&a, r)| (a, r.bytes)).collect();
        for &(address, bytes) in &empty {
            self.regions.remove(&address);
            self.chunks.remove(&address);
            self.remove_free(bytes, address);
            self.reserved -= bytes;
            source.unmap(address, bytes);
            source.release(address, bytes);
        }
        empty.iter().map(|&(_, bytes)| bytes).sum()
    }

    fn empty_bytes(&self) -> u64 {
        self.regions.values().filter(|r| r.live == 0).map(|r| r.bytes).sum()
    }
}

impl Allocator for Bfc {
    fn allocate(&mut self, bytes: u64, _stream: u32, source: &mut dyn Source) -> Result<u64> {
        check_size(bytes)?;
        let rounded = round(bytes);
        if let Some(address) = self.place(bytes, rounded) {
            return Ok(address);
        }
        let mut extended = self.extend(rounded, source);
        if !extended && self.settings.garbage_collection {
            let empty = self.empty_bytes();
            let available = self.limit.saturating_sub(self.reserved).saturating_add(empty);
            if empty > 0 && rounded <= available {
                self.release_empty(source);
                extended = self.extend(rounded, source);
            }
        }
        let placed = if extended { self.place(bytes, rounded) } else { None };
        placed.ok_or_else(|| {
            let largest = self.free.last().map_or(0, |&(bytes, _)| bytes);
            let gap = self.gap.map_or(0, |gap| self.chunks[&gap].bytes);
            let message = format!(
                "{bytes} bytes ({}) do not fit: {} are taken of the device, the largest hole is {}",
                format_bytes(bytes),
                format_bytes(self.reserved),
                format_bytes(largest.max(gap))
            );
            Error::new(ErrorKind::OutOfMemory, message)
        })
    }

    fn free(&mut self, address: u64, _source: &mut dyn Source) {
        let Some(chunk) = self.chunks.get_mut(&address).filter(|c| c.live.is_some()) else { return };
        chunk.live = None;
        let region = chunk.region;
        self.region(region).live -= 1;
        self.insert_free(address);
    }

    fn trim(&mut self, source: &mut dyn Source) -> u64 {
        self.release_empty(source)
    }

    fn reserved_bytes(&self) -> u64 {
        self.reserved
    }

    fn layout(&self) -> Layout {
        layout_of(self.regions.iter().map(|(&address, region)| {
            let chunks = self.chunks.range(address..address + region.bytes);
            let pieces = chunks.map(|(&at, chunk)| piece(at, chunk.bytes, chunk.live)).collect();
            Segment { address, bytes: region.bytes, stream: 0, class: SegmentClass::Any, pieces }
        }))
    }
}

/// The unit in which regions are taken.
fn grain(source: &dyn Source) -> u64 {
    source.page_bytes().next_multiple_of(GRAIN)
}

fn round(bytes: u64) -> u64 {
    bytes.max(1).next_multiple_of(GRAIN)
}

/// Whether a chunk is too large for a request to be given whole.
fn splits(chunk: u64, rounded: u64) -> bool {
    chunk >= 2 * rounded || chunk - rounded >= MOST_WASTE
}
