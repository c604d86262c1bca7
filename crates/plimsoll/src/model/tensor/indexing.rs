//! Elements by their positions: along any axis, one-hot, mirrored borders.
//!
//! All of it is [`Tensor::gather`] and [`Tensor::scatter_add`] over rows, with positions computed where they are used.

use super::Tensor;
use crate::{DType, ErrorKind, Result};

/// What [`Tensor::pad_with`] surrounds a tensor with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PadMode {
    /// What is inside, mirrored at the first and last element, which are not repeated.
    Reflect,
    /// The first and last element.
    Replicate,
    /// What is at the other end.
    Circular,
}

impl Tensor {
    /// One at the position that each integer names, zero elsewhere: `[..]` becomes `[.., classes]`. A number that is no
    /// position has zeros alone.
    ///
    /// ```
    /// use plimsoll::{DType, Eager};
    /// let labels = Eager::new()?.integers(&[3], &[1, 0, -1])?;
    /// assert_eq!(labels.one_hot(2, DType::F32)?.to_vec()?, [0.0, 1.0, 1.0, 0.0, 0.0, 0.0]);
    /// # Ok::<(), plimsoll::Error>(())
    /// ```
    ///
    /// # Errors
    /// If this is not of integers.
    pub fn one_hot(&self, classes: usize, dtype: DType) -> Result<Tensor> {
        let indices = self.expect_indices("one_hot")?;
        let shape = [&self.shape()[..], &[classes]].concat();
        let position = self.iota(&shape, self.rank())?.cast(indices.dtype())?;
        position.eq(&indices.unsqueeze(self.rank())?)?.cast(dtype)
    }

    /// The parts along an axis that integers `[n]` name, in their order: PyTorch's `index_select`. An index outside gives
    /// NaN (or zero, of integers).
    ///
    /// # Errors
    /// If the axis is not there, or the indices are not integers `[n]`.
    pub fn index_select(&self, axis: usize, indices: &Tensor) -> Result<Tensor> {
        self.expect_axis("index_select", axis)?;
        if indices.rank() != 1 {
            let message = format!("index_select: the indices are integers [n], these are {indices}");
            return Err(self.error(ErrorKind::Shape, message));
        }
        let order = axis_first(self.rank(), axis);
        let rows = self.permute(&order)?.gather(&indices.expect_indices("index_select")?)?;
        rows.permute(&inverse(&order))
    }

    /// For each integer the element at that position of the axis, all other positions being its own: PyTorch's `gather`,
    /// numpy's `take_along_axis`. An index outside gives NaN (or zero, of integers).
    ///
    /// ```
    /// use plimsoll::Eager;
    /// let eager = Eager::new()?;
    /// let x = eager.tensor(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])?;
    /// let best = eager.integers(&[2, 1], &[2, 0])?;
    /// assert_eq!(x.gather_along(1, &best)?.to_vec()?, [3.0, 4.0]);
    /// # Ok::<(), plimsoll::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the axis is not there, the indices are not integers, or their shape is not that of this beside the axis.
    pub fn gather_along(&self, axis: usize, indices: &Tensor) -> Result<Tensor> {
        let places = self.places("gather_along", axis, indices, self.shape()[..].to_vec())?;
        self.reshape(&[self.shape().elements()])?.gather(&places)
    }

    /// Zeros of this shape, but `extent` along an axis, to which each element of this is added at the position of the axis
    /// that its integer names: PyTorch's `scatter_add` to zeros, and the gradient of [`Tensor::gather_along`]. What is
    /// outside is left out.
    ///
    /// # Errors
    /// If the axis is not there, or the indices are not integers of this shape.
    pub fn scatter_add_along(&self, axis: usize, indices: &Tensor, extent: usize) -> Result<Tensor> {
        self.expect_axis("scatter_add_along", axis)?;
        let mut shape = self.shape()[..].to_vec();
        shape[axis] = extent;
        let places = self.places("scatter_add_along", axis, indices, shape.clone())?;
        if indices.shape() != self.shape() {
            let message = format!("scatter_add_along: {indices} are indices for {self}: their shapes differ");
            return Err(self.error(ErrorKind::Shape, message));
        }
        let count = self.shape().elements();
        let flat = self.reshape(&[count])?.scatter_add(&places.reshape(&[count])?, shape.iter().product())?;
        flat.reshape(&shape)
    }

    /// The `count` largest numbers of each row (last axis), from the largest down, and their positions as `i32`; of equal
    /// ones the first comes first. Gradients go to where numbers were. Each takes a pass over the rows, which suits a few;
    /// there must be as many above −∞.
    ///
    /// ```
    /// use plimsoll::Eager;
    /// let x = Eager::new()?.tensor(&[1, 4], &[3.0, 9.0, 1.0, 7.0])?;
    /// let [values, positions] = x.top_k(2)?;
    /// assert_eq!((values.to_vec()?, positions.to_vec()?), (vec![9.0, 7.0], vec![1.0, 3.0]));
    /// # Ok::<(), plimsoll::Error>(())
    /// ```
    ///
    /// # Errors
    /// If this is not of floats in rows of as many.
    pub fn top_k(&self, count: usize) -> Result<[Tensor; 2]> {
        let width = self.shape().last().copied().unwrap_or(0);
        if !self.dtype().is_float() || !(1..=width).contains(&count) {
            let message = format!("top_k: the {count} largest of each row of floats, this is {self}");
            return Err(self.error(ErrorKind::Shape, message));
        }
        let last = self.rank() - 1;
        let mut left = self.stop_gradient()?;
        let mut positions = vec![];
        for _ in 0..count {
            let best = left.argmax(last)?;
            let taken = best.one_hot(width, DType::Bool)?;
            left = taken.select(&left.full_like(f64::NEG_INFINITY)?, &left)?;
            positions.push(best.unsqueeze(last)?);
        }
        let positions = Tensor::concat(&positions.iter().collect::<Vec<_>>(), last)?;
        Ok([self.gather_along(last, &positions)?, positions])
    }

