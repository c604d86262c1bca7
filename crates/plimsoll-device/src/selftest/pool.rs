//! Checks of pools, on memory that is really there.

use super::memory::{Random, TestedMemory, ensure_pattern, pattern};
use super::{Failure, Outcome, check, ensure, ensure_near};
use crate::SelfTest;
use plimsoll_memory::{Block, Error, ErrorKind, Pool, PoolSettings, Shortage, format_bytes};
use std::collections::BTreeMap;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// The pages of the sources that are tried.
const PAGE: u64 = 2 * MIB;

/// Tries what pools of some memory are relied on for.
pub fn pools(memory: &dyn TestedMemory, checks: &mut Vec<SelfTest>) {
    check(checks, "10,000 random requests keep what was written to them", || random_requests(memory));
    check(checks, "pages of holes back one large request", || holes(memory));
    check(checks, "trimming gives pages back to the device", || trim(memory));
    check(checks, "a limit is kept, its error has a verdict, and work goes on", || limit(memory));
    check(checks, "logical devices split one device, with a limit each", || logical_devices(memory));
}

/// Tries of a pool what can only be tried on memory that ends and that somebody counts. It fills the memory for a moment.
pub fn pools_of_all_memory(memory: &dyn TestedMemory, checks: &mut Vec<SelfTest>) {
    check(checks, "a pool that finds the device full says so, and goes on", || full(memory));
}

/// A pool and what lies in it.
struct Tried<'a> {
    memory: &'a dyn TestedMemory,
    pool: Pool,
    /// Each block and its seed, by address.
    live: BTreeMap<u64, (Block, u64)>,
}

