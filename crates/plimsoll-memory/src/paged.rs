//! Plimsoll's own policy: addresses are plenty, pages are not.
//!
//! Memory fragments when a free piece is in the wrong place. Here a place is only an address: each pool has a range
//! of addresses far larger than the device, and pages are put behind those that are used. A request goes to the
//! smallest free piece that holds it. Where none does, pages that hold nothing are taken from wherever they are and
//! put behind new addresses; only when there are none left is the device asked for more. So the most a pool ever
//! takes is the most pages that held something at once, and a hole costs less than a page at either end.
//!
//! Requests of less than half a page have addresses of their own, so that small things that live long do not keep
//! the pages of large ones that are gone.

use crate::allocator::Allocator;
use crate::error::{Error, ErrorKind, Result};
use crate::extents::Extents;
use crate::layout::{Layout, Piece, PieceState, Segment, SegmentClass};
use crate::owners::OwnerId;
use crate::source::Source;
use std::collections::BTreeMap;
use std::ops::Range;

/// Requests are rounded up to this many bytes: kernels on GPUs want their operands so aligned.
const UNIT: u64 = 256;

/// Best fit with coalescing over a large range of addresses, with pages behind what is used.
///
/// ```
/// use plimsoll_memory::{Allocator, CountedDevice, Paged};
/// let mib = 1 << 20;
/// let (mut pool, mut device) = (Paged::new(), CountedDevice::new(100 * mib, 2 * mib));
/// let held: Vec<u64> = (0..10).map(|_| pool.allocate(10 * mib, 0, &mut device).unwrap()).collect();
/// held.iter().step_by(2).for_each(|&address| pool.free(address, &mut device));
/// // Five holes of 10 MiB: their pages can back one piece of 50 MiB.
/// pool.allocate(50 * mib, 0, &mut device)?;
/// assert_eq!(pool.reserved_bytes(), 100 * mib);
/// # Ok::<(), plimsoll_memory::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct Paged {
    regions: BTreeMap<Key, Region>,
    /// Whose each range of addresses is, by where it begins.
    ranges: BTreeMap<u64, Key>,
    /// Pages that hold nothing.
    idle: Extents,
    reserved: u64,
}

/// What a region is for: a stream, and whether requests are small. What one stream frees another may not write to at
/// once, but taking a page away waits for whoever uses it, so pages do go from one to another.
type Key = (u32, bool);

/// Addresses for one kind of request.
#[derive(Debug, Default)]
struct Region {
    /// What is in use: the bytes it takes and those that were asked for, by address.
    live: BTreeMap<u64, (u64, u64)>,
    /// Addresses with nothing in use.
    holes: Extents,
    /// The parts of holes that have memory behind them. A page has memory behind all of it or nothing.
    free: Extents,
}

impl Paged {
    /// A pool that has taken nothing yet.
    pub fn new() -> Paged {
        Paged::default()
    }

    /// The largest request that needs no page from anywhere else, in bytes.
    pub fn largest_free(&self) -> u64 {
        let largest = self.regions.values().filter_map(|region| region.free.largest());
        largest.map(|range| range.end - range.start).max().unwrap_or(0)
    }

    /// Bytes of pages that hold nothing and can be put behind other addresses.
    pub fn idle_bytes(&self) -> u64 {
        self.idle.total()
    }

    /// The region that an address is of.
    fn region(&mut self, address: u64) -> Option<&mut Region> {
        let (_, key) = self.ranges.range(..=address).next_back()?;
        self.regions.get_mut(key)
    }

    /// Unmaps pages that hold nothing, the largest runs first, until `bytes` are or there are no more.
    fn unmap_idle(&mut self, bytes: u64, source: &mut dyn Source) -> u64 {
        let mut unmapped = 0;
        while unmapped < bytes {
            let Some(run) = self.idle.largest() else { break };
            // What is wanted is whole pages, and so is what there is.
            let pages = run.start..run.end.min(run.start.saturating_add(bytes - unmapped));
            source.unmap(pages.start, pages.end - pages.start);
            self.idle.remove(pages.clone());
            if let Some(region) = self.region(pages.start) {
                region.free.remove(pages.clone());
            }
            unmapped += pages.end - pages.start;
        }
        self.reserved -= unmapped;
        unmapped
    }

