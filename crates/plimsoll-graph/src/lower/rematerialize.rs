//! Cheaper ways to make a buffer again than to run the kernel that wrote it.
//!
//! Fusion is generous: one loop may add a bias, draw a dropout mask, activate and reduce, and store a result of
//! each. A planner that has dropped one of these results between the forward and the backward pass needs only the
//! instructions behind that one, and may find some of them in memory already, as another result of the same
//! loop. Both ways are offered, since which is better depends on what the planner keeps: to begin at the results
//! that are the store's own ancestors, and to begin at the loop's operands.
//!
//! The instructions that are left are those of the loop, in its order and over its domain, and what is loaded
//! instead of computed was stored in the precision of its register: the bits are the same.

use super::emit::loop_kernel;
use crate::Shape;
use crate::program::{
    Body, BufferId, Instruction, Keep, Kernel, Level, Loop, Operand, Program, Register, Scalar, View,
};

/// The rematerializations of all buffers that a planner may drop and that a loop writes together with others.
pub(super) fn rematerializations(program: &Program) -> Vec<Kernel> {
    let mut rematerializations = vec![];
    for kernel in &program.kernels {
        let Some(whole) = Whole::of(kernel).filter(|whole| whole.body.stores.len() > 1) else { continue };
        let dropped = |&store: &usize| keep(program, kernel.writes[store].buffer) == Keep::WhileUsed;
        for store in (0..whole.body.stores.len()).filter(dropped) {
            let from_results = Cut::new(program, &whole, store, true);
            let from_operands = Cut::new(program, &whole, store, false);
            let distinct = from_operands.filter(|cut| Some(cut) != from_results.as_ref());
            let cuts = from_results.into_iter().chain(distinct);
            rematerializations.extend(cuts.filter_map(|cut| cut.finish(&whole, store)));
        }
    }
    rematerializations
}

/// A kernel that is or ends in a loop.
struct Whole<'a> {
    kernel: &'a Kernel,
    body: &'a Loop,
    /// What the loop reads: the result of the op before it, of no buffer, and the kernel's operands.
    reads: Vec<Operand>,
}

impl<'a> Whole<'a> {
    fn of(kernel: &'a Kernel) -> Option<Whole<'a>> {
        match &kernel.body {
            Body::Loop(body) => Some(Whole { kernel, body, reads: kernel.reads.clone() }),
            Body::WithEpilogue(then) => {
                Some(Whole { kernel, body: &then.body, reads: then.loop_reads(&kernel.reads) })
            }
            _ => None,
        }
    }
}

fn keep(program: &Program, buffer: BufferId) -> Keep {
    program.buffers[buffer.index()].keep
}

/// The part of a loop that one of its stores needs.
#[derive(PartialEq)]
struct Cut {
    instructions: Vec<Instruction>,
    reads: Vec<Operand>,
}

impl Cut {
    /// What `store` needs, from the loop's operands and, if `from_results`, from its other results. There is none
    /// if that takes a state which the loop writes, since it no longer holds what the loop read, or the result of the
    /// op before it, which is nowhere.
    fn new(program: &Program, whole: &Whole<'_>, store: usize, from_results: bool) -> Option<Cut> {
        let Whole { kernel, body, reads } = whole;
        let wanted = body.stores[store];
        let result = |register: Register| {
            let found =
                body.stores.iter().zip(&kernel.writes).find(|&(&stored, write)| {
                    stored == register && keep(program, write.buffer) != Keep::Always
                });
            // What is loaded anyway, or made from nothing, is not better loaded from where it was copied to.
            let is_leaf = matches!(
                body.instructions[usize::from(register)].scalar,
                Scalar::Load { .. } | Scalar::Constant(_) | Scalar::Iota { .. }
            );
            found.map(|(_, write)| write).filter(|_| from_results && register != wanted && !is_leaf)
        };
        let mut needed = vec![false; body.instructions.len()];
        needed[usize::from(wanted)] = true;
        for register in (0..=wanted).rev() {
            if needed[usize::from(register)] && result(register).is_none() {
                let operands = body.instructions[usize::from(register)].scalar.operands();
                operands.for_each(|operand| needed[usize::from(operand)] = true);
            }
        }

        let mut cut = Cut { instructions: vec![], reads: vec![] };
        let mut renamed = vec![0; body.instructions.len()];
        for register in (0..=wanted).filter(|&register| needed[usize::from(register)]) {
            let instruction = &body.instructions[usize::from(register)];
            let scalar = match result(register) {
                Some(write) => {
                    let rows = body.domain.rank() - body.row_axes;
                    let shape = match instruction.level {
                        Level::Element => body.domain,
                        Level::Row => Shape::from_slice(&body.domain[..rows]),
                    };
                    Scalar::Load { read: cut.read(Operand { view: View::dense(shape), ..*write }) }
                }
                None => cut.renamed(instruction.scalar, &renamed, reads),
            };
            renamed[usize::from(register)] = cut.instructions.len() as Register;
            cut.instructions.push(Instruction { scalar, ..*instruction });
        }
        let is_gone = |read: &Operand| {
            let Some(buffer) = program.buffers.get(read.buffer.index()) else { return true };
            buffer.keep == Keep::Always && kernel.writes.iter().any(|write| write.buffer == read.buffer)
        };
        (!cut.reads.iter().any(is_gone)).then_some(cut)
    }

