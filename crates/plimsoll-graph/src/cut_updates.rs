//! A remedy for large updates: rows of a state at a time.
//!
//! An update has a parameter, its gradient and the optimizer's slots on the device at once, four times the bytes of the
//! largest parameter. Slots are used by nothing else, so where they rest elsewhere they need never be there whole: they are
//! buffers of some rows each, and the update is a loop for each of these, which a planner may bring one after another. Every
//! element is computed as before, so the bits are the same. A product that hands its result to such a loop is taken apart
//! again, since it needs all of it at once.

use crate::program::{
    Body, Buffer, BufferId, Home, Instruction, Keep, Kernel, Loop, Operand, Program, Role, Scalar, View,
};
use crate::{Error, Op, Result, Shape, lower};

/// A part of a state has at least so many bytes, and at least this share of the bytes of all states: more parts would be more
/// launches for next to nothing.
const LEAST_PART_BYTES: usize = 1 << 20;
const LEAST_SHARE: usize = 512;

/// Parts have a multiple of so many elements, so that each begins at an address that devices align buffers to.
const MULTIPLE: usize = 256;

/// A product is taken apart from an update of slots that have at least this share of the bytes of all states.
const SHARE_WORTH_A_GRADIENT: usize = 16;

/// Which states of a run are buffers of some rows each, and of how many.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct StateParts {
    /// For each state the rows of a part, or none if it is whole. All are whole where there are none.
    rows: Vec<Option<usize>>,
}

impl StateParts {
    /// The parts of all slots that are large and that these programs, which agree on their states, can update in parts.
    pub fn of(programs: &[&Program]) -> StateParts {
        let Some(first) = programs.first() else { return StateParts::default() };
        let total: usize = first.states.iter().map(|&id| buffer(first, id).bytes()).sum();
        let least = LEAST_PART_BYTES.max(total / LEAST_SHARE);
        let rows = |&id: &BufferId| {
            let of = buffer(first, id);
            let all = of.shape.first().copied().filter(|&rows| rows > 0)?;
            let of_row = of.shape.elements() / all;
            let multiple = MULTIPLE / gcd(of_row, MULTIPLE);
            let part = (least / (of_row * of.dtype.size()).max(1)).max(1).next_multiple_of(multiple);
            (of.role == Role::Optimizer && of.bytes() >= 2 * least && all > part).then_some(part)
        };
        let mut parts = StateParts { rows: first.states.iter().map(rows).collect() };
        let large: Vec<usize> = (0..parts.rows.len()).filter(|&state| parts.rows[state].is_some()).collect();
        for program in programs {
            for kernel in &program.kernels {
                parts.keep_whole_what_cannot_be_cut(program, kernel, &large, total / SHARE_WORTH_A_GRADIENT);
            }
            let reported = large.iter().filter(|&&state| program.outputs.contains(&program.states[state]));
            reported.for_each(|&state| parts.rows[state] = None);
        }
        parts
    }

    /// Whether all states are whole.
    pub fn is_whole(&self) -> bool {
        self.rows.iter().all(Option::is_none)
    }

    /// The element that each buffer of a state of that shape begins with.
    pub fn firsts(&self, state: usize, shape: &Shape) -> Vec<usize> {
        let Some(rows) = self.of_state(state) else { return vec![0] };
        let of_row = shape.elements() / shape[0];
        (0..shape[0]).step_by(rows).map(|first| first * of_row).collect()
    }

    fn of_state(&self, state: usize) -> Option<usize> {
        self.rows.get(state).copied().flatten()
    }

    /// Looks at a kernel and at those states that are large, and keeps whole what it does not update element by element.
    fn keep_whole_what_cannot_be_cut(
        &mut self,
        program: &Program,
        kernel: &Kernel,
        large: &[usize],
        least_with_product: usize,
    ) {
        let mut cut: Option<[usize; 2]> = None;
        for &state in large {
            let (id, Some(rows)) = (program.states[state], self.of_state(state)) else { continue };
            if !kernel.reads.iter().chain(&kernel.writes).any(|operand| operand.buffer == id) {
                continue;
            }
            let of = buffer(program, id);
            let elements = of.shape.elements();
            let here = [elements, rows * (elements / of.shape[0])];
            let possible = Update::of(program, kernel).is_some_and(|update| {
                update.walks(id, here) && (update.product.is_none() || of.bytes() >= least_with_product)
            });
            // All slots of an update are cut at the same elements.
            if possible && cut.is_none_or(|cut| cut == here) {
                cut = Some(here);
            } else {
                self.rows[state] = None;
            }
        }
    }
}

