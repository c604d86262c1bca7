//! Numbers of every type, one at a time: what kernels are compared with.

use super::Numbers;
use crate::kernels::fused::of_float;
use crate::math::{double, single};
use half::{bf16, f16};
use plimsoll_graph::DType;
use plimsoll_graph::op::{Binary, Comparison, Reduction, Unary};

/// A number of some type.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Scalar {
    /// Of type `f32`, or a half that it holds exactly.
    Single(f32),
    Double(f64),
    /// Of any integer type, or a bool.
    Integer(i64),
}

use Scalar::{Double, Integer, Single};

impl Scalar {
    pub(crate) fn load(bytes: &[u8], index: usize, dtype: DType) -> Scalar {
        let bytes = &bytes[index * dtype.size()..][..dtype.size()];
        let array =
            |bytes: &[u8]| <[u8; 8]>::try_from([bytes, &[0; 8]].concat().split_at(8).0).expect("8 bytes");
        let bits = u64::from_le_bytes(array(bytes));
        match dtype {
            DType::F32 => Single(f32::from_bits(bits as u32)),
            DType::F16 => Single(f16::from_bits(bits as u16).to_f32()),
            DType::BF16 => Single(bf16::from_bits(bits as u16).to_f32()),
            DType::F64 => Double(f64::from_bits(bits)),
            DType::I32 => Integer(i64::from(bits as i32)),
            DType::I64 => Integer(bits as i64),
            DType::U8 | DType::Bool => Integer(i64::from(bits as u8)),
        }
    }

    pub(crate) fn store(self, dtype: DType) -> Vec<u8> {
        match (self, dtype) {
            (Single(x), DType::F32) => x.to_le_bytes().to_vec(),
            (Single(x), DType::F16) => f16::from_f32(x).to_le_bytes().to_vec(),
            (Single(x), DType::BF16) => bf16::from_f32(x).to_le_bytes().to_vec(),
            (Double(x), DType::F64) => x.to_le_bytes().to_vec(),
            (Integer(x), DType::I32) => (x as i32).to_le_bytes().to_vec(),
            (Integer(x), DType::I64) => x.to_le_bytes().to_vec(),
            (Integer(x), DType::U8 | DType::Bool) => vec![x as u8],
            _ => panic!("{self:?} is no {dtype}"),
        }
    }

    /// The nearest `f64`.
    pub(crate) fn to_f64(self) -> f64 {
        match self {
            Single(x) => f64::from(x),
            Double(x) => x,
            Integer(x) => x as f64,
        }
    }

    /// A number for a test, sometimes a remarkable one.
    pub(crate) fn random(dtype: DType, numbers: &mut Numbers) -> Scalar {
        let remarkable = [0.0, -0.0, 1.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1e-40, -3e38, 0.5];
        let x = if numbers.chance(4) {
            numbers.pick(&remarkable)
        } else {
            (numbers.below(2_000_001) as f64 - 1e6) * 3.3e-6
        };
        let whole = numbers.next() as i64 >> numbers.pick(&[0, 32, 60]);
        match dtype {
            DType::F64 => Double(x),
            DType::F32 | DType::F16 | DType::BF16 => Double(x).cast(DType::F64, dtype),
            DType::Bool => Integer(whole & 1),
            _ => Integer(whole).rounded(dtype),
        }
    }

    /// The nearest number of a type, for results that were computed more exactly; integers wrap.
    pub(crate) fn rounded(self, dtype: DType) -> Scalar {
        match (self, dtype) {
            (Single(x), DType::F16) => Single(f16::from_f32(x).to_f32()),
            (Single(x), DType::BF16) => Single(bf16::from_f32(x).to_f32()),
            (Integer(x), DType::I32) => Integer(i64::from(x as i32)),
            (Integer(x), DType::U8) => Integer(i64::from(x as u8)),
            _ => self,
        }
    }

