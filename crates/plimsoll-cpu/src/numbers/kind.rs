//! From the types of a graph to types of Rust.

use plimsoll_graph::DType;

/// The number that values of a type are computed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    F32,
    F64,
    I32,
    I64,
    U8,
}

impl Kind {
    pub(crate) fn of(dtype: DType) -> Kind {
        match dtype {
            DType::F32 | DType::F16 | DType::BF16 => Kind::F32,
            DType::F64 => Kind::F64,
            DType::I32 => Kind::I32,
            DType::I64 => Kind::I64,
            DType::U8 | DType::Bool => Kind::U8,
        }
    }

    /// Bytes of one number.
    pub(crate) fn size(self) -> usize {
        match self {
            Kind::F64 | Kind::I64 => 8,
            Kind::F32 | Kind::I32 => 4,
            Kind::U8 => 1,
        }
    }
}

/// Evaluates an expression with the [`Element`](super::Element) of a `DType`.
macro_rules! with_element {
    ($dtype:expr, $element:ident => $body:expr) => {
        $crate::numbers::with_element!(@ $dtype, $element => $body,
            F32 f32, F64 f64, F16 half::f16, BF16 half::bf16, I32 i32, I64 i64, U8 u8, Bool u8)
    };
    (@ $dtype:expr, $element:ident => $body:expr, $($name:ident $type:ty),*) => {
        match $dtype {
            $(plimsoll_graph::DType::$name => {
                type $element = $type;
                $body
            })*
        }
    };
}

/// Evaluates an expression with the float [`Element`](super::Element) of a `DType`, which must be of one.
macro_rules! with_float {
    ($dtype:expr, $element:ident => $body:expr) => {
        $crate::numbers::with_float!(@ $dtype, $element => $body,
            F32 f32, F64 f64, F16 half::f16, BF16 half::bf16)
    };
    (@ $dtype:expr, $element:ident => $body:expr, $($name:ident $type:ty),*) => {
        match $dtype {
            $(plimsoll_graph::DType::$name => {
                type $element = $type;
                $body
            })*
            other => unreachable!("the op takes floats, the graph let {other} through"),
        }
    };
}

/// Evaluates an expression with the [`Number`](super::Number) of a [`Kind`].
macro_rules! with_number {
    ($kind:expr, $number:ident => $body:expr) => {
        $crate::numbers::with_number!(@ $kind, $number => $body, F32 f32, F64 f64, I32 i32, I64 i64, U8 u8)
    };
    (@ $kind:expr, $number:ident => $body:expr, $($name:ident $type:ty),*) => {
        match $kind {
            $($crate::numbers::Kind::$name => {
                type $number = $type;
                $body
            })*
        }
    };
}

/// Whether elements of the type are kept in memory as they are computed with.
pub(crate) fn is_acc(dtype: DType) -> bool {
    with_element!(dtype, T => <T as super::Element>::IS_ACC)
}

/// The number that a constant of some type is converted from: itself, or 0 or 1 for a bool.
pub(crate) fn constant(value: f64, dtype: DType) -> f64 {
    if dtype == DType::Bool { f64::from(u8::from(value != 0.0)) } else { value }
}

pub(crate) use {with_element, with_float, with_number};
