//! Reductions whose axes stay, and sums along an axis.

use super::Tensor;
use crate::{ErrorKind, Result, Shape};

macro_rules! keepdim {
    ($($(#[$doc:meta])* $name:ident => $reduction:ident;)*) => {
        impl Tensor {$(
            $(#[$doc])*
            ///
            /// # Errors
            /// If an axis is not there or is given twice, or there is nothing to choose from.
            pub fn $name(&self, axes: &[usize]) -> Result<Tensor> {
                self.$reduction(axes)?.reshape(&self.with_ones(axes))
            }
        )*}
    };
}

keepdim! {
    /// The sum over the axes, which stay with an extent of one, so that the result broadcasts against this.
    ///
    /// ```
    /// use plimsoll::Eager;
    /// let x = Eager::new()?.tensor(&[2, 2], &[1.0, 3.0, 2.0, 8.0])?;
    /// let parts = x.div(&x.sum_keepdim(&[1])?)?;
    /// assert_eq!(parts.to_vec()?, [0.25, 0.75, 0.2, 0.8]);
    /// # Ok::<(), plimsoll::Error>(())
    /// ```
    sum_keepdim => sum;
    /// The mean over the axes, which stay with an extent of one.
    mean_keepdim => mean;
    /// The largest over the axes, which stay with an extent of one.
    max_keepdim => max;
    /// The smallest over the axes, which stay with an extent of one.
    min_keepdim => min;
}

impl Tensor {
    /// The (biased) variance over the axes, which disappear: the mean of squared distances from the mean, so that a common
    /// offset costs no digits.
    ///
    /// # Errors
    /// If an axis is not there or is given twice, or this is not a float.
    pub fn variance(&self, axes: &[usize]) -> Result<Tensor> {
        self.precisely("variance", |x| x.sub(&x.mean_keepdim(axes)?)?.square()?.mean(axes))
    }

    /// The sums of all elements up to each along an axis.
    ///
    /// They are computed in as many rounds as the extent has binary digits, each a sum with itself moved by twice as much;
    /// so is the gradient.
    ///
    /// ```
    /// use plimsoll::Eager;
    /// let x = Eager::new()?.tensor(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])?;
    /// assert_eq!(x.cumsum(1)?.to_vec()?, [1.0, 3.0, 6.0, 4.0, 9.0, 15.0]);
    /// # Ok::<(), plimsoll::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the axis is not there.
    pub fn cumsum(&self, axis: usize) -> Result<Tensor> {
        self.expect_axis("cumsum", axis)?;
        let extent = self.shape()[axis];
        let mut sums = self.clone();
        let mut reach = 1;
        while reach < extent {
            sums = sums.add(&sums.shifted(axis, reach)?)?;
            reach *= 2;
        }
        Ok(sums)
    }

    /// The elements moved along an axis towards its end, which they may leave; zeros come in.
    fn shifted(&self, axis: usize, by: usize) -> Result<Tensor> {
        let mut border = vec![(0, 0); self.rank()];
        border[axis] = (by, 0);
        self.slice(axis, 0..self.shape()[axis] - by)?.pad(&border, 0.0)
    }

    /// The shape with one in the place of these axes; those that are not there are an error of the reduction.
    fn with_ones(&self, axes: &[usize]) -> Shape {
        let mut shape = self.shape();
        for &axis in axes.iter().filter(|&&axis| axis < self.rank()) {
            shape[axis] = 1;
        }
        shape
    }

    /// Requires an axis to be there.
    pub(crate) fn expect_axis(&self, op: &str, axis: usize) -> Result<()> {
        if axis < self.rank() {
            return Ok(());
        }
        let message = format!("{op}: there is no axis {axis} in {self}, which has {}", self.rank());
        Err(self.error(ErrorKind::Shape, message))
    }
}
