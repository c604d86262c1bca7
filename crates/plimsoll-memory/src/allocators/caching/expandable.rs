//! Expandable segments: each pool is one range of addresses, with pages behind what it needs.
//!
//! Pages are of 2 MiB for small requests and of 20 MiB for large ones, and are put where the lowest room is.
//! They are taken away again, wherever they hold nothing, when the device refuses more.

use super::blocks::{Block, Pool, State};
use super::{Caching, LARGE_SEGMENT, Moved, SMALL_SEGMENT, Taken};
use crate::error::{Error, ErrorKind, Result};
use crate::layout::{Layout, Segment, SegmentClass};
use crate::source::Source;
use std::collections::BTreeMap;

/// Addresses of one range where there is no limit.
const RANGE: u64 = 1 << 44;

impl Caching {
    /// The free block for a request. The last one of a range counts with the addresses it can grow into, so that
    /// it is only taken if no other holds the request.
    pub(super) fn find_expandable(&self, pool: Pool, rounded: u64) -> Option<(u64, u64)> {
        let room = |address: u64, bytes: u64| {
            let next = self.blocks.next(address).filter(|(_, b)| b.state == State::Unmapped);
            bytes + next.map_or(0, |(_, b)| b.bytes)
        };
        let mut found = self.blocks.free_from(pool, rounded);
        let (mut bytes, mut address) = found.next()?;
        for (next_bytes, next_address) in found {
            if room(next_address, next_bytes) >= room(address, bytes) {
                break;
            }
            (bytes, address) = (next_bytes, next_address);
        }
        Some((bytes, address))
    }

    /// Puts pages where the lowest room for a request is and returns the free block that holds it.
    pub(super) fn grow_range(&mut self, pool: Pool, rounded: u64, source: &mut dyn Source) -> Result<u64> {
        let mut at = match self.lowest_room(pool, rounded) {
            Some(address) => address,
            None => self.add_range(pool, rounded, source)?,
        };
        loop {
            let refused = || Error::new(ErrorKind::OutOfMemory, "a range of addresses is too short");
            let block = *self.blocks.get(at).ok_or_else(refused)?;
            if block.state == State::Unmapped {
                at = self.map(at, block.bytes.min(rounded), source)?;
            } else if block.bytes >= rounded {
                return Ok(at);
            } else {
                let (next, unmapped) = self.blocks.next(at).ok_or_else(refused)?;
                at = self.map(next, unmapped.bytes.min(rounded - block.bytes), source)?;
            }
        }
    }

    /// The lowest unmapped block, or free one before it, from which on there are addresses for a request.
    fn lowest_room(&self, pool: Pool, rounded: u64) -> Option<u64> {
        self.blocks.unmapped(pool).find_map(|unmapped| {
            let before = self.blocks.previous(unmapped).filter(|(_, b)| b.state == State::Free);
            let start = before.map_or(unmapped, |(address, _)| address);
            let mut room = self.blocks.get(start)?.bytes;
            let mut last = start;
            while room < rounded {
                let (next, block) = self.blocks.next(last)?;
                if matches!(block.state, State::Live { .. }) {
                    return None;
                }
                (room, last) = (room + block.bytes, next);
            }
            Some(start)
        })
    }

    /// Takes a range of addresses, an eighth more than there can be memory, and returns where it begins.
    fn add_range(&mut self, pool: Pool, at_least: u64, source: &mut dyn Source) -> Result<u64> {
        let page = page_bytes(pool, source);
        let most = self.limit.map_or(RANGE, |limit| limit.min(RANGE) + limit.min(RANGE) / 8);
        let bytes = most.max(at_least).next_multiple_of(page);
        let address = source.reserve(bytes)?;
        self.segments.insert(address, Taken { bytes, page });
        let block = Block { bytes, state: State::Unmapped, segment: address, pool, freed_at: 0 };
        self.blocks.insert(address, block);
        Ok(address)
    }

    /// Puts pages behind the first bytes of an unmapped block and returns where the free block begins that they
    /// are then part of.
    fn map(&mut self, address: u64, bytes: u64, source: &mut dyn Source) -> Result<u64> {
        let block = *self.blocks.get(address).expect("an unmapped block");
        let mapped = bytes.next_multiple_of(self.segments[&block.segment].page).min(block.bytes);
        source.map(address, mapped)?;
        self.reserved += mapped;
        self.blocks.remove(address);
        self.blocks.insert(address, Block { bytes: mapped, state: State::Free, ..block });
        if mapped < block.bytes {
            self.blocks.insert(address + mapped, Block { bytes: block.bytes - mapped, ..block });
        }
        Ok(self.blocks.join(address))
    }