    pub(crate) fn cast(self, from: DType, to: DType) -> Scalar {
        let wide = self.to_f64();
        match (self, to) {
            (_, DType::Bool) => Integer(i64::from(wide != 0.0)),
            _ if from == to => self,
            // From an integer to single precision is one rounding, not two.
            (Integer(x), DType::F32) => Single(x as f32),
            (_, DType::F32) => Single(wide as f32),
            (_, DType::F16) => Single(nearest_half(
                wide,
                |bits| f16::from_bits(bits).to_f64(),
                f16::from_f64(wide).to_bits(),
            )),
            (_, DType::BF16) => Single(nearest_half(
                wide,
                |bits| bf16::from_bits(bits).to_f64(),
                bf16::from_f64(wide).to_bits(),
            )),
            (_, DType::F64) => Double(wide),
            (Integer(_), _) => self.rounded(to),
            (_, DType::I32) => Integer(i64::from(wide as i32)),
            (_, DType::I64) => Integer(wide as i64),
            (_, DType::U8) => Integer(i64::from(wide as u8)),
        }
    }

    pub(crate) fn unary(self, function: Unary, dtype: DType) -> Scalar {
        match self {
            Integer(x) => Integer(match function {
                Unary::Neg => x.wrapping_neg(),
                Unary::Abs => x.wrapping_abs(),
                Unary::Sign => x.signum(),
                Unary::Relu => x.max(0),
                Unary::Not => 1 - x,
                _ => panic!("{function:?} of an integer"),
            })
            .rounded(dtype),
            Single(x) if function == Unary::IsFinite => Integer(i64::from(x.is_finite())),
            Double(x) if function == Unary::IsFinite => Integer(i64::from(x.is_finite())),
            Single(x) => Single(of_float(function, x)).rounded(dtype),
            Double(x) => Double(of_float(function, x)),
        }
    }

    pub(crate) fn binary(self, function: Binary, other: Scalar, dtype: DType) -> Scalar {
        macro_rules! of_floats {
            ($a:expr, $b:expr, $module:ident) => {
                match function {
                    Binary::Add => $a + $b,
                    Binary::Sub => $a - $b,
                    Binary::Mul => $a * $b,
                    Binary::Div => $a / $b,
                    Binary::Max => {
                        if $a > $b || $a.is_nan() {
                            $a
                        } else {
                            $b
                        }
                    }
                    Binary::Min => {
                        if $a < $b || $a.is_nan() {
                            $a
                        } else {
                            $b
                        }
                    }
                    Binary::Pow => $module::pow($a, $b),
                }
            };
        }
        match (self, other) {
            (Single(a), Single(b)) => Single(of_floats!(a, b, single)).rounded(dtype),
            (Double(a), Double(b)) => Double(of_floats!(a, b, double)),
            (Integer(a), Integer(b)) if dtype == DType::Bool => Integer(match function {
                Binary::Add | Binary::Max => a | b,
                _ => a & b,
            }),
            (Integer(a), Integer(b)) => Integer(match function {
                Binary::Add => a.wrapping_add(b),
                Binary::Sub => a.wrapping_sub(b),
                Binary::Mul => a.wrapping_mul(b),
                Binary::Div => {
                    if b == 0 {
                        0
                    } else {
                        a.wrapping_div(b)
                    }
                }
                Binary::Max => a.max(b),
                Binary::Min => a.min(b),
                Binary::Pow => panic!("powers of integers"),
            })
            .rounded(dtype),
            _ => panic!("{function:?} of {self:?} and {other:?}"),
        }
    }