fn gcd(a: usize, b: usize) -> usize {
    if a == 0 { b } else { gcd(b % a, a) }
}

fn buffer(program: &Program, id: BufferId) -> &Buffer {
    &program.buffers[id.index()]
}

/// A kernel that updates states element by element.
struct Update<'a> {
    kernel: &'a Kernel,
    body: &'a Loop,
    /// What the loop reads. If a product comes before it, the first is its result, of no buffer.
    reads: Vec<Operand>,
    /// The product before it, if there is one: the op, how many operands it has, and its result.
    product: Option<(&'a Op, usize, Operand)>,
}

impl<'a> Update<'a> {
    fn of(program: &Program, kernel: &'a Kernel) -> Option<Update<'a>> {
        let (body, reads, product) = match &kernel.body {
            Body::Loop(body) => (body, kernel.reads.clone(), None),
            Body::WithEpilogue(then) => {
                (&then.body, then.loop_reads(&kernel.reads), Some((&then.op, then.operands, then.made())))
            }
            _ => return None,
        };
        let depends_on_place = |i: &Instruction| {
            matches!(i.scalar, Scalar::Random { .. } | Scalar::Iota { .. } | Scalar::Reduce(..))
        };
        let of_states = kernel.writes.iter().all(|write| buffer(program, write.buffer).keep == Keep::Always);
        // What is written must not be read at other elements.
        let written = |read: &Operand| kernel.writes.iter().any(|write| write.buffer == read.buffer);
        let apart = reads.iter().all(|read| !written(read) || read.view.is_dense());
        let possible = body.row_axes == 0
            && body.domain.rank() > 0
            && of_states
            && apart
            && !body.instructions.iter().any(depends_on_place);
        possible.then_some(Update { kernel, body, reads, product })
    }

    /// Whether all operands in a buffer are its elements in order, and the loop can end after a part of them.
    fn walks(&self, id: BufferId, [elements, part]: [usize; 2]) -> bool {
        let operands = self.reads.iter().chain(&self.kernel.writes).filter(|operand| operand.buffer == id);
        let of_row = self.body.domain.elements() / self.body.domain[0].max(1);
        operands
            .into_iter()
            .all(|operand| operand.view.is_dense() && operand.view.shape.elements() == elements)
            && self.body.domain.elements() == elements
            && part.is_multiple_of(of_row.max(1))
    }
}

/// The program with its states in parts, and a loop for each part in place of each kernel that updates them.
///
/// # Errors
/// If a kernel uses a state that is in parts in another way than updating it element by element.
pub fn cut_updates(program: Program, parts: &StateParts) -> Result<Program> {
    if parts.is_whole() {
        return Ok(program);
    }
    let mut cut = Cut::new(&program, parts);
    for kernel in &program.kernels {
        match cut.first_in_parts(kernel) {
            None => cut.program.kernels.push(cut.renumbered(kernel)),
            Some(id) => {
                let update = Update::of(&program, kernel).ok_or_else(|| {
                    let name = &buffer(&program, id).name;
                    Error::argument(format!("{} of `{}` needs all of `{name}`", kernel.name(), kernel.scope))
                })?;
                cut.update(update, id);
            }
        }
    }
    let again = program.rematerializations.iter().filter(|kernel| cut.first_in_parts(kernel).is_none());
    cut.program.rematerializations = again.map(|kernel| cut.renumbered(kernel)).collect();
    Ok(cut.program)
}

/// The buffer of a product's result that a loop takes in: none.
const NOWHERE: BufferId = BufferId(u32::MAX);

/// A program that becomes one with states in parts.
struct Cut {
    program: Program,
    /// What each buffer is now: itself, or its parts with the element that each begins at.
    now: Vec<Vec<(BufferId, usize)>>,
}

impl Cut {
    /// With the buffers, but no kernels yet.
    fn new(program: &Program, parts: &StateParts) -> Cut {
        let mut rows_of = vec![None; program.buffers.len()];
        for (state, id) in program.states.iter().enumerate() {
            rows_of[id.index()] = parts.of_state(state);
        }
        let mut buffers = vec![];
        let now: Vec<Vec<(BufferId, usize)>> = program
            .buffers
            .iter()
            .zip(rows_of)
            .map(|(of, rows)| {
                let id = |buffers: &Vec<Buffer>| BufferId(buffers.len() as u32);
                let Some(rows) = rows else {
                    let whole = (id(&buffers), 0);
                    buffers.push(of.clone());
                    return vec![whole];
                };
                let (all, of_row) = (of.shape[0], of.shape.elements() / of.shape[0]);
                let firsts = (0..all).step_by(rows);
                firsts
                    .map(|first| {
                        let part = (id(&buffers), first * of_row);
                        let end = all.min(first + rows);
                        let name = format!("{}[{first}..{end}]", of.name).into();
                        buffers.push(Buffer { name, shape: of.shape.with(0, end - first), ..of.clone() });
                        part
                    })
                    .collect()
            })
            .collect();
        let whole = |ids: &[BufferId]| ids.iter().map(|id| now[id.index()][0].0).collect();
        let program = Program {
            buffers,
            states: program.states.iter().flat_map(|id| now[id.index()].iter().map(|part| part.0)).collect(),
            inputs: whole(&program.inputs),
            outputs: whole(&program.outputs),
            ..Program::default()
        };
        Cut { program, now }
    }

