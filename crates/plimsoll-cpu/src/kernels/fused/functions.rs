//! The compiled function for each instruction on each kind of number.

use super::map::{Choose, Map1, Map2, MapArgs, One, Two};
use crate::numbers::{Element, Float, Kind, Number, with_number};
use crate::simd::{Compiled, Isa};
use half::{bf16, f16};
use plimsoll_graph::DType;
use plimsoll_graph::op::{Binary, Comparison, Unary};
use std::marker::PhantomData;

pub(super) type Map = Compiled<MapArgs>;

/// Defines functions of one element of any type of a trait.
macro_rules! map1 {
    ($($name:ident<$t:ident: $bound:path>($x:ident) -> $out:ty { $body:expr })*) => {
        $(
            struct $name<$t>(PhantomData<$t>);

            impl<$t: $bound + Default> Map1 for $name<$t> {
                type In = $t;
                type Out = $out;

                #[inline(always)]
                fn apply($x: $t) -> $out {
                    $body
                }
            }
        )*
    };
}

/// Defines functions of two elements of any type of a trait.
macro_rules! map2 {
    ($($name:ident<$t:ident: $bound:path>($a:ident, $b:ident) -> $out:ty { $body:expr })*) => {
        $(
            struct $name<$t>(PhantomData<$t>);

            impl<$t: $bound + Default> Map2 for $name<$t> {
                type In = $t;
                type Out = $out;

                #[inline(always)]
                fn apply($a: $t, $b: $t) -> $out {
                    $body
                }
            }
        )*
    };
}

map1! {
    Same<T: Number>(x) -> T { x }
    Negative<T: Number>(x) -> T { T::neg(x) }
    Magnitude<T: Number>(x) -> T { if x < T::default() { T::neg(x) } else { x } }
    Rectify<T: Number>(x) -> T { if x > T::default() { x } else { T::default() } }
    IsFinite<T: Float>(x) -> u8 { u8::from(T::is_finite(x)) }
}

/// Defines the functions of a float that give a float, by the names of [`Unary`].
macro_rules! float_functions {
    ($($name:ident($x:ident) { $body:expr })*) => {
        map1! { $($name<T: Float>($x) -> T { $body })* }

        fn unary_of_float<T: Float>(function: Unary, isa: Isa) -> Map {
            match function {
                $(Unary::$name => isa.compiled::<One<$name<T>>>(),)*
                Unary::IsFinite => isa.compiled::<One<IsFinite<T>>>(),
                Unary::Not => isa.compiled::<One<Not>>(),
            }
        }

        /// A function of one number.
        #[cfg(test)]
        pub(crate) fn of_float<T: Float>(function: Unary, x: T) -> T {
            match function {
                $(Unary::$name => $name::<T>::apply(x),)*
                Unary::Not | Unary::IsFinite => panic!("{function:?} gives no float"),
            }
        }
    };
}

float_functions! {
    Neg(x) { -x }
    Abs(x) { T::abs(x) }
    Sign(x) { T::sign(x) }
    Exp(x) { T::exp(x) }
    Log(x) { T::ln(x) }
    Softplus(x) { T::softplus(x) }
    Sqrt(x) { T::sqrt(x) }
    Rsqrt(x) { T::recip(T::sqrt(x)) }
    Sin(x) { T::sin(x) }
    Cos(x) { T::cos(x) }
    Tanh(x) { T::tanh(x) }
    Sigmoid(x) { T::sigmoid(x) }
    Erf(x) { T::erf(x) }
    Relu(x) { T::relu(x) }
    Gelu(x) { T::gelu(x) }
    GeluSlope(x) { T::gelu_slope(x) }
    Floor(x) { T::floor(x) }
}

