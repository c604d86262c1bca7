//! PyTorch's caching allocator, as in `c10/cuda/CUDACachingAllocator.cpp`.
//!
//! Sizes are rounded to 512 bytes. Requests up to 1 MiB are served from segments of 2 MiB, larger ones from
//! segments of 20 MiB or, from 10 MiB on, of their own size; small and large ones and each stream have pools of
//! their own. A freed block is joined with its free neighbours and kept. The smallest free block that holds a
//! request is taken and split if enough is left. Only if the device refuses a new segment are segments that hold
//! nothing given back: first large ones, if splitting is limited, then all.
//!
//! With expandable segments each pool is a range of addresses instead; see [`expandable`].

mod blocks;
mod expandable;

use self::blocks::{Block, Blocks, Pool, State, Taken};
use super::{Moved, check_size, layout_of, live_rooms, piece, take};
use crate::allocator::{Allocator, CachingSettings};
use crate::bytes::format_bytes;
use crate::error::{Error, ErrorKind, Result};
use crate::layout::{Layout, Segment, SegmentClass};
use crate::source::Source;

const MIB: u64 = 1 << 20;
/// All sizes are multiples of this, unless they are rounded further.
const GRAIN: u64 = 512;
/// The largest request of a small pool.
const LARGEST_SMALL: u64 = MIB;
/// Segments of a small pool, and the unit of large requests' own segments.
const SMALL_SEGMENT: u64 = 2 * MIB;
/// Segments that requests of a large pool share.
const LARGE_SEGMENT: u64 = 20 * MIB;
/// The smallest request with a segment of its own.
const SMALLEST_OWN: u64 = 10 * MIB;
/// How much larger than a request that may not be split a block may be (`max_non_split_rounding_mb`).
const MOST_ROUNDING: u64 = 20 * MIB;

/// PyTorch's caching allocator.
#[derive(Debug)]
pub(crate) struct Caching {
    settings: CachingSettings,
    limit: Option<u64>,
    blocks: Blocks,
    reserved: u64,
}

impl Caching {
    /// A pool that may take up to `limit` bytes.
    pub(crate) fn new(settings: CachingSettings, limit: Option<u64>) -> Caching {
        Caching { settings, limit, blocks: Blocks::default(), reserved: 0 }
    }

    /// Takes over what a recording began with: its segments, with what was live in them.
    pub(crate) fn resume(&mut self, start: &Layout, source: &mut dyn Source) -> Result<Moved> {
        let mut moved = Moved::new();
        if self.settings.expandable {
            self.resume_ranges(start, source, &mut moved)?;
        } else {
            for segment in &start.segments {
                let pool = Pool { small: segment.class == SegmentClass::Small, stream: segment.stream };
                let bytes = segment.bytes.next_multiple_of(source.page_bytes());
                let address = take(source, bytes)?;
                self.blocks.segments.insert(address, Taken { bytes, page: 0 });
                self.reserved += bytes;
                self.resume_pieces(segment, address, address, pool, &mut moved);
                self.put_free(address + segment.bytes, bytes - segment.bytes, address, pool);
            }
        }
        Ok(moved)
    }

    /// Puts the pieces of a recorded segment at `address`, in the segment that begins at `base`.
    fn resume_pieces(&mut self, segment: &Segment, address: u64, base: u64, pool: Pool, moved: &mut Moved) {
        let (before, rooms) = live_rooms(segment);
        self.put_free(address, before, base, pool);
        for (piece, room) in rooms {
            let at = piece.address - segment.address + address;
            moved.insert(piece.address, at);
            let rounded = self.settings.round(piece.bytes).min(room);
            let kept = if self.splits(pool, rounded, room) { rounded } else { room };
            let state = State::Live { requested: piece.requested };
            self.blocks.insert(at, Block { bytes: kept, state, segment: base, pool, freed_at: 0 });
            self.put_free(at + kept, room - kept, base, pool);
        }
    }

    fn put_free(&mut self, address: u64, bytes: u64, segment: u64, pool: Pool) {
        if bytes > 0 {
            let block = Block { bytes, state: State::Free, segment, pool, freed_at: 0 };
            self.blocks.insert_joined(address, block);
        }
    }

    /// Whether a block of `bytes` is split for a request of `rounded` bytes.
    fn splits(&self, pool: Pool, rounded: u64, bytes: u64) -> bool {
        let rest = bytes - rounded;
        if pool.small || self.settings.expandable {
            return rest >= GRAIN;
        }
        rounded < self.settings.split_limit() && rest > LARGEST_SMALL
    }

