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

/// All blocks of an allocator. Those of one segment follow each other without gaps.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    by_address: BTreeMap<u64, Block>,
    small: Lists,
    large: Lists,
}

/// What small or large requests find blocks by.
#[derive(Debug, Default)]
struct Lists {
    /// Free blocks by stream, size and address.
    free: BTreeSet<(u32, u64, u64)>,
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
            State::Free => _ = self.lists(small).free.insert((stream, block.bytes, address)),
            State::Unmapped => _ = self.lists(small).unmapped.insert((stream, address)),
        }
        self.by_address.insert(address, block);
    }

    pub(super) fn remove(&mut self, address: u64) -> Option<Block> {
        let block = self.by_address.remove(&address)?;
        let Pool { small, stream } = block.pool;
        match block.state {
            State::Live { .. } => {}
            State::Free => _ = self.lists(small).free.remove(&(stream, block.bytes, address)),
            State::Unmapped => _ = self.lists(small).unmapped.remove(&(stream, address)),
        }
        Some(block)
    }

    /// The block after one, in the same segment.
    pub(super) fn next(&self, address: u64) -> Option<(u64, Block)> {
        let segment = self.by_address.get(&address)?.segment;
        let (&at, &block) = self.by_address.range(address + 1..).next()?;
        (block.segment == segment).then_some((at, block))
    }

    /// The block before one, in the same segment.
    pub(super) fn previous(&self, address: u64) -> Option<(u64, Block)> {
        let segment = self.by_address.get(&address)?.segment;
        let (&at, &block) = self.by_address.range(..address).next_back()?;
        (block.segment == segment).then_some((at, block))
    }

    /// Joins a free or unmapped block with neighbours of the same state and returns where the joined one begins.
    pub(super) fn join(&mut self, address: u64) -> u64 {
        let Some(&block) = self.get(address) else { return address };
        let (mut start, mut bytes) = (address, block.bytes);
        for neighbour in [self.previous(address), self.next(address)] {
            if let Some((at, other)) = neighbour.filter(|(_, other)| other.state == block.state) {
                self.remove(at);
                start = start.min(at);
                bytes += other.bytes;
            }
        }
        if bytes > block.bytes {
            self.remove(address);
            self.insert(start, Block { bytes, ..block });
        }
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
    pub(super) fn unmapped(&self, pool: Pool) -> impl Iterator<Item = u64> {
        let Pool { small, stream } = pool;
        self.lists_of(small).unmapped.range((stream, 0)..=(stream, u64::MAX)).map(|&(_, address)| address)
    }

    /// Where the free blocks of all streams begin.
    pub(super) fn free_addresses(&self, small: bool) -> Vec<u64> {
        self.lists_of(small).free.iter().map(|&(_, _, address)| address).collect()
    }

    /// How often blocks were searched for small or large requests.
    pub(super) fn searches(&self, small: bool) -> u64 {
        self.lists_of(small).searches
    }

    pub(super) fn count_search(&mut self, small: bool) {
        self.lists(small).searches += 1;
    }
}
