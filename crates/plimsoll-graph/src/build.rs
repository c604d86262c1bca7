//! Building graphs comfortably: one method per op, with broadcasting where people expect it.
//!
//! The ops themselves are strict about shapes so that rules and kernels have one case each; these methods
//! insert the broadcasts and constants that strictness asks for.

use crate::op::*;
use crate::{Axes, DType, Error, Graph, Result, Shape, ValueId};

macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident => $op:expr;)*) => {
        impl Graph {$(
            $(#[$doc])*
            ///
            /// The operands broadcast.
            ///
            /// # Errors
            /// If the shapes do not broadcast or the types differ.
            pub fn $name(&mut self, a: ValueId, b: ValueId) -> Result<ValueId> {
                let (a, b) = self.broadcast_pair($op.name(), a, b)?;
                self.apply($op, &[a, b])
            }
        )*}
    };
}

binary! {
    /// a + b.
    add => Op::Binary(Binary::Add);
    /// a − b.
    sub => Op::Binary(Binary::Sub);
    /// a · b.
    mul => Op::Binary(Binary::Mul);
    /// a / b.
    div => Op::Binary(Binary::Div);
    /// The larger of a and b.
    max => Op::Binary(Binary::Max);
    /// The smaller of a and b.
    min => Op::Binary(Binary::Min);
    /// aᵇ.
    pow => Op::Binary(Binary::Pow);
    /// Whether a = b.
    eq => Op::Compare(Comparison::Eq);
    /// Whether a ≠ b.
    ne => Op::Compare(Comparison::Ne);
    /// Whether a < b.
    lt => Op::Compare(Comparison::Lt);
    /// Whether a ≤ b.
    le => Op::Compare(Comparison::Le);
    /// Whether a > b.
    gt => Op::Compare(Comparison::Gt);
    /// Whether a ≥ b.
    ge => Op::Compare(Comparison::Ge);
}

impl Graph {
    /// A value from outside, in the scope `name`.
    ///
    /// # Errors
    /// If the shape is beyond the limits of [`Shape::new`].
    pub fn input(&mut self, name: &str, shape: &[usize], dtype: DType) -> Result<ValueId> {
        let shape = Shape::new(shape)?;
        self.scoped(name, |g| g.apply(Op::Input { shape, dtype }, &[]))
    }

    /// A scalar constant.
    ///
    /// # Errors
    /// None in practice; constants always fit.
    pub fn constant(&mut self, value: f64, dtype: DType) -> Result<ValueId> {
        self.apply(Op::Constant { value, shape: Shape::SCALAR, dtype }, &[])
    }

    /// A constant of the shape and type of `like`.
    ///
    /// # Errors
    /// None in practice; constants always fit.
    pub fn full_like(&mut self, value: f64, like: ValueId) -> Result<ValueId> {
        let ty = self.ty(like);
        self.apply(Op::Constant { value, shape: ty.shape, dtype: ty.dtype }, &[])
    }

    /// The index along `axis`.
    ///
    /// # Errors
    /// If there is no such axis.
    pub fn iota(&mut self, shape: &[usize], axis: usize, dtype: DType) -> Result<ValueId> {
        self.apply(Op::Iota { shape: Shape::new(shape)?, axis, dtype }, &[])
    }

    /// Random numbers drawn from the `i64[3]` state of seed, step and first sample, different from those of any
    /// other call on this graph. `per_sample` is how many of them each sample of the batch has; 0 where they are
    /// not of samples.
    ///
    /// # Errors
    /// If `state` is not `i64[3]` or `dtype` is not a float.
    pub fn random(
        &mut self,
        distribution: Distribution,
        state: ValueId,
        shape: &[usize],
        dtype: DType,
        per_sample: u64,
    ) -> Result<ValueId> {
        let (shape, stream) = (Shape::new(shape)?, self.fresh_stream());
        self.apply(Op::Random { distribution, shape, dtype, stream, per_sample }, &[state])
    }

    /// `x + c` for a number.
    ///
    /// # Errors
    /// If `x` is bool.
    pub fn add_scalar(&mut self, x: ValueId, c: f64) -> Result<ValueId> {
        let c = self.full_like(c, x)?;
        self.add(x, c)
    }

