//! Small results, which a kernel writes to pinned host memory.
//!
//! A step's loss is four bytes. A copy by the driver costs the host a call and the device a switch to its copy engine
//! before the next step may begin, which together takes longer than most kernels of a small model. So the graph of a
//! step ends in a kernel that writes small results to the host itself. The host may still be reading the results of
//! earlier steps, so each step in flight has a slot of its own; the kernel keeps a count of steps beside the slots, which
//! says whose it is.

use crate::codegen::engine::Engine;
use crate::codegen::function::{Argument, Function};
use crate::driver::device::Shared;
use crate::driver::pinned::Pinned;
use crate::error::Result;
use crate::runtime::in_flight::UNDER_WAY;
use cudarc::driver::sys::{CUdeviceptr, CUstream};
use plimsoll_device::staging::{SMALL_RESULT_BYTES, SMALL_RESULTS, SMALL_RESULTS_BYTES, few_and_small};
use std::ops::Range;
use std::sync::Arc;

const TEXT: &str = include_str!("small_results.cu");
/// The most results of a step, and the most bytes of each.
const MOST: usize = SMALL_RESULTS;
const EACH: u64 = SMALL_RESULT_BYTES;
/// The bytes before the slots, which hold the count of steps.
const COUNT: u64 = EACH;

/// Pinned host memory for the small results of all steps in flight.
pub(crate) struct SmallResults(Pinned);

/// The kernel that ends a step: it writes the results if they are few and small, and counts the step in any case.
pub(crate) struct SmallResultsKernel {
    function: Function,
    /// Whether it writes the step's results, which are copied otherwise.
    pub(crate) has_results: bool,
    addresses: [i64; MOST],
    bytes: [i64; MOST],
}

impl SmallResults {
    pub(crate) fn new(shared: &Arc<Shared>) -> Result<SmallResults> {
        Ok(SmallResults(Pinned::new(shared, SMALL_RESULTS_BYTES)?))
    }

    /// Where a result of the step in a slot is, once it has ended.
    pub(crate) fn result(&self, slot: u64, index: usize, bytes: u64) -> Option<*mut u8> {
        self.0.address(COUNT + (slot * MOST as u64 + index as u64) * EACH, bytes)
    }
}

impl SmallResultsKernel {
    /// The kernel for results at these addresses. It writes them if they are few and small.
    ///
    /// # Errors
    /// If the kernel does not compile.
    pub(crate) fn new(engine: &Arc<Engine>, results: &[Range<CUdeviceptr>]) -> Result<SmallResultsKernel> {
        let function = engine.compile(TEXT, "leave", 0)?;
        let (mut addresses, mut bytes) = ([0; MOST], [0; MOST]);
        let size = |result: &Range<CUdeviceptr>| result.end - result.start;
        let has_results = few_and_small(results.iter().map(size));
        if has_results {
            for (index, result) in results.iter().enumerate() {
                (addresses[index], bytes[index]) = (result.start as i64, size(result) as i64);
            }
        }
        Ok(SmallResultsKernel { function, has_results, addresses, bytes })
    }

    /// Enqueues the kernel, with the device's context current.
    ///
    /// # Safety
    /// The results' addresses must be valid when it runs. `small_results` must outlive it, and steps that use it must run
    /// one after another, each with one such kernel.
    pub(crate) unsafe fn run(&self, small_results: &SmallResults, stream: CUstream) -> Result<()> {
        let start = small_results.0.address(0, 0).map_or(0, |start| start as CUdeviceptr);
        let arguments = [
            Argument::Extents(self.addresses),
            Argument::Extents(self.bytes),
            Argument::Address(start),
            Argument::U32(UNDER_WAY as u32),
        ];
        // SAFETY: the kernel takes eight addresses and the bytes of each, a pinned address, which the device knows by
        // the same number, and the number of slots; it touches only what the caller vouches for and the slots.
        unsafe { self.function.launch(stream, [1, 1, 1], EACH as u32, 0, &arguments) }
    }
}
