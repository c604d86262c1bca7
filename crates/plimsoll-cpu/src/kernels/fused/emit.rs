//! From registers to steps.

use super::analysis::{Analysis, Class};
use super::functions::{self, Map};
use super::map::CHUNK;
use super::rows::{STATE, reduce};
use super::steps::{Access, AccessOf, Action, Constants, Count, Slot, SlotId, Stage, Step, Steps};
use super::transfer::{Load, Normal, Positions, Repeat, Splat, Store, UniformDouble, UniformSingle};
use crate::kernels::summation::plain_reduction;
use crate::numbers::{Element, Kind, constant, is_acc, with_element, with_number};
use crate::simd::Isa;
use plimsoll_graph::op::{Binary, Distribution};
use plimsoll_graph::program::Scalar;
use plimsoll_graph::{DType, random};
use std::collections::HashMap;

/// The list of steps that a step goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum List {
    Prologue,
    Rows(usize),
    Elements(usize),
    Epilogue,
}

pub(super) struct Emitter<'a> {
    of: &'a Analysis<'a>,
    isa: Isa,
    steps: Steps,
    /// Where registers are that are computed once.
    value: Vec<Option<SlotId>>,
    /// Where each pass has what it brought for itself: loads, row values for each element, copies of chunks.
    loaded: HashMap<(usize, usize), SlotId>,
    repeated: HashMap<(usize, usize), SlotId>,
    /// The write that a register is computed straight into.
    direct: Vec<Option<usize>>,
    /// Whether a read may be used where it is, although it is stored somewhere.
    stable: Vec<bool>,
}

impl<'a> Emitter<'a> {
    pub(super) fn new(of: &'a Analysis<'a>, isa: Isa) -> Self {
        let registers = of.class.len();
        let mut emitter = Emitter {
            of,
            isa,
            steps: Steps::default(),
            value: vec![None; registers],
            loaded: HashMap::new(),
            repeated: HashMap::new(),
            direct: vec![None; registers],
            stable: (0..of.reads.len()).map(|r| of.replaces.iter().all(|of| !of.contains(&r))).collect(),
        };
        emitter.find_direct_writes();
        emitter
    }

    /// All steps of the loop.
    pub(super) fn emit(mut self) -> Steps {
        let of = self.of;
        let stages = of.stage.iter().chain(&of.store_stage).max().map_or(1, |last| last + 1);
        self.steps.stages.resize_with(stages, Stage::default);
        for register in (0..of.class.len()).filter(|&register| of.is_computed(register)) {
            match of.class[register] {
                Class::Constant => self.constant(register),
                Class::Element if of.is_loaded(register) => {}
                _ => self.compute(register),
            }
        }
        // All that is stored is brought before anything is, since a write may replace what another stores.
        let stored: Vec<SlotId> = (0..of.writes.len()).map(|write| self.stored(write)).collect();
        for (write, slot) in stored.into_iter().enumerate() {
            self.store(write, slot);
        }
        self.steps.place_tiles(of.geometry.capacity());
        self.steps.shrink_to_fit();
        self.steps
    }

    /// A register of elements can be computed straight into a write that replaces nothing and is kept as it is
    /// computed.
    fn find_direct_writes(&mut self) {
        let of = self.of;
        for write in 0..of.writes.len() {
            let register = of.stored(write);
            let dense = of.geometry.shape(&of.walks[of.write_walk(write)]).is_dense();
            let possible = of.class[register] == Class::Element
                && !of.is_loaded(register)
                && of.stores_elements(write)
                && of.replaces[write].is_empty()
                && is_acc(of.writes[write].dtype)
                && dense;
            if possible && self.direct[register].is_none() {
                self.direct[register] = Some(write);
            }
        }
    }

