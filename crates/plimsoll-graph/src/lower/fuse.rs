//! Which ops share a kernel.
//!
//! Nodes are visited once, in order, and put into *units*: a unit becomes one kernel. Every unit has a
//! position, and everything it needs is made by units at smaller positions; that is the only invariant, and
//! it keeps the units in an executable order at every moment. An elementwise node joins the unit of an
//! operand if nothing else has used that yet; the unit moves to the end if another operand was made after it. Other
//! operands' units are then drawn in, if nothing outside needs them earlier. Each decision looks only at a
//! node's operands, so the whole pass is linear.

use crate::op::Op;
use crate::program::{Level, View};
use crate::step::Step;
use crate::{Axes, Graph, NodeId, Shape, ValueId};
use std::collections::HashMap;

/// Longer rows are reduced by a kernel of their own, which can split them among threads.
const MAX_ROW: usize = 65_536;

/// More ops than this in one kernel gain nothing and need more registers than there are.
const MAX_NODES: usize = 64;

const NONE: u32 = u32::MAX;

/// A set of nodes that becomes one kernel.
#[derive(Debug)]
pub(crate) struct Unit {
    pub(crate) kind: UnitKind,
    /// The values its nodes define, ascending.
    pub(crate) values: Vec<ValueId>,
    /// Where it stands in the order of execution.
    pub(crate) position: u32,
    /// Units that use its values through memory or registers, merged ones included.
    consumers: Vec<u32>,
    /// Units it must load from even if they had the same domain.
    loads_from: Vec<u32>,
    /// The unit it was merged into, or `NONE`.
    merged: u32,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum UnitKind {
    /// A fused loop over `domain`, whose last `row_axes` axes are a row.
    Loop { domain: Shape, row_axes: usize },
    /// A node with a kernel of its own.
    Op(NodeId),
}

/// How a node takes part in a loop.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Part {
    /// One result for each element of the domain.
    Element,
    /// One result for each row, from values of rows.
    Row,
    /// Combines the elements of each row of the last axes; the result is for each row, or for softmax
    /// for each element.
    OverRows { axes: usize, level: Level },
}

/// The units of a step, and how values are reached.
pub(crate) struct Units<'a> {
    pub(crate) graph: &'a Graph,
    pub(crate) units: Vec<Unit>,
    /// The unit that makes a value, or `NONE`.
    made_by: Vec<u32>,
    level: Vec<Level>,
    /// Where values that are views of others are found.
    views: HashMap<ValueId, (ValueId, View)>,
    /// Positions given out so far. A node takes at most one for itself and one for each operand.
    positions: u32,
}

