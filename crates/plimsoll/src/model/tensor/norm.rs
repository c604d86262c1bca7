//! Norms that are made of reductions over rows, which fuse into one loop. They are computed in the type of sums and rounded
//! once.

use super::Tensor;
use crate::{ErrorKind, Result};

impl Tensor {
    /// Divides by the root of the mean of the squares over the last axis, then scales by `gamma` `[last extent]`.
    ///
    /// # Errors
    /// If this is not a float with an axis, or `gamma` has another shape.
    pub fn rms_norm(&self, gamma: &Tensor, epsilon: f64) -> Result<Tensor> {
        self.expect_scales("rms_norm", &[gamma])?;
        self.precisely("rms_norm", |x| {
            let squares = x.square()?.mean_keepdim(&[x.rank() - 1])?;
            x.mul(&squares.reciprocal_root(epsilon)?)?.mul(&gamma.cast(x.dtype())?)
        })
    }

    /// Normalises groups of the channels (last axis) of each sample (first axis) over all axes between, then scales by
    /// `gamma` and shifts by `beta`, both `[channels]`.
    ///
    /// # Errors
    /// If this is not a float of at least two axes, the groups do not divide the channels, or `gamma` or `beta` has another
    /// shape.
    pub fn group_norm(&self, groups: usize, gamma: &Tensor, beta: &Tensor, epsilon: f64) -> Result<Tensor> {
        self.expect_scales("group_norm", &[gamma, beta])?;
        let (shape, rank) = (self.shape(), self.rank());
        if rank < 2 || groups == 0 || !shape[rank - 1].is_multiple_of(groups) {
            let message = format!(
                "group_norm: the input is [batch, .., channels], and {groups} groups divide the channels; this is {self}"
            );
            return Err(self.error(ErrorKind::Shape, message));
        }
        let between = shape[1..rank - 1].iter().product();
        self.precisely("group_norm", |x| {
            // What is summed over comes last, which is one loop over rows.
            let grouped = x.reshape(&[shape[0], between, groups, shape[rank - 1] / groups])?;
            let rows = grouped.permute(&[0, 2, 1, 3])?;
            let centred = rows.sub(&rows.mean_keepdim(&[2, 3])?)?;
            let variance = centred.square()?.mean_keepdim(&[2, 3])?;
            let y = centred.mul(&variance.reciprocal_root(epsilon)?)?;
            let y = y.permute(&[0, 2, 1, 3])?.reshape(&shape)?;
            y.mul(&gamma.cast(x.dtype())?)?.add(&beta.cast(x.dtype())?)
        })
    }

    /// One over the root of a mean of squares. The gradient of a quotient takes no cube, which would be nothing where numbers
    /// are large.
    fn reciprocal_root(&self, epsilon: f64) -> Result<Tensor> {
        let root = self.add_scalar(epsilon)?.sqrt()?;
        root.full_like(1.0)?.div(&root)
    }

    /// Requires scales to be `[last extent]`.
    fn expect_scales(&self, op: &str, scales: &[&Tensor]) -> Result<()> {
        let last = self.shape().last().copied();
        match scales.iter().find(|scale| last.is_none_or(|last| scale.shape()[..] != [last])) {
            None => Ok(()),
            Some(wrong) => {
                let message =
                    format!("{op}: scales are as many as the last axis of {self} has; these are {wrong}");
                Err(self.error(ErrorKind::Shape, message))
            }
        }
    }
}