    fn push(&mut self, list: List, step: Step) {
        let stages = &mut self.steps.stages;
        match list {
            List::Prologue => self.steps.prologue.push(step),
            List::Epilogue => self.steps.epilogue.push(step),
            // Where a tile is worked on in one pass, rows and elements take turns.
            List::Rows(stage) if self.of.geometry.is_chunked() => stages[stage].rows.push(step),
            List::Rows(stage) | List::Elements(stage) => stages[stage].elements.push(step),
        }
    }

    fn map(&mut self, list: List, map: Map, operands: &[SlotId], out: SlotId, count: Count) {
        let mut all = [out; 3];
        all[..operands.len()].copy_from_slice(operands);
        // An operand that is not there is never looked at, but must be somewhere.
        let first = operands.first().copied().unwrap_or(out);
        all[operands.len()..].fill(first);
        self.push(list, Step { action: Action::Map(map), out, operands: all, count });
    }

    fn slot(&mut self, slot: Slot) -> SlotId {
        self.steps.slots.push(slot);
        self.steps.slots.len() - 1
    }

    /// Memory of a worker that is never used for anything else.
    fn reserve(&mut self, bytes: usize) -> usize {
        let offset = self.steps.memory;
        self.steps.memory += bytes.next_multiple_of(64);
        offset
    }

    fn chunk(&mut self, kind: Kind) -> SlotId {
        let offset = self.reserve(CHUNK * kind.size());
        self.slot(Slot::Fixed { offset, step: 0 })
    }

    /// A new place for values of a class.
    fn place(&mut self, class: Class, kind: Kind) -> SlotId {
        match class {
            Class::Constant | Class::Uniform => self.chunk(kind),
            Class::Row if self.of.geometry.single => self.chunk(kind),
            Class::Row => {
                let rows: usize = self.of.geometry.tile[..self.of.geometry.lead].iter().product();
                let offset = self.reserve(rows * kind.size());
                self.slot(Slot::Fixed { offset, step: CHUNK })
            }
            Class::Element => self.slot(Slot::Tile { size: kind.size() }),
        }
    }

    /// The place of a register.
    fn place_of(&mut self, register: usize) -> SlotId {
        let of = self.of;
        let kind = of.kind(register);
        let slot = match (of.class[register], self.direct[register]) {
            (Class::Element, Some(write)) => {
                let access = self.write_access(write);
                self.slot(Slot::Direct(access))
            }
            (Class::Element, None) if of.last_stage[register] > of.stage[register] => {
                let offset = self.reserve(of.geometry.row * kind.size());
                self.slot(Slot::Row { offset, size: kind.size() })
            }
            (class, _) => self.place(class, kind),
        };
        self.value[register] = Some(slot);
        slot
    }

    fn access(&mut self, operand: AccessOf, size: usize, walk: usize) -> usize {
        let walk = self.of.walks[walk];
        let shape = self.of.geometry.shape(&walk);
        self.steps.accesses.push(Access { operand, size, walk, shape });
        self.steps.accesses.len() - 1
    }

    fn write_access(&mut self, write: usize) -> usize {
        self.access(AccessOf::Write(write), self.of.writes[write].dtype.size(), self.of.write_walk(write))
    }

    fn list(&self, register: usize) -> List {
        match self.of.class[register] {
            Class::Constant | Class::Uniform => List::Prologue,
            Class::Row => List::Rows(self.of.stage[register]),
            Class::Element => List::Elements(self.of.stage[register]),
        }
    }

    fn count(&self, class: Class) -> Count {
        match class {
            Class::Constant | Class::Uniform => Count::Chunk,
            Class::Row if self.of.geometry.single => Count::Chunk,
            Class::Row => Count::Rows,
            Class::Element => Count::Elements,
        }
    }

    fn constant(&mut self, register: usize) {
        let Scalar::Constant(value) = self.of.scalar(register) else { return };
        self.value[register] = Some(self.constant_of(value, self.of.dtype(register)));
    }

