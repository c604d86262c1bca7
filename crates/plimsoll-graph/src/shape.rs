//! Shapes and sets of axes, as small values that are copied freely.
//!
//! A graph of a deep model has hundreds of thousands of values; keeping their shapes inline keeps tracing
//! free of allocations.

use crate::{Error, Result};
use serde::{Serialize, Serializer};
use std::fmt;
use std::ops::Deref;

/// The most axes a value may have.
pub const MAX_RANK: usize = 8;

/// The extents of a value, outermost axis first. Derefs to a slice.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    rank: u8,
    dims: [usize; MAX_RANK],
}

impl Shape {
    /// The shape of a single element.
    pub const SCALAR: Shape = Shape { rank: 0, dims: [0; MAX_RANK] };

    /// A shape of these extents.
    ///
    /// # Errors
    /// If there are more than [`MAX_RANK`] axes, or the element count overflows.
    pub fn new(dims: &[usize]) -> Result<Shape> {
        if dims.len() > MAX_RANK {
            return Err(Error::shape(format!(
                "shape {dims:?} has {} axes, the limit is {MAX_RANK}",
                dims.len()
            )));
        }
        // Eight bytes an element is the largest; a size in bytes must be representable, and so must the
        // product of any of the extents, which is what an extent of zero hides.
        let bytes = dims.iter().try_fold(8usize, |n, &d| n.checked_mul(d.max(1)));
        if bytes.is_none_or(|b| b > isize::MAX as usize) {
            return Err(Error::shape(format!("shape {dims:?} has more elements than can be addressed")));
        }
        Ok(Self::from_slice(dims))
    }

    /// A shape known to be within limits because it was derived from one that is.
    pub(crate) fn from_slice(dims: &[usize]) -> Shape {
        let mut shape = Shape { rank: dims.len() as u8, dims: [0; MAX_RANK] };
        shape.dims[..dims.len()].copy_from_slice(dims);
        shape
    }

    /// The number of elements.
    pub fn elements(&self) -> usize {
        self.iter().product()
    }

    /// The number of axes.
    pub fn rank(&self) -> usize {
        self.rank as usize
    }

    /// The distance in elements between neighbours along each axis, densely packed, last axis fastest.
    pub fn strides(&self) -> [usize; MAX_RANK] {
        let mut strides = [0; MAX_RANK];
        let mut step = 1;
        for axis in (0..self.rank()).rev() {
            strides[axis] = step;
            step *= self.dims[axis];
        }
        strides
    }

    /// The shape without the given axes.
    pub fn without(&self, axes: Axes) -> Shape {
        let mut out = Shape::SCALAR;
        for (axis, &dim) in self.iter().enumerate() {
            if !axes.contains(axis) {
                out.dims[out.rank as usize] = dim;
                out.rank += 1;
            }
        }
        out
    }

    /// The shape with the given axes set to one.
    pub fn with_ones(&self, axes: Axes) -> Shape {
        let mut out = *self;
        for axis in axes.iter() {
            out.dims[axis] = 1;
        }
        out
    }

    /// The shape with one axis set to another extent.
    pub fn with(&self, axis: usize, dim: usize) -> Shape {
        let mut out = *self;
        out[..][axis] = dim;
        out
    }

    /// The shape that both broadcast to: trailing axes aligned, an extent of one stretches.
    pub fn broadcast(a: &Shape, b: &Shape) -> Result<Shape> {
        let rank = a.rank().max(b.rank());
        let mut out = Shape { rank: rank as u8, dims: [0; MAX_RANK] };
        for i in 1..=rank {
            let x = if i <= a.rank() { a[a.rank() - i] } else { 1 };
            let y = if i <= b.rank() { b[b.rank() - i] } else { 1 };
            out.dims[rank - i] = match (x, y) {
                (x, y) if x == y => x,
                (1, y) => y,
                (x, 1) => x,
                _ => return Err(Error::shape(format!("{a} and {b} do not broadcast: {x} against {y}"))),
            };
        }
        Ok(out)
    }
}

impl Deref for Shape {
    type Target = [usize];

    fn deref(&self) -> &[usize] {
        &self.dims[..self.rank as usize]
    }
}

impl std::ops::DerefMut for Shape {
    fn deref_mut(&mut self) -> &mut [usize] {
        &mut self.dims[..self.rank as usize]
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (i, dim) in self.iter().enumerate() {
            write!(f, "{}{dim}", if i == 0 { "" } else { ", " })?;
        }
        f.write_str("]")
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Shape {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        self[..].serialize(serializer)
    }
}

impl TryFrom<&[usize]> for Shape {
    type Error = Error;

    fn try_from(dims: &[usize]) -> Result<Shape> {
        Shape::new(dims)
    }
}

/// A set of axes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Axes(u8);

impl Axes {
    /// The set of these axes.
    ///
    /// # Errors
    /// If an axis is not below `rank`, or is given twice.
    pub fn new(axes: &[usize], rank: usize) -> Result<Axes> {
        let mut set = 0u8;
        for &axis in axes {
            if axis >= rank {
                return Err(Error::shape(format!("axis {axis} of a value with {rank} axes")));
            }
            if set & (1 << axis) != 0 {
                return Err(Error::shape(format!("axis {axis} is given twice")));
            }
            set |= 1 << axis;
        }
        Ok(Axes(set))
    }

    /// All axes of a value of that rank.
    pub fn all(rank: usize) -> Axes {
        Axes(((1u16 << rank) - 1) as u8)
    }

    /// The last `count` axes of a value of that rank.
    pub fn last(count: usize, rank: usize) -> Axes {
        Axes(Axes::all(rank).0 & !Axes::all(rank - count).0)
    }

    /// Whether the axis is in the set.
    pub fn contains(self, axis: usize) -> bool {
        self.0 >> axis & 1 == 1
    }

    /// How many axes there are.
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The axes, ascending.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..MAX_RANK).filter(move |&axis| self.contains(axis))
    }
}

impl fmt::Debug for Axes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl Serialize for Axes {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}