    /// Puts memory behind a hole and returns where `bytes` of it begin.
    fn grow(&mut self, key: Key, bytes: u64, source: &mut dyn Source) -> Result<u64> {
        let page = source.page_bytes();
        let at = match self.regions.entry(key).or_default().spot(bytes) {
            Some(at) => at,
            None => self.reserve(key, bytes, source)?,
        };
        let free = &self.regions.entry(key).or_default().free;
        // A page of which a part is free has memory behind all of it, so what is missing begins at a page.
        let missing = free.missing(at..at + bytes).into_iter();
        let missing: Vec<Range<u64>> = missing.map(|gap| gap.start..gap.end.next_multiple_of(page)).collect();
        let needed = missing.iter().map(|gap| gap.end - gap.start).sum();
        // Pages that are in the right place already stay there.
        let here: Vec<Range<u64>> = self.idle.within(pages_of(at..at + bytes, page)).collect();
        here.iter().for_each(|pages| self.idle.remove(pages.clone()));
        self.unmap_idle(needed, source);
        let mapped = self.map(&missing, source);
        here.into_iter().for_each(|pages| _ = self.idle.insert(pages));
        mapped?;
        missing.into_iter().for_each(|gap| self.add_free(key, gap, page));
        Ok(at)
    }

    /// Maps all gaps or none. What another pool has let go of in the meantime may be had at the second try.
    fn map(&mut self, gaps: &[Range<u64>], source: &mut dyn Source) -> Result<()> {
        for (index, gap) in gaps.iter().enumerate() {
            let bytes = gap.end - gap.start;
            if let Err(error) = source.map(gap.start, bytes)
                && (self.unmap_idle(u64::MAX, source) == 0 || source.map(gap.start, bytes).is_err())
            {
                gaps[..index].iter().for_each(|gap| source.unmap(gap.start, gap.end - gap.start));
                return Err(error);
            }
        }
        self.reserved += gaps.iter().map(|gap| gap.end - gap.start).sum::<u64>();
        Ok(())
    }

    /// Takes a range of addresses that holds `bytes`, a large one if it can be had.
    fn reserve(&mut self, key: Key, bytes: u64, source: &mut dyn Source) -> Result<u64> {
        let page = source.page_bytes();
        let least = bytes.checked_next_multiple_of(page).ok_or_else(|| unaddressable(bytes))?;
        let mut size = source.range_bytes().checked_next_multiple_of(page).unwrap_or(least).max(least);
        let start = loop {
            // The page after it stays unused, so that two ranges never look like one.
            match source.reserve(size.checked_add(page).ok_or_else(|| unaddressable(bytes))?) {
                Ok(start) => break start,
                Err(error) if size == least => return Err(error),
                Err(_) => size = (size / 2).next_multiple_of(page).max(least),
            }
        };
        self.ranges.insert(start, key);
        self.regions.entry(key).or_default().holes.insert(start..start + size);
        Ok(start)
    }

    /// Adds free memory, which is idle where it makes up whole pages.
    fn add_free(&mut self, key: Key, range: Range<u64>, page: u64) {
        let joined = self.regions.entry(key).or_default().free.insert(range.clone());
        // Only pages that the range touches: those beyond were idle before, or are still in use in part.
        let touched = pages_of(range, page);
        let start = joined.start.max(touched.start).next_multiple_of(page);
        let end = joined.end.min(touched.end) / page * page;
        if start < end {
            self.idle.insert(start..end);
        }
    }
}

/// The pages that a range touches.
fn pages_of(range: Range<u64>, page: u64) -> Range<u64> {
    range.start / page * page..range.end.next_multiple_of(page)
}

fn unaddressable(bytes: u64) -> Error {
    Error::new(ErrorKind::OutOfMemory, format!("there are no addresses for {bytes} bytes"))
}

impl Region {
    /// Where a request without a free piece can be placed with few pages from elsewhere: from the largest free piece
    /// on if there are addresses behind it, else in the smallest hole.
    fn spot(&self, bytes: u64) -> Option<u64> {
        let extended = self.free.largest().and_then(|free| {
            let hole = self.holes.around(free.start)?;
            (hole.end - free.start >= bytes).then_some(free.start)
        });
        extended.or_else(|| self.holes.best_fit(bytes).map(|hole| hole.start))
    }

