//! Functions of single elements.

use crate::Tensor;
use crate::tensor::wrap;
use plimsoll_graph::op::{Binary, Comparison, Distribution};
use plimsoll_graph::random::{block, largest_below_one, normal, uniform32, uniform64};
use plimsoll_graph::{DType, Shape};

/// The larger; NaN if either is.
pub(crate) fn larger(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) }
}

/// The smaller; NaN if either is.
pub(crate) fn smaller(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { a.min(b) }
}

pub(crate) fn binary(f: Binary, a: &Tensor, b: &Tensor) -> Vec<f64> {
    let dtype = a.dtype;
    let of_floats = |a: f64, b: f64| match f {
        Binary::Add => a + b,
        Binary::Sub => a - b,
        Binary::Mul => a * b,
        Binary::Div => a / b,
        Binary::Max => larger(a, b),
        Binary::Min => smaller(a, b),
        Binary::Pow => a.powf(b),
    };
    let of_integers = |a: f64, b: f64| {
        let (a, b) = (a as i64, b as i64);
        let result = match f {
            Binary::Add => a.wrapping_add(b),
            Binary::Sub => a.wrapping_sub(b),
            Binary::Mul => a.wrapping_mul(b),
            Binary::Div if b == 0 => 0,
            Binary::Div => a.wrapping_div(b),
            Binary::Max => a.max(b),
            Binary::Min => a.min(b),
            Binary::Pow => unreachable!("powers are of floats"),
        };
        wrap(result, dtype)
    };
    let pairs = a.data.iter().zip(&b.data);
    if dtype.is_float() {
        pairs.map(|(&a, &b)| of_floats(a, b)).collect()
    } else {
        pairs.map(|(&a, &b)| of_integers(a, b)).collect()
    }
}

pub(crate) fn compare(f: Comparison, a: &Tensor, b: &Tensor) -> Vec<f64> {
    let holds = |a: f64, b: f64| match f {
        Comparison::Eq => a == b,
        Comparison::Ne => a != b,
        Comparison::Lt => a < b,
        Comparison::Le => a <= b,
        Comparison::Gt => a > b,
        Comparison::Ge => a >= b,
    };
    a.data.iter().zip(&b.data).map(|(&a, &b)| f64::from(holds(a, b))).collect()
}

pub(crate) fn select(condition: &Tensor, a: &Tensor, b: &Tensor) -> Vec<f64> {
    (0..condition.data.len()).map(|i| if condition.data[i] != 0.0 { a.data[i] } else { b.data[i] }).collect()
}

/// Converts to a type: integers truncate and saturate, NaN becomes 0; floats are rounded later.
pub(crate) fn cast(v: f64, dtype: DType) -> f64 {
    match dtype {
        DType::I64 => v as i64 as f64,
        DType::I32 => f64::from(v as i32),
        DType::U8 => f64::from(v as u8),
        DType::Bool => f64::from(v != 0.0),
        DType::F64 | DType::F32 | DType::F16 | DType::BF16 => v,
    }
}

pub(crate) fn random(
    distribution: Distribution,
    state: &Tensor,
    (stream, per_sample): (u64, u64),
    shape: &Shape,
    dtype: DType,
) -> Vec<f64> {
    let [seed, step, first] = [0, 1, 2].map(|i| state.data[i] as i64 as u64);
    let draw = |position: usize| {
        let words = block(seed, step, stream, first.wrapping_mul(per_sample).wrapping_add(position as u64));
        match (distribution, dtype) {
            (Distribution::Normal, _) => normal(words),
            (Distribution::Uniform, DType::F64) => uniform64(words),
            (Distribution::Uniform, _) => f64::from(uniform32(words)).min(largest_below_one(dtype)),
        }
    };
    (0..shape.elements()).map(draw).collect()
}
