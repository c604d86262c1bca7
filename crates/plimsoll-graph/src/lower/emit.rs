//! From units to kernels: instructions, loads, stores and buffers.

use super::cost;
use super::fuse::{UnitKind, Units};
use crate::op::{Binary, Op, Reduction, Unary};
use crate::program::{
    Body, Buffer, BufferId, Home, Instruction, Keep, Kernel, Level, Loop, Operand, Program, Register, Role,
    Scalar, View,
};
use crate::step::Step;
use crate::{DType, Shape, ValueId};

const NONE: u32 = u32::MAX;

/// Writes the kernels of all units, in order, and gives every value that is loaded a buffer.
pub(crate) struct Emitter<'a> {
    step: &'a Step,
    units: &'a Units<'a>,
    order: Vec<u32>,
    roles: Vec<Role>,
    /// Which values another kernel, or the outside, needs from memory.
    in_memory: Vec<bool>,
    buffer_of: Vec<u32>,
    program: Program,
}

impl<'a> Emitter<'a> {
    pub(crate) fn new(step: &'a Step, units: &'a Units<'a>) -> Self {
        let values = step.graph.len();
        let mut roles = step.roles();
        for &gradient in &step.gradients {
            let (base, _) = units.access(gradient);
            if roles[base.index()] == Role::Activation {
                roles[base.index()] = Role::Gradient;
            }
        }
        let mut emitter = Emitter {
            step,
            units,
            order: units.in_order(),
            roles,
            in_memory: vec![false; values],
            buffer_of: vec![NONE; values],
            program: Program::default(),
        };
        emitter.find_what_is_in_memory();
        emitter
    }

    /// The program of the step.
    pub(crate) fn emit(mut self) -> Program {
        for state in &self.step.states {
            let buffer = self.declare(state.value, &state.name, state.role, Keep::Always);
            self.program.states.push(buffer);
        }
        for input in &self.step.inputs {
            let buffer = self.declare(input.value, &input.name, Role::Input, Keep::FromStart);
            self.program.inputs.push(buffer);
        }
        let in_place = self.states_updated_in_place();
        for (state, &updated) in self.step.states.iter().zip(&in_place) {
            if let (Some(next), true) = (state.next, updated) {
                let (base, _) = self.units.access(next);
                self.buffer_of[base.index()] = self.buffer_of[state.value.index()];
            }
        }
        for unit in self.order.clone() {
            match self.units.units[unit as usize].kind {
                UnitKind::Op(node) => self.emit_op(unit, node),
                UnitKind::Loop { domain, row_axes } => self.emit_loop(unit, domain, row_axes),
            }
        }
        self.emit_outputs();
        self.copy_remaining_states(&in_place);
        self.program
    }

    fn find_what_is_in_memory(&mut self) {
        for &unit in &self.order {
            let of = &self.units.units[unit as usize];
            for &value in &of.values {
                let is_op = matches!(of.kind, UnitKind::Op(_));
                self.in_memory[value.index()] |= is_op;
                let mut needs = |base: ValueId| {
                    if is_op || self.units.maker(base) != Some(unit) {
                        self.in_memory[base.index()] = true;
                    }
                };
                self.units.operands(value).for_each(|(base, _)| needs(base));
            }
        }
        let outputs = self.step.outputs.iter().map(|o| o.value);
        for value in outputs.chain(self.step.states.iter().filter_map(|s| s.next)) {
            self.in_memory[self.units.access(value).0.index()] = true;
        }
    }

