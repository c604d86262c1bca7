//! The pool behind eager mode: tensors come and go one by one, under a limit, and are counted.

use crate::arena::Arena;
use crate::bytes::format_bytes;
use crate::error::{Error, ErrorKind, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A source of blocks with a limit on their sum. Cloning it gives another handle to the same pool.
///
/// ```
/// use plimsoll_memory::Pool;
/// let pool = Pool::new(Some(1000));
/// let block = pool.allocate(800)?;
/// assert!(pool.allocate(300).unwrap_err().to_string().contains("800"));
/// drop(block);
/// pool.allocate(300)?;
/// assert_eq!(pool.statistics().peak_bytes, 800);
/// # Ok::<(), plimsoll_memory::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Pool {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    limit: Option<u64>,
    live: AtomicU64,
    peak: AtomicU64,
    allocations: AtomicU64,
}

/// What a [`Pool`] has served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolStatistics {
    /// Bytes of blocks that exist now.
    pub live_bytes: u64,
    /// The most bytes that existed at once.
    pub peak_bytes: u64,
    /// Blocks allocated so far.
    pub allocations: u64,
}

/// Bytes from a [`Pool`], zeroed, returned to it when dropped.
#[derive(Debug)]
pub struct Block {
    memory: Arena,
    shared: Arc<Shared>,
}

impl Pool {
    /// A pool that never holds more than `limit` bytes.
    pub fn new(limit: Option<u64>) -> Pool {
        let zero = || AtomicU64::new(0);
        Pool { shared: Arc::new(Shared { limit, live: zero(), peak: zero(), allocations: zero() }) }
    }

    /// A block of that many bytes.
    ///
    /// # Errors
    /// If the pool would pass its limit, or the system refuses. The pool stays usable.
    pub fn allocate(&self, bytes: u64) -> Result<Block> {
        let shared = &self.shared;
        let live = shared.live.fetch_add(bytes, Relaxed) + bytes;
        if let Some(limit) = shared.limit.filter(|&limit| live > limit) {
            shared.live.fetch_sub(bytes, Relaxed);
            let before = live - bytes;
            let message = format!(
                "{bytes} bytes ({}) do not fit: {before} of {limit} bytes ({} of {}) are in use; free tensors, \
                 use a smaller batch or raise the limit",
                format_bytes(bytes),
                format_bytes(before),
                format_bytes(limit)
            );
            return Err(Error::new(ErrorKind::OverLimit, message));
        }
        let memory = Arena::reserve(bytes, None).inspect_err(|_| {
            shared.live.fetch_sub(bytes, Relaxed);
        })?;
        shared.peak.fetch_max(live, Relaxed);
        shared.allocations.fetch_add(1, Relaxed);
        Ok(Block { memory, shared: shared.clone() })
    }

    /// What the pool has served so far.
    pub fn statistics(&self) -> PoolStatistics {
        PoolStatistics {
            live_bytes: self.shared.live.load(Relaxed),
            peak_bytes: self.shared.peak.load(Relaxed),
            allocations: self.shared.allocations.load(Relaxed),
        }
    }
}

impl Block {
    /// The first byte.
    pub fn start(&self) -> *mut u8 {
        // The empty range at the start is inside every arena.
        self.memory.address(0, 0).unwrap_or(std::ptr::null_mut())
    }

    /// The bytes that were asked for.
    pub fn bytes(&self) -> u64 {
        self.memory.bytes()
    }

    /// Its bytes.
    pub fn as_slice(&self) -> &[u8] {
        self.memory.slice(0, self.bytes()).unwrap_or(&[])
    }

    /// Its bytes to write to.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        self.memory.slice_mut(0, self.memory.bytes()).unwrap_or(&mut [])
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.shared.live.fetch_sub(self.memory.bytes(), Relaxed);
    }
}
