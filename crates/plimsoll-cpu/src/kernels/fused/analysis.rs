//! What a loop's registers are, before code is made for them: which are needed, which are the same value under
//! another name, how often each must be computed, and in which pass over a long row.

use super::functions;
use super::geometry::{Geometry, Walk};
use crate::numbers::Kind;
use crate::simd::Isa;
use plimsoll_graph::program::{Level, Loop, Operand, Scalar};
use plimsoll_graph::{DType, MAX_RANK};

/// How often a register has a value of its own. What is declared for each element but is made of rows' values
/// only is computed for each row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Class {
    /// Never: it is known beforehand.
    Constant,
    /// Once for the whole loop.
    Uniform,
    /// For each row.
    Row,
    /// For each element.
    Element,
}

/// A loop, its operands, and what is known of its registers.
pub(super) struct Analysis<'a> {
    pub(super) body: &'a Loop,
    pub(super) reads: &'a [Operand],
    pub(super) writes: &'a [Operand],
    /// For each write, the reads that it may replace.
    pub(super) replaces: Vec<Vec<usize>>,
    /// For each register, the register whose value it has: itself, unless it is a cast that changes nothing or a choice that
    /// is decided.
    pub(super) alias: Vec<usize>,
    /// Whether a result depends on it.
    pub(super) needed: Vec<bool>,
    pub(super) class: Vec<Class>,
    /// The walk of each register that is loaded or made from positions, then those of the writes.
    pub(super) walks: Vec<Walk>,
    /// Where in `walks` a register's is.
    pub(super) walk_of: Vec<Option<usize>>,
    pub(super) geometry: Geometry,
    /// For elements, the pass in which they are computed; for rows, the first that can use them.
    pub(super) stage: Vec<usize>,
    /// For elements, the last pass that uses them.
    pub(super) last_stage: Vec<usize>,
    /// The pass in which each write is stored.
    pub(super) store_stage: Vec<usize>,
}