    /// Which states the kernel that makes their next value may write straight into their buffer: those that
    /// no later kernel reads, and that kernel only element by element.
    fn states_updated_in_place(&self) -> Vec<bool> {
        let graph = &self.step.graph;
        let mut rank = vec![0u32; self.units.units.len()];
        for (position, &unit) in self.order.iter().enumerate() {
            rank[unit as usize] = position as u32;
        }
        // For each state: the last reader, and whether that one reads otherwise than element by element.
        let mut last_read = vec![(0u32, false); graph.len()];
        for &unit in &self.order {
            let of = &self.units.units[unit as usize];
            let mut note = |(base, view): (ValueId, View)| {
                if matches!(graph.op(base), Op::Input { .. }) {
                    let aligned = match of.kind {
                        UnitKind::Op(_) => false,
                        UnitKind::Loop { domain, .. } => view.is_dense() && view.shape == domain,
                    };
                    let entry = &mut last_read[base.index()];
                    let position = rank[unit as usize] + 1;
                    if position > entry.0 {
                        *entry = (position, !aligned);
                    } else if position == entry.0 {
                        entry.1 |= !aligned;
                    }
                }
            };
            for &value in &of.values {
                // Every element of a random op reads the whole state, which is no walk over it.
                let random = matches!(graph.op(value), Op::Random { .. });
                for (base, view) in self.units.operands(value) {
                    note((base, if random { View { shape: Shape::SCALAR, ..view } } else { view }));
                }
            }
        }
        for output in &self.step.outputs {
            // A state that is reported as it was before the step is read after all kernels.
            last_read[self.units.access(output.value).0.index()] = (u32::MAX, true);
        }
        let mut taken = vec![false; graph.len()];
        self.step
            .states
            .iter()
            .map(|state| {
                let Some(next) = state.next else { return false };
                let (base, view) = self.units.access(next);
                let Some(maker) = self.units.maker(base) else { return false };
                let (reader, misaligned) = last_read[state.value.index()];
                let made = rank[maker as usize] + 1;
                let free = !std::mem::replace(&mut taken[base.index()], true);
                free && view.is_dense()
                    && view.shape.elements() == self.step.graph.shape(base).elements()
                    && (reader < made
                        || (reader == made && !misaligned && self.units.level(base) == Level::Element))
            })
            .collect()
    }

    fn declare(&mut self, value: ValueId, name: &str, role: Role, keep: Keep) -> BufferId {
        let ty = self.step.graph.ty(value);
        let id = self.new_buffer(name, ty.shape, ty.dtype, role, keep);
        self.buffer_of[value.index()] = id.0;
        id
    }

    fn new_buffer(&mut self, name: &str, shape: Shape, dtype: DType, role: Role, keep: Keep) -> BufferId {
        let home = Home::Device;
        self.program.buffers.push(Buffer { name: name.into(), shape, dtype, role, keep, home });
        BufferId(self.program.buffers.len() as u32 - 1)
    }

    /// The buffer a kernel writes a value to.
    fn buffer(&mut self, value: ValueId) -> BufferId {
        if self.buffer_of[value.index()] != NONE {
            return BufferId(self.buffer_of[value.index()]);
        }
        let graph = &self.step.graph;
        let (scope, op) = (graph.scope(value), graph.op(value).name());
        let name = if scope.is_empty() { op.to_string() } else { format!("{scope}:{op}") };
        self.declare(value, &name, self.roles[value.index()], Keep::WhileUsed)
    }

    fn read(&self, base: ValueId, view: View) -> Operand {
        Operand { buffer: BufferId(self.buffer_of[base.index()]), dtype: self.step.graph.dtype(base), view }
    }

    fn write(&mut self, value: ValueId) -> Operand {
        let buffer = self.buffer(value);
        let ty = self.step.graph.ty(value);
        Operand { buffer, dtype: ty.dtype, view: View::dense(ty.shape) }
    }

    fn emit_op(&mut self, unit: u32, node: crate::NodeId) {
        let node = self.step.graph.node(node);
        let accesses = node.operands.iter().map(|&operand| self.units.access_of_op(&node.op, operand));
        let reads: Vec<Operand> = accesses.map(|(base, view)| self.read(base, view)).collect();
        let values = self.units.units[unit as usize].values.clone();
        let writes: Vec<Operand> = values.iter().map(|&v| self.write(v)).collect();
        let may_replace = |&(w, r): &(usize, usize)| {
            let (write, read) = (&writes[w], &reads[r]);
            let only = reads.iter().filter(|other| other.buffer == read.buffer).count() == 1;
            let elements = self.program.buffers[read.buffer.index()].shape.elements();
            let whole = read.view.is_dense() && read.view.shape.elements() == elements;
            only && whole && (read.view.shape, read.dtype) == (write.view.shape, write.dtype)
        };
        let in_place = replaceable_by_op(&node.op).iter().copied().filter(may_replace).collect();
        let scope = self.step.graph.scope(values[0]);
        self.push(scope, Body::Op(node.op.clone()), reads, writes, in_place);
    }

    fn push(
        &mut self,
        scope: &str,
        body: Body,
        reads: Vec<Operand>,
        writes: Vec<Operand>,
        in_place: Vec<(usize, usize)>,
    ) {
        self.program.kernels.push(kernel(scope, body, reads, writes, in_place));
    }