    fn first_in_parts(&self, kernel: &Kernel) -> Option<BufferId> {
        let mut ids = kernel.reads.iter().chain(&kernel.writes).map(|operand| operand.buffer);
        ids.find(|id| self.now[id.index()].len() > 1)
    }

    fn renumbered(&self, kernel: &Kernel) -> Kernel {
        let of = |operands: &[Operand]| -> Vec<Operand> {
            let now = |id: BufferId| self.now[id.index()][0].0;
            operands.iter().map(|operand| Operand { buffer: now(operand.buffer), ..*operand }).collect()
        };
        Kernel { reads: of(&kernel.reads), writes: of(&kernel.writes), ..kernel.clone() }
    }

    /// Adds the loops of an update, one for each part of a state, and the product that it was an epilogue of.
    fn update(&mut self, update: Update<'_>, parted: BufferId) {
        let Update { kernel, body, reads, product } = update;
        let made = product.map(|(op, operands, made)| {
            let id = BufferId(self.program.buffers.len() as u32);
            self.program.buffers.push(Buffer {
                name: format!("{}:{}", kernel.scope, op.name()).into(),
                shape: made.view.shape,
                dtype: made.dtype,
                role: Role::Gradient,
                keep: Keep::WhileUsed,
                home: Home::Device,
            });
            let of = Kernel { reads: kernel.reads[..operands].to_vec(), writes: vec![], ..kernel.clone() };
            let reads = self.renumbered(&of).reads;
            let result = Operand { buffer: id, ..made };
            self.program.kernels.push(lower::kernel(
                &kernel.scope,
                Body::Op(op.clone()),
                reads,
                vec![result],
                vec![],
            ));
            id
        });
        let domain = body.domain;
        let of_row = domain.elements() / domain[0];
        let parts = self.now[parted.index()].clone();
        for (part, &(_, first)) in parts.iter().enumerate() {
            let end = parts.get(part + 1).map_or(domain.elements(), |next| next.1);
            let shape = domain.with(0, (end - first) / of_row);
            let rows_of = |operand: &Operand| {
                let View { offset, strides, .. } = operand.view;
                let in_whole = View { shape, offset: offset + first / of_row * strides[0], strides };
                let (buffer, view) = match made {
                    Some(made) if operand.buffer == NOWHERE => (made, in_whole),
                    _ => match self.now[operand.buffer.index()][..] {
                        [(id, _)] => (id, in_whole),
                        ref parts => (parts[part].0, View::dense(shape)),
                    },
                };
                Operand { buffer, view, ..*operand }
            };
            let reads: Vec<Operand> = reads.iter().map(rows_of).collect();
            let over_domain = |write: &Operand| Operand { view: View::dense(domain), ..*write };
            let writes: Vec<Operand> =
                kernel.writes.iter().map(|write| rows_of(&over_domain(write))).collect();
            let body = Loop { domain: shape, ..body.clone() };
            let mut of_part = lower::loop_kernel(&kernel.scope, body, reads, writes);
            // Nothing else that it reads is done with before the last part.
            let Kernel { reads, writes, in_place, .. } = &mut of_part;
            in_place.retain(|&(write, read)| writes[write].buffer == reads[read].buffer);
            self.program.kernels.push(of_part);
        }
    }
}