    /// A chunk of copies of a number, converted to a type.
    fn constant_of(&mut self, value: f64, dtype: DType) -> SlotId {
        let mut memory = Constants([0; CHUNK * 8]);
        let offset = self.steps.constants.len() * size_of::<Constants>();
        with_element!(dtype, S => {
            let number = S::from_f64(constant(value, dtype)).widen().to_ne_bytes();
            memory.0.chunks_exact_mut(number.len()).for_each(|bytes| bytes.copy_from_slice(&number));
        });
        self.steps.constants.push(memory);
        self.slot(Slot::Constant(offset))
    }

    /// Where an instruction of some class finds a register in a pass.
    fn operand(&mut self, register: usize, at: Class, stage: usize) -> SlotId {
        let of = self.of;
        match of.class[register] {
            Class::Row if at == Class::Element && !self.is_chunk(register) => self.repeat(register, stage),
            Class::Element if of.is_loaded(register) => {
                if let Some(&slot) = self.loaded.get(&(stage, register)) {
                    return slot;
                }
                let slot = self.load(register, List::Elements(stage));
                self.loaded.insert((stage, register), slot);
                slot
            }
            // What is computed is computed before it is used.
            _ => self.value[register].unwrap_or_default(),
        }
    }

    /// Whether a register of rows is one chunk of copies.
    fn is_chunk(&self, register: usize) -> bool {
        self.value[register].is_some_and(|slot| self.steps.slots[slot].is_chunk())
    }

    fn repeat(&mut self, register: usize, stage: usize) -> SlotId {
        if let Some(&slot) = self.repeated.get(&(stage, register)) {
            return slot;
        }
        let kind = self.of.kind(register);
        let source = self.value[register].unwrap_or_default();
        let out = self.place(Class::Element, kind);
        let action = Action::Repeat(with_number!(kind, T => self.isa.compiled::<Repeat<T>>()));
        let step = Step { action, out, operands: [source; 3], count: Count::Elements };
        self.push(List::Elements(stage), step);
        self.repeated.insert((stage, register), out);
        out
    }

    /// A place with a value for each element, where `slot` may be a chunk of copies.
    fn spread(&mut self, slot: SlotId, size: usize, list: List, class: Class) -> SlotId {
        if !self.steps.slots[slot].is_chunk() {
            return slot;
        }
        let kind = match size {
            8 => Kind::I64,
            4 => Kind::I32,
            _ => Kind::U8,
        };
        let out = self.place(class, kind);
        let count = self.count(class);
        self.map(list, functions::copy(size, self.isa), &[slot], out, count);
        out
    }

    /// Brings a register from memory, or makes it from positions.
    fn load(&mut self, register: usize, list: List) -> SlotId {
        let of = self.of;
        let class = of.class[register];
        let kind = of.kind(register);
        let Some(walk) = of.walk_of[register] else { return 0 };
        let Scalar::Load { read } = of.scalar(register) else {
            let positions = self.positions(register, list);
            return match functions::cast(DType::I64, of.dtype(register), self.isa) {
                None => positions,
                Some(map) => {
                    let out = self.place(class, kind);
                    self.map(list, map, &[positions], out, self.count(class));
                    out
                }
            };
        };
        let dtype = of.reads[usize::from(read)].dtype;
        let access = self.access(AccessOf::Read(read.into()), dtype.size(), walk);
        let shape = &self.steps.accesses[access].shape;
        let stored = (0..of.writes.len()).any(|write| of.stored(write) == register);
        let (function, out) = if class == Class::Uniform || shape.is_same() {
            (with_element!(dtype, S => self.isa.compiled::<Splat<S>>()), self.chunk(kind))
        } else if shape.is_dense() && is_acc(dtype) && (!stored || self.stable[usize::from(read)]) {
            return self.slot(Slot::Direct(access));
        } else {
            (with_element!(dtype, S => self.isa.compiled::<Load<S>>()), self.place(class, kind))
        };
        let step =
            Step { action: Action::Load { function, access }, out, operands: [out; 3], count: Count::Chunk };
        self.push(list, step);
        out
    }

