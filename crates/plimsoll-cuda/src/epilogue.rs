//! An op with an epilogue: one kernel where the op's own kernel can take the loop in, or one after the other, with the
//! op's result in workspace in between.

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

/// Prepares an op and its epilogue.
pub(crate) fn prepare_with_epilogue(
    engine: &Arc<Engine>,
    kernel: &Kernel,
    fused: &WithEpilogue,
) -> Result<Box<dyn Routine>> {
    if let Op::Dot { transpose_a, transpose_b } = fused.op {
        let Kernel { reads, writes, .. } = kernel;
        let in_one = dot::prepare_with_epilogue(engine, transpose_a, transpose_b, fused, reads, writes)?;
        if let Some(routine) = in_one {
            return Ok(routine);
        }
    }
    let made = fused.made();
    let op = Kernel {
        scope: kernel.scope.clone(),
        body: Body::Op(fused.op.clone()),
        reads: kernel.reads[..fused.operands].to_vec(),
        writes: vec![made],
        in_place: vec![],
        flops: kernel.flops,
        bytes: kernel.bytes,
    };
    let reads = fused.loop_reads(&kernel.reads);
    Ok(Box::new(EpilogueFromWorkspace {
        op: prepare(engine, &op)?,
        epilogue: loops::prepare(engine, &fused.body, &reads, &kernel.writes)?,
        operands: fused.operands,
        result: ((fused.shape.elements() * fused.dtype.size()) as u64).next_multiple_of(ALIGNMENT),
    }))
}

/// An op whose result is in workspace until its epilogue has run.
struct EpilogueFromWorkspace {
    op: Box<dyn Routine>,
    epilogue: Box<dyn Routine>,
    operands: usize,
    /// The bytes of the op's result.
    result: u64,
}

impl Routine for EpilogueFromWorkspace {
    fn workspace(&self) -> u64 {
        self.result + self.op.workspace().max(self.epilogue.workspace())
    }

    unsafe fn run(&self, call: &Call<'_>) -> Result<()> {
        let (result, workspace) = (call.workspace, call.workspace + self.result);
        let (operands, rest) = call.reads.split_at(self.operands);
        let reads: Vec<CUdeviceptr> = std::iter::once(result).chain(rest.iter().copied()).collect();
        // SAFETY: the result has workspace of its own, in front of that of whichever of the two runs.
        unsafe {
            self.op.run(&Call { reads: operands, writes: &[result], workspace, stream: call.stream })?;
            self.epilogue.run(&Call { reads: &reads, writes: call.writes, workspace, stream: call.stream })
        }
    }
}