impl<'a> Analysis<'a> {
    /// With `decided`, the read of that number is one truth for all elements, and known.
    pub(super) fn new(
        body: &'a Loop,
        reads: &'a [Operand],
        writes: &'a [Operand],
        in_place: &[(usize, usize)],
        decided: Option<(u16, bool)>,
    ) -> Analysis<'a> {
        let registers = body.instructions.len();
        let mut analysis = Analysis {
            body,
            reads,
            writes,
            replaces: replaced(reads, writes, in_place),
            alias: aliases(body, decided),
            needed: vec![false; registers],
            class: vec![Class::Constant; registers],
            walks: vec![],
            walk_of: vec![None; registers],
            geometry: Geometry::empty(),
            stage: vec![0; registers],
            last_stage: vec![0; registers],
            store_stage: vec![0; writes.len()],
        };
        analysis.find_needed();
        analysis.collect_walks();
        let live = analysis.live_bytes();
        analysis.geometry = Geometry::new(&body.domain, body.row_axes, &mut analysis.walks, live);
        analysis.classify();
        if analysis.geometry.is_chunked() {
            analysis.find_stages();
        }
        analysis
    }

    pub(super) fn scalar(&self, register: usize) -> Scalar {
        self.body.instructions[register].scalar
    }

    pub(super) fn dtype(&self, register: usize) -> DType {
        self.body.instructions[register].dtype
    }

    pub(super) fn kind(&self, register: usize) -> Kind {
        Kind::of(self.dtype(register))
    }

    /// The registers an instruction uses, by the names they are computed under.
    pub(super) fn operands(&self, register: usize) -> impl Iterator<Item = usize> {
        self.scalar(register).operands().map(|operand| self.alias[usize::from(operand)])
    }

    /// Whether a register is computed with: needed, and not another's alias.
    pub(super) fn is_computed(&self, register: usize) -> bool {
        self.needed[register] && self.alias[register] == register
    }

    /// Whether it is made of nothing but memory and positions, so that each pass can make it anew.
    pub(super) fn is_loaded(&self, register: usize) -> bool {
        matches!(self.scalar(register), Scalar::Load { .. } | Scalar::Iota { .. })
    }

    /// Whether a write has a value for each element.
    pub(super) fn stores_elements(&self, write: usize) -> bool {
        self.level(usize::from(self.body.stores[write])) == Level::Element
    }

    /// The register that a write stores.
    pub(super) fn stored(&self, write: usize) -> usize {
        self.alias[usize::from(self.body.stores[write])]
    }

    /// The walk of a write.
    pub(super) fn write_walk(&self, write: usize) -> usize {
        self.walks.len() - self.writes.len() + write
    }

    fn level(&self, register: usize) -> Level {
        if self.body.row_axes == 0 { Level::Element } else { self.body.instructions[register].level }
    }

    fn find_needed(&mut self) {
        for &store in &self.body.stores {
            self.needed[self.alias[usize::from(store)]] = true;
        }
        for register in (0..self.needed.len()).rev() {
            if self.needed[register] {
                for operand in self.operands(register).collect::<Vec<_>>() {
                    self.needed[operand] = true;
                }
            }
        }
    }

    fn collect_walks(&mut self) {
        let domain = self.body.domain;
        let lead = domain.rank() - self.body.row_axes;
        let dense = |level: Level| {
            let along_rows = level == Level::Element;
            let mut strides = [0; MAX_RANK];
            let mut step = 1;
            for axis in (0..if along_rows { domain.rank() } else { lead }).rev() {
                strides[axis] = step;
                step *= domain[axis];
            }
            Walk { offset: 0, strides, along_rows }
        };
        for register in 0..self.needed.len() {
            if !self.is_computed(register) {
                continue;
            }
            let level = self.level(register);
            let walk = match self.scalar(register) {
                Scalar::Load { read } => {
                    let view = &self.reads[usize::from(read)].view;
                    Walk { offset: view.offset, strides: view.strides, ..dense(level) }
                }
                Scalar::Iota { axis } => {
                    let mut strides = [0; MAX_RANK];
                    strides[usize::from(axis)] = 1;
                    Walk { strides, ..dense(level) }
                }
                Scalar::Random { .. } => dense(level),
                _ => continue,
            };
            self.walk_of[register] = Some(self.walks.len());
            self.walks.push(walk);
        }
        for &store in &self.body.stores {
            self.walks.push(dense(self.level(usize::from(store))));
        }
    }

    /// About how many bytes of registers are live at once, for each element.
    fn live_bytes(&self) -> usize {
        let size = |register: usize| self.kind(register).size();
        let element = |register: usize| self.level(register) == Level::Element;
        let mut live = vec![false; self.needed.len()];
        let (mut bytes, mut most) = (0, 0);
        for &store in &self.body.stores {
            let register = self.alias[usize::from(store)];
            if element(register) && !std::mem::replace(&mut live[register], true) {
                bytes += size(register);
            }
        }
        for register in (0..live.len()).rev().filter(|&register| self.is_computed(register)) {
            most = most.max(bytes);
            for operand in self.operands(register) {
                let constant = matches!(self.scalar(operand), Scalar::Constant(_));
                if element(operand) && !constant && !std::mem::replace(&mut live[operand], true) {
                    bytes += size(operand);
                }
            }
            most = most.max(bytes);
            if std::mem::take(&mut live[register]) {
                bytes -= size(register);
            }
        }
        most
    }

    fn classify(&mut self) {
        for register in 0..self.class.len() {
            let by_level = match self.level(register) {
                Level::Element => Class::Element,
                Level::Row => Class::Row,
            };
            self.class[register] = match self.scalar(register) {
                Scalar::Constant(_) => Class::Constant,
                Scalar::Load { .. } => match self.walk_of[register] {
                    Some(walk) if self.walks[walk].is_constant(&self.geometry) => Class::Uniform,
                    _ => by_level,
                },
                Scalar::Iota { .. } | Scalar::Random { .. } => by_level,
                Scalar::Reduce(..) => Class::Row,
                _ => {
                    let most = self.operands(register).map(|operand| self.class[operand]).max();
                    most.unwrap_or(by_level).max(Class::Uniform)
                }
            };
        }
    }

    /// Decides in which pass over the rows each register is computed. A pass ends where a reduction over whole
    /// rows is needed to go on.
    fn find_stages(&mut self) {
        let registers = self.stage.len();
        for register in (0..registers).filter(|&r| self.is_computed(r)).collect::<Vec<_>>() {
            let ready = self.operands(register).map(|operand| self.stage[operand]).max().unwrap_or(0);
            let reduces = matches!(self.scalar(register), Scalar::Reduce(..));
            self.stage[register] = ready + usize::from(reduces);
        }
        // What is made of loads only is better made where it is used than kept until then.
        for register in (0..registers).rev() {
            let movable = self.is_computed(register)
                && self.class[register] == Class::Element
                && !matches!(self.scalar(register), Scalar::Random { .. })
                && self.operands(register).all(|o| self.class[o] != Class::Element || self.is_loaded(o));
            let stored = (0..self.writes.len()).any(|write| self.stored(write) == register);
            if movable && !stored {
                self.stage[register] = self.uses(register).min().unwrap_or(self.stage[register]);
            }
        }
        // What replaces an operand is stored in the last pass, when nothing is to be loaded again.
        let passes = (0..registers).filter(|&r| self.is_computed(r)).filter_map(|r| match self.scalar(r) {
            Scalar::Reduce(..) => Some(self.stage[r] - 1),
            _ if self.class[r] == Class::Element => Some(self.stage[r]),
            _ => None,
        });
        let last = passes.max().unwrap_or(0);
        for write in 0..self.writes.len() {
            let ready = self.stage[self.stored(write)];
            self.store_stage[write] = if self.replaces[write].is_empty() { ready } else { ready.max(last) };
        }
        for register in 0..registers {
            let used = self.uses(register).max().unwrap_or(0);
            let stored = (0..self.writes.len())
                .filter(|&write| self.stored(write) == register)
                .map(|write| self.store_stage[write]);
            self.last_stage[register] = stored.max().unwrap_or(0).max(used);
        }
    }

    /// The passes in which other registers need the elements of this one.
    fn uses(&self, register: usize) -> impl Iterator<Item = usize> {
        (register + 1..self.stage.len())
            .filter(move |&user| self.is_computed(user) && self.operands(user).any(|o| o == register))
            .map(|user| match self.scalar(user) {
                Scalar::Reduce(..) => self.stage[user] - 1,
                _ => self.stage[user],
            })
    }
}

