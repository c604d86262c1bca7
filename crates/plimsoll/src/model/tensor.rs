//! Tensors: what model functions compute with.
//!
//! A model function should not know whether it is traced into a step or run at once, so there is one tensor
//! type with one method per op. Every method goes through [`apply`], which is given the op as graph code:
//! tracing appends it to the step, eager mode runs it.

mod activation;
mod attention;
mod axes;
mod einsum;
mod indexing;
mod norm;
mod reduce;
mod resize;
mod structured;

pub(crate) use activation::wide;
pub use attention::Attend;
pub use indexing::PadMode;
pub use resize::Resize;

use crate::eager::{EagerState, Real};
use crate::model::trace::Trace;
use crate::{Array, DType, Error, ErrorKind, Result, Shape};
use plimsoll_graph::op::Reduction;
use plimsoll_graph::{Graph, Op, ValueId, ValueType, with_unary_functions};
use std::fmt;
use std::rc::Rc;

/// A value of a model. Its shape and element type are known; its numbers are computed when the step runs, or
/// are there already in eager mode.
///
/// Methods return a new tensor, or an error that names the op, the shapes and the scope. Where two tensors
/// meet, their shapes broadcast (trailing axes aligned, an extent of one stretches) and their element types
/// must be equal.
///
/// ```
/// use plimsoll::{Context, DType, Precision};
/// let cx = Context::trace(false, Precision::F32);
/// let x = cx.input("x", &[32, 10], DType::F32)?;
/// let centred = x.sub(&x.mean(&[0])?)?;
/// assert_eq!(centred.shape()[..], [32, 10]);
/// # Ok::<(), plimsoll::Error>(())
/// ```
#[derive(Clone)]
pub struct Tensor {
    ty: ValueType,
    place: Place,
}

/// Where a tensor's numbers are.
#[derive(Clone)]
enum Place {
    /// In a step that has yet to run.
    Traced { trace: Rc<Trace>, value: ValueId },
    /// In memory.
    Real(Real),
}

/// Applies an op, or a few that belong together, given as graph code over the operands. `build` computes
/// nothing but its results and may be called more than once.
pub(crate) fn apply<const N: usize>(
    operands: &[&Tensor],
    build: impl Fn(&mut Graph, &[ValueId]) -> plimsoll_graph::Result<[ValueId; N]>,
) -> Result<[Tensor; N]> {
    let Some(first) = operands.first() else {
        return Err(Error::new(ErrorKind::Argument, "there are no tensors to apply an op to"));
    };
    let trace = match &first.place {
        Place::Traced { trace, .. } => trace,
        Place::Real(real) => return real.state.apply(operands, build),
    };
    let values: Vec<ValueId> = operands.iter().map(|x| x.traced_in(trace)).collect::<Result<_>>()?;
    trace.extend(|step| {
        let results = build(&mut step.graph, &values)?;
        Ok(results.map(|value| Tensor::traced(trace, &step.graph, value)))
    })
}

/// [`apply`] for one result.
pub(crate) fn apply_one(
    operands: &[&Tensor],
    build: impl Fn(&mut Graph, &[ValueId]) -> plimsoll_graph::Result<ValueId>,
) -> Result<Tensor> {
    let [result] = apply(operands, |g, v| Ok([build(g, v)?]))?;
    Ok(result)
}

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident $function:ident $domain:ident $exact:literal $additions:literal $tried:expr;)*) => {
        impl Tensor {$(
            $(#[$doc])*
            ///
            /// # Errors
            /// If the element type is not one the function takes.
            pub fn $name(&self) -> Result<Tensor> {
                apply_one(&[self], |g, v| g.$name(v[0]))
            }
        )*}
    };
}

with_unary_functions!(unary);

macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident => $method:ident;)*) => {
        impl Tensor {$(
            $(#[$doc])*
            ///
            /// The operands broadcast.
            ///
            /// # Errors
            /// If the shapes do not broadcast or the element types differ.
            pub fn $name(&self, other: &Tensor) -> Result<Tensor> {
                apply_one(&[self, other], |g, v| g.$method(v[0], v[1]))
            }
        )*}
    };
}