    pub(crate) fn compare(self, comparison: Comparison, other: Scalar) -> Scalar {
        let order = match (self, other) {
            (Single(a), Single(b)) => a.partial_cmp(&b),
            (Double(a), Double(b)) => a.partial_cmp(&b),
            (Integer(a), Integer(b)) => a.partial_cmp(&b),
            _ => panic!("{self:?} compared with {other:?}"),
        };
        Integer(i64::from(match comparison {
            Comparison::Eq => order.is_some_and(|o| o.is_eq()),
            Comparison::Ne => order.is_none_or(|o| o.is_ne()),
            Comparison::Lt => order.is_some_and(|o| o.is_lt()),
            Comparison::Le => order.is_some_and(|o| o.is_le()),
            Comparison::Gt => order.is_some_and(|o| o.is_gt()),
            Comparison::Ge => order.is_some_and(|o| o.is_ge()),
        }))
    }

    pub(crate) fn is_true(self) -> bool {
        matches!(self, Integer(x) if x != 0)
    }

    pub(crate) fn zero(dtype: DType) -> Scalar {
        Integer(0).cast(DType::I64, dtype)
    }

    /// Whether both are the same number, to the bit, or both NaN.
    pub(crate) fn is_same(self, other: Scalar) -> bool {
        match (self, other) {
            (Single(a), Single(b)) => a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan(),
            (Double(a), Double(b)) => a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan(),
            (Integer(a), Integer(b)) => a == b,
            _ => false,
        }
    }
}

/// The half that is nearest to a number, even where two are. The guess is at most one off: the library that makes
/// it may round twice.
fn nearest_half(x: f64, value: fn(u16) -> f64, guess: u16) -> f32 {
    let guess_of = value(guess);
    if x.is_nan() || !guess_of.is_finite() || guess & 0x7fff == 0 {
        return guess_of as f32;
    }
    let distance = |bits: u16| (value(bits) - x).abs();
    let candidates = [guess - 1, guess, guess + 1].into_iter().filter(|&bits| value(bits).is_finite());
    let best = candidates.min_by(|&a, &b| distance(a).total_cmp(&distance(b)).then((a & 1).cmp(&(b & 1))));
    value(best.unwrap_or(guess)) as f32
}

/// What a reduction of nothing gives.
pub(crate) fn identity(reduction: Reduction, dtype: DType) -> Scalar {
    let bound = |low: f64, least: i64| match dtype {
        DType::F64 => Double(low),
        DType::F32 | DType::F16 | DType::BF16 => Single(low as f32),
        _ => Integer(least),
    };
    let (least, most) = match dtype {
        DType::I32 => (i32::MIN.into(), i32::MAX.into()),
        DType::I64 => (i64::MIN, i64::MAX),
        DType::U8 => (0, 255),
        _ => (0, 1),
    };
    match reduction {
        Reduction::Sum => Scalar::zero(dtype),
        Reduction::Max => bound(f64::NEG_INFINITY, least),
        Reduction::Min => bound(f64::INFINITY, most),
    }
}

/// Combines two numbers; halves are not rounded.
pub(crate) fn combine(reduction: Reduction, a: Scalar, b: Scalar, dtype: DType) -> Scalar {
    let function = match reduction {
        Reduction::Sum => Binary::Add,
        Reduction::Max => Binary::Max,
        Reduction::Min => Binary::Min,
    };
    a.binary(function, b, dtype.accumulator())
}

/// A row combined in the order that all rows are: blocks of 4096, 32 lanes, halves of lanes.
pub(crate) fn reduce_row(reduction: Reduction, row: &[Scalar], dtype: DType) -> Scalar {
    let nothing = identity(reduction, dtype);
    let both = |a, b| combine(reduction, a, b, dtype);
    let blocks = row.chunks(4096).map(|block| {
        let lane = |lane: usize| block.iter().skip(lane).step_by(32).fold(nothing, |a, &b| both(a, b));
        let mut lanes: Vec<Scalar> = (0..32).map(lane).collect();
        while lanes.len() > 1 {
            let upper = lanes.split_off(lanes.len() / 2);
            lanes = lanes.iter().zip(&upper).map(|(&a, &b)| both(a, b)).collect();
        }
        lanes[0]
    });
    blocks.fold(nothing, both).rounded(dtype)
}
