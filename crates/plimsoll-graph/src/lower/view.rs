//! Ops that only look at a value differently become views: no kernel, no bytes.

use crate::op::{Op, Slice};
use crate::program::View;
use crate::{MAX_RANK, Shape};

impl View {
    /// This view as seen through a movement op, or `None` if that would need a copy.
    pub(crate) fn through(&self, op: &Op) -> Option<View> {
        match op {
            Op::StopGradient => Some(*self),
            Op::Reshape { shape } => self.reshape(*shape),
            Op::Broadcast { shape } => Some(self.broadcast(*shape)),
            Op::Permute { order } => Some(self.permute(order)),
            Op::Slice(slice) => Some(self.slice(slice)),
            _ => None,
        }
    }

    fn broadcast(&self, shape: Shape) -> View {
        let mut strides = [0; MAX_RANK];
        let new = shape.rank() - self.shape.rank();
        for axis in 0..self.shape.rank() {
            if self.shape[axis] != 1 {
                strides[new + axis] = self.strides[axis];
            }
        }
        View { shape, offset: self.offset, strides }
    }

    fn permute(&self, order: &[usize]) -> View {
        let mut view = *self;
        for (to, &from) in order.iter().enumerate() {
            view.shape[to] = self.shape[from];
            view.strides[to] = self.strides[from];
        }
        view
    }

    fn slice(&self, slice: &Slice) -> View {
        let mut view = *self;
        for axis in 0..self.shape.rank() {
            view.offset += slice.start[axis] * self.strides[axis];
            view.strides[axis] *= slice.step[axis];
            view.shape[axis] = (slice.stop[axis] - slice.start[axis]).div_ceil(slice.step[axis]);
        }
        view
    }

    /// Splits and joins axes where the strides allow it: runs of old axes and of new axes with equal element
    /// counts are matched from the left, and an old run must be walkable with one stride.
    fn reshape(&self, shape: Shape) -> Option<View> {
        if shape.elements() == 0 {
            return Some(View { offset: self.offset, ..View::dense(shape) });
        }
        let old: Vec<(usize, usize)> =
            self.shape.iter().zip(self.strides).filter(|&(&d, _)| d != 1).map(|(&d, s)| (d, s)).collect();
        let mut strides = [0; MAX_RANK];
        let (mut i, mut j) = (0, 0);
        while i < old.len() {
            let mut have = old[i].0;
            let (start, mut want) = (j, shape[j]);
            j += 1;
            i += 1;
            while have != want {
                if have < want {
                    if old[i - 1].1 != old[i].0 * old[i].1 {
                        return None;
                    }
                    have *= old[i].0;
                    i += 1;
                } else {
                    want *= shape[j];
                    j += 1;
                }
            }
            let mut stride = old[i - 1].1;
            for axis in (start..j).rev() {
                strides[axis] = stride;
                stride *= shape[axis];
            }
        }
        Some(View { shape, offset: self.offset, strides })
    }

    /// The same walk with all axes but the last made one, as `domain` says, or `None` if no stride walks them so.
    pub(crate) fn joined_to(&self, domain: Shape) -> Option<View> {
        let last = self.shape.rank() - 1;
        let mut strides = [0; MAX_RANK];
        let mut lead = (0..last).rev().filter(|&axis| self.shape[axis] != 1);
        if let Some(inner) = lead.next() {
            strides[0] = self.strides[inner];
            let mut step = strides[0] * self.shape[inner];
            for axis in lead {
                if self.strides[axis] != step {
                    return None;
                }
                step *= self.shape[axis];
            }
        }
        strides[1] = self.strides[last];
        Some(View { shape: domain, offset: self.offset, strides })
    }

    /// The view of its elements without those axes, if it is the same along them.
    pub(crate) fn constant_along_last(&self, axes: usize) -> Option<View> {
        let lead = self.shape.rank() - axes;
        let constant = (lead..self.shape.rank()).all(|axis| self.strides[axis] == 0 || self.shape[axis] == 1);
        constant.then(|| {
            let mut strides = [0; MAX_RANK];
            strides[..lead].copy_from_slice(&self.strides[..lead]);
            View { shape: Shape::from_slice(&self.shape[..lead]), offset: self.offset, strides }
        })
    }

    /// The same walk under a shape that differs in extents of one only, or `None`.
    pub(crate) fn with_ones_moved(&self, shape: Shape) -> Option<View> {
        let mut strides = [0; MAX_RANK];
        let mut from = (0..self.shape.rank()).filter(|&axis| self.shape[axis] != 1);
        for (axis, &dim) in shape.iter().enumerate().filter(|&(_, &dim)| dim != 1) {
            let source = from.next()?;
            if self.shape[source] != dim {
                return None;
            }
            strides[axis] = self.strides[source];
        }
        from.next().is_none().then_some(View { shape, offset: self.offset, strides })
    }

    /// How many different elements of the buffer are seen.
    pub(crate) fn distinct(&self) -> usize {
        self.shape.iter().zip(self.strides).filter(|&(_, stride)| stride != 0).map(|(&dim, _)| dim).product()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dense(dims: &[usize]) -> View {
        View::dense(Shape::new(dims).unwrap())
    }

    #[test]
    fn a_dense_view_takes_any_shape_of_as_many_elements() {
        let view = dense(&[4, 6]).reshape(Shape::new(&[2, 2, 3, 2]).unwrap()).unwrap();
        assert_eq!(view, dense(&[2, 2, 3, 2]));
    }

    #[test]
    fn axes_of_a_transposed_view_split_but_do_not_join() {
        let transposed = dense(&[4, 6]).permute(&[1, 0]);
        assert!(transposed.reshape(Shape::new(&[24]).unwrap()).is_none());
        let split = transposed.reshape(Shape::new(&[3, 2, 1, 4]).unwrap()).unwrap();
        assert_eq!(split.strides[..4], [2, 1, 24, 6]);
    }

    #[test]
    fn a_middle_slice_keeps_its_offset_through_a_reshape() {
        let slice = Slice {
            start: Shape::new(&[0, 3]).unwrap(),
            stop: Shape::new(&[4, 6]).unwrap(),
            step: Shape::new(&[1, 1]).unwrap(),
        };
        let view = dense(&[4, 9]).slice(&slice).reshape(Shape::new(&[2, 2, 3]).unwrap()).unwrap();
        assert_eq!((view.offset, &view.strides[..3]), (3, &[18, 9, 1][..]));
    }
}