impl<'a> Tried<'a> {
    fn new(memory: &'a dyn TestedMemory, settings: PoolSettings) -> Result<Tried<'a>, Failure> {
        Ok(Tried::of(memory, memory.pool(settings)?))
    }

    fn of(memory: &'a dyn TestedMemory, pool: Pool) -> Tried<'a> {
        Tried { memory, pool, live: BTreeMap::new() }
    }

    /// Asks for a block, makes sure that it lies in no other, and writes to both of its ends.
    fn allocate(&mut self, bytes: u64, seed: u64) -> Result<u64, Failure> {
        let mut block = self.pool.allocate_for(self.pool.owner("selftest/blocks"), bytes)?;
        let address = block.start() as u64;
        let before = self.live.range(..=address).next_back().map(|(&at, (block, _))| at + block.bytes());
        let after = self.live.range(address..).next().map(|(&at, _)| at);
        ensure(
            before.is_none_or(|end| end <= address) && after.is_none_or(|at| address + bytes <= at),
            || {
                format!(
                    "{bytes} bytes at {address:#x} lie in what is live up to {before:x?} or from {after:x?}"
                )
            },
        )?;
        for (at, bytes, seed) in ends(bytes, seed) {
            self.memory.put(&mut block, at, &pattern(seed, bytes))?;
        }
        self.live.insert(address, (block, seed));
        Ok(address)
    }

    /// Asks for a block that must be refused, and returns the verdict.
    fn refused(&self, bytes: u64, kind: ErrorKind) -> Result<(Error, Shortage), Failure> {
        let error = self.pool.allocate(bytes).err().ok_or("too large a request was not refused")?;
        ensure(error.kind() == kind, || format!("refused as {:?}: {error}", error.kind()))?;
        let shortage = error.shortage().cloned().ok_or_else(|| format!("there is no verdict: {error}"))?;
        ensure(shortage.requested_bytes == bytes, || format!("another request is named: {shortage:?}"))?;
        Ok((error, shortage))
    }

    /// Makes sure that a block holds what was written, and drops it.
    fn free(&mut self, address: u64) -> Result<(), Failure> {
        self.verify(address)?;
        self.live.remove(&address);
        Ok(())
    }

    fn verify(&self, address: u64) -> Result<(), Failure> {
        let (block, seed) = self.live.get(&address).ok_or("nothing is live there")?;
        ends(block.bytes(), *seed).into_iter().try_for_each(|(at, bytes, seed)| {
            let mut found = vec![0; bytes];
            self.memory.get(block, at, &mut found)?;
            ensure_pattern(&found, address + at as u64, seed)
        })
    }

    fn verify_all(&self) -> Result<(), Failure> {
        self.live.keys().try_for_each(|&address| self.verify(address))
    }

    fn reserved(&self) -> u64 {
        self.pool.statistics().reserved_bytes
    }

    /// Gives back what is idle, and makes sure that the driver counts the rest as taken and no more.
    fn trim(&mut self, free_at_first: Option<u64>) -> Result<u64, Failure> {
        let trimmed = self.pool.trim();
        if let (Some(before), Some(now)) = (free_at_first, self.memory.free_bytes()?) {
            let taken = before.saturating_sub(now);
            ensure_near("what the driver counts as taken", taken, self.reserved(), 2 * PAGE)?;
        }
        Ok(trimmed)
    }
}

/// The ends of a block that are written to, with a seed for each: all of it if it is small.
fn ends(bytes: u64, seed: u64) -> [(usize, usize, u64); 2] {
    let most = 32 << 10;
    let head = bytes.min(most);
    let tail = (bytes - head).min(most);
    [(0, head as usize, seed), ((bytes - tail) as usize, tail as usize, seed.wrapping_add(1))]
}

/// What the memory's owner says is free, after it has taken what it takes once for its own tables.
fn free_at_first(memory: &dyn TestedMemory) -> Result<Option<u64>, Failure> {
    if memory.free_bytes()?.is_some() {
        Tried::new(memory, PoolSettings::default())?.allocate(512 * MIB, 0)?;
    }
    memory.free_bytes()
}

fn random_requests(memory: &dyn TestedMemory) -> Outcome {
    let free_at_first = free_at_first(memory)?;
    let (mut tried, mut random) = (Tried::new(memory, PoolSettings::default())?, Random(42));
    let (mut live, mut trimmed) = (0, 0);
    for step in 0..10_000 {
        let one = tried.live.keys().nth(random.below(tried.live.len() as u64) as usize).copied();
        // Now and then most of it goes at once, as at the end of a step.
        let leave = if step % 1000 == 999 { random.below(20) } else { u64::MAX };
        match one {
            Some(address) if live > 400 * MIB || random.below(100) < 45 => {
                live -= tried.live.get(&address).map_or(0, |(block, _)| block.bytes());
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
            let Some((&address, (block, _))) = tried.live.iter().nth(tried.live.len() / 2) else { break };
            live -= block.bytes();
            tried.free(address)?;
        }
        let counted = tried.pool.statistics().live_bytes;
        ensure(counted == live, || format!("{counted} bytes are counted as live, and {live} are"))?;
        if step % 250 == 249 {
            trimmed += tried.trim(free_at_first)?;
        }
    }
    let seen = tried.pool.statistics();
    let left: Vec<u64> = tried.live.keys().copied().collect();
    let count = left.len();
    left.into_iter().try_for_each(|address| tried.free(address))?;
    tried.trim(free_at_first)?;
    let reserved = tried.reserved();
    ensure(reserved == 0, || format!("{reserved} bytes are reserved when nothing is live"))?;
    Ok(format!(
        "at most {} live in {} of pages; {} given back in between; {count} blocks at the end",
        format_bytes(seen.peak_bytes),
        format_bytes(seen.peak_reserved_bytes),
        format_bytes(trimmed)
    ))
}

fn holes(memory: &dyn TestedMemory) -> Outcome {
    let mut tried = Tried::new(memory, PoolSettings::default())?;
    let mut blocks = Vec::new();
    for seed in 0..32 {
        blocks.push(tried.allocate(4 * PAGE, seed)?);
    }
    let before = tried.reserved();
    for &address in blocks.iter().skip(1).step_by(2) {
        tried.free(address)?;
    }
    let large = tried.allocate(64 * PAGE, 99)?;
    let after = tried.reserved();
    ensure(after == before, || format!("{after} bytes are reserved, and {before} were enough"))?;
    tried.verify_all()?;
    Ok(format!("16 holes of {} became one block at {large:#x}", format_bytes(4 * PAGE)))
}

fn trim(memory: &dyn TestedMemory) -> Outcome {
    let free_at_first = free_at_first(memory)?;
    let mut tried = Tried::new(memory, PoolSettings::default())?;
    let mut blocks = Vec::new();
    for seed in 0..64 {
        blocks.push(tried.allocate(2 * PAGE, seed)?);
    }
    for &address in blocks.iter().skip(1).step_by(2) {
        tried.free(address)?;
    }
    let kept = tried.reserved();
    ensure(kept == 128 * PAGE, || format!("{kept} bytes are reserved, not {}", 128 * PAGE))?;
    let trimmed = tried.trim(free_at_first)?;
    ensure(trimmed == 64 * PAGE, || format!("{trimmed} bytes were given back, not {}", 64 * PAGE))?;
    tried.verify_all()?;
    let free = |free: Option<u64>| free.map_or("not counted".into(), |free| free.to_string());
    Ok(format!(
        "{trimmed} of {kept} bytes; free: {} then {}",
        free(free_at_first),
        free(memory.free_bytes()?)
    ))
}

fn limit(memory: &dyn TestedMemory) -> Outcome {
    let (name, limit) = ("selftest".into(), Some(64 * MIB));
    let settings = PoolSettings { name, live_limit: limit, ..PoolSettings::default() };
    let mut tried = Tried::new(memory, settings)?;
    let first = tried.allocate(40 * MIB, 1)?;
    let (error, shortage) = tried.refused(40 * MIB, ErrorKind::OverLimit)?;
    ensure(shortage.limit_bytes == limit && shortage.live_bytes == 40 * MIB, || format!("{shortage:?}"))?;
    let holder = ("selftest/blocks".to_string(), 40 * MIB);
    ensure(shortage.holders.first() == Some(&holder), || format!("{:?}", shortage.holders))?;
    tried.allocate(24 * MIB, 2)?;
    tried.verify_all()?;
    tried.free(first)?;
    tried.allocate(40 * MIB, 3)?;
    tried.verify_all()?;
    Ok(error.to_string())
}

fn logical_devices(memory: &dyn TestedMemory) -> Outcome {
    let device = memory.split(128 * MIB)?;
    let mut first = Tried::of(memory, device.logical("first", 76 * MIB)?);
    let mut second = Tried::of(memory, device.logical("second", 50 * MIB)?);
    let third = device.logical("third", 24 * MIB).err().ok_or("more was split off than there is")?;
    first.allocate(60 * MIB, 1)?;
    second.allocate(38 * MIB, 2)?;
    let (_, shortage) = second.refused(20 * MIB, ErrorKind::OverLimit)?;
    first.allocate(12 * MIB, 3)?;
    first.verify_all()?;
    second.verify_all()?;
    let reserved = device.reserved_bytes();
    ensure(reserved == first.reserved() + second.reserved(), || format!("{reserved} bytes in all"))?;
    drop(first);
    let mut third_now = Tried::of(memory, device.logical("third", 24 * MIB)?);
    third_now.allocate(24 * MIB, 4)?;
    second.verify_all()?;
    drop((second, third_now));
    let left = device.reserved_bytes();
    ensure(left == 0, || format!("{left} bytes are reserved when all logical devices are gone"))?;
    Ok(format!("{third}; the second: {}", shortage.sentence()))
}

fn full(memory: &dyn TestedMemory) -> Outcome {
    let free = memory.free_bytes()?.ok_or("nobody counts how much of this memory is free")?;
    let mut tried = Tried::new(memory, PoolSettings::default())?;
    let first = tried.allocate(free / 3, 1)?;
    let (error, shortage) = tried.refused(free, ErrorKind::OutOfMemory)?;
    let available = shortage.available_bytes.ok_or("the verdict does not say what the device could give")?;
    ensure_near("what the verdict says is free", available, free - free / 3, 64 * MIB)?;
    tried.allocate(64 * MIB, 2)?;
    tried.verify_all()?;
    tried.free(first)?;
    // The pages of what was freed serve this too.
    tried.allocate(free / 2, 3)?;
    tried.verify_all()?;
    let taken = tried.reserved();
    ensure(taken < free / 2 + GIB, || format!("{taken} bytes are reserved for {}", free / 2 + 64 * MIB))?;
    Ok(error.to_string())
}
