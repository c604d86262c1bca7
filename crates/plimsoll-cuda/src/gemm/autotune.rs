//! Autotuning: how long a kernel takes for a product, measured on the device at hand.

use crate::driver::device::Shared;
use crate::driver::scratch::Scratch;
use crate::driver::stream::{Event, Stream};
use crate::error::Result;
use crate::gemm::Gemm;
use cudarc::driver::sys::{CUdeviceptr, CUstream};
use std::sync::Arc;

/// Times kernels of one product, in memory of its own.
pub(crate) struct GemmTimer {
    shared: Arc<Shared>,
    /// Where the matrices are; kept while they are used.
    _scratch: Scratch,
    addresses: [CUdeviceptr; 3],
    workspace: CUdeviceptr,
    stream: Stream,
    start: Event,
    end: Event,
}

impl GemmTimer {
    /// With memory for the product's matrices and this much workspace.
    ///
    /// # Errors
    /// If the device has not so much memory.
    pub(crate) fn new(shared: &Arc<Shared>, gemm: &Gemm, workspace: u64) -> Result<GemmTimer> {
        let bytes = gemm.bytes().map(|bytes| bytes.next_multiple_of(256));
        let scratch = Scratch::new(shared, bytes.iter().sum::<u64>() + workspace)?;
        let a = scratch.address;
        let addresses = [a, a + bytes[0], a + bytes[0] + bytes[1]];
        Ok(GemmTimer {
            shared: shared.clone(),
            _scratch: scratch,
            addresses,
            workspace: addresses[2] + bytes[2],
            stream: Stream::new(shared)?,
            start: Event::timed(shared)?,
            end: Event::timed(shared)?,
        })
    }

    /// The milliseconds that a kernel takes, infinite for one that does not run. `run` is given the matrices, the workspace
    /// and a stream; each measurement repeats it for about `at_a_time` milliseconds.
    pub(crate) fn milliseconds(
        &self,
        at_a_time: f32,
        run: impl Fn([CUdeviceptr; 3], CUdeviceptr, CUstream) -> Result<()>,
    ) -> f32 {
        let time = |repeats: u32| -> Result<f32> {
            self.start.record(&self.stream)?;
            for _ in 0..repeats {
                self.shared.with_context(|_| run(self.addresses, self.workspace, self.stream.stream))?;
            }
            self.end.record(&self.stream)?;
            Ok(self.start.milliseconds_to(&self.end)? / repeats as f32)
        };
        let measured = || -> Result<f32> {
            time(1)?;
            let once = time(1)?;
            let repeats = (at_a_time / once.max(0.01)).ceil().clamp(2.0, 20.0 * at_a_time) as u32;
            (0..3).try_fold(once, |best, _| Ok(best.min(time(repeats)?)))
        };
        measured().unwrap_or(f32::INFINITY)
    }
}
