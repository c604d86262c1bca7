//! The blocks of a caching allocator: by address, and the free ones of each pool by size.

use std::collections::{BTreeMap, BTreeSet};

/// Requests of one kind on one stream, whose memory the others cannot use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pool {
    pub(super) small: bool,
    pub(super) stream: u32,
}

/// A piece of a segment or range.
#[derive(Debug, Clone, Copy)]
pub(super) struct Block {
    pub(super) bytes: u64,
    pub(super) state: State,
    /// The first byte of its segment or range.
    pub(super) segment: u64,
    pub(super) pool: Pool,
    /// The count of searches at which it became free.
    pub(super) freed_at: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Live {
        requested: u64,
    },
    Free,
    /// Addresses with nothing behind them.
    Unmapped,
}

/// A segment or a range of addresses.
#[derive(Debug, Clone, Copy)]
pub(super) struct Taken {
    pub(super) bytes: u64,
    /// The unit in which memory is put behind it; 0 if all of it is there at once.
    pub(super) page: u64,
}

/// All blocks of an allocator. Those of one segment follow each other without gaps.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    by_address: BTreeMap<u64, Block>,
    /// Segments and ranges by their first byte.
    pub(super) segments: BTreeMap<u64, Taken>,
    small: Lists,
    large: Lists,
}

/// What small or large requests find blocks by.
#[derive(Debug, Default)]
struct Lists {
    /// Free blocks by stream, size and address.
    free: BTreeSet<(u32, u64, u64)>,
    /// Free blocks that are whole segments.
    whole: BTreeSet<u64>,
    /// Unmapped blocks by stream and address.
    unmapped: BTreeSet<(u32, u64)>,
    /// How often a block was searched, counted only for garbage collection.
    searches: u64,
}

impl Blocks {
    pub(super) fn get(&self, address: u64) -> Option<&Block> {
        self.by_address.get(&address)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &Block)> {
        self.by_address.iter().map(|(&address, block)| (address, block))
    }

    fn lists(&mut self, small: bool) -> &mut Lists {
        if small { &mut self.small } else { &mut self.large }
    }

    fn lists_of(&self, small: bool) -> &Lists {
        if small { &self.small } else { &self.large }
    }

    pub(super) fn insert(&mut self, address: u64, block: Block) {
        let Pool { small, stream } = block.pool;
        match block.state {
            State::Live { .. } => {}
            State::Free => {
                if self.is_whole(address, &block) {
                    self.lists(small).whole.insert(address);
                }
                self.lists(small).free.insert((stream, block.bytes, address));
            }
            State::Unmapped => _ = self.lists(small).unmapped.insert((stream, address)),
        }
        self.by_address.insert(address, block);
    }

    pub(super) fn remove(&mut self, address: u64) -> Option<Block> {
        let block = self.by_address.remove(&address)?;
        let Pool { small, stream } = block.pool;
        match block.state {
            State::Live { .. } => {}
            State::Free => {
                if address == block.segment {
                    self.lists(small).whole.remove(&address);
                }
                self.lists(small).free.remove(&(stream, block.bytes, address));
            }
            State::Unmapped => _ = self.lists(small).unmapped.remove(&(stream, address)),
        }
        Some(block)
    }

    /// The block after one, in the same segment.
    pub(super) fn next(&self, address: u64) -> Option<(u64, Block)> {
        self.after(address, self.by_address.get(&address)?.segment)
    }

    /// The block before one, in the same segment.
    pub(super) fn previous(&self, address: u64) -> Option<(u64, Block)> {
        self.before(address, self.by_address.get(&address)?.segment)
    }

    fn after(&self, address: u64, segment: u64) -> Option<(u64, Block)> {
        let (&at, &block) = self.by_address.range(address + 1..).next()?;
        (block.segment == segment).then_some((at, block))
    }

    fn before(&self, address: u64, segment: u64) -> Option<(u64, Block)> {
        let (&at, &block) = self.by_address.range(..address).next_back()?;
        (block.segment == segment).then_some((at, block))
    }

    /// Puts a free or unmapped block in the place of what is at its address, joined with neighbours of the same
    /// state, and returns where the joined one begins.
    pub(super) fn insert_joined(&mut self, address: u64, block: Block) -> u64 {
        self.remove(address);
        let (mut start, mut bytes) = (address, block.bytes);
        for neighbour in [self.before(address, block.segment), self.after(address, block.segment)] {
            if let Some((at, other)) = neighbour.filter(|(_, other)| other.state == block.state) {
                self.remove(at);
                start = start.min(at);
                bytes += other.bytes;
            }
        }
        self.insert(start, Block { bytes, ..block });
        start
    }

    /// Size and address of the smallest free block of at least so many bytes.
    pub(super) fn smallest_free(&self, pool: Pool, bytes: u64) -> Option<(u64, u64)> {
        self.free_from(pool, bytes).next()
    }

    /// Free blocks of at least so many bytes, the smallest first.
    pub(super) fn free_from(&self, pool: Pool, bytes: u64) -> impl Iterator<Item = (u64, u64)> {
        let Pool { small, stream } = pool;
        let range = (stream, bytes, 0)..=(stream, u64::MAX, u64::MAX);
        self.lists_of(small).free.range(range).map(|&(_, bytes, address)| (bytes, address))
    }

    /// Size and address of the largest free block.
    pub(super) fn largest_free(&self, pool: Pool) -> Option<(u64, u64)> {
        let Pool { small, stream } = pool;
        let range = (stream, 0, 0)..=(stream, u64::MAX, u64::MAX);
        self.lists_of(small).free.range(range).next_back().map(|&(_, bytes, address)| (bytes, address))
    }

    /// Where unmapped blocks begin, the lowest first.
    pub(super) fn unmapped(&self, pool: Pool) -> impl DoubleEndedIterator<Item = u64> {
        let Pool { small, stream } = pool;
        self.lists_of(small).unmapped.range((stream, 0)..=(stream, u64::MAX)).map(|&(_, address)| address)
    }

    fn is_whole(&self, address: u64, block: &Block) -> bool {
        let segment = self.segments.get(&address).filter(|_| block.segment == address);
        segment.is_some_and(|segment| segment.page == 0 && segment.bytes == block.bytes)
    }

    /// Whether a free block is a whole segment.
    pub(super) fn is_free_segment(&self, address: u64) -> bool {
        self.small.whole.contains(&address) || self.large.whole.contains(&address)
    }

    /// Segments that hold nothing.
    pub(super) fn free_segments(&self, small: bool) -> Vec<u64> {
        self.lists_of(small).whole.iter().copied().collect()
    }

    /// Where the free blocks of all streams begin that are of at least so many bytes.
    pub(super) fn free_of_at_least(&self, small: bool, bytes: u64) -> Vec<u64> {
        let free = &self.lists_of(small).free;
        let mut found = Vec::new();
        let mut from = (0, bytes, 0);
        while let Some(&(stream, size, _)) = free.range(from..).next() {
            if size < bytes {
                from = (stream, bytes, 0);
                continue;
            }
            found.extend(free.range(from..=(stream, u64::MAX, u64::MAX)).map(|&(_, _, address)| address));
            match stream.checked_add(1) {
                Some(next) => from = (next, bytes, 0),
                None => break,
            }
        }
        found
    }

    /// How often blocks were searched for small or large requests.
    pub(super) fn searches(&self, small: bool) -> u64 {
        self.lists_of(small).searches
    }

    pub(super) fn count_search(&mut self, small: bool) {
        self.lists(small).searches += 1;
    }
}