    /// The smallest free block for a request, unless the rules on splitting forbid it.
    fn find(&mut self, pool: Pool, rounded: u64) -> Option<u64> {
        let found = if self.settings.expandable {
            self.find_expandable(pool, rounded)
        } else {
            self.blocks.smallest_free(pool, rounded)
        };
        let (bytes, address) = found?;
        let split_limit = self.settings.split_limit();
        let forbidden = if rounded < split_limit {
            bytes >= split_limit
        } else {
            bytes >= rounded.saturating_add(MOST_ROUNDING)
        };
        (!forbidden).then_some(address)
    }

    /// Takes memory for a request from the source and returns a free block that holds it.
    fn grow(&mut self, pool: Pool, rounded: u64, source: &mut dyn Source) -> Result<u64> {
        let wanted = segment_bytes(rounded);
        let limit = self.limit.unwrap_or(u64::MAX);
        if self.reserved.saturating_add(wanted) > limit {
            let message = format!(
                "{rounded} bytes ({}) are over the limit: {} of {} are taken",
                format_bytes(rounded),
                format_bytes(self.reserved),
                format_bytes(limit)
            );
            return Err(Error::new(ErrorKind::OverLimit, message));
        }
        if self.settings.expandable {
            return self.grow_range(pool, rounded, source);
        }
        let bytes = wanted.next_multiple_of(source.page_bytes());
        let address = take(source, bytes)?;
        self.blocks.segments.insert(address, Taken { bytes, page: 0 });
        self.reserved += bytes;
        let freed_at = self.blocks.searches(pool.small);
        self.blocks.insert(address, Block { bytes, state: State::Free, segment: address, pool, freed_at });
        Ok(address)
    }

    /// Gives back a segment that is one free block.
    fn release(&mut self, address: u64, source: &mut dyn Source) -> u64 {
        let Taken { bytes, .. } = self.blocks.segments.remove(&address).expect("a whole block is a segment");
        self.blocks.remove(address);
        self.reserved -= bytes;
        source.unmap(address, bytes);
        source.release(address, bytes);
        bytes
    }

    /// Gives back segments that may not be split, the least that makes room for a request; whether it does.
    fn release_unsplittable(&mut self, pool: Pool, rounded: u64, source: &mut dyn Source) -> bool {
        let split_limit = self.settings.split_limit();
        if split_limit == u64::MAX || self.settings.expandable {
            return false;
        }
        let needed = rounded.max(split_limit);
        if let Some((_, address)) = self.blocks.smallest_free(pool, needed) {
            return self.blocks.is_free_segment(address) && self.release(address, source) > 0;
        }
        let mut released = 0;
        while released < needed {
            let largest = self.blocks.largest_free(pool);
            match largest.filter(|&(bytes, at)| bytes >= split_limit && self.blocks.is_free_segment(at)) {
                Some((_, address)) => released += self.release(address, source),
                None => return false,
            }
        }
        true
    }

    /// Gives back all segments, and all pages of ranges, that hold nothing.
    fn release_all(&mut self, source: &mut dyn Source) -> u64 {
        if self.settings.expandable {
            return self.release_pages(source);
        }
        let mut released = 0;
        for small in [false, true] {
            for address in self.blocks.free_segments(small) {
                released += self.release(address, source);
            }
        }
        released
    }

    /// Gives back large segments that hold nothing, the longest unused first, while more than the set share of
    /// the limit is taken.
    fn collect_garbage(&mut self, source: &mut dyn Source) {
        let Some(limit) = self.limit else { return };
        let threshold = (self.settings.garbage_collection_threshold * limit as f64) as u64;
        if self.reserved <= threshold || self.settings.expandable {
            return;
        }
        let target = self.reserved - threshold;
        let now = self.blocks.searches(false);
        let age = |address: u64| now - self.blocks.get(address).map_or(now, |block| block.freed_at);
        let mut idle: Vec<(u64, u64)> =
            self.blocks.free_segments(false).into_iter().map(|address| (address, age(address))).collect();
        let mut released = 0;
        while released < target && !idle.is_empty() {
            let average = idle.iter().map(|&(_, age)| age).sum::<u64>() as f64 / idle.len() as f64;
            let (old, young): (Vec<_>, Vec<_>) =
                idle.into_iter().partition(|&(_, age)| age as f64 >= average);
            released += old.into_iter().map(|(address, _)| self.release(address, source)).sum::<u64>();
            idle = young;
        }
    }
}