map2! {
    Add<T: Number>(a, b) -> T { T::add(a, b) }
    Sub<T: Number>(a, b) -> T { T::sub(a, b) }
    Mul<T: Number>(a, b) -> T { T::mul(a, b) }
    Div<T: Number>(a, b) -> T { T::div(a, b) }
    Max<T: Number>(a, b) -> T { T::max(a, b) }
    Min<T: Number>(a, b) -> T { T::min(a, b) }
    Pow<T: Float>(a, b) -> T { T::pow(a, b) }
    Eq<T: Number>(a, b) -> u8 { u8::from(a == b) }
    Ne<T: Number>(a, b) -> u8 { u8::from(a != b) }
    Lt<T: Number>(a, b) -> u8 { u8::from(a < b) }
    Le<T: Number>(a, b) -> u8 { u8::from(a <= b) }
}

/// The sign of an integer: −1, 0 or 1.
struct IntegerSign<T>(PhantomData<T>);
/// Logical not of 0 or 1.
struct Not;
/// Rounds to half precision.
struct Round<H>(PhantomData<H>);
/// Converts between kinds.
struct Convert<A, B>(PhantomData<(A, B)>);
/// Converts to 0 or 1: whether it is not zero.
struct Truth<A>(PhantomData<A>);
/// Converts to half precision, rounding once.
struct Halve<A, H>(PhantomData<(A, H)>);

macro_rules! integer_sign {
    ($($t:ident $sign:expr;)*) => {
        $(impl Map1 for IntegerSign<$t> {
            type In = $t;
            type Out = $t;

            #[inline(always)]
            fn apply(x: $t) -> $t {
                let sign: fn($t) -> $t = $sign;
                sign(x)
            }
        })*
    };
}

integer_sign! {
    i32 |x| i32::from(x > 0) - i32::from(x < 0);
    i64 |x| i64::from(x > 0) - i64::from(x < 0);
    u8 |x| u8::from(x > 0);
}

impl Map1 for Not {
    type In = u8;
    type Out = u8;

    #[inline(always)]
    fn apply(x: u8) -> u8 {
        x ^ 1
    }
}

impl<H: Element<Acc = f32>> Map1 for Round<H> {
    type In = f32;
    type Out = f32;

    #[inline(always)]
    fn apply(x: f32) -> f32 {
        H::narrow(x).widen()
    }
}

macro_rules! convert {
    ($($a:ident to $($b:ident)*;)*) => {
        $($(impl Map1 for Convert<$a, $b> {
            type In = $a;
            type Out = $b;

            #[inline(always)]
            fn apply(x: $a) -> $b {
                x as $b
            }
        })*)*
    };
}

convert! {
    f32 to f32 f64 i32 i64 u8;
    f64 to f32 f64 i32 i64 u8;
    i32 to f32 f64 i32 i64 u8;
    i64 to f32 f64 i32 i64 u8;
    u8 to f32 f64 i32 i64 u8;
}

impl<A: Number> Map1 for Truth<A> {
    type In = A;
    type Out = u8;

    #[inline(always)]
    fn apply(x: A) -> u8 {
        u8::from(x != A::default())
    }
}

impl<A: Number, H: Element<Acc = f32>> Map1 for Halve<A, H> {
    type In = A;
    type Out = f32;

    #[inline(always)]
    fn apply(x: A) -> f32 {
        H::narrow(x.round_to_odd()).widen()
    }
}

/// A function of one element of `kind`, or nothing where there is none. Results in half precision are still to
/// be [rounded](round).
pub(super) fn unary(function: Unary, kind: Kind, isa: Isa) -> Option<Map> {
    match kind {
        Kind::F32 => Some(unary_of_float::<f32>(function, isa)),
        Kind::F64 => Some(unary_of_float::<f64>(function, isa)),
        Kind::I32 => unary_of_integer::<i32>(function, isa),
        Kind::I64 => unary_of_integer::<i64>(function, isa),
        Kind::U8 => unary_of_integer::<u8>(function, isa),
    }
}

fn unary_of_integer<T: Number>(function: Unary, isa: Isa) -> Option<Map>
where
    IntegerSign<T>: Map1,
{
    Some(match function {
        Unary::Neg => isa.compiled::<One<Negative<T>>>(),
        Unary::Abs => isa.compiled::<One<Magnitude<T>>>(),
        Unary::Sign => isa.compiled::<One<IntegerSign<T>>>(),
        Unary::Relu => isa.compiled::<One<Rectify<T>>>(),
        Unary::Not => isa.compiled::<One<Not>>(),
        _ => return None,
    })
}