    fn read(&mut self, operand: Operand) -> u16 {
        let found = self.reads.iter().position(|read| *read == operand);
        found.unwrap_or_else(|| {
            self.reads.push(operand);
            self.reads.len() - 1
        }) as u16
    }

    /// An instruction of the loop in terms of the registers and reads of the cut.
    fn renamed(&mut self, scalar: Scalar, renamed: &[Register], reads: &[Operand]) -> Scalar {
        let to = |register: Register| renamed[usize::from(register)];
        match scalar {
            Scalar::Load { read } => Scalar::Load { read: self.read(reads[usize::from(read)]) },
            Scalar::Random { distribution, state, stream, per_sample } => Scalar::Random {
                distribution,
                state: self.read(reads[usize::from(state)]),
                stream,
                per_sample,
            },
            Scalar::Constant(_) | Scalar::Iota { .. } => scalar,
            Scalar::Unary(f, x) => Scalar::Unary(f, to(x)),
            Scalar::Binary(f, a, b) => Scalar::Binary(f, to(a), to(b)),
            Scalar::Compare(f, a, b) => Scalar::Compare(f, to(a), to(b)),
            Scalar::Select(c, a, b) => Scalar::Select(to(c), to(a), to(b)),
            Scalar::Cast(x) => Scalar::Cast(to(x)),
            Scalar::Reduce(kind, x) => Scalar::Reduce(kind, to(x)),
        }
    }

    /// The cut as a kernel, unless running the whole loop again takes no more and no other operands.
    fn finish(self, whole: &Whole<'_>, store: usize) -> Option<Kernel> {
        let Whole { kernel, body, .. } = whole;
        let Cut { instructions, reads } = self;
        let count = instructions.len();
        // Where nothing is of rows, elements are computed one by one, whatever the rows are.
        let has_rows = instructions.iter().any(|i| i.level == Level::Row);
        let row_axes = if has_rows { body.row_axes } else { 0 };
        let stores = vec![count as Register - 1];
        let cut = Loop { domain: body.domain, row_axes, instructions, stores };
        let rematerialization = loop_kernel(&kernel.scope, cut, reads, vec![kernel.writes[store]]);
        let reads_of = |kernel: &Kernel| {
            let mut buffers: Vec<BufferId> = kernel.reads.iter().map(|read| read.buffer).collect();
            buffers.sort_unstable();
            buffers.dedup();
            buffers
        };
        let cheaper = rematerialization.bytes < kernel.bytes || count < body.instructions.len();
        (cheaper || reads_of(&rematerialization) != reads_of(kernel)).then_some(rematerialization)
    }
}
