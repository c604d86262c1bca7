//! Small results that leave the device by themselves.
//!
//! A step's loss is four bytes. Copied by the driver it takes the host a call and the device a change to its copy engine
//! before the next step may begin, which together is longer than most kernels of a small model. So the graph of a step
//! has a kernel that writes small results to memory of the host. Where the graph of one run ends and the host still
//! reads the results of runs before, each needs a place of its own: runs take turns, and a count beside the places,
//! which the kernel keeps, tells whose turn it is.

use crate::codegen::engine::Engine;
use crate::codegen::function::{Argument, Function};
use crate::driver::device::Shared;
use crate::driver::pinned::Pinned;
use crate::error::Result;
use crate::runtime::in_flight::UNDER_WAY;
use cudarc::driver::sys::{CUdeviceptr, CUstream};
use std::ops::Range;
use std::sync::Arc;

const TEXT: &str = include_str!("small_results.cu");
/// The results that a run may have here, and the bytes of each.
const MOST: usize = 8;
const EACH: u64 = 256;
/// The bytes before the places, in which runs are counted.
const COUNT: u64 = EACH;

/// Places on the host for the small results of runs that are under way.
pub(crate) struct Outbox(Pinned);

/// What a run writes to an outbox: some of its results, or nothing. It is counted in either case.
pub(crate) struct Leaving {
    function: Function,
    /// Whether the run's results leave this way.
    pub(crate) has_results: bool,
    addresses: [i64; MOST],
    bytes: [i64; MOST],
}

impl Outbox {
    pub(crate) fn new(shared: &Arc<Shared>) -> Result<Outbox> {
        Ok(Outbox(Pinned::new(shared, COUNT + UNDER_WAY * MOST as u64 * EACH)?))
    }

    /// Where a result of a run is, once it has ended.
    pub(crate) fn result(&self, turn: u64, index: usize, bytes: u64) -> Option<*mut u8> {
        self.0.address(COUNT + (turn * MOST as u64 + index as u64) * EACH, bytes)
    }
}

impl Leaving {
    /// The results at these addresses, if they are few and small; none of them otherwise.
    ///
    /// # Errors
    /// If the kernel does not compile.
    pub(crate) fn new(engine: &Arc<Engine>, results: &[Range<CUdeviceptr>]) -> Result<Leaving> {
        let function = engine.compile(TEXT, "leave", 0)?;
        let (mut addresses, mut bytes) = ([0; MOST], [0; MOST]);
        let size = |result: &Range<CUdeviceptr>| result.end - result.start;
        let has_results = few_and_small(results.iter().map(size));
        if has_results {
            for (index, result) in results.iter().enumerate() {
                (addresses[index], bytes[index]) = (result.start as i64, size(result) as i64);
            }
        }
        Ok(Leaving { function, has_results, addresses, bytes })
    }

    /// Enqueues the writing, with the device's context current.
    ///
    /// # Safety
    /// The results' addresses must be valid when it runs. The outbox must outlive it, and runs must be counted by this
    /// alone, one at a time.
    pub(crate) unsafe fn run(&self, outbox: &Outbox, stream: CUstream) -> Result<()> {
        let start = outbox.0.address(0, 0).map_or(0, |start| start as CUdeviceptr);
        let arguments = [
            Argument::Extents(self.addresses),
            Argument::Extents(self.bytes),
            Argument::Address(start),
            Argument::U32(UNDER_WAY as u32),
        ];
        // SAFETY: the kernel takes eight addresses and the bytes of each, a pinned address, which the device knows by
        // the same number, and the turns there are; of either it touches what is vouched for or was taken for it.
        unsafe { self.function.launch(stream, [1, 1, 1], EACH as u32, 0, &arguments) }
    }
}

/// Whether results of so many bytes leave by themselves.
fn few_and_small(mut results: impl ExactSizeIterator<Item = u64>) -> bool {
    results.len() <= MOST && results.all(|bytes| bytes <= EACH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_and_small_results_leave_by_themselves() {
        assert!(few_and_small([4, 4].into_iter()));
        assert!(few_and_small([256; 8].into_iter()));
        assert!(few_and_small([0; 0].into_iter()));
        assert!(!few_and_small([257].into_iter()), "too large");
        assert!(!few_and_small([4; 9].into_iter()), "too many");
    }
}