    /// Where in a dense tensor of `shape` the elements are that indices along an axis name; −1 for those outside.
    fn places(&self, op: &str, axis: usize, indices: &Tensor, shape: Vec<usize>) -> Result<Tensor> {
        self.expect_axis(op, axis)?;
        let indices = indices.expect_indices(op)?;
        let of = indices.shape();
        let fits = of.rank() == shape.len() && (0..shape.len()).all(|i| i == axis || of[i] == shape[i]);
        if !fits {
            let message = format!(
                "{op}: {indices} are indices along axis {axis} of {shape:?}; other axes must be equal"
            );
            return Err(self.error(ErrorKind::Shape, message));
        }
        let elements: usize = shape.iter().product();
        let dtype = if i32::try_from(elements).is_ok() { indices.dtype() } else { DType::I64 };
        let indices = indices.cast(dtype)?;
        let mut stride = 1;
        let mut places = indices.full_like(0.0)?;
        for i in (0..shape.len()).rev() {
            let at = if i == axis { indices.clone() } else { indices.iota(&of, i)?.cast(dtype)? };
            places = places.add(&at.mul_scalar(stride as f64)?)?;
            stride *= shape[i];
        }
        let (first, end) = (indices.full_like(0.0)?, indices.full_like(shape[axis] as f64)?);
        let inside = indices.ge(&first)?.mul(&indices.lt(&end)?)?;
        inside.select(&places, &indices.full_like(-1.0)?)
    }

    /// A border made of what is inside: for each axis, how many elements before and after.
    ///
    /// ```
    /// use plimsoll::{Eager, PadMode};
    /// let x = Eager::new()?.tensor(&[4], &[1.0, 2.0, 3.0, 4.0])?;
    /// let padded = |mode| x.pad_with(&[(2, 1)], mode)?.to_vec();
    /// assert_eq!(padded(PadMode::Reflect)?, [3.0, 2.0, 1.0, 2.0, 3.0, 4.0, 3.0]);
    /// assert_eq!(padded(PadMode::Replicate)?, [1.0, 1.0, 1.0, 2.0, 3.0, 4.0, 4.0]);
    /// assert_eq!(padded(PadMode::Circular)?, [3.0, 4.0, 1.0, 2.0, 3.0, 4.0, 1.0]);
    /// # Ok::<(), plimsoll::Error>(())
    /// ```
    ///
    /// # Errors
    /// If there is not one pair for each axis, or a border takes more than is inside.
    pub fn pad_with(&self, border: &[(usize, usize)], mode: PadMode) -> Result<Tensor> {
        if border.len() != self.rank() {
            let message =
                format!("pad: a border for {} axes on {self}, which has {}", border.len(), self.rank());
            return Err(self.error(ErrorKind::Shape, message));
        }
        let mut padded = self.clone();
        for (axis, &(before, after)) in border.iter().enumerate().filter(|(_, border)| **border != (0, 0)) {
            let extent = self.shape()[axis];
            let most = match mode {
                PadMode::Reflect => extent.saturating_sub(1),
                PadMode::Replicate if extent > 0 => usize::MAX,
                PadMode::Replicate | PadMode::Circular => extent,
            };
            let count = extent.checked_add(before).and_then(|count| count.checked_add(after));
            let (Some(count), true) = (count, before.max(after) <= most) else {
                let message = format!(
                    "pad: a border of {before} and {after} on axis {axis} of {self}; {mode:?} has at most {most}"
                );
                return Err(self.error(ErrorKind::Shape, message));
            };
            let last = extent as f64 - 1.0;
            let at = self.iota(&[count], 0)?.add_scalar(-(before as f64))?;
            let inside = match mode {
                PadMode::Replicate => at.clamp(0.0, last.max(0.0))?,
                // |last − |x|| is how far the mirror image is from the end.
                PadMode::Reflect => at.abs()?.neg()?.add_scalar(last)?.abs()?.neg()?.add_scalar(last)?,
                PadMode::Circular => {
                    let below = at.lt(&at.full_like(0.0)?)?.select(&at.add_scalar(extent as f64)?, &at)?;
                    let over = below.ge(&below.full_like(extent as f64)?)?;
                    over.select(&below.add_scalar(-(extent as f64))?, &below)?
                }
            };
            padded = padded.index_select(axis, &inside)?;
        }
        Ok(padded)
    }

    /// Integers as ops take indices, or an error.
    fn expect_indices(&self, op: &str) -> Result<Tensor> {
        match self.dtype() {
            DType::U8 | DType::I32 | DType::I64 => self.as_indices(),
            _ => Err(self.error(ErrorKind::DType, format!("{op}: indices are integers, these are {self}"))),
        }
    }
}

/// All axes in their order, but one of them first.
fn axis_first(rank: usize, axis: usize) -> Vec<usize> {
    [axis].into_iter().chain((0..rank).filter(|&other| other != axis)).collect()
}

/// The order that undoes another.
fn inverse(order: &[usize]) -> Vec<usize> {
    let mut inverse = vec![0; order.len()];
    for (to, &from) in order.iter().enumerate() {
        inverse[from] = to;
    }
    inverse
}
