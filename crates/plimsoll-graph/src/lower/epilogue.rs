//! Products that hand their results on to the loop that follows them.
//!
//! A matrix product or a convolution mostly feeds one loop over its elements: a bias and an activation, a mask of the
//! backward pass, an optimizer's update of the weights. Between the two the result goes to memory and comes back, and
//! has to have an address: for the gradient of a large weight matrix, that is the largest buffer of a step. Where the
//! loop is all that reads it, the two become one kernel and the buffer goes.
//!
//! The order of a sum and the precision of a result do not depend on where it goes: the bits are the same.

use super::emit::{kernel, replaceable};
use crate::Shape;
use crate::op::Op;
use crate::program::{Body, BufferId, Keep, Kernel, Loop, Operand, Program, Scalar, View, WithEpilogue};

/// The program with every such pair of kernels made one.
pub(super) fn fuse_epilogues(mut program: Program) -> Program {
    let mut readers = vec![0; program.buffers.len()];
    for read in program.kernels.iter().flat_map(|kernel| &kernel.reads) {
        readers[read.buffer.index()] += 1;
    }
    let mut gone = vec![false; program.buffers.len()];
    let mut first = 0;
    while first < program.kernels.len() {
        let made = program.kernels[first].writes[0].buffer;
        let alone = program.buffers[made.index()].keep == Keep::WhileUsed && readers[made.index()] == 1;
        let Some(pair) = alone.then(|| Pair::find(&program.kernels, first)).flatten() else {
            first += 1;
            continue;
        };
        gone[made.index()] = true;
        program.kernels.remove(pair.last);
        program.kernels.remove(first);
        program.kernels.insert(pair.position, pair.joined);
    }
    without(program, &gone)
}

/// A product and the loop that follows it.
struct Pair {
    /// Where the loop is.
    last: usize,
    /// Where the two can be as one, when neither is where it was.
    position: usize,
    joined: Kernel,
}

impl Pair {
    /// The pair that begins with a kernel whose result has one reader.
    fn find(kernels: &[Kernel], first: usize) -> Option<Pair> {
        let product = &kernels[first];
        let made = product.writes[0].buffer;
        let Body::Op(op) = &product.body else { return None };
        if !hands_on(op, product) {
            return None;
        }
        let after = |kernel: &Kernel| kernel.reads.iter().any(|read| read.buffer == made);
        let last = first + 1 + kernels[first + 1..].iter().position(after)?;
        let follower = &kernels[last];
        let joined = join(op, product, follower)?;
        // They may run as soon as the loop may: what it reads is there, and what it replaces is no longer needed.
        let before = |other: &Kernel| {
            writes_any(other, &follower.reads)
                || writes_any(follower, &other.reads)
                || writes_any(follower, &other.writes)
        };
        let position = (first + 1..last).rfind(|&index| before(&kernels[index])).unwrap_or(first);
        let moves = kernels[first + 1..=position].iter().all(|other| !writes_any(other, &product.reads));
        moves.then_some(Pair { last, position, joined })
    }
}

fn writes_any(kernel: &Kernel, operands: &[Operand]) -> bool {
    kernel.writes.iter().any(|write| operands.iter().any(|operand| operand.buffer == write.buffer))
}

/// Whether an op makes its result in rows that are finished one after another, and long enough to be worth it.
fn hands_on(op: &Op, kernel: &Kernel) -> bool {
    let shape = &kernel.writes[0].view.shape;
    let Some(&columns) = shape.last() else { return false };
    let is_matrix = columns > 1 && shape.elements() > columns;
    is_matrix
        && match op {
            Op::Dot { .. } => shape.rank() == 2,
            Op::Conv2d(conv) => conv.groups == 1,
            Op::Conv2dInputGrad { conv, .. } => conv.groups == 1 && conv.stride == [1, 1],
            _ => false,
        }
}

/// A product and a loop as one kernel, if the loop takes in each of its elements once and in order.
fn join(op: &Op, product: &Kernel, follower: &Kernel) -> Option<Kernel> {
    let Body::Loop(body) = &follower.body else { return None };
    let made = product.writes[0];
    let columns = *made.view.shape.last()?;
    let rows = made.view.shape.elements() / columns;
    let domain = Shape::from_slice(&[rows, columns]);
    let is_same = body.row_axes == 0
        && body.domain.last() == Some(&columns)
        && body.domain.elements() == domain.elements();
    if !is_same || writes_any(follower, &product.reads) {
        return None;
    }
    // The result comes first among what the loop reads.
    let taken = follower.reads.iter().position(|read| read.buffer == made.buffer)?;
    let mut reads = vec![];
    let mut places = vec![0; follower.reads.len()];
    for (index, read) in follower.reads.iter().enumerate() {
        if index == taken {
            let whole = read.view.is_dense() && read.view.shape == body.domain;
            if !whole {
                return None;
            }
            continue;
        }
        // What is not walked over, a random state, is seen whole.
        let is_walked = read.view.shape == body.domain;
        let view = if is_walked { read.view.joined_to(domain)? } else { read.view };
        reads.push(Operand { view, ..*read });
        places[index] = reads.len() as u16;
    }
    let mut body = Loop { domain, ..body.clone() };
    for instruction in &mut body.instructions {
        match &mut instruction.scalar {
            Scalar::Load { read } | Scalar::Random { state: read, .. } => *read = places[usize::from(*read)],
            Scalar::Iota { .. } => return None,
            _ => {}
        }
    }
    let write = |write: &Operand| Operand { view: View::dense(domain), ..*write };
    let writes: Vec<Operand> = follower.writes.iter().map(write).collect();

    let operands = product.reads.len();
    let then = WithEpilogue { op: op.clone(), operands, shape: made.view.shape, dtype: made.dtype, body };
    let all: Vec<Operand> = product.reads.iter().chain(&reads).copied().collect();
    let seen = then.loop_reads(&all);
    let in_place = replaceable(&then.body, &seen, &writes)
        .into_iter()
        .filter(|&(_, read)| read > 0 && !product.reads.iter().any(|o| o.buffer == seen[read].buffer))
        .map(|(write, read)| (write, operands + read - 1))
        .collect();
    Some(kernel(&product.scope, Body::WithEpilogue(Box::new(then)), all, writes, in_place))
}

/// The program without some of its buffers.
fn without(mut program: Program, gone: &[bool]) -> Program {
    let mut kept = 0;
    let places: Vec<BufferId> = gone
        .iter()
        .map(|&gone| {
            kept += u32::from(!gone);
            BufferId(kept.saturating_sub(1))
        })
        .collect();
    let place = |buffer: &mut BufferId| *buffer = places[buffer.index()];
    let mut keeps = gone.iter().map(|gone| !gone);
    program.buffers.retain(|_| keeps.next().unwrap_or(true));
    for kernel in &mut program.kernels {
        kernel.reads.iter_mut().chain(&mut kernel.writes).for_each(|operand| place(&mut operand.buffer));
    }
    let lists = [&mut program.states, &mut program.inputs, &mut program.outputs];
    lists.into_iter().flatten().for_each(place);
    program
}
