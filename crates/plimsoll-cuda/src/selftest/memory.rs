//! The device's memory, as checks of pools see it.

use crate::driver::device::CudaDevice;
use crate::driver::source::CudaSource;
use plimsoll_device::selftest::{Failure, TestedMemory, ensure_pattern, pattern};
use plimsoll_memory::{Block, PhysicalDevice, Pool, PoolSettings};

impl TestedMemory for CudaDevice {
    fn pool(&self, settings: PoolSettings) -> Result<Pool, Failure> {
        Ok(Pool::on(Box::new(CudaSource::new(self)?), settings))
    }

    fn split(&self, capacity: u64) -> Result<PhysicalDevice, Failure> {
        Ok(PhysicalDevice::new(Box::new(CudaSource::new(self)?), capacity))
    }

    fn put(&self, block: &mut Block, at: usize, bytes: &[u8]) -> Result<(), Failure> {
        Ok(self.write(block.start() as u64 + at as u64, bytes)?)
    }

    fn get(&self, block: &Block, at: usize, bytes: &mut [u8]) -> Result<(), Failure> {
        Ok(self.read(block.start() as u64 + at as u64, bytes)?)
    }

    fn free_bytes(&self) -> Result<Option<u64>, Failure> {
        Ok(Some(self.memory_info()?.free_bytes))
    }
}

/// Writes the pattern of a seed to mapped memory.
pub(super) fn write_pattern(
    device: &CudaDevice,
    address: u64,
    bytes: usize,
    seed: u64,
) -> Result<(), Failure> {
    Ok(device.write(address, &pattern(seed, bytes))?)
}

/// A failure unless mapped memory still holds the pattern of the seed.
pub(super) fn verify_pattern(
    device: &CudaDevice,
    address: u64,
    bytes: usize,
    seed: u64,
) -> Result<(), Failure> {
    let mut found = vec![0; bytes];
    device.read(address, &mut found)?;
    ensure_pattern(&found, address, seed)
}
