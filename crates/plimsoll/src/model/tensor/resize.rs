//! Images at another size.

use super::Tensor;
use crate::{DType, ErrorKind, Result};

/// How [`Tensor::resize`] makes pixels of pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Resize {
    /// Each pixel is the one it lies on.
    Nearest,
    /// Each pixel is between the four around it, which are squares side by side: PyTorch's `bilinear` with
    /// `align_corners = false`.
    Bilinear,
    /// The same with the corners of both images at the same places: `align_corners = true`.
    BilinearAligned,
}

impl Tensor {
    /// Images `[batch, height, width, channels]` at another height and width: PyTorch's `interpolate`.
    ///
    /// Pixels that are repeated whole times are a broadcast; other nearest ones are looked up; those in between are
    /// products with a matrix `[to, from]` for each axis, of which every row has two weights. So is their gradient, which
    /// is the same bits on every run.
    ///
    /// ```
    /// use plimsoll::{Eager, Resize};
    /// let x = Eager::new()?.tensor(&[1, 1, 2, 1], &[0.0, 4.0])?;
    /// let wide = |how| x.resize([1, 4], how)?.to_vec();
    /// assert_eq!(wide(Resize::Nearest)?, [0.0, 0.0, 4.0, 4.0]);
    /// assert_eq!(wide(Resize::Bilinear)?, [0.0, 1.0, 3.0, 4.0]);
    /// # Ok::<(), plimsoll::Error>(())
    /// ```
    ///
    /// # Errors
    /// If these are not images of floats with pixels, or no pixels are asked for.
    pub fn resize(&self, size: [usize; 2], how: Resize) -> Result<Tensor> {
        let whole = self.rank() == 4 && self.shape()[1..3].iter().chain(&size).all(|&extent| extent > 0);
        if !whole || !self.dtype().is_float() {
            let message = format!(
                "resize: takes floats [batch, height, width, channels] and a size of at least 1 × 1; these are \
                 {self} and {} × {}",
                size[0], size[1]
            );
            return Err(self.error(ErrorKind::Shape, message));
        }
        let tall = self.resize_axis(1, size[0], how)?;
        tall.resize_axis(2, size[1], how)
    }

    fn resize_axis(&self, axis: usize, to: usize, how: Resize) -> Result<Tensor> {
        let from = self.shape()[axis];
        match how {
            _ if to == from => Ok(self.clone()),
            Resize::Nearest if to.is_multiple_of(from) => self.repeat_interleave(axis, to / from),
            Resize::Nearest => {
                // Whole numbers, which no rounding moves to the next pixel.
                let at = self.iota(&[to], 0)?.cast(DType::I64)?.mul_scalar(from as f64)?;
                self.index_select(axis, &at.div(&at.full_like(to as f64)?)?)
            }
            Resize::Bilinear | Resize::BilinearAligned => {
                let weights = self.between(from, to, how)?.cast(self.dtype())?;
                let [batch, height, width, channels] = [0, 1, 2, 3].map(|axis| self.shape()[axis]);
                if axis == 1 {
                    let rows = self.reshape(&[batch, height, width * channels])?;
                    let weights = weights.broadcast(&[batch, to, from])?;
                    weights.matmul(&rows)?.reshape(&[batch, to, width, channels])
                } else {
                    let rows = self.reshape(&[batch * height, width, channels])?;
                    let weights = weights.broadcast(&[batch * height, to, from])?;
                    weights.matmul(&rows)?.reshape(&[batch, height, to, channels])
                }
            }
        }
    }

    /// The weight `[to, from]` of each old position in each new one.
    fn between(&self, from: usize, to: usize, how: Resize) -> Result<Tensor> {
        let positions = |axis| self.iota(&[to, from], axis)?.cast(DType::F32);
        let at = positions(0)?;
        let last = from as f64 - 1.0;
        let at = match how {
            Resize::BilinearAligned => at.mul_scalar(last / (to.max(2) - 1) as f64)?,
            _ => at.add_scalar(0.5)?.mul_scalar(from as f64 / to as f64)?.add_scalar(-0.5)?,
        };
        let distance = at.clamp(0.0, last)?.sub(&positions(1)?)?.abs()?;
        distance.neg()?.add_scalar(1.0)?.relu()
    }
}
