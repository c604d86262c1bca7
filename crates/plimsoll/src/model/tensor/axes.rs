//! Methods that move elements around: shapes, parts, joins.

use super::{Tensor, apply_one};
use crate::{DType, ErrorKind, Result};
use plimsoll_graph::Op;
use plimsoll_graph::op::{Pad, Slice};
use std::ops::Range;

impl Tensor {
    /// The same elements under another shape.
    ///
    /// # Errors
    /// If the element counts differ.
    pub fn reshape(&self, shape: &[usize]) -> Result<Tensor> {
        apply_one(&[self], |g, v| g.reshape(v[0], shape))
    }

    /// Reorders axes: axis i of the result is axis `order[i]` of this.
    ///
    /// # Errors
    /// If `order` does not name each axis once.
    pub fn permute(&self, order: &[usize]) -> Result<Tensor> {
        apply_one(&[self], |g, v| g.permute(v[0], order))
    }

    /// Swaps the last two axes.
    ///
    /// # Errors
    /// If there are fewer than two.
    pub fn transpose(&self) -> Result<Tensor> {
        let rank = self.rank();
        if rank < 2 {
            return Err(self.error(ErrorKind::Shape, format!("transpose: {self} has fewer than 2 axes")));
        }
        let mut order: Vec<usize> = (0..rank).collect();
        order.swap(rank - 2, rank - 1);
        self.permute(&order)
    }

    /// The same elements with a new axis of extent one, before the axis of that number or after the last.
    ///
    /// # Errors
    /// If there are fewer axes.
    pub fn unsqueeze(&self, axis: usize) -> Result<Tensor> {
        if axis > self.rank() {
            let message = format!("unsqueeze: there is no place {axis} for an axis in {self}");
            return Err(self.error(ErrorKind::Shape, message));
        }
        let mut shape = self.shape()[..].to_vec();
        shape.insert(axis, 1);
        self.reshape(&shape)
    }

    /// The same elements without an axis of extent one.
    ///
    /// # Errors
    /// If the axis is not there or has another extent.
    pub fn squeeze(&self, axis: usize) -> Result<Tensor> {
        self.expect_axis("squeeze", axis)?;
        let mut shape = self.shape()[..].to_vec();
        if shape.remove(axis) != 1 {
            let message = format!("squeeze: axis {axis} of {self} has an extent other than 1");
            return Err(self.error(ErrorKind::Shape, message));
        }
        self.reshape(&shape)
    }

    /// Every element along an axis this many times, one after another.
    ///
    /// # Errors
    /// If the axis is not there, or there would be more elements than can be addressed.
    pub fn repeat_interleave(&self, axis: usize, times: usize) -> Result<Tensor> {
        self.expect_axis("repeat_interleave", axis)?;
        let shape = self.shape();
        let Some(extent) = shape[axis].checked_mul(times) else {
            let message = format!("repeat_interleave: {self} times {times} is more than can be addressed");
            return Err(self.error(ErrorKind::Shape, message));
        };
        let (before, after) = (&shape[..=axis], &shape[axis + 1..]);
        let repeated = self.unsqueeze(axis + 1)?.broadcast(&[before, &[times], after].concat())?;
        repeated.reshape(&[&shape[..axis], &[extent], after].concat())
    }

    /// Repeats along axes of extent one and along new leading axes.
    ///
    /// # Errors
    /// If this does not broadcast to the shape.
    pub fn broadcast(&self, shape: &[usize]) -> Result<Tensor> {
        apply_one(&[self], |g, v| g.broadcast(v[0], shape))
    }

    /// The part `range` along one axis.
    ///
    /// # Errors
    /// If the axis is not there or the range is outside.
    pub fn slice(&self, axis: usize, range: Range<usize>) -> Result<Tensor> {
        apply_one(&[self], |g, v| g.slice_axis(v[0], axis, range.clone()))
    }

    /// Every `step`th of the part `range` along one axis, from its first on.
    ///
    /// # Errors
    /// If the axis is not there, the range is outside or the step is 0.
    pub fn slice_step(&self, axis: usize, range: Range<usize>, step: usize) -> Result<Tensor> {
        self.expect_axis("slice", axis)?;
        let mut slice = Slice { start: self.shape(), stop: self.shape(), step: self.shape() };
        slice.start.fill(0);
        slice.step.fill(1);
        (slice.start[axis], slice.stop[axis], slice.step[axis]) = (range.start, range.end, step);
        apply_one(&[self], |g, v| g.apply(Op::Slice(Box::new(slice.clone())), v))
    }

    /// A border of `value`: for each axis, how many elements before and after.
    ///
    /// # Errors
    /// If there is not one pair for each axis.
    pub fn pad(&self, border: &[(usize, usize)], value: f64) -> Result<Tensor> {
        let rank = self.rank();
        if border.len() != rank {
            let message = format!("pad: a border for {} axes on {self}, which has {rank}", border.len());
            return Err(self.error(ErrorKind::Shape, message));
        }
        let mut pad = Pad { before: self.shape(), after: self.shape(), between: self.shape(), value };
        pad.between.fill(0);
        for (axis, &(before, after)) in border.iter().enumerate() {
            (pad.before[axis], pad.after[axis]) = (before, after);
        }
        apply_one(&[self], |g, v| g.apply(Op::Pad(Box::new(pad.clone())), v))
    }

    /// Tensors one after another along an axis.
    ///
    /// # Errors
    /// If there are none, or they differ beside that axis.
    pub fn concat(tensors: &[&Tensor], axis: usize) -> Result<Tensor> {
        apply_one(tensors, |g, v| g.concat(v, axis))
    }

    /// A table `[rows, ..]` of zeros to which the rows of this are added, each at the integer of `indices` in its place. What
    /// is outside is left out.
    ///
    /// # Errors
    /// If the indices are not `i32` or `i64`, or their shape is not that of the first axes.
    pub fn scatter_add(&self, indices: &Tensor, rows: usize) -> Result<Tensor> {
        apply_one(&[indices, self], |g, v| g.apply(Op::ScatterAdd { rows }, v))
    }

    /// The index along an axis of a shape, as `i32`.
    pub(crate) fn iota(&self, shape: &[usize], axis: usize) -> Result<Tensor> {
        apply_one(&[self], |g, _| g.iota(shape, axis, DType::I32))
    }

    /// Rows of this table `[rows, ..]` by integer indices of any shape. An index outside gives NaN.
    ///
    /// # Errors
    /// If the indices are not `i32` or `i64`.
    pub fn gather(&self, indices: &Tensor) -> Result<Tensor> {
        apply_one(&[self, indices], |g, v| g.apply(Op::Gather, v))
    }
}
