//! Memory that checks write to and read from, and what they write.

use super::Failure;
use plimsoll_memory::{Block, PhysicalDevice, Pool, PoolSettings};

/// Memory that pools can be tried on. Its methods fail where the memory does.
pub trait TestedMemory {
    /// A pool of it.
    ///
    /// # Errors
    /// If that failed.
    fn pool(&self, settings: PoolSettings) -> Result<Pool, Failure>;

    /// So many bytes of it, to be split.
    ///
    /// # Errors
    /// If that failed.
    fn split(&self, capacity: u64) -> Result<PhysicalDevice, Failure>;

    /// Copies bytes to a block of such a pool, from a position on.
    ///
    /// # Errors
    /// If that failed.
    fn put(&self, block: &mut Block, at: usize, bytes: &[u8]) -> Result<(), Failure>;

    /// Copies bytes from a block of such a pool, from a position on.
    ///
    /// # Errors
    /// If that failed.
    fn get(&self, block: &Block, at: usize, bytes: &mut [u8]) -> Result<(), Failure>;

    /// The bytes that nobody has taken, where somebody else counts them.
    ///
    /// # Errors
    /// If that failed.
    fn free_bytes(&self) -> Result<Option<u64>, Failure>;
}

/// The host's memory.
#[derive(Debug, Clone, Copy)]
pub struct Host;

impl TestedMemory for Host {
    fn pool(&self, settings: PoolSettings) -> Result<Pool, Failure> {
        Ok(Pool::host(settings))
    }

    fn split(&self, capacity: u64) -> Result<PhysicalDevice, Failure> {
        Ok(PhysicalDevice::host(capacity))
    }

    fn put(&self, block: &mut Block, at: usize, bytes: &[u8]) -> Result<(), Failure> {
        let place = block.as_mut_slice().get_mut(at..).and_then(|rest| rest.get_mut(..bytes.len()));
        place.ok_or("bytes beyond a block")?.copy_from_slice(bytes);
        Ok(())
    }

    fn get(&self, block: &Block, at: usize, bytes: &mut [u8]) -> Result<(), Failure> {
        let place = block.as_slice().get(at..).and_then(|rest| rest.get(..bytes.len()));
        bytes.copy_from_slice(place.ok_or("bytes beyond a block")?);
        Ok(())
    }

    fn free_bytes(&self) -> Result<Option<u64>, Failure> {
        Ok(None)
    }
}

/// Numbers that look random and are the same for the same seed.
#[derive(Debug, Clone)]
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }
}

/// Bytes that are different for every seed.
pub fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    let mut random = Random(seed);
    let mut pattern = Vec::with_capacity(bytes + 8);
    while pattern.len() < bytes {
        pattern.extend_from_slice(&random.next().to_le_bytes());
    }
    pattern.truncate(bytes);
    pattern
}

/// A failure unless bytes that were read from an address are still the pattern of the seed.
///
/// # Errors
/// If they are not: with the first that is another.
pub fn ensure_pattern(found: &[u8], address: u64, seed: u64) -> Result<(), Failure> {
    let expected = pattern(seed, found.len());
    match expected.iter().zip(found).position(|(a, b)| a != b) {
        None => Ok(()),
        Some(at) => Err(Failure(format!(
            "the byte at {:#x}, {at} of {} from {address:#x}, is {:#04x} and was written as {:#04x}",
            address + at as u64,
            found.len(),
            found[at],
            expected[at]
        ))),
    }
}