    /// The positions that a register is made from, as `i64`.
    fn positions(&mut self, register: usize, list: List) -> SlotId {
        let class = self.of.class[register];
        let Some(walk) = self.of.walk_of[register] else { return 0 };
        let access = self.access(AccessOf::Positions, 0, walk);
        let out = self.place(class, Kind::I64);
        let action = Action::Positions { function: self.isa.compiled::<Positions>(), access };
        self.push(list, Step { action, out, operands: [out; 3], count: Count::Chunk });
        if self.count(class) != Count::Chunk {
            return out;
        }
        // A single row has one position, of which a chunk of copies is wanted.
        let copies = self.place(class, Kind::I64);
        let action = Action::Repeat(self.isa.compiled::<Repeat<i64>>());
        self.push(list, Step { action, out: copies, operands: [out; 3], count: Count::Chunk });
        copies
    }

    /// Emits the instruction that defines a register.
    fn compute(&mut self, register: usize) {
        let of = self.of;
        let (list, class) = (self.list(register), of.class[register]);
        let stage = of.stage[register];
        let (dtype, count) = (of.dtype(register), self.count(class));
        let registers: Vec<usize> = of.operands(register).collect();
        if let Scalar::Reduce(..) = of.scalar(register) {
            return self.reduce(register, registers[0]);
        }
        let operands: Vec<SlotId> = registers.iter().map(|&r| self.operand(r, class, stage)).collect();
        let of_first = registers.first().map_or(dtype, |&r| of.dtype(r));
        let (map, rounds) = match of.scalar(register) {
            Scalar::Load { .. } | Scalar::Iota { .. } => {
                self.value[register] = Some(self.load(register, list));
                return;
            }
            Scalar::Random { distribution, state, stream, per_sample } => {
                return self.random(register, distribution, state.into(), [stream, per_sample]);
            }
            Scalar::Unary(function, _) => {
                let map = functions::unary(function, Kind::of(of_first), self.isa);
                (map, !function.is_exact())
            }
            Scalar::Binary(function, ..) => {
                let exact = matches!(function, Binary::Max | Binary::Min);
                (functions::binary(function, dtype, self.isa), !exact)
            }
            Scalar::Compare(comparison, ..) => {
                let (map, swaps) = functions::comparison(comparison, Kind::of(of_first), self.isa);
                let operands = if swaps { [operands[1], operands[0]] } else { [operands[0], operands[1]] };
                let out = self.place_of(register);
                return self.map(list, map, &operands, out, count);
            }
            Scalar::Select(..) => (Some(functions::choose(of.kind(register).size(), self.isa)), false),
            Scalar::Cast(_) => (functions::cast(of_first, dtype, self.isa), false),
            Scalar::Constant(_) | Scalar::Reduce(..) => return,
        };
        let Some(map) = map else { panic!("{:?} of {of_first} in a loop", of.scalar(register)) };
        match functions::round(dtype, self.isa).filter(|_| rounds) {
            None => {
                let out = self.place_of(register);
                self.map(list, map, &operands, out, count);
            }
            Some(round) => {
                let exact = self.place(class, Kind::F32);
                self.map(list, map, &operands, exact, count);
                let out = self.place_of(register);
                self.map(list, round, &[exact], out, count);
            }
        }
    }

    /// The row's elements combined, in the pass before the first that can use the result.
    fn reduce(&mut self, register: usize, operand: usize) {
        let of = self.of;
        let Scalar::Reduce(reduction, _) = of.scalar(register) else { return };
        let stage = of.stage[register].saturating_sub(1);
        let (dtype, kind) = (of.dtype(register), of.kind(register));
        let values = self.operand(operand, Class::Element, stage);
        let values = self.spread(values, kind.size(), List::Elements(stage), Class::Element);
        let function = reduce(plain_reduction(reduction, dtype), kind, self.isa);
        let state = if of.geometry.is_chunked() { self.reserve(STATE) } else { 0 };
        let out = self.place(Class::Row, kind);
        let step = Step {
            action: Action::Reduce { function, state },
            out,
            operands: [values; 3],
            count: Count::Rows,
        };
        self.push(List::Elements(stage), step);
        self.value[register] = Some(out);
        if let Some(round) = functions::round(dtype, self.isa) {
            let rounded = self.place(Class::Row, kind);
            self.map(self.list(register), round, &[out], rounded, self.count(Class::Row));
            self.value[register] = Some(rounded);
        }
    }

