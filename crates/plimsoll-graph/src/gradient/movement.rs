//! Rules of ops that move, repeat and sum elements. Each is linear, and its rule is its transpose, which is
//! again an op of this kind; only the choice of a largest or smallest element needs the numbers.

use super::{Contributions, Site, precisely};
use crate::op::{Op, Pad, Reduction, Slice};
use crate::{Axes, Graph, NodeId, Result, Shape, ValueId};

/// A sum's transpose repeats. A largest (or smallest) element gets the gradient; several that are equally
/// large share it in equal parts.
pub(super) fn reduce(g: &mut Graph, site: &Site, kind: Reduction, axes: Axes) -> Result<Contributions> {
    let (x, y, u) = (site.operands[0], site.results[0], site.upstream);
    let shape = g.shape(x);
    if kind == Reduction::Sum {
        let u = g.cast(u, g.dtype(x))?;
        return Ok(vec![Some(repeat(g, u, &shape, axes)?)]);
    }
    let extreme = repeat(g, y, &shape, axes)?;
    // Beside NaN, which is below and above nothing, the gradient must not vanish.
    let passed_over = if kind == Reduction::Max { g.lt(x, extreme)? } else { g.gt(x, extreme)? };
    let chosen = g.not(passed_over)?;
    let ones = g.cast(chosen, g.dtype(x).accumulator())?;
    let count = g.apply(Op::Reduce { kind: Reduction::Sum, axes, wide: false }, &[ones])?;
    let share = precisely(g, [u], |g, [u]| g.div(u, count))?;
    let share = repeat(g, share, &shape, axes)?;
    let zero = g.full_like(0.0, x)?;
    Ok(vec![Some(g.select(chosen, share, zero)?)])
}

/// `x`, which lacks `axes` of `shape`, repeated along them.
pub(super) fn repeat(g: &mut Graph, x: ValueId, shape: &Shape, axes: Axes) -> Result<ValueId> {
    let kept = g.reshape(x, &shape.with_ones(axes))?;
    g.broadcast(kept, shape)
}

/// The sum over the axes that were repeated.
pub(super) fn broadcast(g: &mut Graph, site: &Site) -> Result<Contributions> {
    let (from, to) = (g.shape(site.operands[0]), g.shape(site.results[0]));
    let new = to.rank() - from.rank();
    let repeated: Vec<usize> =
        (0..to.rank()).filter(|&axis| axis < new || from[axis - new] != to[axis]).collect();
    let sum = g.sum(site.upstream, &repeated)?;
    Ok(vec![Some(g.reshape(sum, &from)?)])
}

pub(super) fn reshape(g: &mut Graph, site: &Site) -> Result<Contributions> {
    let shape = g.shape(site.operands[0]);
    Ok(vec![Some(g.reshape(site.upstream, &shape)?)])
}

/// The inverse permutation.
pub(super) fn permute(g: &mut Graph, site: &Site, order: &Shape) -> Result<Contributions> {
    let mut inverse = *order;
    for (to, &from) in order.iter().enumerate() {
        inverse[from] = to;
    }
    Ok(vec![Some(g.permute(site.upstream, &inverse)?)])
}

/// Zeros around and between.
pub(super) fn slice(g: &mut Graph, site: &Site) -> Result<Contributions> {
    Ok(vec![Some(padded(g, g.producer(site.results[0]), site.upstream)?)])
}

/// The gradient `upstream` of a slice, with zeros wherever its operand was not taken.
pub(super) fn padded(g: &mut Graph, slice: NodeId, upstream: ValueId) -> Result<ValueId> {
    let node = g.node(slice);
    let (Op::Slice(slice), whole) = (&node.op, g.shape(node.operands[0])) else { return Ok(upstream) };
    let part = g.shape(upstream);
    let mut pad = Pad { before: slice.start, after: whole, between: slice.step, value: 0.0 };
    for axis in 0..whole.rank() {
        pad.between[axis] = slice.step[axis] - 1;
        let covered = part[axis] + part[axis].saturating_sub(1) * pad.between[axis];
        pad.after[axis] = whole[axis] - pad.before[axis] - covered;
    }
    g.apply(Op::Pad(Box::new(pad)), &[upstream])
}

/// The part inside the border; the border itself is constant.
pub(super) fn pad(g: &mut Graph, site: &Site, pad: &Pad) -> Result<Contributions> {
    let (inner, whole) = (g.shape(site.operands[0]), g.shape(site.results[0]));
    let mut slice = Slice { start: pad.before, stop: whole, step: pad.between };
    for axis in 0..whole.rank() {
        slice.stop[axis] = whole[axis] - pad.after[axis];
        slice.step[axis] = if inner[axis] == 0 { 1 } else { pad.between[axis] + 1 };
    }
    Ok(vec![Some(g.apply(Op::Slice(Box::new(slice)), &[site.upstream])?)])
}

/// Each operand's own part.
pub(super) fn concat(g: &mut Graph, site: &Site, axis: usize) -> Result<Contributions> {
    let mut stop = 0;
    let parts: Vec<_> = site
        .operands
        .iter()
        .map(|&operand| {
            let start = stop;
            stop += g.shape(operand)[axis];
            start..stop
        })
        .collect();
    site.each(|i| g.slice_axis(site.upstream, axis, parts[i].clone()))
}

/// Each row of the table gets the sum of its uses.
pub(super) fn gather(g: &mut Graph, site: &Site) -> Result<Contributions> {
    let rows = g.shape(site.operands[0])[0];
    let dx = g.apply(Op::ScatterAdd { rows }, &[site.operands[1], site.upstream])?;
    Ok(vec![Some(dx), None])
}

/// Each update gets its row's gradient, and zero if its index was outside and it was skipped.
pub(super) fn scatter_add(g: &mut Graph, site: &Site, rows: usize) -> Result<Contributions> {
    let (indices, updates) = (site.operands[0], site.operands[1]);
    let taken = g.apply(Op::Gather, &[site.upstream, indices])?;
    let first = g.full_like(0.0, indices)?;
    let end = g.full_like(rows as f64, indices)?;
    let not_before = g.ge(indices, first)?;
    let not_after = g.lt(indices, end)?;
    let inside = g.mul(not_before, not_after)?;
    let shape = g.shape(updates);
    let inside = repeat(g, inside, &shape, Axes::last(shape.rank() - g.shape(indices).rank(), shape.rank()))?;
    let zero = g.full_like(0.0, updates)?;
    Ok(vec![None, Some(g.select(inside, taken, zero)?)])
}
