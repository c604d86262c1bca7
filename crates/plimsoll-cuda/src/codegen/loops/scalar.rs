//! Instructions as C++ expressions over the functions of the prelude.

use plimsoll_graph::DType;
use plimsoll_graph::op::{Binary, Comparison, Reduction, Unary};
use plimsoll_graph::program::{Register, Scalar};

/// The type of an element in memory.
pub(super) fn stored(dtype: DType) -> &'static str {
    match dtype {
        DType::F16 => "f16",
        DType::BF16 => "bf16",
        other => computed(other),
    }
}

/// The type an element is computed with.
pub(super) fn computed(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 | DType::F16 | DType::BF16 => "float",
        DType::F64 => "double",
        DType::I32 => "int",
        DType::I64 => "i64",
        DType::U8 | DType::Bool => "u8",
    }
}

/// The name of a reduction's functions.
pub(super) fn reduction(kind: Reduction) -> &'static str {
    match kind {
        Reduction::Sum => "Sum",
        Reduction::Max => "Max",
        Reduction::Min => "Min",
    }
}

/// A number converted from one type to another.
pub(super) fn cast(from: DType, to: DType, x: &str) -> String {
    if from == to { x.to_owned() } else { format!("to_{}({x})", to.name()) }
}

/// The value of an instruction that is a function of other registers, if `coarse` to half precision where that takes fewer
/// steps; nothing if it is no such function, or none of its type.
pub(super) fn value(
    scalar: Scalar,
    dtype: DType,
    coarse: bool,
    type_of: impl Fn(Register) -> DType,
) -> Option<String> {
    let name = |register: Register| format!("r{register}");
    Some(match scalar {
        Scalar::Constant(x) => constant(x, dtype),
        Scalar::Unary(function, x) => unary(function, type_of(x), coarse, &name(x))?,
        Scalar::Binary(function, a, b) => binary(function, dtype, &name(a), &name(b))?,
        Scalar::Compare(comparison, a, b) => {
            let sign = match comparison {
                Comparison::Eq => "==",
                Comparison::Ne => "!=",
                Comparison::Lt => "<",
                Comparison::Le => "<=",
                Comparison::Gt => ">",
                Comparison::Ge => ">=",
            };
            format!("(u8)({} {sign} {})", name(a), name(b))
        }
        Scalar::Select(condition, a, b) => format!("{} ? {} : {}", name(condition), name(a), name(b)),
        Scalar::Cast(x) => cast(type_of(x), dtype, &name(x)),
        Scalar::Load { .. } | Scalar::Iota { .. } | Scalar::Random { .. } | Scalar::Reduce(..) => {
            return None;
        }
    })
}

/// Rounds what was computed for a type to its precision.
fn round(dtype: DType, x: String) -> String {
    match dtype {
        DType::F16 | DType::BF16 => format!("round_{}({x})", dtype.name()),
        _ => x,
    }
}

fn unary(function: Unary, dtype: DType, coarse: bool, x: &str) -> Option<String> {
    let coarse = coarse || dtype.size() < 4;
    let (name, exact) = match function {
        Unary::Neg => ("negated", true),
        Unary::Abs => ("magnitude", true),
        Unary::Sign => ("sign", true),
        Unary::Relu => ("relu", true),
        Unary::Not if dtype == DType::Bool => ("negation", true),
        _ if !dtype.is_float() => return None,
        Unary::Not => return None,
        Unary::Floor => ("rounded_down", true),
        Unary::IsFinite => ("is_finite", true),
        Unary::Exp => ("exponential", false),
        Unary::Log => ("logarithm", false),
        Unary::Softplus => ("softplus", false),
        Unary::Sqrt => ("root", false),
        Unary::Rsqrt => ("reciprocal_root", false),
        Unary::Sin => ("sine", false),
        Unary::Cos => ("cosine", false),
        Unary::Tanh => ("hyperbolic_tangent", false),
        Unary::Sigmoid => ("sigmoid", false),
        Unary::Erf => ("error_function", false),
        Unary::Gelu if coarse => ("half_gelu", false),
        Unary::GeluSlope if coarse => ("half_gelu_slope", false),
        Unary::Gelu => ("gelu", false),
        Unary::GeluSlope => ("gelu_slope", false),
    };
    let call = format!("{name}({x})");
    Some(if exact { call } else { round(dtype, call) })
}