    fn emit_loop(&mut self, unit: u32, domain: Shape, row_axes: usize) {
        let values = &self.units.units[unit as usize].values;
        let mut writer = LoopWriter {
            emitter: self,
            unit,
            domain,
            row_axes,
            instructions: vec![],
            reads: vec![],
            registers: Vec::with_capacity(values.len()),
        };
        for &value in values {
            writer.value(value);
        }
        let LoopWriter { instructions, reads, registers, .. } = writer;
        let stored: Vec<(ValueId, Register)> =
            registers.into_iter().filter(|(v, _)| self.in_memory[v.index()]).collect();
        let writes: Vec<Operand> = stored.iter().map(|&(v, _)| self.write(v)).collect();
        let stores: Vec<Register> = stored.iter().map(|&(_, register)| register).collect();
        let body = Loop { domain, row_axes, instructions, stores };
        let scope = self.step.graph.scope(values[values.len() - 1]);
        self.program.kernels.push(loop_kernel(scope, body, reads, writes));
    }

    /// States whose next value could not be written in place are copied at the end, all from buffers that are
    /// not states, so that states may even exchange values.
    fn copy_remaining_states(&mut self, in_place: &[bool]) {
        let mut copies = vec![];
        for (index, state) in self.step.states.iter().enumerate() {
            let Some(next) = state.next.filter(|&next| !in_place[index] && next != state.value) else {
                continue;
            };
            let (base, view) = self.units.access(next);
            let mut source = self.read(base, view);
            if self.program.buffers[source.buffer.index()].keep == Keep::Always {
                let ty = self.step.graph.ty(next);
                let name = format!("{}:next", state.name);
                let buffer = self.new_buffer(&name, ty.shape, ty.dtype, state.role, Keep::WhileUsed);
                let target = Operand { buffer, dtype: ty.dtype, view: View::dense(ty.shape) };
                self.push_copy(&state.name, source, target);
                source = target;
            }
            copies.push((index, source));
        }
        for (index, source) in copies {
            let ty = self.step.graph.ty(self.step.states[index].value);
            let target =
                Operand { buffer: self.program.states[index], dtype: ty.dtype, view: View::dense(ty.shape) };
            self.push_copy(&self.step.states[index].name, source, target);
        }
    }

    fn push_copy(&mut self, scope: &str, source: Operand, target: Operand) {
        let load =
            Instruction { scalar: Scalar::Load { read: 0 }, dtype: source.dtype, level: Level::Element };
        let body = Loop { domain: source.view.shape, row_axes: 0, instructions: vec![load], stores: vec![0] };
        self.push(scope, Body::Loop(body), vec![source], vec![target], vec![]);
    }

    /// Outputs keep the buffer their value was made in; views, inputs and states are copied out.
    fn emit_outputs(&mut self) {
        for output in &self.step.outputs {
            let (base, view) = self.units.access(output.value);
            let source = self.read(base, view);
            let made_here = self.units.maker(base).is_some();
            let whole = view.is_dense() && view.shape.elements() == self.step.graph.shape(base).elements();
            let buffer = if made_here && whole {
                let made = &mut self.program.buffers[source.buffer.index()];
                if made.keep == Keep::WhileUsed {
                    made.keep = Keep::ToEnd;
                }
                source.buffer
            } else {
                let ty = self.step.graph.ty(output.value);
                let buffer = self.new_buffer(&output.name, ty.shape, ty.dtype, Role::Metric, Keep::ToEnd);
                let target = Operand { buffer, dtype: ty.dtype, view: View::dense(ty.shape) };
                self.push_copy(&output.name, source, target);
                buffer
            };
            self.program.outputs.push(buffer);
        }
    }
}

/// Writes one loop.
struct LoopWriter<'a, 'b> {
    emitter: &'a Emitter<'b>,
    unit: u32,
    domain: Shape,
    row_axes: usize,
    instructions: Vec<Instruction>,
    reads: Vec<Operand>,
    registers: Vec<(ValueId, Register)>,
}