    /// Takes away all pages that hold nothing, and ranges without any.
    pub(super) fn release_pages(&mut self, source: &mut dyn Source) -> u64 {
        let mut released = 0;
        for small in [false, true] {
            for address in self.blocks.free_addresses(small) {
                released += self.unmap(address, source);
            }
        }
        let empty = self.segments.iter().filter(|&(&address, range)| {
            self.blocks.get(address).is_some_and(|b| b.state == State::Unmapped && b.bytes == range.bytes)
        });
        let empty: Vec<(u64, u64)> = empty.map(|(&address, range)| (address, range.bytes)).collect();
        for (address, bytes) in empty {
            self.blocks.remove(address);
            self.segments.remove(&address);
            source.release(address, bytes);
        }
        released
    }

    /// Takes away the pages that lie wholly in a free block.
    fn unmap(&mut self, address: u64, source: &mut dyn Source) -> u64 {
        let block = *self.blocks.get(address).expect("a free block");
        let range = self.segments[&block.segment];
        let start = block.segment + (address - block.segment).next_multiple_of(range.page);
        let end = address + block.bytes;
        let end = end - (end - block.segment) % range.page;
        if start >= end {
            return 0;
        }
        source.unmap(start, end - start);
        self.reserved -= end - start;
        self.blocks.remove(address);
        let parts = [
            (address, start, State::Free),
            (start, end, State::Unmapped),
            (end, address + block.bytes, State::Free),
        ];
        for (from, to, state) in parts.into_iter().filter(|(from, to, _)| from < to) {
            self.blocks.insert(from, Block { bytes: to - from, state, ..block });
        }
        self.blocks.join(start);
        end - start
    }

    /// Takes over what a recording began with. Pieces of one pool lie in one range, as far apart as they were.
    pub(super) fn resume_ranges(
        &mut self,
        start: &Layout,
        source: &mut dyn Source,
        moved: &mut Moved,
    ) -> Result<()> {
        let mut pools: BTreeMap<(bool, u32), Vec<&Segment>> = BTreeMap::new();
        for segment in &start.segments {
            let small = segment.class == SegmentClass::Small;
            pools.entry((small, segment.stream)).or_default().push(segment);
        }
        for ((small, stream), segments) in pools {
            let pool = Pool { small, stream };
            let page = page_bytes(pool, source);
            // The range in use: the first recorded byte in it, where it begins, where it is empty from.
            let mut open: Option<(u64, u64, u64)> = None;
            for segment in segments {
                let bytes = segment.bytes.next_multiple_of(page);
                // Pages that lie too far away were of another range.
                let near = open.and_then(|(recorded, base, tail)| {
                    let offset = segment.address - recorded;
                    let range = self.segments[&base].bytes;
                    let at = (offset < range).then(|| tail.max(base + offset - offset % page))?;
                    (at + bytes < base + range).then_some((recorded, base, tail, at))
                });
                let (recorded, base, tail, at) = match near {
                    Some(spot) => spot,
                    None => {
                        let base = self.add_range(pool, bytes + page, source)?;
                        (segment.address, base, base, base)
                    }
                };
                source.map(at, bytes)?;
                self.reserved += bytes;
                let end = base + self.segments[&base].bytes;
                self.blocks.remove(tail);
                for (from, to) in [(tail, at), (at + bytes, end)].into_iter().filter(|(from, to)| from < to) {
                    let bytes = to - from;
                    let state = State::Unmapped;
                    self.blocks.insert(from, Block { bytes, state, segment: base, pool, freed_at: 0 });
                }
                self.resume_pieces(segment, at, base, pool, moved);
                self.put_free(at + segment.bytes, bytes - segment.bytes, base, pool);
                open = Some((recorded, base, at + bytes));
            }
        }
        Ok(())
    }
}

fn page_bytes(pool: Pool, source: &dyn Source) -> u64 {
    let page = if pool.small { SMALL_SEGMENT } else { LARGE_SEGMENT };
    page.next_multiple_of(source.page_bytes())
}
