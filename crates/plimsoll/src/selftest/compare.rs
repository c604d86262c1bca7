//! Whether two devices computed the same, as far as rounding allows.

use half::{bf16, f16};
use plimsoll_graph::DType;

/// How two outputs differ.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Comparison {
    /// The largest difference over what it may be.
    pub(super) ratio: f64,
    /// Elements that differ by more than they may.
    pub(super) bad: usize,
    /// The largest difference, and the first bad element.
    pub(super) detail: String,
}

/// Appends a number of a type.
pub(super) fn encode(dtype: DType, value: f64, bytes: &mut Vec<u8>) {
    match dtype {
        DType::F32 => bytes.extend((value as f32).to_le_bytes()),
        DType::F64 => bytes.extend(value.to_le_bytes()),
        DType::F16 => bytes.extend(f16::from_f64(value).to_le_bytes()),
        DType::BF16 => bytes.extend(bf16::from_f64(value).to_le_bytes()),
        DType::I32 => bytes.extend((value as i32).to_le_bytes()),
        DType::I64 => bytes.extend((value as i64).to_le_bytes()),
        DType::U8 => bytes.push(value as u8),
        DType::Bool => bytes.push(u8::from(value != 0.0)),
    }
}

/// The number that an element is; of a 64-bit integer, as near as a float is.
pub(super) fn decode(dtype: DType, bytes: &[u8]) -> f64 {
    let mut wide = [0; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    let bits = u64::from_le_bytes(wide);
    match dtype {
        DType::F32 => f32::from_bits(bits as u32).into(),
        DType::F64 => f64::from_bits(bits),
        DType::F16 => f16::from_bits(bits as u16).into(),
        DType::BF16 => bf16::from_bits(bits as u16).into(),
        DType::I32 => f64::from(bits as u32 as i32),
        _ => bits as i64 as f64,
    }
}

/// Half the distance from one to the next number of a type.
pub(super) fn unit(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => f64::EPSILON / 2.0,
        DType::F16 => f64::powi(2.0, -11),
        DType::BF16 => f64::powi(2.0, -8),
        _ => f64::from(f32::EPSILON) / 2.0,
    }
}

/// The smallest number of a type above zero.
pub(super) fn smallest(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => f64::powi(2.0, -24),
        DType::F64 => f64::MIN_POSITIVE,
        _ => f64::from(f32::MIN_POSITIVE),
    }
}

/// Compares two outputs. Floats may differ by the rounding of the result and by `terms` roundings of sums as large as
/// the largest element, or as `magnitude`, where what is added up cancels; everything else, infinities and NaN must be
/// the same.
pub(super) fn compare(
    dtype: DType,
    shape: &[usize],
    [expected, actual]: [&[u8]; 2],
    terms: f64,
    magnitude: f64,
) -> Comparison {
    let size = dtype.size();
    if expected.len() != actual.len() {
        let detail = format!("{} bytes, not {}", actual.len(), expected.len());
        return Comparison { ratio: f64::INFINITY, bad: 1, detail };
    }
    let values =
        |bytes: &[u8]| -> Vec<f64> { bytes.chunks_exact(size).map(|word| decode(dtype, word)).collect() };
    let (wanted, found) = (values(expected), values(actual));
    let scale = wanted
        .iter()
        .filter(|value| value.is_finite())
        .fold(magnitude, |most: f64, value| most.max(value.abs()));
    let rounding = terms * unit(dtype.accumulator()) * scale + smallest(dtype);
    let (mut ratio, mut largest, mut bad, mut first) = (0.0f64, 0.0f64, 0, None);
    for (index, (&want, &have)) in wanted.iter().zip(&found).enumerate() {
        let same = expected[index * size..][..size] == actual[index * size..][..size];
        if same || (want.is_nan() && have.is_nan()) || (dtype.is_float() && want == have) {
            continue;
        }
        let (difference, off) = if dtype.is_float() && want.is_finite() && have.is_finite() {
            let difference = (want - have).abs();
            (difference, difference / (2.0 * unit(dtype) * want.abs() + rounding))
        } else {
            (f64::INFINITY, f64::INFINITY)
        };
        (largest, ratio) = (largest.max(difference), ratio.max(off));
        if off > 1.0 {
            bad += 1;
            first = first.or(Some((index, want, have)));
        }
    }
    let detail = match first {
        None => format!("largest error {largest:.2e}, largest value {scale:.3}"),
        Some((index, want, have)) => format!(
            "{bad} of {} elements are off, the first at {:?}: {have:?} is not {want:?}; largest error {largest:.2e}, \
             largest value {scale:.3}",
            wanted.len(),
            place(index, shape)
        ),
    };
    Comparison { ratio, bad, detail }
}

/// The index along every axis of the element at a position.
fn place(mut position: usize, shape: &[usize]) -> Vec<usize> {
    let mut place = vec![0; shape.len()];
    for (index, &extent) in place.iter_mut().zip(shape).rev() {
        *index = position % extent.max(1);
        position /= extent.max(1);
    }
    place
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_back_as_they_were_written() {
        for dtype in DType::ALL {
            let mut bytes = Vec::new();
            for value in [0.0, 1.0, 5.0] {
                encode(dtype, value, &mut bytes);
            }
            let read: Vec<f64> = bytes.chunks_exact(dtype.size()).map(|word| decode(dtype, word)).collect();
            let last = if dtype == DType::Bool { 1.0 } else { 5.0 };
            assert_eq!(read, [0.0, 1.0, last], "{dtype}");
        }
        let mut bytes = Vec::new();
        encode(DType::I32, -7.0, &mut bytes);
        assert_eq!(decode(DType::I32, &bytes), -7.0);
    }

    #[test]
    fn only_rounding_is_forgiven() {
        let bytes =
            |values: &[f32]| -> Vec<u8> { values.iter().flat_map(|value| value.to_le_bytes()).collect() };
        let check =
            |a: &[f32], b: &[f32]| compare(DType::F32, &[a.len()], [&bytes(a), &bytes(b)], 4.0, 0.0).bad;
        assert_eq!(check(&[1.0, f32::NAN, f32::INFINITY], &[1.0 + f32::EPSILON, f32::NAN, f32::INFINITY]), 0);
        assert_eq!(check(&[1.0, 2.0], &[1.0, 2.001]), 1);
        assert_eq!(check(&[1.0, 2.0], &[f32::NAN, 2.0]), 1);
        assert_eq!(check(&[f32::INFINITY], &[f32::MAX]), 1);
        assert_eq!(compare(DType::I32, &[1], [&[1, 0, 0, 0], &[2, 0, 0, 0]], 100.0, 0.0).bad, 1);
        let tiny = [&bytes(&[1e-8])[..], &bytes(&[3e-8])];
        assert_eq!(compare(DType::F32, &[1], tiny, 4.0, 0.0).bad, 1);
        assert_eq!(compare(DType::F32, &[1], tiny, 4.0, 1.0).bad, 0, "what is left of numbers that cancel");
    }
}