impl<'a> Units<'a> {
    /// Puts every node that `step` needs into a unit.
    pub(crate) fn of(step: &'a Step) -> Units<'a> {
        let graph = &step.graph;
        let mut units = Units {
            graph,
            units: vec![],
            made_by: vec![NONE; graph.len()],
            level: vec![Level::Element; graph.len()],
            views: HashMap::new(),
            positions: 0,
        };
        let needed = needed(step);
        for (index, node) in graph.nodes().iter().enumerate() {
            if needed[index] {
                units.place(NodeId(index as u32), &node.op);
            }
        }
        units
    }

    /// Where a value is found: a value that is computed or given, and the view of it.
    pub(crate) fn access(&self, value: ValueId) -> (ValueId, View) {
        match self.views.get(&value) {
            Some(&access) => access,
            None => (value, View::dense(self.graph.shape(value))),
        }
    }

    /// Where a node with a kernel of its own finds an operand. Products and attention walk strides; the others
    /// need their operands dense, and find a copy where they are not.
    pub(crate) fn access_of_op(&self, op: &Op, operand: ValueId) -> (ValueId, View) {
        let (base, view) = self.access(operand);
        let attends = matches!(op, Op::Attention(_) | Op::AttentionGrad(_) | Op::JointAttentionGrad(_));
        let strided = attends || matches!(op, Op::Dot { .. });
        let is_leaf = matches!(self.graph.op(base), Op::Constant { .. } | Op::Iota { .. });
        if !is_leaf && (strided || view.is_dense()) {
            return (base, view);
        }
        (operand, View::dense(self.graph.shape(operand)))
    }

    /// The unit that makes a value, if one does.
    pub(crate) fn maker(&self, value: ValueId) -> Option<u32> {
        let unit = self.made_by[value.index()];
        (unit != NONE).then(|| self.find(unit))
    }

    /// Where the unit that makes a value finds what it makes it from.
    pub(crate) fn operands(&self, value: ValueId) -> impl Iterator<Item = (ValueId, View)> {
        let node = self.graph.node(self.graph.producer(value));
        let copied = self.copied_from(value);
        let is_op = self.maker(value).is_some_and(|u| matches!(self.units[u as usize].kind, UnitKind::Op(_)));
        let operands = if copied.is_some() { &[][..] } else { &node.operands[..] };
        let access = move |&o: &ValueId| if is_op { self.access_of_op(&node.op, o) } else { self.access(o) };
        copied.into_iter().chain(operands.iter().map(access))
    }

    /// The level at which a loop makes a value.
    pub(crate) fn level(&self, value: ValueId) -> Level {
        self.level[value.index()]
    }

    /// The units that were not merged into others, in the order of execution.
    pub(crate) fn in_order(&self) -> Vec<u32> {
        let mut order: Vec<u32> =
            (0..self.units.len() as u32).filter(|&u| self.units[u as usize].merged == NONE).collect();
        order.sort_by_key(|&u| self.units[u as usize].position);
        order
    }

    /// Makes a value available as a dense buffer of its own: a view is copied, a constant is filled in.
    pub(crate) fn materialize(&mut self, value: ValueId) {
        if self.made_by[value.index()] != NONE || matches!(self.graph.op(value), Op::Input { .. }) {
            return;
        }
        let (base, view) = self.access(value);
        if base != value {
            self.materialize_leaf(base, &view, &view.shape);
        }
        let unit = self.new_unit(UnitKind::Loop { domain: view.shape, row_axes: 0 });
        self.depend(unit, base, true);
        self.adopt(unit, value, Level::Element);
    }

    /// Gives a constant or an index a buffer if a loop over `domain` cannot write it in place.
    fn materialize_leaf(&mut self, base: ValueId, view: &View, domain: &Shape) {
        let is_leaf = matches!(self.graph.op(base), Op::Constant { .. } | Op::Iota { .. });
        if is_leaf && !self.is_inline(base, view, domain, Level::Element) {
            self.materialize(base);
        }
    }

    /// What a value that a unit makes is copied from, if it is a copy.
    pub(crate) fn copied_from(&self, value: ValueId) -> Option<(ValueId, View)> {
        self.views.get(&value).copied()
    }

    /// Whether a value stands for a number or an index and is written into each kernel that uses it.
    pub(crate) fn is_inline(&self, base: ValueId, view: &View, domain: &Shape, level: Level) -> bool {
        match self.graph.op(base) {
            Op::Constant { .. } => true,
            Op::Iota { shape, .. } => {
                level == Level::Element && view.is_dense() && view.shape == *domain && shape == domain
            }
            _ => false,
        }
    }

    fn find(&self, mut unit: u32) -> u32 {
        while self.units[unit as usize].merged != NONE {
            unit = self.units[unit as usize].merged;
        }
        unit
    }

    fn place(&mut self, id: NodeId, op: &Op) {
        match op {
            Op::Input { .. } | Op::Constant { .. } | Op::Iota { .. } => {}
            Op::Reshape { .. }
            | Op::Broadcast { .. }
            | Op::Permute { .. }
            | Op::Slice(_)
            | Op::StopGradient => {
                self.place_view(id, op);
            }
            Op::Random { .. }
            | Op::Unary(_)
            | Op::Binary(_)
            | Op::Compare(_)
            | Op::Select
            | Op::Cast { .. } => {
                let domain = self.graph.shape(self.result(id));
                self.place_in_loop(id, domain, Part::Element);
            }
            Op::Softmax | Op::LogSoftmax => self.place_over_rows(id, 1, Level::Element),
            Op::Reduce { axes, .. } => {
                let rank = self.graph.shape(self.graph.node(id).operands[0]).rank();
                if *axes == Axes::last(axes.len(), rank) {
                    self.place_over_rows(id, axes.len(), Level::Row);
                } else {
                    self.place_op(id);
                }
            }
            _ => self.place_op(id),
        }
    }

    fn result(&self, id: NodeId) -> ValueId {
        // Every node has at least one result.
        self.graph.node(id).results().next().unwrap_or(ValueId(0))
    }

    fn place_view(&mut self, id: NodeId, op: &Op) {
        let (operand, result) = (self.graph.node(id).operands[0], self.result(id));
        let (base, view) = self.access(operand);
        let seen = match view.through(op) {
            Some(seen) => (base, seen),
            None => {
                self.materialize(operand);
                let dense = View::dense(self.graph.shape(operand));
                (operand, dense.through(op).unwrap_or(View::dense(self.graph.shape(result))))
            }
        };
        self.views.insert(result, seen);
    }

    /// A node with a kernel of its own.
    fn place_op(&mut self, id: NodeId) {
        let node = self.graph.node(id);
        for &operand in &node.operands {
            let (base, _) = self.access_of_op(&node.op, operand);
            self.materialize(base);
        }
        let unit = self.new_unit(UnitKind::Op(id));
        for &operand in &node.operands {
            let (base, _) = self.access_of_op(&node.op, operand);
            self.depend(unit, base, true);
        }
        for result in node.results() {
            self.adopt(unit, result, Level::Element);
        }
    }

    fn place_over_rows(&mut self, id: NodeId, axes: usize, level: Level) {
        let shape = self.graph.shape(self.graph.node(id).operands[0]);
        let row: usize = shape[shape.rank() - axes..].iter().product();
        if row <= MAX_ROW || level == Level::Element {
            self.place_in_loop(id, shape, Part::OverRows { axes, level });
        } else {
            self.place_op(id);
        }
    }

    fn place_in_loop(&mut self, id: NodeId, domain: Shape, part: Part) {
        let operands = self.graph.node(id).operands.clone();
        let level = match part {
            Part::Element => Level::Element,
            Part::Row => Level::Row,
            Part::OverRows { level, .. } => level,
        };
        for &operand in &operands {
            let (base, view) = self.access(operand);
            let is_leaf = matches!(self.graph.op(base), Op::Constant { .. } | Op::Iota { .. });
            if is_leaf
                && self.made_by[base.index()] == NONE
                && !self.is_inline(base, &view, &domain, Level::Element)
            {
                self.materialize(base);
            }
        }
        // Units that the node could join, each with the part it would play there, latest position first.
        let mut makers: Vec<u32> = operands.iter().filter_map(|&o| self.maker(self.access(o).0)).collect();
        makers.sort_by_key(|&u| std::cmp::Reverse(self.units[u as usize].position));
        makers.dedup();
        let mut candidates: Vec<(u32, Part)> = makers
            .iter()
            .filter_map(|&u| self.part_in(u, &operands, &domain, part).map(|p| (u, p)))
            .collect();
        if matches!(self.graph.node(id).op, Op::Random { .. }) {
            // Its operand is a state that every element reads, not a value of the same element.
            candidates.clear();
        }

        let (unit, part) = self.choose(&candidates, &makers).unwrap_or_else(|| {
            let row_axes = if let Part::OverRows { axes, .. } = part { axes } else { 0 };
            (self.new_unit(UnitKind::Loop { domain, row_axes }), part)
        });
        let level = if part == Part::Row { Level::Row } else { level };
        if let Part::OverRows { axes, .. } = part
            && let UnitKind::Loop { row_axes, .. } = &mut self.units[unit as usize].kind
        {
            *row_axes = axes;
        }
        for &operand in &operands {
            let (base, _) = self.access(operand);
            let direct =
                self.maker(base).is_some_and(|m| candidates.iter().any(|&(c, p)| c == m && p == part));
            self.depend(unit, base, !direct);
        }
        self.adopt(unit, self.result(id), level);
        for &(other, other_part) in &candidates {
            if other != unit && other_part == part {
                self.draw_in(other, unit);
            }
        }
    }

    /// The unit a node joins: the latest candidate that nothing outside has used yet. It moves to the end if
    /// another maker comes after it.
    ///
    /// A unit that others have used stays as it is: joining it would compute the node long before it is
    /// needed (a mask of the backward pass in the forward pass, say) and keep its bytes until then.
    fn choose(&mut self, candidates: &[(u32, Part)], makers: &[u32]) -> Option<(u32, Part)> {
        let unused = |&&(unit, _): &&(u32, Part)| self.consumers_outside(unit, unit).next().is_none();
        let &(unit, part) = candidates.iter().find(unused)?;
        let position = self.units[unit as usize].position;
        if makers.iter().any(|&m| m != unit && self.units[m as usize].position > position) {
            self.units[unit as usize].position = self.next_position();
        }
        Some((unit, part))
    }

    /// Merges `other` into `unit`, which comes later, if nothing outside needs it before that.
    fn draw_in(&mut self, other: u32, unit: u32) {
        let (a, b) = (&self.units[other as usize], &self.units[unit as usize]);
        let (UnitKind::Loop { domain: da, row_axes: ra }, UnitKind::Loop { domain: db, row_axes: rb }) =
            (a.kind, b.kind)
        else {
            return;
        };
        let fits = da == db
            && (ra == rb || ra == 0 || rb == 0)
            && a.position < b.position
            && a.values.len() + b.values.len() <= MAX_NODES
            && !b.loads_from.iter().any(|&u| self.find(u) == other)
            && !self.consumers_outside(other, unit).any(|u| self.units[u as usize].position <= b.position);
        if !fits {
            return;
        }
        let Unit { values, consumers, loads_from, .. } = std::mem::replace(
            &mut self.units[other as usize],
            Unit {
                kind: UnitKind::Loop { domain: da, row_axes: ra },
                values: vec![],
                position: 0,
                consumers: vec![],
                loads_from: vec![],
                merged: unit,
            },
        );
        let target = &mut self.units[unit as usize];
        target.kind = UnitKind::Loop { domain: da, row_axes: ra.max(rb) };
        target.values.extend(values);
        target.values.sort_unstable();
        target.consumers.extend(consumers);
        target.loads_from.extend(loads_from);
    }

    /// The part a node would play in `unit`: `None` if it cannot join it, or needs one of the unit's values
    /// otherwise than from a register.
    fn part_in(&self, unit: u32, operands: &[ValueId], domain: &Shape, part: Part) -> Option<Part> {
        let UnitKind::Loop { domain: unit_domain, row_axes } = self.units[unit as usize].kind else {
            return None;
        };
        if self.units[unit as usize].values.len() >= MAX_NODES {
            return None;
        }
        let mut own =
            operands.iter().map(|&o| self.access(o)).filter(|(base, _)| self.maker(*base) == Some(unit));
        let lead = unit_domain.rank() - row_axes;
        let is_element = |base: ValueId, view: &View| {
            self.level(base) == Level::Element && view.is_dense() && view.shape == unit_domain
        };
        let is_row_value = |base: ValueId, view: &View| {
            self.level(base) == Level::Row
                && view.shape == unit_domain
                && view
                    .constant_along_last(row_axes)
                    .is_some_and(|v| v.is_dense() && v.shape.elements() == self.graph.shape(base).elements())
        };
        match part {
            Part::Element if *domain == unit_domain => {
                own.all(|(b, v)| is_element(b, &v) || is_row_value(b, &v)).then_some(part)
            }
            Part::Element if row_axes > 0 && same_but_ones(domain, &unit_domain[..lead]) => {
                let indexed =
                    operands.iter().any(|&o| matches!(self.graph.op(self.access(o).0), Op::Iota { .. }));
                (!indexed && own.all(|(b, v)| self.level(b) == Level::Row && v.is_dense()))
                    .then_some(Part::Row)
            }
            Part::OverRows { axes, .. } if *domain == unit_domain && (row_axes == 0 || row_axes == axes) => {
                own.all(|(b, v)| is_element(b, &v)).then_some(part)
            }
            _ => None,
        }
    }

    fn consumers_outside(&self, unit: u32, with: u32) -> impl Iterator<Item = u32> {
        let consumers = self.units[unit as usize].consumers.iter().map(|&u| self.find(u));
        consumers.filter(move |&u| u != unit && u != with)
    }

    fn new_unit(&mut self, kind: UnitKind) -> u32 {
        let position = self.next_position();
        self.units.push(Unit {
            kind,
            values: vec![],
            position,
            consumers: vec![],
            loads_from: vec![],
            merged: NONE,
        });
        self.units.len() as u32 - 1
    }

    fn next_position(&mut self) -> u32 {
        self.positions += 1;
        self.positions
    }

    fn adopt(&mut self, unit: u32, value: ValueId, level: Level) {
        self.units[unit as usize].values.push(value);
        self.made_by[value.index()] = unit;
        self.level[value.index()] = level;
    }

    /// Notes that `unit` uses `base`, and whether it must load it from memory.
    fn depend(&mut self, unit: u32, base: ValueId, load: bool) {
        if let Some(maker) = self.maker(base)
            && maker != unit
        {
            let consumers = &mut self.units[maker as usize].consumers;
            if consumers.last() != Some(&unit) {
                consumers.push(unit);
            }
            if load {
                self.units[unit as usize].loads_from.push(maker);
            }
        }
    }
}

/// Whether two shapes are the same but for extents of one.
fn same_but_ones(a: &[usize], b: &[usize]) -> bool {
    a.iter().filter(|&&d| d != 1).eq(b.iter().filter(|&&d| d != 1))
}

/// Which nodes the step's outputs and states depend on.
fn needed(step: &Step) -> Vec<bool> {
    let graph = &step.graph;
    let mut needed = vec![false; graph.nodes().len()];
    for root in step.outputs.iter().map(|o| o.value).chain(step.states.iter().filter_map(|s| s.next)) {
        needed[graph.producer(root).index()] = true;
    }
    for index in (0..needed.len()).rev() {
        if needed[index] {
            for &operand in &graph.nodes()[index].operands {
                needed[graph.producer(operand).index()] = true;
            }
        }
    }
    needed
}
