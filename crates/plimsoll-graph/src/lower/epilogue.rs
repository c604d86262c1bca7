//! Products that hand their results on to the loop that follows them.
//!
//! A matrix product or a convolution mostly feeds one loop over its elements: a bias and an activation, a mask of the
//! backward pass, an optimizer's update of the weights. Between the two the result goes to memory and comes back, and
//! has to have an address: for the gradient of a large weight matrix, that is the largest buffer of a step. Where the
//! loop is all that reads it, the two become one kernel and the buffer goes. The gradient of a table whose rows were looked
//! up is such a result too, of zeros but for a few rows.
//!
//! The order of a sum and the precision of a result do not depend on where it goes: the bits are the same.

use super::emit::{kernel, replaceable};
use super::kernel_list::OrderedList;
use crate::Shape;
use crate::op::Op;
use crate::program::{Body, BufferId, Keep, Kernel, Loop, Operand, Program, Scalar, View, WithEpilogue};

/// The program with every such pair of kernels made one.
pub(super) fn fuse_epilogues(mut program: Program) -> Program {
    let count = program.kernels.len();
    let mut pairs = Pairs::new(std::mem::take(&mut program.kernels), program.buffers.len());
    let mut gone = vec![false; program.buffers.len()];
    for product in 0..count {
        let Some(made) = pairs.kernels[product].as_ref().map(|kernel| kernel.writes[0].buffer) else {
            continue;
        };
        if program.buffers[made.index()].keep == Keep::WhileUsed && pairs.join(product, made) {
            gone[made.index()] = true;
        }
    }
    program.kernels = pairs.into_kernels();
    without(program, &gone)
}

/// Kernels of which some become pairs.
struct Pairs {
    /// Those that are still there, by their number: first those of the program, then none, then pairs.
    kernels: Vec<Option<Kernel>>,
    /// How many the program had: the number of none, which stands for the ends of the order.
    ends: usize,
    order: OrderedList,
    /// The kernels that read each buffer, and those that write it.
    readers: Vec<Vec<usize>>,
    writers: Vec<Vec<usize>>,
}

impl Pairs {
    fn new(kernels: Vec<Kernel>, buffers: usize) -> Pairs {
        let mut pairs = Pairs {
            ends: kernels.len(),
            order: OrderedList::new(kernels.len()),
            kernels: vec![],
            readers: vec![vec![]; buffers],
            writers: vec![vec![]; buffers],
        };
        kernels.into_iter().for_each(|kernel| pairs.push(kernel));
        pairs.kernels.push(None);
        pairs
    }

    fn push(&mut self, kernel: Kernel) {
        let number = self.kernels.len();
        kernel.reads.iter().for_each(|read| self.readers[read.buffer.index()].push(number));
        kernel.writes.iter().for_each(|write| self.writers[write.buffer.index()].push(number));
        self.kernels.push(Some(kernel));
    }

    fn take(&mut self, number: usize) {
        self.order.remove(number);
        let Some(kernel) = self.kernels[number].take() else { return };
        kernel
            .reads
            .iter()
            .for_each(|read| self.readers[read.buffer.index()].retain(|&other| other != number));
        kernel
            .writes
            .iter()
            .for_each(|write| self.writers[write.buffer.index()].retain(|&other| other != number));
    }

    /// Makes a product one kernel with the only one that reads what it has made, if that can be; says whether it was.
    fn join(&mut self, first: usize, made: BufferId) -> bool {
        let (&[last], Some(product)) = (&self.readers[made.index()][..], &self.kernels[first]) else {
            return false;
        };
        let (Body::Op(op), Some(follower)) = (&product.body, &self.kernels[last]) else { return false };
        if !self.order.is_before(first, last) || !hands_on(op, product) {
            return false;
        }
        let Some(joined) = join(op, product, follower) else { return false };
        let is_between =
            |&other: &usize| self.order.is_before(first, other) && self.order.is_before(other, last);
        // They may run as soon as the loop may: what it reads is there, and what it replaces is no longer needed.
        let of_reads = follower.reads.iter().flat_map(|read| &self.writers[read.buffer.index()]);
        let of_writes = follower.writes.iter().map(|write| write.buffer.index());
        let of_writes = of_writes.flat_map(|buffer| self.readers[buffer].iter().chain(&self.writers[buffer]));
        let before = of_reads.chain(of_writes).copied().filter(is_between);
        let latest = |a: usize, b: usize| if self.order.is_before(a, b) { b } else { a };
        let position = before.reduce(latest);
        let overwrites = product.reads.iter().flat_map(|read| &self.writers[read.buffer.index()]);
        let passed = |&other: &usize| {
            position.is_some_and(|position| is_between(&other) && !self.order.is_before(position, other))
        };
        if overwrites.copied().any(|other| passed(&other)) {
            return false;
        }
        let after = position.unwrap_or_else(|| self.order.before(first));
        self.take(last);
        self.take(first);
        self.order.insert_after(after, self.ends);
        self.push(joined);
        true
    }

    fn into_kernels(mut self) -> Vec<Kernel> {
        let order: Vec<usize> = self.order.items(self.ends).collect();
        order.into_iter().filter_map(|number| self.kernels[number].take()).collect()
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
            Op::ScatterAdd { .. } => shape.rank() == 2,
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