/// For each write, the reads at the same address, or that may be.
fn replaced(reads: &[Operand], writes: &[Operand], in_place: &[(usize, usize)]) -> Vec<Vec<usize>> {
    (0..writes.len())
        .map(|write| {
            let shares = |&read: &usize| {
                in_place.contains(&(write, read)) || reads[read].buffer == writes[write].buffer
            };
            (0..reads.len()).filter(shares).collect()
        })
        .collect()
}

fn aliases(body: &Loop, decided: Option<(u16, bool)>) -> Vec<usize> {
    let mut alias: Vec<usize> = (0..body.instructions.len()).collect();
    for (register, instruction) in body.instructions.iter().enumerate() {
        match (instruction.scalar, decided) {
            (Scalar::Cast(from), _) => {
                let from = alias[usize::from(from)];
                if functions::cast(body.instructions[from].dtype, instruction.dtype, Isa::Portable).is_none()
                {
                    alias[register] = from;
                }
            }
            (Scalar::Select(truth, yes, no), Some((read, holds))) if is_load(body, truth, read) => {
                let chosen = usize::from(if holds { yes } else { no });
                if body.instructions[chosen].level == instruction.level {
                    alias[register] = alias[chosen];
                }
            }
            _ => {}
        }
    }
    alias
}

fn is_load(body: &Loop, register: u16, read: u16) -> bool {
    body.instructions[usize::from(register)].scalar == Scalar::Load { read }
}

/// The read, if there is one, that is one truth for all elements and that something is selected by.
pub(super) fn truth_for_all(body: &Loop, reads: &[Operand]) -> Option<u16> {
    let is_one = |read: u16| {
        let Operand { view, dtype, .. } = &reads[usize::from(read)];
        let rank = view.shape.rank();
        let stays = |(&extent, &stride): (&usize, &usize)| extent <= 1 || stride == 0;
        *dtype == DType::Bool && view.shape[..].iter().zip(&view.strides[..rank]).all(stays)
    };
    body.instructions.iter().find_map(|instruction| match instruction.scalar {
        Scalar::Select(truth, ..) => match body.instructions[usize::from(truth)].scalar {
            Scalar::Load { read } if is_one(read) => Some(read),
            _ => None,
        },
        _ => None,
    })
}