impl LoopWriter<'_, '_> {
    fn value(&mut self, value: ValueId) {
        let (graph, units) = (&self.emitter.step.graph, self.emitter.units);
        let (dtype, level) = (graph.dtype(value), units.level(value));
        let node = graph.node(graph.producer(value));
        let operand = |i: usize| units.access(node.operands[i]);
        let register = if let Some(access) = units.copied_from(value) {
            self.loaded(access, level)
        } else {
            match &node.op {
                Op::Constant { value, .. } => self.instruction(Scalar::Constant(*value), dtype, level),
                Op::Iota { axis, .. } => self.instruction(Scalar::Iota { axis: *axis as u8 }, dtype, level),
                &Op::Random { distribution, stream, per_sample, .. } => {
                    let (base, view) = operand(0);
                    let state = self.read_index(base, view);
                    let random = Scalar::Random { distribution, state, stream, per_sample };
                    self.instruction(random, dtype, level)
                }
                Op::Unary(f) => {
                    let x = self.operand(operand(0), level);
                    self.instruction(Scalar::Unary(*f, x), dtype, level)
                }
                Op::Binary(f) => {
                    let (a, b) = (self.operand(operand(0), level), self.operand(operand(1), level));
                    self.instruction(Scalar::Binary(*f, a, b), dtype, level)
                }
                Op::Compare(f) => {
                    let (a, b) = (self.operand(operand(0), level), self.operand(operand(1), level));
                    self.instruction(Scalar::Compare(*f, a, b), dtype, level)
                }
                Op::Select => {
                    let [c, a, b] = [0, 1, 2].map(|i| self.operand(operand(i), level));
                    self.instruction(Scalar::Select(c, a, b), dtype, level)
                }
                Op::Cast { .. } => {
                    let x = self.operand(operand(0), level);
                    self.instruction(Scalar::Cast(x), dtype, level)
                }
                Op::Reduce { kind, .. } => {
                    let mut x = self.loaded(operand(0), Level::Element);
                    if self.emitter.step.graph.dtype(operand(0).0) != dtype {
                        x = self.instruction(Scalar::Cast(x), dtype, Level::Element);
                    }
                    self.instruction(Scalar::Reduce(*kind, x), dtype, Level::Row)
                }
                Op::Softmax => self.softmax(operand(0), dtype, false),
                Op::LogSoftmax => self.softmax(operand(0), dtype, true),
                // Only the ops above are placed in loops; movement ops are copies.
                _ => self.loaded(operand(0), level),
            }
        };
        self.registers.push((value, register));
    }

    /// Shifted by the row's largest element, so that no exponential overflows; halves are computed in f32.
    fn softmax(&mut self, x: (ValueId, View), dtype: DType, log: bool) -> Register {
        use Level::{Element, Row};
        let wide = dtype.accumulator();
        let x = self.loaded(x, Element);
        let x = self.converted(x, wide, Element);
        let largest = self.instruction(Scalar::Reduce(Reduction::Max, x), wide, Row);
        let shifted = self.instruction(Scalar::Binary(Binary::Sub, x, largest), wide, Element);
        let exp = self.instruction(Scalar::Unary(Unary::Exp, shifted), wide, Element);
        let sum = self.instruction(Scalar::Reduce(Reduction::Sum, exp), wide, Row);
        let result = if log {
            let log_sum = self.instruction(Scalar::Unary(Unary::Log, sum), wide, Row);
            self.instruction(Scalar::Binary(Binary::Sub, shifted, log_sum), wide, Element)
        } else {
            self.instruction(Scalar::Binary(Binary::Div, exp, sum), wide, Element)
        };
        self.converted(result, dtype, Element)
    }

    fn converted(&mut self, x: Register, dtype: DType, level: Level) -> Register {
        if self.instructions[x as usize].dtype == dtype {
            return x;
        }
        self.instruction(Scalar::Cast(x), dtype, level)
    }

    /// The register an instruction of that level reads an operand from. What is the same along a row is
    /// loaded once for each row.
    fn operand(&mut self, (base, view): (ValueId, View), level: Level) -> Register {
        let is_made_here = self.emitter.units.maker(base) == Some(self.unit);
        let is_inline = self.emitter.units.is_inline(base, &view, &self.domain, level);
        match view.constant_along_last(self.row_axes.min(view.shape.rank())) {
            Some(row) if self.row_axes > 0 && level == Level::Element && !is_made_here && !is_inline => {
                let read = self.read_index(base, row);
                let dtype = self.emitter.step.graph.dtype(base);
                self.instruction(Scalar::Load { read }, dtype, Level::Row)
            }
            _ => self.loaded((base, view), level),
        }
    }

