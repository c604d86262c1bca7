//! Kernels that only move elements: borders, and operands one after another. They work on any type by its size.

#[cfg(test)]
mod tests;

use crate::kernels::tasks::share;
use crate::numbers::{Element, constant, with_element};
use crate::runtime::{Address, Call, Routine};
use plimsoll_graph::op::Pad;
use plimsoll_graph::program::Operand;
use plimsoll_graph::{DType, Shape};

/// Moves of fewer bytes run on one thread.
const SMALL: usize = 128 << 10;
/// The bytes that are moved at once where several threads share a long run.
const PART: usize = 256 << 10;

/// Prepares [`Op::Pad`](plimsoll_graph::Op::Pad).
pub(crate) fn prepare_pad(pad: &Pad, reads: &[Operand], writes: &[Operand]) -> Box<dyn Routine> {
    Box::new(Padding::new(pad, &reads[0].view.shape, &writes[0].view.shape, reads[0].dtype))
}

/// Prepares [`Op::Concat`](plimsoll_graph::Op::Concat).
pub(crate) fn prepare_concat(axis: usize, reads: &[Operand]) -> Box<dyn Routine> {
    let shapes: Vec<Shape> = reads.iter().map(|read| read.view.shape).collect();
    Box::new(Concat::new(axis, &shapes, reads[0].dtype.size()))
}

/// Prepares [`Body::Copy`](plimsoll_graph::program::Body::Copy): all bytes of a dense operand.
pub(crate) fn prepare_copy(read: &Operand) -> Box<dyn Routine> {
    Box::new(Concat::new(0, &[read.view.shape], read.dtype.size()))
}

/// A border around an operand. The result is written line by line, a line being all along the last axis that
/// has a border, and all axes after it.
struct Padding {
    /// The axes before the line, outermost first.
    axes: Vec<Axis>,
    line: Axis,
    /// The bytes of one step along the line: the elements of the axes after it.
    run: usize,
    /// The value's bytes, repeated.
    value: [u8; 8],
}

/// An axis with its border.
#[derive(Clone, Copy)]
struct Axis {
    /// The extent of the operand, and of the result.
    input: usize,
    output: usize,
    before: usize,
    /// The distance of neighbours of the operand in the result.
    step: usize,
}

impl Axis {
    /// The operand's index that is at an index of the result.
    fn source(&self, index: usize) -> Option<usize> {
        let inside = index.checked_sub(self.before)?;
        (inside.is_multiple_of(self.step) && inside / self.step < self.input).then_some(inside / self.step)
    }
}

impl Padding {
    fn new(pad: &Pad, input: &Shape, output: &Shape, dtype: DType) -> Padding {
        let mut axes: Vec<Axis> = (0..input.rank())
            .map(|axis| Axis {
                input: input[axis],
                output: output[axis],
                before: pad.before[axis],
                step: pad.between[axis] + 1,
            })
            .collect();
        let mut run = dtype.size();
        while let Some(last) = axes.pop_if(|axis| axis.input == axis.output) {
            run *= last.output;
        }
        let line = axes.pop().unwrap_or(Axis { input: 1, output: 1, before: 0, step: 1 });
        let mut value = [0; 8];
        with_element!(dtype, S => {
            let bytes = S::from_f64(constant(pad.value, dtype)).to_ne_bytes();
            value.chunks_exact_mut(bytes.len()).for_each(|to| to.copy_from_slice(&bytes));
        });
        Padding { axes, line, run, value }
    }

    /// The operand's line that is at a line of the result.
    fn source(&self, mut line: usize) -> Option<usize> {
        let (mut source, mut step) = (0, 1);
        for axis in self.axes.iter().rev() {
            source += axis.source(line % axis.output)? * step;
            step *= axis.input;
            line /= axis.output;
        }
        Some(source)
    }

    /// Writes the value all over `bytes` bytes, which are whole elements.
    unsafe fn fill(&self, to: *mut u8, bytes: usize) {
        // SAFETY: the caller vouches for the bytes.
        unsafe {
            if self.value == [self.value[0]; 8] {
                return to.write_bytes(self.value[0], bytes);
            }
            for at in (0..bytes).step_by(8) {
                std::ptr::copy_nonoverlapping(self.value.as_ptr(), to.add(at), (bytes - at).min(8));
            }
        }
    }

    unsafe fn write_line(&self, input: *const u8, output: *mut u8, line: usize) {
        let Axis { input: inside, output: all, before, step } = self.line;
        // SAFETY: the caller vouches for the line in the result, and the operand has the line that is its source.
        unsafe {
            let to = output.add(line * all * self.run);
            let Some(source) = self.source(line).filter(|_| inside > 0) else {
                return self.fill(to, all * self.run);
            };
            let from = input.add(source * inside * self.run);
            self.fill(to, before * self.run);
            let end = before + (inside - 1) * step + 1;
            let to_end = to.add(end * self.run);
            let to = to.add(before * self.run);
            if step == 1 {
                std::ptr::copy_nonoverlapping(from, to, inside * self.run);
            } else {
                for index in 0..inside {
                    let to = to.add(index * step * self.run);
                    std::ptr::copy_nonoverlapping(from.add(index * self.run), to, self.run);
                    if index + 1 < inside {
                        self.fill(to.add(self.run), (step - 1) * self.run);
                    }
                }
            }
            self.fill(to_end, (all - end) * self.run);
        }
    }
}

impl Routine for Padding {
    fn workspace(&self, _threads: usize) -> usize {
        0
    }

    unsafe fn run(&self, call: &Call<'_>) {
        let lines: usize = self.axes.iter().map(|axis| axis.output).product();
        let bytes = lines * self.line.output * self.run;
        if bytes == 0 {
            return;
        }
        share(call.pool, lines, bytes < SMALL, &|range| {
            let (input, output) = (Address::read(call, 0).pointer(), Address::write(call, 0).pointer());
            // SAFETY: the caller vouches for the operands; every task writes lines of its own.
            range.for_each(|line| unsafe { self.write_line(input, output, line) });
        });
    }
}

/// Operands one after another: for each index of the axes before, a run of each.
struct Concat {
    outer: usize,
    /// The bytes of each operand's run.
    runs: Vec<usize>,
}

impl Concat {
    fn new(axis: usize, shapes: &[Shape], size: usize) -> Concat {
        let run = |shape: &Shape| shape[axis..].iter().product::<usize>() * size;
        Concat { outer: shapes[0][..axis].iter().product(), runs: shapes.iter().map(run).collect() }
    }
}

impl Routine for Concat {
    fn workspace(&self, _threads: usize) -> usize {
        0
    }

    unsafe fn run(&self, call: &Call<'_>) {
        let total: usize = self.runs.iter().sum();
        let parts = total.div_ceil(PART);
        share(call.pool, self.outer * parts, self.outer * total < SMALL, &|range| {
            for piece in range {
                let (outer, part) = (piece / parts, piece % parts);
                // The part of the run of all operands that is written here.
                let wanted = total * part / parts..total * (part + 1) / parts;
                let mut start = 0;
                for (operand, &run) in self.runs.iter().enumerate() {
                    let (from, to) = (wanted.start.max(start), wanted.end.min(start + run));
                    if from < to {
                        // SAFETY: the caller vouches for the operands; every piece is a part of its own.
                        unsafe {
                            let source =
                                Address::<u8>::read(call, operand).pointer().add(outer * run + from - start);
                            let target = Address::<u8>::write(call, 0).pointer().add(outer * total + from);
                            std::ptr::copy_nonoverlapping(source, target, to - from);
                        }
                    }
                    start += run;
                }
            }
        });
    }
}
