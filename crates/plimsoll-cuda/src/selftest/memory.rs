//! Memory that checks write to and read from, and what they write.

use super::Failure;
use crate::driver::device::CudaDevice;
use crate::driver::source::CudaSource;
use plimsoll_memory::{PhysicalDevice, Pool, PoolSettings};
use std::ptr;

/// Memory that pools can be tried on.
pub(super) trait TestedMemory {
    /// A pool of it.
    fn pool(&self, settings: PoolSettings) -> Result<Pool, Failure>;

    /// So many bytes of it, to be split.
    fn split(&self, capacity: u64) -> Result<PhysicalDevice, Failure>;

    /// Copies bytes to an address where a check has something placed.
    fn put(&self, address: u64, bytes: &[u8]) -> Result<(), Failure>;

    /// Copies bytes from an address where a check has something placed.
    fn get(&self, address: u64, bytes: &mut [u8]) -> Result<(), Failure>;

    /// The bytes that nobody has taken, where somebody else counts them.
    fn free_bytes(&self) -> Result<Option<u64>, Failure>;
}

impl TestedMemory for CudaDevice {
    fn pool(&self, settings: PoolSettings) -> Result<Pool, Failure> {
        Ok(Pool::on(Box::new(CudaSource::new(self)?), settings))
    }

    fn split(&self, capacity: u64) -> Result<PhysicalDevice, Failure> {
        Ok(PhysicalDevice::new(Box::new(CudaSource::new(self)?), capacity))
    }

    fn put(&self, address: u64, bytes: &[u8]) -> Result<(), Failure> {
        Ok(self.write(address, bytes)?)
    }

    fn get(&self, address: u64, bytes: &mut [u8]) -> Result<(), Failure> {
        Ok(self.read(address, bytes)?)
    }

    fn free_bytes(&self) -> Result<Option<u64>, Failure> {
        Ok(Some(self.memory_info()?.free_bytes))
    }
}

/// The host's memory.
pub(super) struct Host;

impl TestedMemory for Host {
    fn pool(&self, settings: PoolSettings) -> Result<Pool, Failure> {
        Ok(Pool::host(settings))
    }

    fn split(&self, capacity: u64) -> Result<PhysicalDevice, Failure> {
        Ok(PhysicalDevice::host(capacity))
    }

    fn put(&self, address: u64, bytes: &[u8]) -> Result<(), Failure> {
        // SAFETY: checks write only to what a pool placed for them in mapped host memory and to which there
        // are no references.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), address as *mut u8, bytes.len()) };
        Ok(())
    }

    fn get(&self, address: u64, bytes: &mut [u8]) -> Result<(), Failure> {
        // SAFETY: as in `put`; fresh pages are zeros, so all that is read was written.
        unsafe { ptr::copy_nonoverlapping(address as *const u8, bytes.as_mut_ptr(), bytes.len()) };
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
fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    let mut random = Random(seed);
    let mut pattern = Vec::with_capacity(bytes + 8);
    while pattern.len() < bytes {
        pattern.extend_from_slice(&random.next().to_le_bytes());
    }
    pattern.truncate(bytes);
    pattern
}

/// Writes the pattern of a seed.
pub(super) fn write_pattern(
    memory: &dyn TestedMemory,
    address: u64,
    bytes: usize,
    seed: u64,
) -> Result<(), Failure> {
    memory.put(address, &pattern(seed, bytes))
}

/// A failure unless the bytes are still the pattern of the seed.
pub(super) fn verify_pattern(
    memory: &dyn TestedMemory,
    address: u64,
    bytes: usize,
    seed: u64,
) -> Result<(), Failure> {
    let (expected, mut found) = (pattern(seed, bytes), vec![0; bytes]);
    memory.get(address, &mut found)?;
    match expected.iter().zip(&found).position(|(a, b)| a != b) {
        None => Ok(()),
        Some(at) => Err(Failure(format!(
            "the byte at {:#x}, {at} of {bytes} from {address:#x}, is {:#04x} and was written as {:#04x}",
            address + at as u64,
            found[at],
            expected[at]
        ))),
    }
}