    fn random(
        &mut self,
        register: usize,
        distribution: Distribution,
        read: usize,
        [stream, per_sample]: [u64; 2],
    ) {
        let of = self.of;
        let (list, class, dtype) = (self.list(register), of.class[register], of.dtype(register));
        let count = self.count(class);
        let positions = self.positions(register, list);
        let view = &of.reads[read].view;
        let bytes = [0, 1, 2].map(|word| (view.offset + word * view.strides[0]) * 8);
        let halves = functions::round(dtype, self.isa).is_some();
        let (function, kind) = match (distribution, dtype) {
            (Distribution::Uniform, DType::F64) => (self.isa.compiled::<UniformDouble>(), Kind::F64),
            (Distribution::Uniform, _) => (self.isa.compiled::<UniformSingle>(), Kind::F32),
            (Distribution::Normal, DType::F32) => (self.isa.compiled::<Normal<f32>>(), Kind::F32),
            (Distribution::Normal, _) => (self.isa.compiled::<Normal<f64>>(), Kind::F64),
        };
        let out = if halves { self.place(class, kind) } else { self.place_of(register) };
        let action = Action::Random { function, read, bytes, stream, per_sample };
        self.push(list, Step { action, out, operands: [positions; 3], count });
        if !halves {
            return;
        }
        let from = if kind == Kind::F64 { DType::F64 } else { DType::F32 };
        let Some(map) = functions::cast(from, dtype, self.isa) else { return };
        if distribution == Distribution::Normal {
            let rounded = self.place_of(register);
            return self.map(list, map, &[out], rounded, count);
        }
        // Rounding could have reached one.
        let rounded = self.place(class, Kind::F32);
        self.map(list, map, &[out], rounded, count);
        let limit = self.constant_of(random::largest_below_one(dtype), dtype);
        let below = self.place_of(register);
        let Some(min) = functions::binary(Binary::Min, dtype, self.isa) else { return };
        self.map(list, min, &[rounded, limit], below, count);
    }

    /// Where the values of a write are.
    fn stored(&mut self, write: usize) -> SlotId {
        let of = self.of;
        let class = if of.stores_elements(write) { Class::Element } else { Class::Row };
        self.operand(of.stored(write), class, of.store_stage[write])
    }

    fn store(&mut self, write: usize, slot: SlotId) {
        let of = self.of;
        if self.direct[of.stored(write)] == Some(write) {
            return;
        }
        let (list, class, count) = if of.stores_elements(write) {
            (List::Elements(of.store_stage[write]), Class::Element, Count::Elements)
        } else {
            (List::Epilogue, Class::Row, Count::Rows)
        };
        let access = self.write_access(write);
        let dtype = of.writes[write].dtype;
        let size = Kind::of(dtype).size();
        if is_acc(dtype) && self.steps.accesses[access].shape.is_dense() {
            let out = self.slot(Slot::Direct(access));
            return self.map(list, functions::copy(size, self.isa), &[slot], out, count);
        }
        // One row's chunk of copies begins with the row's value.
        let first_is_enough = class == Class::Row && of.geometry.single;
        let values = if first_is_enough { slot } else { self.spread(slot, size, list, class) };
        let function = with_element!(dtype, S => self.isa.compiled::<Store<S>>());
        let step =
            Step { action: Action::Store { function, access }, out: values, operands: [values; 3], count };
        self.push(list, step);
    }
}
