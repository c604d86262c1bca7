//! An op and the loop that follows it: as one kernel where there is one, or one after the other, with the op's result in
//! workspace in between.

use crate::codegen::engine::Engine;
use crate::codegen::loops;
use crate::error::Result;
use crate::gemm::dot;
use crate::prepare::prepare;
use crate::routine::{ALIGNMENT, Call, Routine};
use cudarc::driver::sys::CUdeviceptr;
use plimsoll_graph::Op;
use plimsoll_graph::program::{Body, Kernel, WithEpilogue};
use std::sync::Arc;

/// Prepares an op and its loop.
pub(crate) fn prepare_with_epilogue(
    engine: &Arc<Engine>,
    kernel: &Kernel,
    then: &WithEpilogue,
) -> Result<Box<dyn Routine>> {
    if let Op::Dot { transpose_a, transpose_b } = then.op {
        let Kernel { reads, writes, .. } = kernel;
        let one = dot::prepare_followed(engine, transpose_a, transpose_b, then, reads, writes)?;
        if let Some(routine) = one {
            return Ok(routine);
        }
    }
    let made = then.made();
    let op = Kernel {
        scope: kernel.scope.clone(),
        body: Body::Op(then.op.clone()),
        reads: kernel.reads[..then.operands].to_vec(),
        writes: vec![made],
        in_place: vec![],
        flops: kernel.flops,
        bytes: kernel.bytes,
    };
    let reads = then.loop_reads(&kernel.reads);
    Ok(Box::new(InWorkspace {
        op: prepare(engine, &op)?,
        body: loops::prepare(engine, &then.body, &reads, &kernel.writes)?,
        operands: then.operands,
        made: ((then.shape.elements() * then.dtype.size()) as u64).next_multiple_of(ALIGNMENT),
    }))
}

/// An op whose result is in workspace until its loop has run.
struct InWorkspace {
    op: Box<dyn Routine>,
    body: Box<dyn Routine>,
    operands: usize,
    /// The bytes of the result.
    made: u64,
}

impl Routine for InWorkspace {
    fn workspace(&self) -> u64 {
        self.made + self.op.workspace().max(self.body.workspace())
    }

    unsafe fn run(&self, call: &Call<'_>) -> Result<()> {
        let (made, workspace) = (call.workspace, call.workspace + self.made);
        let (operands, rest) = call.reads.split_at(self.operands);
        let reads: Vec<CUdeviceptr> = std::iter::once(made).chain(rest.iter().copied()).collect();
        // SAFETY: the result has workspace of its own, in front of that of whichever of the two runs.
        unsafe {
            self.op.run(&Call { reads: operands, writes: &[made], workspace, stream: call.stream })?;
            self.body.run(&Call { reads: &reads, writes: call.writes, workspace, stream: call.stream })
        }
    }
}
