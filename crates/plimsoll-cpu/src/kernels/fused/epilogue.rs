//! The epilogue of an op: a loop that takes in its result, a rectangle at a time, while it is in cache.

use super::Fused;
use super::geometry::Part;
use super::steps::AccessOf;
use crate::gemm::epilogue_pitch;
use crate::runtime::Call;
use crate::simd::{Isa, prefetch};
use plimsoll_graph::MAX_RANK;
use plimsoll_graph::program::{Operand, WithEpilogue};
use std::ops::Range;

/// The loop of a [`WithEpilogue`], ready to take in its op's result in rectangles.
pub(crate) struct FusedEpilogue {
    fused: Fused,
    /// How many operands the op has.
    operands: usize,
    /// The bytes of an element of the op's result and from one row of a rectangle to the next.
    size: usize,
    pitch: usize,
    /// The reads and writes that have an element of their own for each of the result's, in rows.
    matrices: Vec<Prefetched>,
}

/// A matrix that the loop walks over, in bytes.
struct Prefetched {
    /// Which of the kernel's reads it is, or of its writes.
    operand: AccessOf,
    offset: usize,
    row: usize,
    element: usize,
}

impl FusedEpilogue {
    /// Prepares the loop of a kernel. It takes rows of elements, at a distance of [`epilogue_pitch`] sums of
    /// `sum` bytes.
    pub(crate) fn new(
        kernel: &WithEpilogue,
        reads: &[Operand],
        writes: &[Operand],
        in_place: &[(usize, usize)],
        sum: usize,
    ) -> Self {
        let (operands, size) = (kernel.operands, kernel.dtype.size());
        let pitch = epilogue_pitch(kernel.body.domain[1]) * sum;
        let mut seen = kernel.loop_reads(reads);
        seen[0].view.strides[0] = pitch / size;
        let fused = Fused::new(&kernel.body, &seen, writes, &kernel.loop_pairs(in_place), Isa::detect());
        let matrix = |operand: AccessOf, of: &Operand| {
            let [row, column] = [of.view.strides[0], of.view.strides[1]];
            let element = of.dtype.size();
            let walks = of.view.shape == kernel.body.domain && column == 1 && row > 0;
            walks.then(|| Prefetched {
                operand,
                offset: of.view.offset * element,
                row: row * element,
                element,
            })
        };
        let own = reads.iter().enumerate().skip(operands);
        let read = own.clone().filter_map(|(index, of)| matrix(AccessOf::Read(index), of));
        // What is replaced is asked for as what is read.
        let is_read = |write: &Operand| own.clone().any(|(_, read)| read.buffer == write.buffer);
        let written = writes.iter().enumerate().filter(|(_, write)| !is_read(write));
        let matrices =
            read.chain(written.filter_map(|(index, of)| matrix(AccessOf::Write(index), of))).collect();
        Self { fused, operands, size, pitch, matrices }
    }

    /// The bytes of workspace that each thread needs.
    pub(crate) fn memory(&self) -> usize {
        self.fused.memory()
    }

    /// Asks for the memory that taking in a rectangle will need.
    pub(crate) fn prefetch(&self, call: &Call<'_>, rows: Range<usize>, columns: Range<usize>) {
        for matrix in &self.matrices {
            let start = match matrix.operand {
                AccessOf::Write(write) => call.writes[write].cast_const(),
                AccessOf::Read(read) => call.reads[read],
                AccessOf::Positions => continue,
            };
            let first = start.wrapping_add(matrix.offset + columns.start * matrix.element);
            for row in rows.clone() {
                let row = first.wrapping_add(row * matrix.row);
                for line in (0..columns.len() * matrix.element).step_by(64) {
                    prefetch(row.wrapping_add(line));
                }
            }
        }
    }

    /// Takes in a rectangle of the op's result, whose first element is at `values`, as a product gives it to its epilogue.
    ///
    /// # Safety
    /// `call` is that of the whole kernel, as for [`Routine::run`](crate::runtime::Routine::run); `memory` is a
    /// thread's own, of as many bytes as [`memory`](Self::memory) says; the rectangle is within the result, at the
    /// pitch that the epilogue was prepared for, and no other call has any of its elements at the same time.
    pub(crate) unsafe fn take(
        &self,
        call: &Call<'_>,
        memory: *mut u8,
        rows: Range<usize>,
        columns: Range<usize>,
        values: *const u8,
    ) {
        let before = rows.start * self.pitch + columns.start * self.size;
        // The place of the op's result among the reads is that of the op's last operand, which is not looked at.
        let call = Call { reads: &call.reads[self.operands - 1..], ..*call };
        // SAFETY: as the caller vouches for.
        let fused = unsafe { self.fused.decided(&call) };
        let geometry = &fused.geometry;
        // Where everything is dense, rows and columns are one axis, and all columns are taken.
        let ([rows, columns], tile) = match geometry.tile[..] {
            [down, across] => ([rows, columns], [down, across]),
            [along] => ([0..1, rows.start * columns.len()..rows.end * columns.len()], [1, along]),
            _ => unreachable!("a matrix has two axes"),
        };
        // SAFETY: the caller vouches for the addresses and the memory.
        unsafe {
            let mut at = fused.worker(&call, memory, Some(values.wrapping_sub(before)));
            for row in rows.clone().step_by(tile[0]) {
                for column in columns.clone().step_by(tile[1]) {
                    let mut part = Part { start: [0; MAX_RANK], extents: [1; MAX_RANK] };
                    let starts = [row, column];
                    let extents = [tile[0].min(rows.end - row), tile[1].min(columns.end - column)];
                    let axes = geometry.tile.len();
                    part.start[..axes].copy_from_slice(&starts[2 - axes..]);
                    part.extents[..axes].copy_from_slice(&extents[2 - axes..]);
                    at.tile(part);
                }
            }
        }
    }
}