/// A function of two elements of one type, or nothing where there is none. Results in half precision are still
/// to be [rounded](round).
pub(super) fn binary(function: Binary, dtype: DType, isa: Isa) -> Option<Map> {
    // Of 0 and 1, "or" is the larger and "and" the smaller.
    let function = match (function, dtype) {
        (Binary::Add, DType::Bool) => Binary::Max,
        (Binary::Mul, DType::Bool) => Binary::Min,
        _ => function,
    };
    let kind = Kind::of(dtype);
    with_number!(kind, T => Some(match function {
        Binary::Add => isa.compiled::<Two<Add<T>>>(),
        Binary::Sub => isa.compiled::<Two<Sub<T>>>(),
        Binary::Mul => isa.compiled::<Two<Mul<T>>>(),
        Binary::Div => isa.compiled::<Two<Div<T>>>(),
        Binary::Max => isa.compiled::<Two<Max<T>>>(),
        Binary::Min => isa.compiled::<Two<Min<T>>>(),
        Binary::Pow => match kind {
            Kind::F32 => isa.compiled::<Two<Pow<f32>>>(),
            Kind::F64 => isa.compiled::<Two<Pow<f64>>>(),
            _ => return None,
        },
    }))
}

/// A comparison, and whether its operands are to be swapped.
pub(super) fn comparison(comparison: Comparison, kind: Kind, isa: Isa) -> (Map, bool) {
    with_number!(kind, T => match comparison {
        Comparison::Eq => (isa.compiled::<Two<Eq<T>>>(), false),
        Comparison::Ne => (isa.compiled::<Two<Ne<T>>>(), false),
        Comparison::Lt => (isa.compiled::<Two<Lt<T>>>(), false),
        Comparison::Le => (isa.compiled::<Two<Le<T>>>(), false),
        Comparison::Gt => (isa.compiled::<Two<Lt<T>>>(), true),
        Comparison::Ge => (isa.compiled::<Two<Le<T>>>(), true),
    })
}

/// Chooses between elements of `size` bytes.
pub(super) fn choose(size: usize, isa: Isa) -> Map {
    match size {
        8 => isa.compiled::<Choose<i64>>(),
        4 => isa.compiled::<Choose<i32>>(),
        _ => isa.compiled::<Choose<u8>>(),
    }
}

/// Copies elements of `size` bytes.
pub(super) fn copy(size: usize, isa: Isa) -> Map {
    match size {
        8 => isa.compiled::<One<Same<i64>>>(),
        4 => isa.compiled::<One<Same<i32>>>(),
        _ => isa.compiled::<One<Same<u8>>>(),
    }
}

/// Rounds `f32` to the precision of a type, if it has less.
pub(super) fn round(dtype: DType, isa: Isa) -> Option<Map> {
    match dtype {
        DType::F16 => Some(isa.compiled::<One<Round<f16>>>()),
        DType::BF16 => Some(isa.compiled::<One<Round<bf16>>>()),
        _ => None,
    }
}

/// Converts from one type to another, or nothing where the numbers stay as they are.
pub(super) fn cast(from: DType, to: DType, isa: Isa) -> Option<Map> {
    use DType::{BF16, Bool, F16, F32, F64, I32, I64, U8};
    if from == to || matches!((from, to), (F16 | BF16, F32) | (Bool, U8)) {
        return None;
    }
    Some(with_number!(Kind::of(from), A => match to {
        F32 => isa.compiled::<One<Convert<A, f32>>>(),
        F64 => isa.compiled::<One<Convert<A, f64>>>(),
        I32 => isa.compiled::<One<Convert<A, i32>>>(),
        I64 => isa.compiled::<One<Convert<A, i64>>>(),
        U8 => isa.compiled::<One<Convert<A, u8>>>(),
        Bool => isa.compiled::<One<Truth<A>>>(),
        F16 => isa.compiled::<One<Halve<A, f16>>>(),
        BF16 => isa.compiled::<One<Halve<A, bf16>>>(),
    }))
}
