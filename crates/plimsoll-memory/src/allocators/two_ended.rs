//! An arena with two ends: what lives long is placed from one, what is soon freed from the other.
//!
//! Kept apart, the short-lived leave no holes between the long-lived. An allocator is not told how long a
//! request will live and must guess: here a request is taken to live long unless most requests of its size, to
//! the power of two, have been freed again by now. Parameters and optimizer state, asked for once, stay at one
//! end; activations of the first step may lie there too, those of later steps do not.
//!
//! Both ends grow by pages towards each other in one range of addresses, and give pages back only from their
//! tips. All streams share the range, so it is for programs whose frees are ordered with their work.

use super::{LARGEST_REQUEST, check_size, layout_of, piece};
use crate::allocator::Allocator;
use crate::bytes::format_bytes;
use crate::error::{Error, ErrorKind, Result};
use crate::layout::{Layout, Segment, SegmentClass};
use crate::source::Source;
use std::collections::{BTreeMap, BTreeSet};

/// All sizes are multiples of this.
const GRAIN: u64 = 512;
/// Addresses of the range where there is no limit.
const RANGE: u64 = 1 << 46;

/// An arena with two ends.
#[derive(Debug)]
pub(crate) struct TwoEnded {
    range_bytes: u64,
    /// The first byte of the range, once it is taken, and its bytes.
    range: Option<(u64, u64)>,
    long: End,
    short: End,
    /// How many requests of each power of two were asked for and freed.
    history: [(u64, u64); 64],
}

/// One end. Offsets are counted from it inwards.
#[derive(Debug, Default)]
struct End {
    blocks: BTreeMap<u64, Block>,
    /// Free blocks by size and offset.
    free: BTreeSet<(u64, u64)>,
    /// Bytes of memory behind it.
    extent: u64,
}

#[derive(Debug, Clone, Copy)]
struct Block {
    bytes: u64,
    /// The bytes asked for; `None` while it is free.
    live: Option<u64>,
}

impl TwoEnded {
    /// An arena of at most `limit` bytes.
    pub(crate) fn new(limit: Option<u64>) -> TwoEnded {
        TwoEnded {
            range_bytes: limit.unwrap_or(RANGE).min(LARGEST_REQUEST),
            range: None,
            long: End::default(),
            short: End::default(),
            history: [(0, 0); 64],
        }
    }

    fn end(&mut self, long: bool) -> &mut End {
        if long { &mut self.long } else { &mut self.short }
    }

    /// The first byte of what lies `offset` bytes from an end.
    fn address(&self, long: bool, offset: u64, bytes: u64) -> u64 {
        let (base, range) = self.range.unwrap_or_default();
        if long { base + offset } else { base + range - offset - bytes }
    }

    /// Puts pages behind an end until its last block holds `rounded` bytes.
    fn extend(&mut self, long: bool, rounded: u64, source: &mut dyn Source) -> Result<()> {
        let page = source.page_bytes();
        let (_, range) = match self.range {
            Some(range) => range,
            None => {
                let bytes = self.range_bytes.next_multiple_of(page);
                *self.range.insert((source.reserve(bytes)?, bytes))
            }
        };
        let taken = self.reserved_bytes();
        let end = self.end(long);
        let missing = (rounded - end.last_free()).next_multiple_of(page);
        let extent = end.extent;
        if missing > range - taken {
            let message = format!(
                "{rounded} bytes ({}) do not fit between the ends: {} of {} are taken",
                format_bytes(rounded),
                format_bytes(taken),
                format_bytes(range)
            );
            return Err(Error::new(ErrorKind::OutOfMemory, message));
        }
        source.map(self.address(long, extent, missing), missing)?;
        let end = self.end(long);
        end.extent += missing;
        end.insert_free(extent, missing);
        Ok(())
    }

    /// Takes pages away from the tip of an end.
    fn retreat(&mut self, long: bool, source: &mut dyn Source) -> u64 {
        let page = source.page_bytes();
        let end = self.end(long);
        let bytes = end.last_free() / page * page;
        if bytes > 0 {
            end.cut(bytes);
            let extent = end.extent;
            source.unmap(self.address(long, extent, bytes), bytes);
        }
        bytes
    }
}

impl End {
    /// Bytes of the last block, if it is free.
    fn last_free(&self) -> u64 {
        self.blocks.last_key_value().filter(|(_, b)| b.live.is_none()).map_or(0, |(_, b)| b.bytes)
    }

