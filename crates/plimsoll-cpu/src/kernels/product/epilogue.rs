//! An op and the loop that is its epilogue, as one routine.
//!
//! Products give their results to an epilogue a few rows at a time, while these are in a cache: what they would have
//! written to memory and read back they do not, and a gradient that only its optimizer reads never exists. An op that
//! cannot fuse its epilogue, or is too small for it to matter, leaves its result in workspace.

use super::{conv2d, dot};
use crate::gemm::Epilogue;
use crate::kernels::fused::{self, FusedEpilogue};
use crate::kernels::gather;
use crate::kernels::memory::*;
use crate::runtime::prepare::prepare_op;
use crate::runtime::{ALIGNMENT, Call, Options, Routine};
use plimsoll_graph::Op;
use plimsoll_graph::program::{Operand, WithEpilogue};
use std::ops::Range;

/// An op that can give its result to an epilogue.
pub(crate) trait CanFuseEpilogue: Send + Sync {
    /// Whether it can do so, and it is worth it.
    fn can_fuse(&self) -> bool;

    /// The bytes of a sum, in which the pitch of the rows that an epilogue takes is counted.
    fn sum_bytes(&self) -> usize;

    /// The scratch bytes of a run on `threads` threads, whatever the epilogue.
    fn epilogue_workspace(&self, threads: usize) -> usize;

    /// Computes the op's result and gives it to `epilogue`.
    ///
    /// # Safety
    /// As for [`Routine::run`], of the op's operands alone; `workspace` is as large as asked for.
    unsafe fn run_with_epilogue(&self, call: &Call<'_>, epilogue: &dyn Epilogue, workspace: &mut [u8]);
}

/// Prepares an op and its loop.
pub(crate) fn prepare(
    kernel: &WithEpilogue,
    reads: &[Operand],
    writes: &[Operand],
    in_place: &[(usize, usize)],
    options: Options,
) -> Box<dyn Routine> {
    let operands = &reads[..kernel.operands];
    let fused = match &kernel.op {
        Op::Dot { transpose_a, transpose_b } => {
            dot::prepare_with_epilogue(*transpose_a, *transpose_b, operands)
        }
        Op::Conv2d(conv) => conv2d::prepare_with_epilogue(*conv, operands, options),
        Op::Conv2dInputGrad { conv, input } => {
            conv2d::prepare_input_grad_with_epilogue(*conv, operands, input, options)
        }
        Op::ScatterAdd { rows } => gather::prepare_scatter_add_with_epilogue(*rows, operands),
        _ => None,
    };
    match fused {
        Some(op) => {
            let epilogue = FusedEpilogue::new(kernel, reads, writes, in_place, op.sum_bytes());
            Box::new(InCache { op, epilogue })
        }
        None => Box::new(InWorkspace::new(kernel, reads, writes, in_place, options)),
    }
}

/// An op with its epilogue.
struct InCache {
    op: Box<dyn CanFuseEpilogue>,
    epilogue: FusedEpilogue,
}

impl InCache {
    fn own_bytes(&self, threads: usize) -> usize {
        self.op.epilogue_workspace(threads).next_multiple_of(2 * ALIGNMENT)
    }
}

impl Routine for InCache {
    fn workspace(&self, threads: usize) -> usize {
        self.own_bytes(threads) + threads * self.epilogue.memory()
    }

    unsafe fn run(&self, call: &Call<'_>) {
        let bytes = self.own_bytes(call.pool.threads());
        // SAFETY: the workspace is as large as was asked for, and the caller vouches for the rest.
        unsafe {
            let memory = call.workspace.add(bytes);
            let epilogue = Running { epilogue: &self.epilogue, call, memory };
            self.op.run_with_epilogue(call, &epilogue, Address::workspace(call, 0).slice_mut(bytes));
        }
    }
}

/// An epilogue while it runs, and the memory of its workers.
struct Running<'a> {
    epilogue: &'a FusedEpilogue,
    call: &'a Call<'a>,
    memory: *mut u8,
}

// SAFETY: workers have memory of their own.
unsafe impl Sync for Running<'_> {}

impl Epilogue for Running<'_> {
    unsafe fn take(&self, worker: usize, rows: Range<usize>, columns: Range<usize>, values: *const u8) {
        // SAFETY: there is this much memory for each worker; the op vouches for the rectangle.
        unsafe {
            let memory = self.memory.add(worker * self.epilogue.memory());
            self.epilogue.take(self.call, memory, rows, columns, values);
        }
    }

    fn prefetch(&self, rows: Range<usize>, columns: Range<usize>) {
        self.epilogue.prefetch(self.call, rows, columns);
    }
}

/// An op whose result is in workspace until its loop has run.
struct InWorkspace {
    op: Box<dyn Routine>,
    body: Box<dyn Routine>,
    operands: usize,
    /// The bytes of the result, and of the table of the loop's addresses behind it.
    made: usize,
    table: usize,
}

impl InWorkspace {
    fn new(
        kernel: &WithEpilogue,
        reads: &[Operand],
        writes: &[Operand],
        in_place: &[(usize, usize)],
        options: Options,
    ) -> Self {
        let (operands, seen) = (kernel.operands, kernel.loop_reads(reads));
        let op = prepare_op(&kernel.op, &reads[..operands], &[kernel.made()], options);
        let body = fused::prepare(&kernel.body, &seen, writes, &kernel.loop_pairs(in_place));
        let made = (kernel.shape.elements() * kernel.dtype.size()).next_multiple_of(ALIGNMENT);
        let table = (seen.len() * size_of::<*const u8>()).next_multiple_of(ALIGNMENT);
        Self { op, body, operands, made, table }
    }
}

impl Routine for InWorkspace {
    fn workspace(&self, threads: usize) -> usize {
        self.made + self.table + self.op.workspace(threads).max(self.body.workspace(threads))
    }

    unsafe fn run(&self, call: &Call<'_>) {
        let (made, reads) = (call.workspace, &call.reads[self.operands - 1..]);
        // SAFETY: the workspace begins with the result and the table; what is left is for whichever of the two runs.
        unsafe {
            let workspace = made.add(self.made + self.table);
            let table = made.add(self.made).cast::<*const u8>();
            table.write(made.cast_const());
            table.add(1).copy_from_nonoverlapping(reads[1..].as_ptr(), reads.len() - 1);
            let seen = std::slice::from_raw_parts(table.cast_const(), reads.len());
            let (operands, writes) = (&call.reads[..self.operands], [made]);
            self.op.run(&Call { reads: operands, writes: &writes, workspace, pool: call.pool });
            self.body.run(&Call { reads: seen, workspace, ..*call });
        }
    }
}