    /// Appends what is mapped, as one segment for each run of pages.
    fn segments(&self, segments: &mut Vec<Segment>, stream: u32) {
        let free = |range: Range<u64>| Piece {
            address: range.start,
            bytes: range.end - range.start,
            requested: 0,
            state: PieceState::Free,
            owner: OwnerId::UNKNOWN,
        };
        let live = |(&address, &(bytes, requested)): (&u64, &(u64, u64))| Piece {
            address,
            bytes,
            requested,
            state: PieceState::Live,
            owner: OwnerId::UNKNOWN,
        };
        let mut pieces: Vec<Piece> = self.live.iter().map(live).chain(self.free.iter().map(free)).collect();
        pieces.sort_unstable_by_key(|piece| piece.address);
        let first = segments.len();
        for piece in pieces {
            match segments[first..].last_mut().filter(|s| s.address + s.bytes == piece.address) {
                Some(segment) => {
                    segment.bytes += piece.bytes;
                    segment.pieces.push(piece);
                }
                None => segments.push(Segment {
                    address: piece.address,
                    bytes: piece.bytes,
                    stream,
                    class: SegmentClass::Expandable,
                    pieces: vec![piece],
                }),
            }
        }
    }
}

impl Allocator for Paged {
    fn allocate(&mut self, bytes: u64, stream: u32, source: &mut dyn Source) -> Result<u64> {
        let page = source.page_bytes();
        let size = bytes.max(1).checked_next_multiple_of(UNIT).ok_or_else(|| unaddressable(bytes))?;
        let key = (stream, size < page / 2);
        let fit = self.regions.get(&key).and_then(|region| region.free.best_fit(size));
        let at = match fit {
            Some(free) => free.start,
            None => self.grow(key, size, source)?,
        };
        let region = self.regions.entry(key).or_default();
        region.holes.remove(at..at + size);
        region.free.remove(at..at + size);
        region.live.insert(at, (size, bytes));
        self.idle.remove(pages_of(at..at + size, page));
        Ok(at)
    }

    fn free(&mut self, address: u64, source: &mut dyn Source) {
        let Some((_, &key)) = self.ranges.range(..=address).next_back() else { return };
        let Some(region) = self.regions.get_mut(&key) else { return };
        if let Some((bytes, _)) = region.live.remove(&address) {
            region.holes.insert(address..address + bytes);
            self.add_free(key, address..address + bytes, source.page_bytes());
        }
    }

    fn trim(&mut self, source: &mut dyn Source) -> u64 {
        self.unmap_idle(u64::MAX, source)
    }

    fn reserved_bytes(&self) -> u64 {
        self.reserved
    }

