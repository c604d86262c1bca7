//! Checks of the allocator behind pools, on memory that is really there.

use super::memory::{Memory, Random, verify_pattern, write_pattern};
use super::{Check, Failure, Outcome, check, ensure, ensure_near};
use plimsoll_memory::{Allocator, Paged, Source, format_bytes};
use std::collections::BTreeMap;

const MIB: u64 = 1 << 20;

/// Tries them all.
pub(super) fn run(memory: &dyn Memory, checks: &mut Vec<Check>) {
    check(checks, "10,000 random requests keep what was written to them", || random_requests(memory));
    check(checks, "pages of holes back one large request", || holes(memory));
}

/// A pool policy, its source, and what lies in it.
struct Tried<'a> {
    memory: &'a dyn Memory,
    source: Box<dyn Source>,
    pool: Paged,
    /// Bytes and seed of each piece, by address.
    live: BTreeMap<u64, (u64, u64)>,
}

impl<'a> Tried<'a> {
    fn new(memory: &'a dyn Memory) -> Result<Tried<'a>, Failure> {
        Ok(Tried { memory, source: memory.source()?, pool: Paged::new(), live: BTreeMap::new() })
    }

    /// Places a piece, makes sure that it lies in no other, and writes to both of its ends.
    fn allocate(&mut self, bytes: u64, seed: u64) -> Result<u64, Failure> {
        let address = self.pool.allocate(bytes, 0, &mut *self.source)?;
        let before = self.live.range(..=address).next_back().map(|(&at, &(bytes, _))| at + bytes);
        let after = self.live.range(address..).next().map(|(&at, _)| at);
        ensure(
            before.is_none_or(|end| end <= address) && after.is_none_or(|at| address + bytes <= at),
            || {
                format!(
                    "{bytes} bytes at {address:#x} lie in what is live up to {before:x?} or from {after:x?}"
                )
            },
        )?;
        for (at, bytes, seed) in ends(address, bytes, seed) {
            write_pattern(self.memory, at, bytes, seed)?;
        }
        self.live.insert(address, (bytes, seed));
        Ok(address)
    }

    /// Makes sure that a piece holds what was written, and takes it back.
    fn free(&mut self, address: u64) -> Result<(), Failure> {
        self.verify(address)?;
        self.live.remove(&address);
        self.pool.free(address, &mut *self.source);
        Ok(())
    }

    fn verify(&self, address: u64) -> Result<(), Failure> {
        let (bytes, seed) = *self.live.get(&address).ok_or("nothing is live there")?;
        ends(address, bytes, seed)
            .try_for_each(|(at, bytes, seed)| verify_pattern(self.memory, at, bytes, seed))
    }

    /// Gives back what is idle, and makes sure that the driver counts the rest as taken and no more.
    fn trim(&mut self, free_at_first: Option<u64>) -> Result<u64, Failure> {
        let trimmed = self.pool.trim(&mut *self.source);
        if let (Some(before), Some(now)) = (free_at_first, self.memory.free_bytes()?) {
            let taken = before.saturating_sub(now);
            ensure_near(
                "what the driver counts as taken",
                taken,
                self.pool.reserved_bytes(),
                2 * self.source.page_bytes(),
            )?;
        }
        Ok(trimmed)
    }
}

/// The ends of a piece that are written to, with a seed for each: all of it if it is small.
fn ends(address: u64, bytes: u64, seed: u64) -> impl Iterator<Item = (u64, usize, u64)> {
    let most = 32 << 10;
    let head = bytes.min(most);
    let tail = (bytes - head).min(most);
    [(address, head as usize, seed), (address + bytes - tail, tail as usize, seed.wrapping_add(1))]
        .into_iter()
}

fn random_requests(memory: &dyn Memory) -> Outcome {
    // What the driver takes for its own tables, it takes once.
    Tried::new(memory)?.allocate(512 * MIB, 0)?;
    let free_at_first = memory.free_bytes()?;
    let (mut tried, mut random) = (Tried::new(memory)?, Random(42));
    let (mut live, mut most_live, mut most_reserved, mut trimmed) = (0, 0, 0, 0);
    for step in 0..10_000 {
        let piece = tried.live.keys().nth(random.below(tried.live.len() as u64) as usize).copied();
        // Now and then most of it goes at once, as at the end of a step.
        let leave = if step % 1000 == 999 { random.below(20) } else { u64::MAX };
        match piece {
            Some(address) if live > 400 * MIB || random.below(100) < 45 => {
                live -= tried.live.get(&address).map_or(0, |piece| piece.0);
                tried.free(address)?;
            }
            _ => {
                // Every power of two up to 16 MiB is as likely.
                let power = random.below(25);
                let bytes = 1 + random.below(1 << power);
                tried.allocate(bytes, random.next())?;
                live += bytes;
            }
        }
        while tried.live.len() as u64 > leave {
            let Some((&address, &(bytes, _))) = tried.live.iter().nth(tried.live.len() / 2) else { break };
            live -= bytes;
            tried.free(address)?;
        }
        most_live = most_live.max(live);
        most_reserved = most_reserved.max(tried.pool.reserved_bytes());
        if step % 250 == 249 {
            trimmed += tried.trim(free_at_first)?;
        }
    }
    let left: Vec<u64> = tried.live.keys().copied().collect();
    let count = left.len();
    left.into_iter().try_for_each(|address| tried.free(address))?;
    tried.trim(free_at_first)?;
    let reserved = tried.pool.reserved_bytes();
    ensure(reserved == 0, || format!("{reserved} bytes are reserved when nothing is live"))?;
    Ok(format!(
        "at most {} live in {} of pages; {} given back in between; {count} pieces at the end",
        format_bytes(most_live),
        format_bytes(most_reserved),
        format_bytes(trimmed)
    ))
}

fn holes(memory: &dyn Memory) -> Outcome {
    let mut tried = Tried::new(memory)?;
    let page = tried.source.page_bytes();
    let mut pieces = Vec::new();
    for seed in 0..32 {
        pieces.push(tried.allocate(4 * page, seed)?);
    }
    let before = tried.pool.reserved_bytes();
    for address in pieces.iter().skip(1).step_by(2) {
        tried.free(*address)?;
    }
    let large = tried.allocate(64 * page, 99)?;
    let after = tried.pool.reserved_bytes();
    ensure(after == before, || format!("{after} bytes are reserved, and {before} were enough"))?;
    pieces.iter().step_by(2).chain([&large]).try_for_each(|&address| tried.verify(address))?;
    Ok(format!("16 holes of {} became one piece at {large:#x}", format_bytes(4 * page)))
}