    /// The register that holds an operand at a level: made by this loop, or a constant, or loaded.
    fn loaded(&mut self, (base, view): (ValueId, View), level: Level) -> Register {
        let (graph, units) = (&self.emitter.step.graph, self.emitter.units);
        if units.maker(base) == Some(self.unit)
            && let Some(&(_, register)) = self.registers.iter().find(|(v, _)| *v == base)
        {
            return register;
        }
        let dtype = graph.dtype(base);
        if units.is_inline(base, &view, &self.domain, level) {
            let scalar = match graph.op(base) {
                Op::Iota { axis, .. } => Scalar::Iota { axis: *axis as u8 },
                Op::Constant { value, .. } => Scalar::Constant(*value),
                _ => Scalar::Constant(0.0),
            };
            return self.instruction(scalar, dtype, level);
        }
        let rows = Shape::from_slice(&self.domain[..self.domain.rank() - self.row_axes]);
        let view = match level {
            Level::Element => view,
            Level::Row => view.with_ones_moved(rows).unwrap_or(view),
        };
        let read = self.read_index(base, view);
        self.instruction(Scalar::Load { read }, dtype, level)
    }

    fn read_index(&mut self, base: ValueId, view: View) -> u16 {
        let operand = self.emitter.read(base, view);
        let found = self.reads.iter().position(|r| *r == operand);
        found.unwrap_or_else(|| {
            self.reads.push(operand);
            self.reads.len() - 1
        }) as u16
    }

    /// Appends an instruction, unless the very same was written before.
    fn instruction(&mut self, scalar: Scalar, dtype: DType, level: Level) -> Register {
        let instruction = Instruction { scalar, dtype, level };
        let leaf = matches!(scalar, Scalar::Load { .. } | Scalar::Constant(_) | Scalar::Iota { .. });
        let found = if leaf { self.instructions.iter().position(|i| *i == instruction) } else { None };
        found.unwrap_or_else(|| {
            self.instructions.push(instruction);
            self.instructions.len() - 1
        }) as Register
    }
}

/// A kernel and what it costs.
pub(crate) fn kernel(
    scope: &str,
    body: Body,
    reads: Vec<Operand>,
    writes: Vec<Operand>,
    in_place: Vec<(usize, usize)>,
) -> Kernel {
    let flops = cost::flops(&body, &reads, &writes);
    let bytes = cost::bytes(&body, &reads, &writes);
    Kernel { scope: scope.into(), body, reads, writes, in_place, flops, bytes }
}

/// A fused loop as a kernel: what it costs, and which operands its results may replace.
pub(crate) fn loop_kernel(scope: &str, body: Loop, reads: Vec<Operand>, writes: Vec<Operand>) -> Kernel {
    let in_place = replaceable(&body, &reads, &writes);
    kernel(scope, Body::Loop(body), reads, writes, in_place)
}

/// The pairs of a result and an operand that it may replace: the op's kernel writes an element only after it has
/// read, for the last time, those that were there. Another device must keep to this as well.
fn replaceable_by_op(op: &Op) -> &'static [(usize, usize)] {
    match op {
        Op::CrossEntropyGrad | Op::LayerNorm { .. } => &[(0, 0)],
        // x, or the gradient of y.
        Op::LayerNormGrad | Op::BatchNormGrad { .. } => &[(0, 0), (0, 4)],
        // What is added to it as well.
        Op::ResidualLayerNormGrad => &[(0, 0), (0, 4), (0, 5)],
        Op::ProjectedCrossEntropy { .. } => &[(2, 0)],
        // Every window is done with before its elements are replaced.
        Op::Pool2dGrad(pool) if pool.is_disjoint() => &[(0, 0)],
        _ => &[],
    }
}

/// The pairs of a write and a read that may share an address: same element size, the whole domain, and the
/// buffer is read in no other way.
pub(super) fn replaceable(body: &Loop, reads: &[Operand], writes: &[Operand]) -> Vec<(usize, usize)> {
    let mut pairs = vec![];
    let loaded_by_element = |read: usize| {
        body.instructions.iter().any(|i| {
            i.level == Level::Element
                && matches!(i.scalar, Scalar::Load { read: r } if usize::from(r) == read)
        })
    };
    for (w, write) in writes.iter().enumerate() {
        if body.instructions[body.stores[w] as usize].level != Level::Element {
            continue;
        }
        for (r, read) in reads.iter().enumerate() {
            let whole = read.view.is_dense() && read.view.shape == body.domain;
            let only = reads.iter().filter(|other| other.buffer == read.buffer).count() == 1;
            if whole && only && read.dtype.size() == write.dtype.size() && loaded_by_element(r) {
                pairs.push((w, r));
            }
        }
    }
    pairs
}