binary! {
    /// The sum.
    add => add;
    /// The difference.
    sub => sub;
    /// The product, element by element.
    mul => mul;
    /// The quotient, element by element.
    div => div;
    /// The larger.
    maximum => max;
    /// The smaller.
    minimum => min;
    /// The power.
    pow => pow;
    /// Whether equal, as bool.
    eq => eq;
    /// Whether different, as bool.
    ne => ne;
    /// Whether less, as bool.
    lt => lt;
    /// Whether less or equal, as bool.
    le => le;
    /// Whether greater, as bool.
    gt => gt;
    /// Whether greater or equal, as bool.
    ge => ge;
}

macro_rules! reduction {
    ($($(#[$doc:meta])* $name:ident => $kind:ident;)*) => {
        impl Tensor {$(
            $(#[$doc])*
            ///
            /// # Errors
            /// If an axis is not there or is given twice.
            pub fn $name(&self, axes: &[usize]) -> Result<Tensor> {
                apply_one(&[self], |g, v| g.reduce(Reduction::$kind, v[0], axes))
            }
        )*}
    };
}

reduction! {
    /// The sum over the axes, which disappear.
    sum => Sum;
    /// The largest over the axes, which disappear.
    max => Max;
    /// The smallest over the axes, which disappear.
    min => Min;
}

impl Tensor {
    /// How many of integer labels are not negative, and at least 1, as `f32[]`: in a part of a batch those of the whole, as
    /// far as the part is of it.
    pub(crate) fn counted(&self) -> Result<Tensor> {
        match &self.place {
            Place::Real(_) => apply_one(&[self], |g, v| g.count_labels(v[0])),
            Place::Traced { trace, value } => trace.extend(|step| {
                let count = step.count_labels(*value, trace.is_part)?;
                Ok(Tensor::traced(trace, &step.graph, count))
            }),
        }
    }

    /// The extents, outermost axis first.
    pub fn shape(&self) -> Shape {
        self.ty.shape
    }

    /// The number of axes.
    pub fn rank(&self) -> usize {
        self.ty.shape.rank()
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.ty.dtype
    }

    /// x²
    ///
    /// # Errors
    /// If `x` is bool.
    pub fn square(&self) -> Result<Tensor> {
        apply_one(&[self], |g, v| g.square(v[0]))
    }

    /// `x + c` for a number.
    ///
    /// # Errors
    /// If `x` is bool.
    pub fn add_scalar(&self, c: f64) -> Result<Tensor> {
        apply_one(&[self], |g, v| g.add_scalar(v[0], c))
    }

    /// `x · c` for a number.
    ///
    /// # Errors
    /// If `x` is bool.
    pub fn mul_scalar(&self, c: f64) -> Result<Tensor> {
        apply_one(&[self], |g, v| g.mul_scalar(v[0], c))
    }

    /// The same number everywhere, in the shape and element type of this tensor.
    ///
    /// # Errors
    /// If the tensor's step has already been taken.
    pub fn full_like(&self, value: f64) -> Result<Tensor> {
        apply_one(&[self], |g, v| g.full_like(value, v[0]))
    }

    /// `a` where this holds (it is bool), else `b`; all three broadcast.
    ///
    /// # Errors
    /// If the shapes do not broadcast, the types differ or this is not bool.
    pub fn select(&self, a: &Tensor, b: &Tensor) -> Result<Tensor> {
        apply_one(&[self, a, b], |g, v| g.select(v[0], v[1], v[2]))
    }

    /// Converts the element type; nothing if it is that already.
    ///
    /// # Errors
    /// If the tensor's step has already been taken.
    pub fn cast(&self, dtype: DType) -> Result<Tensor> {
        apply_one(&[self], |g, v| g.cast(v[0], dtype))
    }

    /// The same numbers, which no gradient flows through.
    ///
    /// # Errors
    /// If the tensor's step has already been taken.
    pub fn stop_gradient(&self) -> Result<Tensor> {
        apply_one(&[self], |g, v| g.apply(Op::StopGradient, v))
    }

    /// The mean over the axes, which disappear.
    ///
    /// # Errors
    /// If an axis is not there or is given twice, or this is not a float.
    pub fn mean(&self, axes: &[usize]) -> Result<Tensor> {
        apply_one(&[self], |g, v| g.mean(v[0], axes))
    }

    /// The sum of all elements.
    ///
    /// # Errors
    /// If the tensor's step has already been taken.
    pub fn sum_all(&self) -> Result<Tensor> {
        apply_one(&[self], |g, v| g.sum_all(v[0]))
    }

    /// The mean of all elements.
    ///
    /// # Errors
    /// If this is not a float.
    pub fn mean_all(&self) -> Result<Tensor> {
        apply_one(&[self], |g, v| g.mean_all(v[0]))
    }

    /// The position of the first largest element along an axis, which disappears, as `i32`.
    ///
    /// # Errors
    /// If the axis is not there or is empty.
    pub fn argmax(&self, axis: usize) -> Result<Tensor> {
        apply_one(&[self], |g, v| g.arg_max(v[0], axis))
    }

    /// A tensor of `trace`.
    pub(crate) fn traced(trace: &Rc<Trace>, graph: &Graph, value: ValueId) -> Tensor {
        Tensor { ty: graph.ty(value), place: Place::Traced { trace: Rc::clone(trace), value } }
    }

    /// The value in `trace`, if the tensor is of it.
    pub(crate) fn traced_in(&self, trace: &Rc<Trace>) -> Result<ValueId> {
        match &self.place {
            Place::Traced { trace: own, value } if Rc::ptr_eq(own, trace) => Ok(*value),
            _ => Err(self.foreign()),
        }
    }

    /// A tensor in memory.
    pub(crate) fn real_tensor(shape: Shape, dtype: DType, real: Real) -> Tensor {
        Tensor { ty: ValueType { shape, dtype }, place: Place::Real(real) }
    }

    /// The memory of the tensor, if it has any.
    pub(crate) fn real(&self) -> Result<&Real> {
        match &self.place {
            Place::Real(real) => Ok(real),
            Place::Traced { .. } => Err(Error::new(
                ErrorKind::Trace,
                format!("{} is traced: its numbers are computed when its step runs", self.ty),
            )),
        }
    }

    /// The memory of the tensor, if it is of that eager mode.
    pub(crate) fn real_in(&self, state: &Rc<EagerState>) -> Result<&Real> {
        match &self.place {
            Place::Real(real) if Rc::ptr_eq(&real.state, state) => Ok(real),
            _ => Err(self.foreign()),
        }
    }

    fn foreign(&self) -> Error {
        let message = format!("{} belongs to another trace; tensors of one context stay with it", self.ty);
        Error::new(ErrorKind::Trace, message)
    }

    /// The numbers of an eager tensor, row-major, converted to `f32`.
    ///
    /// # Errors
    /// If the tensor is traced and has no numbers yet.
    pub fn to_vec(&self) -> Result<Vec<f32>> {
        let wide = self.cast(DType::F32)?;
        wide.to_array()?.to_vec()
    }

    /// The numbers of an eager tensor on the host, in its own element type.
    ///
    /// # Errors
    /// If the tensor is traced: it has no numbers yet.
    pub fn to_array(&self) -> Result<Array> {
        let real = self.real()?;
        Ok(Array::of_bytes(&self.ty.shape, self.ty.dtype, real.state.read(&real.stored)?))
    }

    /// An error about this tensor, with the scope that is being built.
    pub fn error(&self, kind: ErrorKind, message: impl Into<String>) -> Error {
        let error = Error::new(kind, message);
        let trace = match &self.place {
            Place::Traced { trace, .. } => trace,
            Place::Real(real) => return error.in_scope(&real.state.scope.borrow()),
        };
        match trace.extend(|step| Ok(step.graph.current_scope().to_string())) {
            Ok(scope) => error.in_scope(&scope),
            Err(taken) => taken,
        }
    }
}

impl fmt::Display for Tensor {
    /// Element type and shape, as in `f32[32, 10]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.ty.fmt(f)
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Traced { value, .. } => {
                write!(f, "Tensor({}, traced as value {})", self.ty, value.index())
            }
            Place::Real(_) => write!(f, "Tensor({}, real)", self.ty),
        }
    }
}
