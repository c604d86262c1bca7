//! The matrix products that `Op::Dot` of two views asks for.
//!
//! Transposed, permuted and broadcast operands are a matter of strides. What every device then has to do is to map a
//! batch over any number of axes to as few as it can take: neighbouring axes that step alike are one axis, and a batch
//! of rows against one matrix is a longer matrix.

use crate::program::Operand;

/// Products of `m × k` by `k × n`, over the axes of a batch.
#[derive(Clone, Debug, PartialEq)]
pub struct Products {
    /// Rows of a and of the result.
    pub m: usize,
    /// Columns of b and of the result.
    pub n: usize,
    /// Columns of a, which are the rows of b.
    pub k: usize,
    /// The offset of a's first matrix, and the distances between its rows and between its columns.
    pub a: [usize; 3],
    /// The same of b.
    pub b: [usize; 3],
    /// The axes of the batch, the innermost first; none has a count of 1.
    pub axes: Vec<BatchAxis>,
}

/// An axis of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchAxis {
    /// How many matrices there are along it.
    pub count: usize,
    /// The distances between those of a, of b and of the result, which is dense.
    pub steps: [usize; 3],
}

impl Products {
    /// The products of two operands whose last two axes are matrices, each swapped first or not.
    pub fn new(transpose_a: bool, transpose_b: bool, a: &Operand, b: &Operand) -> Products {
        let lead = a.view.shape.rank() - 2;
        let matrix = |operand: &Operand, transposed: bool| {
            let view = operand.view;
            let (rows, columns) = if transposed { (lead + 1, lead) } else { (lead, lead + 1) };
            let strides = [view.offset, view.strides[rows], view.strides[columns]];
            (view.shape[rows], view.shape[columns], strides)
        };
        let ((m, k, a_strides), (_, n, b_strides)) = (matrix(a, transpose_a), matrix(b, transpose_b));
        let mut products = Products { m, n, k, a: a_strides, b: b_strides, axes: Vec::new() };
        let mut step = m * n;
        for axis in (0..lead).rev() {
            let count = a.view.shape[axis];
            products.push(BatchAxis { count, steps: [a.view.strides[axis], b.view.strides[axis], step] });
            step *= count;
        }
        products
    }

    /// Adds the next axis outwards, collapsed into the one before it if it can be.
    fn push(&mut self, axis: BatchAxis) {
        if axis.count == 1 {
            return;
        }
        let continues_rows = axis.steps[1] == 0 && axis.steps[0] == self.m * self.a[1];
        if self.axes.is_empty() && continues_rows {
            self.m *= axis.count;
            return;
        }
        match self.axes.last_mut() {
            Some(inner) if inner.steps.map(|step| step * inner.count) == axis.steps => {
                inner.count *= axis.count
            }
            _ => self.axes.push(axis),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::{BufferId, View};
    use crate::{DType, MAX_RANK, Shape};

    fn operand(dims: &[usize], strides: &[usize]) -> Operand {
        let shape = Shape::new(dims).expect("a shape");
        let mut all = [0; MAX_RANK];
        all[..strides.len()].copy_from_slice(strides);
        Operand { buffer: BufferId(0), dtype: DType::F32, view: View { shape, offset: 0, strides: all } }
    }

    #[test]
    fn a_matrix_repeated_over_the_batch_multiplies_one_longer_matrix() {
        let a = operand(&[4, 5, 6, 7], &[210, 42, 7, 1]);
        let b = operand(&[4, 5, 7, 3], &[0, 0, 3, 1]);
        let products = Products::new(false, false, &a, &b);
        assert_eq!((products.m, products.n, products.k), (120, 3, 7));
        assert_eq!(products.axes, []);
    }

    #[test]
    fn rows_that_do_not_follow_each_other_stay_a_batch() {
        let a = operand(&[4, 5, 6, 7], &[7, 168, 28, 1]);
        let b = operand(&[4, 5, 7, 3], &[0, 0, 3, 1]);
        let products = Products::new(false, false, &a, &b);
        assert_eq!((products.m, products.axes.len()), (6 * 5, 1));
        assert_eq!(products.axes[0], BatchAxis { count: 4, steps: [7, 0, 90] });
    }

    #[test]
    fn axes_that_step_alike_are_one() {
        let a = operand(&[2, 3, 5, 4], &[60, 20, 1, 5]);
        let b = operand(&[2, 3, 5, 6], &[90, 30, 6, 1]);
        let products = Products::new(true, false, &a, &b);
        assert_eq!(([products.m, products.n, products.k], products.a), ([4, 6, 5], [0, 5, 1]));
        assert_eq!(products.axes, [BatchAxis { count: 6, steps: [20, 30, 24] }]);
    }
}