    /// `x · c` for a number.
    ///
    /// # Errors
    /// If `x` is bool.
    pub fn mul_scalar(&mut self, x: ValueId, c: f64) -> Result<ValueId> {
        let c = self.full_like(c, x)?;
        self.mul(x, c)
    }

    /// x²
    ///
    /// # Errors
    /// If `x` is bool.
    pub fn square(&mut self, x: ValueId) -> Result<ValueId> {
        self.mul(x, x)
    }

    /// `a` where `condition` holds, else `b`; all three broadcast.
    ///
    /// # Errors
    /// If the shapes do not broadcast, the types differ or the condition is not bool.
    pub fn select(&mut self, condition: ValueId, a: ValueId, b: ValueId) -> Result<ValueId> {
        let (a, b) = self.broadcast_pair("select", a, b)?;
        let shape = Shape::broadcast(&self.shape(condition), &self.shape(a))
            .map_err(|e| e.at("select", self.current_scope()))?;
        let [condition, a, b] = [condition, a, b].map(|v| self.broadcast(v, &shape));
        self.apply(Op::Select, &[condition?, a?, b?])
    }

    /// Converts the element type; nothing if it is that already.
    ///
    /// # Errors
    /// None in practice; every type converts.
    pub fn cast(&mut self, x: ValueId, dtype: DType) -> Result<ValueId> {
        if self.dtype(x) == dtype { Ok(x) } else { self.apply(Op::Cast { dtype }, &[x]) }
    }

    /// Combines over the axes, which disappear.
    ///
    /// # Errors
    /// If an axis is not there or is given twice.
    pub fn reduce(&mut self, kind: Reduction, x: ValueId, axes: &[usize]) -> Result<ValueId> {
        let axes = Axes::new(axes, self.shape(x).rank()).map_err(|e| e.at("reduce", self.current_scope()))?;
        if axes.is_empty() {
            return Ok(x);
        }
        self.apply(Op::Reduce { kind, axes, wide: false }, &[x])
    }

    /// The sum over the axes, which disappear.
    ///
    /// # Errors
    /// If an axis is not there or is given twice.
    pub fn sum(&mut self, x: ValueId, axes: &[usize]) -> Result<ValueId> {
        self.reduce(Reduction::Sum, x, axes)
    }

    /// The sum of all elements.
    ///
    /// # Errors
    /// None in practice.
    pub fn sum_all(&mut self, x: ValueId) -> Result<ValueId> {
        let axes: Vec<usize> = (0..self.shape(x).rank()).collect();
        self.sum(x, &axes)
    }

    /// The mean over the axes, which disappear: the sum, kept in the accumulator type, divided by how many there are and
    /// rounded once. The mean of nothing is NaN.
    ///
    /// # Errors
    /// If an axis is not there or is given twice, or `x` is not a float.
    pub fn mean(&mut self, x: ValueId, axes: &[usize]) -> Result<ValueId> {
        let dtype = self.dtype(x);
        if !dtype.is_float() {
            let error = Error::dtype(format!("takes floats, this is {}", self.ty(x)));
            return Err(error.at("mean", self.current_scope()));
        }
        let shape = self.shape(x);
        let axes = Axes::new(axes, shape.rank()).map_err(|e| e.at("mean", self.current_scope()))?;
        if axes.is_empty() {
            return Ok(x);
        }
        let sum = self.apply(Op::Reduce { kind: Reduction::Sum, axes, wide: true }, &[x])?;
        let count: usize = axes.iter().map(|axis| shape[axis]).product();
        let count = self.full_like(count as f64, sum)?;
        let mean = self.div(sum, count)?;
        self.cast(mean, dtype)
    }

    /// The mean of all elements.
    ///
    /// # Errors
    /// If `x` is not a float.
    pub fn mean_all(&mut self, x: ValueId) -> Result<ValueId> {
        let axes: Vec<usize> = (0..self.shape(x).rank()).collect();
        self.mean(x, &axes)
    }