fn binary(function: Binary, dtype: DType, a: &str, b: &str) -> Option<String> {
    // Of 0 and 1, "or" is the larger and "and" the smaller.
    let name = match (function, dtype) {
        (Binary::Add, DType::Bool) | (Binary::Max, _) => "larger",
        (Binary::Mul, DType::Bool) | (Binary::Min, _) => "smaller",
        (Binary::Add, _) => "add",
        (Binary::Sub, _) => "sub",
        (Binary::Mul, _) => "mul",
        (Binary::Div, _) => "divide",
        (Binary::Pow, _) if dtype.is_float() => "power",
        (Binary::Pow, _) => return None,
    };
    let call = format!("{name}({a}, {b})");
    Some(if matches!(name, "larger" | "smaller") { call } else { round(dtype, call) })
}

/// A constant: of floats the nearest, of integers the next towards zero.
pub(super) fn constant(x: f64, dtype: DType) -> String {
    match dtype {
        DType::F64 if x.is_finite() => format!("({x:?})"),
        DType::F64 => format!("__longlong_as_double({:#x}ll)", x.to_bits()),
        DType::F32 => single(x as f32),
        DType::F16 => single(rounded(x, 11, -14)),
        DType::BF16 => single(rounded(x, 8, -126)),
        DType::I32 => format!("(int){:#x}u", x as i32),
        DType::I64 => format!("(i64){:#x}ull", x as i64),
        DType::U8 => format!("(u8){}", x as u8),
        DType::Bool => format!("(u8){}", u8::from(x != 0.0)),
    }
}

fn single(x: f32) -> String {
    if x.is_finite() { format!("({x:?}f)") } else { format!("__uint_as_float({:#x}u)", x.to_bits()) }
}

/// The nearest number with this many binary digits and at least this exponent, ties to even; beyond the largest, which
/// has as large an exponent upwards, infinity.
fn rounded(x: f64, digits: i32, least: i32) -> f32 {
    if x == 0.0 || !x.is_finite() {
        return x as f32;
    }
    let exponent = ((x.to_bits() >> 52 & 0x7ff) as i32 - 1023).max(least);
    let quantum = 2f64.powi(exponent - (digits - 1));
    let near = (x / quantum).round_ties_even() * quantum;
    if near.abs() >= 2f64.powi(2 - least) { f32::INFINITY.copysign(near as f32) } else { near as f32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_are_written_so_that_their_bits_come_back() {
        assert_eq!(constant(0.1, DType::F32), "(0.1f)");
        assert_eq!(constant(1e-8, DType::F32), "(1e-8f)");
        assert_eq!(constant(f64::NEG_INFINITY, DType::F32), "__uint_as_float(0xff800000u)");
        assert_eq!(constant(-1.0, DType::I64), "(i64)0xffffffffffffffffull");
        assert_eq!(constant(1e30, DType::I32), "(int)0x7fffffffu");
        assert_eq!(constant(f64::NAN, DType::U8), "(u8)0");
        assert_eq!(constant(f64::NAN, DType::Bool), "(u8)1");
    }

    #[test]
    fn constants_of_half_precision_are_the_nearest() {
        assert_eq!(rounded(0.1, 8, -126), 0.100_097_656);
        assert_eq!(rounded(0.1, 11, -14), 0.099_975_586);
        // Half way between two: to the even one.
        assert_eq!(rounded(1.0 + 2f64.powi(-8), 8, -126), 1.0);
        assert_eq!(rounded(1.0 + 3.0 * 2f64.powi(-8), 8, -126), 1.015_625);
        // Just above half way, which rounding to single precision first would lose.
        assert_eq!(rounded(1.0 + 2f64.powi(-8) + 2f64.powi(-40), 8, -126), 1.007_812_5);
        assert_eq!(rounded(65519.9, 11, -14), 65504.0);
        assert_eq!(rounded(-65520.0, 11, -14), f32::NEG_INFINITY);
        assert_eq!(rounded(3.0 * 2f64.powi(-25), 11, -14), 2f32.powi(-23));
        assert_eq!(rounded(1e39, 8, -126), f32::INFINITY);
    }
}