    /// Places a request in the smallest hole that holds it.
    fn place(&mut self, requested: u64, rounded: u64) -> Option<(u64, u64)> {
        let &(bytes, offset) = self.free.range((rounded, 0)..).next()?;
        self.free.remove(&(bytes, offset));
        self.blocks.insert(offset, Block { bytes: rounded, live: Some(requested) });
        if bytes > rounded {
            self.blocks.insert(offset + rounded, Block { bytes: bytes - rounded, live: None });
            self.free.insert((bytes - rounded, offset + rounded));
        }
        Some((offset, rounded))
    }

    /// Makes a block free and joins it with its free neighbours.
    fn insert_free(&mut self, offset: u64, bytes: u64) {
        let (mut start, mut joined) = (offset, bytes);
        let next = self.blocks.get(&(offset + bytes)).map(|&b| (offset + bytes, b));
        let before = self.blocks.range(..offset).next_back().map(|(&at, &b)| (at, b));
        for (at, block) in [next, before].into_iter().flatten().filter(|(_, b)| b.live.is_none()) {
            self.blocks.remove(&at);
            self.free.remove(&(block.bytes, at));
            start = start.min(at);
            joined += block.bytes;
        }
        self.blocks.remove(&offset);
        self.blocks.insert(start, Block { bytes: joined, live: None });
        self.free.insert((joined, start));
    }

    /// Forgets the last bytes, which are free.
    fn cut(&mut self, bytes: u64) {
        self.extent -= bytes;
        if let Some((offset, last)) = self.blocks.pop_last() {
            self.free.remove(&(last.bytes, offset));
            if last.bytes > bytes {
                self.blocks.insert(offset, Block { bytes: last.bytes - bytes, live: None });
                self.free.insert((last.bytes - bytes, offset));
            }
        }
    }
}

impl Allocator for TwoEnded {
    fn allocate(&mut self, bytes: u64, _stream: u32, source: &mut dyn Source) -> Result<u64> {
        check_size(bytes)?;
        let rounded = bytes.max(1).next_multiple_of(GRAIN);
        let (asked, freed) = &mut self.history[rounded.ilog2() as usize];
        let long = *freed * 2 <= *asked;
        *asked += 1;
        if let Some((offset, bytes)) = self.end(long).place(bytes, rounded) {
            return Ok(self.address(long, offset, bytes));
        }
        let mut extended = self.extend(long, rounded, source);
        if extended.is_err() && self.retreat(true, source) + self.retreat(false, source) > 0 {
            extended = self.extend(long, rounded, source);
        }
        // The other end is better than none.
        let end = if extended.is_ok() { long } else { !long };
        match self.end(end).place(bytes, rounded) {
            Some((offset, bytes)) => Ok(self.address(end, offset, bytes)),
            None => Err(extended.err().unwrap_or_else(|| {
                Error::new(ErrorKind::OutOfMemory, format!("{} do not fit", format_bytes(bytes)))
            })),
        }
    }

    fn free(&mut self, address: u64, _source: &mut dyn Source) {
        let Some((base, range)) = self.range else { return };
        let (Some(low), Some(high)) = (address.checked_sub(base), (base + range).checked_sub(address)) else {
            return;
        };
        let long = low < self.long.extent;
        let found = if long {
            self.long.blocks.get_key_value(&low)
        } else {
            self.short.blocks.range(..high).next_back().filter(|(offset, b)| *offset + b.bytes == high)
        };
        if let Some((&offset, &Block { bytes, live: Some(_) })) = found {
            self.history[bytes.ilog2() as usize].1 += 1;
            self.end(long).insert_free(offset, bytes);
        }
    }

    fn trim(&mut self, source: &mut dyn Source) -> u64 {
        let bytes = self.retreat(true, source) + self.retreat(false, source);
        if self.reserved_bytes() == 0
            && let Some((address, bytes)) = self.range.take()
        {
            source.release(address, bytes);
        }
        bytes
    }

    fn reserved_bytes(&self) -> u64 {
        self.long.extent + self.short.extent
    }

    fn layout(&self) -> Layout {
        let segments = [(true, &self.long), (false, &self.short)].into_iter().filter(|(_, e)| e.extent > 0);
        layout_of(segments.map(|(long, end)| {
            let place =
                |(&offset, b): (&u64, &Block)| piece(self.address(long, offset, b.bytes), b.bytes, b.live);
            let pieces = if long {
                end.blocks.iter().map(place).collect()
            } else {
                end.blocks.iter().rev().map(place).collect()
            };
            let address = self.address(long, 0, end.extent);
            Segment { address, bytes: end.extent, stream: 0, class: SegmentClass::Expandable, pieces }
        }))
    }
}