    fn layout(&self) -> Layout {
        let mut segments = vec![];
        for (&(stream, _), region) in &self.regions {
            region.segments(&mut segments, stream);
        }
        segments.sort_unstable_by_key(|segment| segment.address);
        Layout { segments }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::CountedDevice;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const PAGE: u64 = 4096;

    /// The pages that hold something.
    fn used_pages(live: &BTreeMap<u64, u64>) -> u64 {
        let pages = live.iter().flat_map(|(&at, &bytes)| at / PAGE..(at + bytes.max(1)).div_ceil(PAGE));
        pages.collect::<BTreeSet<u64>>().len() as u64
    }

    fn assert_layout_is_whole(pool: &Paged, live: &BTreeMap<u64, u64>) {
        let layout = pool.layout();
        assert_eq!(layout.reserved_bytes(), pool.reserved_bytes());
        assert_eq!(layout.requested_bytes(), live.values().sum::<u64>());
        assert_eq!(layout.largest_free(), pool.largest_free());
        for segment in &layout.segments {
            assert_eq!((segment.address % PAGE, segment.bytes % PAGE), (0, 0), "{segment:?}");
            let mut at = segment.address;
            for piece in &segment.pieces {
                assert_eq!(piece.address, at, "{segment:?}");
                at += piece.bytes;
            }
            assert_eq!(at, segment.address + segment.bytes);
        }
        let placed =
            layout.pieces().filter(|p| p.state == PieceState::Live).map(|p| (p.address, p.requested));
        assert_eq!(placed.collect::<BTreeMap<u64, u64>>(), *live);
    }

    proptest! {
        #[test]
        fn pieces_never_overlap_and_no_more_is_taken_than_pages_that_held_something_at_once(
            steps in prop::collection::vec((0u8..10, 0usize..1000, 0u64..30_000, 0u32..2), 1..120),
        ) {
            let (mut pool, mut device) = (Paged::new(), CountedDevice::new(u64::MAX, PAGE));
            let mut live: BTreeMap<u64, u64> = BTreeMap::new();
            let mut most = 0;
            for (what, which, bytes, stream) in steps {
                match (what, live.keys().nth(which % live.len().max(1)).copied()) {
                    (0, _) => {
                        let (before, idle) = (pool.reserved_bytes(), pool.idle_bytes());
                        prop_assert_eq!(pool.trim(&mut device), idle);
                        prop_assert_eq!(pool.reserved_bytes(), before - idle);
                        prop_assert_eq!(pool.reserved_bytes(), used_pages(&live) * PAGE);
                    }
                    (1..=4, Some(address)) => {
                        pool.free(address, &mut device);
                        live.remove(&address);
                    }
                    _ => {
                        let at = pool.allocate(bytes, stream, &mut device).unwrap();
                        prop_assert_eq!(at % 64, 0);
                        let before = live.range(..=at).next_back();
                        prop_assert!(before.is_none_or(|(&other, &size)| other + size.max(1) <= at));
                        let after = live.range(at..).next();
                        prop_assert!(after.is_none_or(|(&other, _)| at + bytes.max(1) <= other));
                        live.insert(at, bytes);
                    }
                }
                most = most.max(used_pages(&live) * PAGE);
                prop_assert_eq!(device.mapped_bytes(), pool.reserved_bytes());
                prop_assert_eq!(pool.idle_bytes() + used_pages(&live) * PAGE, pool.reserved_bytes());
                assert_layout_is_whole(&pool, &live);
            }
            prop_assert_eq!(device.peak_bytes(), most);
        }
    }

    #[test]
    fn a_refused_request_changes_nothing_that_is_live_and_the_pool_goes_on() {
        let (mut pool, mut device) = (Paged::new(), CountedDevice::new(10 * PAGE, PAGE));
        let first = pool.allocate(4 * PAGE, 0, &mut device).unwrap();
        let second = pool.allocate(4 * PAGE, 0, &mut device).unwrap();
        pool.free(first, &mut device);
        assert_eq!(pool.allocate(7 * PAGE, 0, &mut device).unwrap_err().kind(), ErrorKind::OverLimit);
        assert_layout_is_whole(&pool, &BTreeMap::from([(second, 4 * PAGE)]));
        assert_eq!(device.mapped_bytes(), pool.reserved_bytes());
        pool.allocate(6 * PAGE, 0, &mut device).unwrap();
        assert_eq!(pool.reserved_bytes(), 10 * PAGE);
    }

    #[test]
    fn a_small_piece_that_stays_keeps_no_page_of_the_large_ones_around_it() {
        let (mut pool, mut device) = (Paged::new(), CountedDevice::new(u64::MAX, PAGE));
        let mut large = vec![];
        for _ in 0..100 {
            large.push(pool.allocate(PAGE, 0, &mut device).unwrap());
            pool.allocate(UNIT, 0, &mut device).unwrap();
        }
        large.into_iter().for_each(|address| pool.free(address, &mut device));
        pool.trim(&mut device);
        assert_eq!(pool.reserved_bytes(), 7 * PAGE, "25,600 bytes in pieces of 256 need seven pages");
    }

    #[test]
    fn more_than_can_be_addressed_is_an_error() {
        let (mut pool, mut device) = (Paged::new(), CountedDevice::new(u64::MAX, PAGE));
        for bytes in [u64::MAX, u64::MAX - 63, u64::MAX - PAGE] {
            assert!(pool.allocate(bytes, 0, &mut device).is_err(), "{bytes}");
        }
        pool.allocate(100, 0, &mut device).unwrap();
        pool.free(12345, &mut device);
        assert_eq!(pool.reserved_bytes(), PAGE);
    }
}