    /// How many integer labels are not negative, and at least 1, as `f32[]`.
    ///
    /// # Errors
    /// If the labels are not integers.
    pub fn count_labels(&mut self, labels: ValueId) -> Result<ValueId> {
        let zero = self.full_like(0.0, labels)?;
        let counts = self.ge(labels, zero)?;
        let ones = self.cast(counts, DType::F32)?;
        // Over an axis that is not the last: as a row it would become a part of the loop that adds up losses, and the
        // gradient, which needs the number alone, would wait for them.
        let column = self.reshape(ones, &[self.shape(labels).elements(), 1])?;
        let count = self.sum(column, &[0])?;
        let count = self.reshape(count, &[])?;
        let one = self.full_like(1.0, count)?;
        self.max(count, one)
    }

    /// The position of the first largest element along an axis.
    ///
    /// # Errors
    /// If the axis is not there.
    pub fn arg_max(&mut self, x: ValueId, axis: usize) -> Result<ValueId> {
        self.apply(Op::ArgMax { axis }, &[x])
    }

    /// The same elements under another shape; nothing if it is that already.
    ///
    /// # Errors
    /// If the element counts differ.
    pub fn reshape(&mut self, x: ValueId, shape: &[usize]) -> Result<ValueId> {
        let shape = self.new_shape("reshape", shape)?;
        if self.shape(x) == shape { Ok(x) } else { self.apply(Op::Reshape { shape }, &[x]) }
    }

    /// Reorders axes: axis i of the result is axis `order[i]` of `x`.
    ///
    /// # Errors
    /// If `order` does not name each axis once.
    pub fn permute(&mut self, x: ValueId, order: &[usize]) -> Result<ValueId> {
        let order = self.new_shape("permute", order)?;
        self.apply(Op::Permute { order }, &[x])
    }

    /// Repeats `x` to a shape; nothing if it is that already.
    ///
    /// # Errors
    /// If `x` does not broadcast to it.
    pub fn broadcast(&mut self, x: ValueId, shape: &[usize]) -> Result<ValueId> {
        let shape = self.new_shape("broadcast", shape)?;
        if self.shape(x) == shape { Ok(x) } else { self.apply(Op::Broadcast { shape }, &[x]) }
    }

    /// The part `range` along one axis.
    ///
    /// # Errors
    /// If the range is outside.
    pub fn slice_axis(&mut self, x: ValueId, axis: usize, range: std::ops::Range<usize>) -> Result<ValueId> {
        let shape = self.shape(x);
        Axes::new(&[axis], shape.rank()).map_err(|e| e.at("slice", self.current_scope()))?;
        let mut slice = Slice { start: shape, stop: shape, step: shape };
        slice.start.fill(0);
        slice.step.fill(1);
        slice.start[axis] = range.start;
        slice.stop[axis] = range.end;
        self.apply(Op::Slice(Box::new(slice)), &[x])
    }

    /// Values one after another along an axis.
    ///
    /// # Errors
    /// If they differ beside that axis.
    pub fn concat(&mut self, values: &[ValueId], axis: usize) -> Result<ValueId> {
        self.apply(Op::Concat { axis }, values)
    }

    /// The matrix product over the last two axes.
    ///
    /// # Errors
    /// If the inner extents or the leading axes differ.
    pub fn dot(&mut self, a: ValueId, b: ValueId) -> Result<ValueId> {
        self.dot_general(a, b, false, false)
    }

    /// The matrix product over the last two axes, each operand transposed or not.
    ///
    /// # Errors
    /// If the inner extents or the leading axes differ.
    pub fn dot_general(
        &mut self,
        a: ValueId,
        b: ValueId,
        transpose_a: bool,
        transpose_b: bool,
    ) -> Result<ValueId> {
        self.apply(Op::Dot { transpose_a, transpose_b }, &[a, b])
    }

    /// A shape given to an op.
    fn new_shape(&self, op: &str, dims: &[usize]) -> Result<Shape> {
        Shape::new(dims).map_err(|e| e.at(op, self.current_scope()))
    }

    /// Both values broadcast to their common shape.
    fn broadcast_pair(&mut self, op: &str, a: ValueId, b: ValueId) -> Result<(ValueId, ValueId)> {
        let shape =
            Shape::broadcast(&self.shape(a), &self.shape(b)).map_err(|e| e.at(op, self.current_scope()))?;
        Ok((self.broadcast(a, &shape)?, self.broadcast(b, &shape)?))
    }
}
