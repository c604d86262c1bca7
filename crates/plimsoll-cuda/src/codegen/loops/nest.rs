//! A loop bound to its operands, and what can be derived from it: which registers are needed, which are per element, per
//! row or constant, and in which pass over a row each is known.

use crate::routine::PointerTo;
use plimsoll_graph::op::{Binary, Reduction};
use plimsoll_graph::program::{Level, Loop, Operand, Scalar, View};
use plimsoll_graph::{DType, MAX_RANK};

/// An operand, and where it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bound {
    pub(super) place: PointerTo,
    pub(super) dtype: DType,
    pub(super) view: View,
}

/// A loop whose operands are the kernel's own or in its workspace.
#[derive(Debug, Clone)]
pub(super) struct Nest {
    pub(super) body: Loop,
    pub(super) reads: Vec<Bound>,
    pub(super) writes: Vec<Bound>,
}

impl Nest {
    pub(super) fn new(body: &Loop, reads: &[Operand], writes: &[Operand]) -> Nest {
        let bind = |operands: &[Operand], place: fn(usize) -> PointerTo| {
            let bound = |(i, o): (usize, &Operand)| Bound { place: place(i), dtype: o.dtype, view: o.view };
            operands.iter().enumerate().map(bound).collect()
        };
        Nest {
            body: body.clone(),
            reads: bind(reads, PointerTo::Read),
            writes: bind(writes, PointerTo::Write),
        }
    }

    /// The number of axes before the rows.
    pub(super) fn lead(&self) -> usize {
        self.body.domain.rank() - self.body.row_axes
    }

    /// The number of rows.
    pub(super) fn rows(&self) -> usize {
        self.body.domain[..self.lead()].iter().product()
    }

    /// The elements of a row.
    pub(super) fn row(&self) -> usize {
        self.body.domain[self.lead()..].iter().product()
    }

    pub(super) fn scalar(&self, register: usize) -> Scalar {
        self.body.instructions[register].scalar
    }

    pub(super) fn dtype(&self, register: usize) -> DType {
        self.body.instructions[register].dtype
    }

    pub(super) fn level(&self, register: usize) -> Level {
        if self.body.row_axes == 0 { Level::Element } else { self.body.instructions[register].level }
    }

    pub(super) fn operands(&self, register: usize) -> impl Iterator<Item = usize> + use<> {
        self.scalar(register).operands().map(usize::from)
    }

    /// The register that a write stores.
    pub(super) fn stored(&self, write: usize) -> usize {
        usize::from(self.body.stores[write])
    }

    /// The writes of registers of a level.
    pub(super) fn writes_of(&self, level: Level) -> Vec<usize> {
        (0..self.writes.len()).filter(|&write| self.level(self.stored(write)) == level).collect()
    }

    /// The reduction of a register, and the register it is of. The sum of bools is whether any holds.
    pub(super) fn reduction(&self, register: usize) -> Option<(Reduction, usize)> {
        let Scalar::Reduce(kind, of) = self.scalar(register) else { return None };
        let of = usize::from(of);
        let kind =
            if self.dtype(of) == DType::Bool && kind == Reduction::Sum { Reduction::Max } else { kind };
        Some((kind, of))
    }

    /// The registers that these depend on, and these.
    pub(super) fn needed(&self, roots: impl IntoIterator<Item = usize>) -> Vec<bool> {
        let mut needed = vec![false; self.body.instructions.len()];
        for root in roots {
            needed[root] = true;
        }
        for register in (0..needed.len()).rev() {
            if needed[register] {
                self.operands(register).for_each(|operand| needed[operand] = true);
            }
        }
        needed
    }

    /// For each register, whether it is an f32 that is only multiplied before it is rounded to half precision, so that its
    /// own full precision cannot be observed.
    pub(super) fn end_as_halves(&self) -> Vec<bool> {
        let count = self.body.instructions.len();
        let (mut used, mut lost) = (vec![false; count], vec![true; count]);
        for &stored in &self.body.stores {
            lost[usize::from(stored)] = false;
        }
        for register in (0..count).rev() {
            let dtype = self.dtype(register);
            lost[register] &= used[register] && dtype == DType::F32;
            let loses = match self.scalar(register) {
                Scalar::Cast(_) => dtype.is_float() && dtype.size() < 4,
                Scalar::Binary(Binary::Mul, ..) => lost[register],
                _ => false,
            };
            for operand in self.operands(register) {
                used[operand] = true;
                lost[operand] &= loses;
            }
        }
        lost
    }

    /// For each register, how many reductions depend on each other before it: the first pass over the row in which it is
    /// known.
    pub(super) fn stages(&self) -> Vec<usize> {
        let mut stages = vec![0; self.body.instructions.len()];
        for register in 0..stages.len() {
            let ready = self.operands(register).map(|operand| stages[operand]).max().unwrap_or(0);
            stages[register] = ready + usize::from(self.reduction(register).is_some());
        }
        stages
    }

    /// The strides of a load along the domain's axes; zero along axes that it does not have, and those of one element.
    pub(super) fn strides(&self, register: usize, read: u16) -> [usize; MAX_RANK] {
        let view = &self.reads[usize::from(read)].view;
        let along = if self.level(register) == Level::Row { self.lead() } else { self.body.domain.rank() };
        let mut strides = [0; MAX_RANK];
        for axis in (0..along).filter(|&axis| self.body.domain[axis] != 1) {
            strides[axis] = view.strides[axis];
        }
        strides
    }
}
