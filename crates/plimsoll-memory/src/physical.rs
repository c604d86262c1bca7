//! One device, several pools: logical devices that share a physical one, each with its limit.

use crate::bytes::format_bytes;
use crate::error::{Error, ErrorKind, Result};
use crate::host::HostMemory;
use crate::pool::{Pool, PoolSettings};
use crate::source::Source;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A device whose memory is split among pools.
///
/// ```
/// use plimsoll_memory::PhysicalDevice;
/// let device = PhysicalDevice::host(1 << 30);
/// let (first, second) = (device.logical("first", 600 << 20)?, device.logical("second", 400 << 20)?);
/// assert!(device.logical("third", 100 << 20).unwrap_err().to_string().contains("24.0 MiB"));
/// assert!(first.allocate(700 << 20).is_err());
/// assert!(second.allocate(300 << 20).is_ok());
/// drop(first);
/// device.logical("third", 100 << 20)?;
/// # Ok::<(), plimsoll_memory::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct PhysicalDevice {
    shared: Arc<Mutex<Physical>>,
    /// Whether its addresses can be read and written from here.
    host: bool,
}

struct Physical {
    source: Box<dyn Source>,
    capacity: Option<u64>,
    /// What logical devices may take together.
    claimed: u64,
    /// What they have taken.
    mapped: u64,
}

impl std::fmt::Debug for Physical {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Physical { capacity, claimed, mapped, .. } = self;
        let mut all = f.debug_struct("Physical");
        all.field("capacity", capacity)
            .field("claimed", claimed)
            .field("mapped", mapped)
            .finish_non_exhaustive()
    }
}

impl PhysicalDevice {
    /// A device with `capacity` bytes to split.
    pub fn new(source: Box<dyn Source>, capacity: u64) -> PhysicalDevice {
        PhysicalDevice::of(source, Some(capacity), false)
    }

    /// The host's memory, `capacity` bytes of it.
    pub fn host(capacity: u64) -> PhysicalDevice {
        PhysicalDevice::of(Box::new(HostMemory::new()), Some(capacity), true)
    }

    pub(crate) fn of(source: Box<dyn Source>, capacity: Option<u64>, host: bool) -> PhysicalDevice {
        let physical = Physical { source, capacity, claimed: 0, mapped: 0 };
        PhysicalDevice { shared: Arc::new(Mutex::new(physical)), host }
    }

    /// A pool that takes at most `limit` bytes of the device, which nobody else gets until it and all of its blocks
    /// are dropped.
    ///
    /// # Errors
    /// If the limits of all pools would be more than the device has.
    pub fn logical(&self, name: &str, limit: u64) -> Result<Pool> {
        let mut physical = lock(&self.shared);
        let left = physical.capacity.map_or(u64::MAX, |capacity| capacity.saturating_sub(physical.claimed));
        if limit > left {
            let message = format!(
                "a logical device of {limit} bytes ({}) does not fit: {left} bytes ({}) of the physical device are \
                 given to no other; use a smaller limit or drop another logical device",
                format_bytes(limit),
                format_bytes(left)
            );
            return Err(Error::new(ErrorKind::OverLimit, message));
        }
        physical.claimed += limit;
        drop(physical);
        let mut share = self.share();
        (share.limit, share.claimed) = (Some(limit), limit);
        Ok(Pool::over(share, PoolSettings { name: name.into(), ..PoolSettings::default() }))
    }

    /// Bytes of the device that no logical device may take yet.
    pub fn unclaimed_bytes(&self) -> Option<u64> {
        let physical = lock(&self.shared);
        physical.capacity.map(|capacity| capacity.saturating_sub(physical.claimed))
    }

    /// Bytes that all pools on the device have taken.
    pub fn reserved_bytes(&self) -> u64 {
        lock(&self.shared).mapped
    }

    /// All of the device, without a limit of its own.
    pub(crate) fn share(&self) -> Share {
        let physical = lock(&self.shared);
        Share {
            device: self.clone(),
            page: physical.source.page_bytes(),
            range: physical.source.range_bytes(),
            limit: None,
            claimed: 0,
            mapped: 0,
            ranges: vec![],
        }
    }
}

/// What one pool sees of a device.
#[derive(Debug)]
pub(crate) struct Share {
    device: PhysicalDevice,
    page: u64,
    range: u64,
    pub(crate) limit: Option<u64>,
    claimed: u64,
    mapped: u64,
    ranges: Vec<(u64, u64)>,
}

impl Share {
    /// Whether its addresses can be read and written from here.
    pub(crate) fn is_host(&self) -> bool {
        self.device.host
    }

    /// The bytes of the whole device, where they are known.
    pub(crate) fn capacity(&self) -> Option<u64> {
        lock(&self.device.shared).capacity
    }
}

impl Source for Share {
    fn page_bytes(&self) -> u64 {
        self.page
    }

    fn range_bytes(&self) -> u64 {
        self.range
    }

    fn available_bytes(&self) -> Option<u64> {
        let physical = lock(&self.device.shared);
        let left = physical.capacity.map(|capacity| capacity.saturating_sub(physical.mapped));
        match (left, physical.source.available_bytes()) {
            (Some(left), Some(available)) => Some(left.min(available)),
            (left, available) => left.or(available),
        }
    }

    fn reserve(&mut self, bytes: u64) -> Result<u64> {
        let address = lock(&self.device.shared).source.reserve(bytes)?;
        self.ranges.push((address, bytes));
        Ok(address)
    }

    fn map(&mut self, address: u64, bytes: u64) -> Result<()> {
        let mapped = self.mapped.saturating_add(bytes);
        if let Some(limit) = self.limit.filter(|&limit| mapped > limit) {
            let message = format!(
                "{bytes} bytes ({}) are over the limit: {} of {} are taken",
                format_bytes(bytes),
                format_bytes(self.mapped),
                format_bytes(limit)
            );
            return Err(Error::new(ErrorKind::OverLimit, message));
        }
        let mut physical = lock(&self.device.shared);
        physical.source.map(address, bytes)?;
        physical.mapped += bytes;
        self.mapped = mapped;
        Ok(())
    }

    fn unmap(&mut self, address: u64, bytes: u64) {
        let mut physical = lock(&self.device.shared);
        physical.source.unmap(address, bytes);
        physical.mapped -= bytes;
        self.mapped -= bytes;
    }

    fn release(&mut self, address: u64, bytes: u64) {
        lock(&self.device.shared).source.release(address, bytes);
        self.ranges.retain(|&(start, _)| start != address);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut physical = lock(&self.device.shared);
        for &(address, bytes) in &self.ranges {
            physical.source.release(address, bytes);
        }
        physical.mapped -= self.mapped;
        physical.claimed -= self.claimed;
    }
}

/// What a panic elsewhere left behind is whole: nothing here panics between two changes that belong together.
fn lock(shared: &Mutex<Physical>) -> MutexGuard<'_, Physical> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
