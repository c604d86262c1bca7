//! An op and the loop that follows it.
//!
//! Where the loop adds a bias or a matrix to a product, the library does it while the product is in registers. All other
//! loops follow: the op's result is in workspace in between.

use crate::dot::{self, AddedDot};
use crate::engine::Engine;
use crate::error::Result;
use crate::loops;
use crate::prepare::prepare;
use crate::product::Added;
use crate::routine::{ALIGNMENT, Call, Routine};
use cudarc::driver::sys::CUdeviceptr;
use plimsoll_graph::Op;
use plimsoll_graph::op::Binary;
use plimsoll_graph::program::{Body, Kernel, Operand, Register, Scalar, Then};
use std::sync::Arc;

/// Prepares an op and its loop.
pub(crate) fn prepare_then(engine: &Arc<Engine>, kernel: &Kernel, then: &Then) -> Result<Box<dyn Routine>> {
    let reads = then.loop_reads(&kernel.reads);
    if let (Op::Dot { transpose_a, transpose_b }, Some(sum)) = (&then.op, Sum::of(then, &reads)) {
        let added = Added { bias: sum.bias.is_some(), matrix: sum.matrix.is_some() };
        let operands = &kernel.reads[..then.operands];
        if let Some(product) = dot::prepare_added(engine, *transpose_a, *transpose_b, operands, added)? {
            let kernels_read = |read: Option<usize>| read.map(|read| then.operands + read - 1);
            return Ok(Box::new(InOne { product, added: [sum.bias, sum.matrix].map(kernels_read) }));
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
    Ok(Box::new(InWorkspace {
        op: prepare(engine, &op)?,
        body: loops::prepare(engine, &then.body, &reads, &kernel.writes)?,
        operands: then.operands,
        made: ((then.shape.elements() * then.dtype.size()) as u64).next_multiple_of(ALIGNMENT),
    }))
}

/// What a loop adds to the op's result, by the loop's reads.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sum {
    bias: Option<usize>,
    matrix: Option<usize>,
}

impl Sum {
    /// `None` if the loop does anything else.
    fn of(then: &Then, reads: &[Operand]) -> Option<Sum> {
        let ([store], [_, columns], 0) = (&then.body.stores[..], &then.body.domain[..], then.body.row_axes)
        else {
            return None;
        };
        let (mut sum, mut made) = (Sum::default(), 0);
        let mut left: Vec<Register> = vec![*store];
        while let Some(register) = left.pop() {
            let instruction = then.body.instructions[usize::from(register)];
            if instruction.dtype != then.dtype {
                return None;
            }
            match instruction.scalar {
                Scalar::Binary(Binary::Add, a, b) => left.extend([a, b]),
                Scalar::Load { read: 0 } => made += 1,
                Scalar::Load { read } => {
                    let view = reads[usize::from(read)].view;
                    let place = match (view.offset, [view.strides[0], view.strides[1]]) {
                        (0, [0, 1]) => &mut sum.bias,
                        (0, strides) if strides == [*columns, 1] => &mut sum.matrix,
                        _ => return None,
                    };
                    if place.replace(usize::from(read)).is_some() {
                        return None;
                    }
                }
                _ => return None,
            }
        }
        (made == 1 && sum != Sum::default()).then_some(sum)
    }
}

/// A product to which things are added as it is made.
struct InOne {
    product: AddedDot,
    /// Which of the kernel's reads are the bias and the matrix.
    added: [Option<usize>; 2],
}

impl Routine for InOne {
    fn workspace(&self) -> u64 {
        self.product.workspace()
    }

    unsafe fn run(&self, call: &Call<'_>) -> Result<()> {
        let result = call.writes[0];
        let added = self.added.map(|read| read.map_or(result, |read| call.reads[read]));
        let addresses = [call.reads[0], call.reads[1], result];
        // SAFETY: the operands are those that were described; a matrix is as large as the result, and may be in its
        // place, as each of its elements is read before that of the result is written.
        unsafe { self.product.run(addresses, added, call.workspace, call.stream) }
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_graph::{DType, Graph, Step, ValueId, lower};

    /// What is seen of the loop after a product of rows `x` and a weight; `follow` has them, a bias and rows.
    fn seen(
        follow: impl Fn(&mut Graph, ValueId, [ValueId; 2]) -> plimsoll_graph::Result<ValueId>,
    ) -> Option<Sum> {
        let mut step = Step::new();
        let mut input = |name: &str, dims: &[usize]| step.input(name, dims, DType::BF16).expect("an input");
        let [x, w] = [input("x", &[8, 16]), input("w", &[16, 32])];
        let [bias, rows] = [input("bias", &[32]), input("rows", &[8, 32])];
        let product = step.graph.dot(x, w).expect("a product");
        let bias = step.graph.broadcast(bias, &[8, 32]).expect("rows of the bias");
        let result = follow(&mut step.graph, product, [bias, rows]).expect("a loop");
        step.output("result", result);
        let program = lower(&step);
        program.kernels.iter().find_map(|kernel| match &kernel.body {
            Body::Then(then) => Sum::of(then, &then.loop_reads(&kernel.reads)),
            _ => None,
        })
    }

    #[test]
    fn a_loop_that_adds_a_bias_and_rows_is_left_to_the_product() {
        let both = seen(|g, product, [bias, rows]| {
            let sum = g.add(product, bias)?;
            g.add(rows, sum)
        });
        assert!(both.is_some_and(|sum| sum.bias.is_some() && sum.matrix.is_some() && sum.bias != sum.matrix));
        let bias = seen(|g, product, [bias, _]| g.add(product, bias));
        assert!(bias.is_some_and(|sum| sum.bias.is_some() && sum.matrix.is_none()));
    }

    #[test]
    fn a_loop_that_does_more_is_not() {
        assert_eq!(seen(|g, product, [bias, _]| g.mul(product, bias)), None);
        assert_eq!(seen(|g, product, _| g.add(product, product)), None);
        let relu = seen(|g, product, [bias, _]| {
            let sum = g.add(product, bias)?;
            g.relu(sum)
        });
        assert_eq!(relu, None);
    }
}