impl Allocator for Caching {
    fn allocate(&mut self, bytes: u64, stream: u32, source: &mut dyn Source) -> Result<u64> {
        check_size(bytes)?;
        let rounded = self.settings.round(bytes);
        let pool = Pool { small: rounded <= LARGEST_SMALL, stream };
        let collects = self.limit.is_some() && self.settings.garbage_collection_threshold > 0.0;
        if collects {
            self.blocks.count_search(pool.small);
        }
        let address = match self.find(pool, rounded) {
            Some(address) => address,
            None => {
                if collects {
                    self.collect_garbage(source);
                }
                let mut grown = self.grow(pool, rounded, source);
                if grown.is_err() && self.release_unsplittable(pool, rounded, source) {
                    grown = self.grow(pool, rounded, source);
                }
                if grown.is_err() {
                    self.release_all(source);
                    grown = self.grow(pool, rounded, source);
                }
                grown?
            }
        };
        let block = self.blocks.remove(address).expect("what was found is a block");
        let kept = if self.splits(pool, rounded, block.bytes) { rounded } else { block.bytes };
        self.blocks.insert(address, Block { bytes: kept, state: State::Live { requested: bytes }, ..block });
        if kept < block.bytes {
            let freed_at = self.blocks.searches(pool.small);
            self.blocks.insert(address + kept, Block { bytes: block.bytes - kept, freed_at, ..block });
        }
        Ok(address)
    }

    fn free(&mut self, address: u64, _source: &mut dyn Source) {
        let live = self.blocks.get(address).filter(|b| matches!(b.state, State::Live { .. }));
        let Some(&block) = live else { return };
        let freed_at = self.blocks.searches(block.pool.small);
        self.blocks.insert_joined(address, Block { state: State::Free, freed_at, ..block });
    }

    fn trim(&mut self, source: &mut dyn Source) -> u64 {
        self.release_all(source)
    }

    fn reserved_bytes(&self) -> u64 {
        self.reserved
    }

    fn layout(&self) -> Layout {
        let mut segments: Vec<Segment> = Vec::new();
        let mut open = false;
        for (address, block) in self.blocks.iter() {
            let live = match block.state {
                State::Live { requested } => Some(requested),
                State::Free => None,
                State::Unmapped => {
                    open = false;
                    continue;
                }
            };
            if !open || address == block.segment {
                let class = match (self.settings.expandable, block.pool.small) {
                    (true, _) => SegmentClass::Expandable,
                    (false, true) => SegmentClass::Small,
                    (false, false) => SegmentClass::Large,
                };
                let stream = block.pool.stream;
                segments.push(Segment { address, bytes: 0, stream, class, pieces: Vec::new() });
                open = true;
            }
            if let Some(segment) = segments.last_mut() {
                segment.bytes += block.bytes;
                segment.pieces.push(piece(address, block.bytes, live));
            }
        }
        layout_of(segments)
    }
}

impl CachingSettings {
    /// Sizes from which on blocks are not split.
    fn split_limit(&self) -> u64 {
        self.max_split_bytes.unwrap_or(u64::MAX)
    }

    /// Which pool a recorded segment is of. Segments of 2 MiB are only taken for small requests; pages of a
    /// range are known by what was placed in them.
    pub(crate) fn segment_class(&self, request: Option<u64>, segment: u64) -> SegmentClass {
        let small = match request.filter(|_| self.expandable) {
            Some(request) => self.round(request) <= LARGEST_SMALL,
            None if self.expandable => segment < LARGE_SEGMENT,
            None => segment <= SMALL_SEGMENT,
        };
        if small { SegmentClass::Small } else { SegmentClass::Large }
    }

    /// A request's size, rounded up.
    fn round(&self, bytes: u64) -> u64 {
        if bytes < GRAIN {
            return GRAIN;
        }
        let interval = (bytes.ilog2() as usize).saturating_sub(MIB.ilog2() as usize);
        let last = self.roundup_power2_divisions.len().saturating_sub(1);
        let divisions = self.roundup_power2_divisions.get(interval.min(last)).copied().unwrap_or(0);
        if divisions > 1 && bytes > GRAIN.saturating_mul(divisions) {
            let step = (1u64 << bytes.ilog2()) >> divisions.ilog2();
            return bytes.checked_next_multiple_of(step.max(1)).unwrap_or(bytes);
        }
        bytes.checked_next_multiple_of(GRAIN).unwrap_or(bytes)
    }
}

/// The segment that is taken for a request.
fn segment_bytes(rounded: u64) -> u64 {
    match rounded {
        _ if rounded <= LARGEST_SMALL => SMALL_SEGMENT,
        _ if rounded < SMALLEST_OWN => LARGE_SEGMENT,
        _ => rounded.next_multiple_of(SMALL_SEGMENT),
    }
}
