//! Gradients of slices that lie side by side.
//!
//! The gradient of a slice is zero wherever its operand was not taken. Where slices cover their operand without
//! overlap (queries, keys and values of one product, the steps of a sequence), adding up so many tensors of zeros
//! would read and write the operand's bytes once for each; their gradients are put one after another instead.

use super::{Contributions, Site};
use crate::op::{Op, Slice};
use crate::{Graph, NodeId, Result, Shape, ValueId};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

/// The gradients of slices that wait for those of their neighbours, by the value that was sliced.
#[derive(Default)]
pub(super) struct Tiles(HashMap<ValueId, Row>);

/// Slices along one axis, none of which overlap.
struct Row {
    axis: usize,
    /// By where it begins: where a slice ends, its node, and its gradient.
    tiles: BTreeMap<usize, (usize, NodeId, ValueId)>,
    /// How much of the axis no slice has covered yet.
    missing: usize,
}

impl Tiles {
    /// Takes the gradient of a slice. What its operand gets is nothing while neighbours are missing, and the whole
    /// gradient with the last of them. `None` if the site is no slice, or none that lies beside those it has.
    pub(super) fn add(&mut self, g: &mut Graph, site: &Site) -> Result<Option<Contributions>> {
        let Op::Slice(slice) = &site.op else { return Ok(None) };
        let operand = site.operands[0];
        let whole = g.shape(operand);
        let Some((axis, range)) = tile(slice, &whole) else { return Ok(None) };
        let row = self.0.entry(operand).or_insert_with(|| Row {
            axis,
            tiles: BTreeMap::new(),
            missing: whole[axis],
        });
        let before = row.tiles.range(..range.end).next_back();
        if row.axis != axis || before.is_some_and(|(_, &(end, ..))| end > range.start) {
            return Ok(None);
        }
        row.missing -= range.len();
        row.tiles.insert(range.start, (range.end, g.producer(site.results[0]), site.upstream));
        if row.missing > 0 {
            return Ok(Some(vec![None]));
        }
        let parts: Vec<ValueId> = self.left_over(operand).map(|(_, gradient)| gradient).collect();
        Ok(Some(vec![Some(g.concat(&parts, axis)?)]))
    }

    /// Gives up waiting: the slices of a value and their gradients, from the first on.
    pub(super) fn left_over(&mut self, value: ValueId) -> impl Iterator<Item = (NodeId, ValueId)> + use<> {
        let row = self.0.remove(&value);
        row.into_iter().flat_map(|row| row.tiles.into_values()).map(|(_, slice, gradient)| (slice, gradient))
    }
}

/// The one axis along which a slice takes less than all, and what it takes of it: some elements without gaps.
fn tile(slice: &Slice, whole: &Shape) -> Option<(usize, Range<usize>)> {
    let mut cut = (0..whole.rank()).filter(|&axis| slice.start[axis] > 0 || slice.stop[axis] < whole[axis]);
    let axis = cut.next()?;
    let range = slice.start[axis]..slice.stop[axis];
    let gapless = slice.step.iter().all(|&step| step == 1);
    (cut.next().is_none() && gapless && !range.is_empty()).then_some((axis, range))
}
