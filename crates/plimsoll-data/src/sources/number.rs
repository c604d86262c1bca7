//! Numbers as files hold them, and what samples make of them.

use crate::Element;
use half::{bf16, f16};

/// The type of a number in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Number {
    Bool,
    U8,
    I8,
    U16,
    I16,
    U32,
    I32,
    I64,
    F16,
    Bf16,
    F32,
    F64,
}

/// The order of a number's bytes in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ByteOrder {
    Little,
    Big,
}

/// What becomes of a stored number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// It stays what it is, as an element that has room for it; floats must be finite.
    Value,
    /// A byte becomes a float from 0 to 1.
    Share,
    /// A whole number in `0..classes`.
    Class { classes: usize },
}

impl Number {
    pub(super) const fn bytes(self) -> usize {
        match self {
            Number::Bool | Number::U8 | Number::I8 => 1,
            Number::U16 | Number::I16 | Number::F16 | Number::Bf16 => 2,
            Number::U32 | Number::I32 | Number::F32 => 4,
            Number::I64 | Number::F64 => 8,
        }
    }

    pub(super) const fn is_float(self) -> bool {
        matches!(self, Number::F16 | Number::Bf16 | Number::F32 | Number::F64)
    }

    /// The element that it is read as.
    pub(super) const fn element(self, used: Use) -> Element {
        match (self, used) {
            (_, Use::Share) => Element::F32,
            (_, Use::Class { .. }) => Element::I32,
            (Number::Bool | Number::U8, Use::Value) => Element::U8,
            (number, Use::Value) if number.is_float() => Element::F32,
            (_, Use::Value) => Element::I32,
        }
    }

    /// Writes numbers as their elements. Returns the position of the first that cannot be one, if there is such.
    pub(super) fn convert(self, order: ByteOrder, used: Use, stored: &[u8], out: &mut [u8]) -> Option<usize> {
        let whole = |value: i64| match used {
            Use::Class { classes } => {
                let is_class = usize::try_from(value).is_ok_and(|value| value < classes);
                i32::try_from(value).ok().filter(|_| is_class).map(i32::to_ne_bytes)
            }
            _ => i32::try_from(value).ok().map(i32::to_ne_bytes),
        };
        match (self, used) {
            (Number::U8 | Number::Bool, Use::Share) => {
                put(stored, out, order, |[byte]| Some((f32::from(byte) / 255.0).to_ne_bytes()))
            }
            (Number::U8, Use::Value) => put(stored, out, order, |byte: [u8; 1]| Some(byte)),
            (Number::Bool, Use::Value) => put(stored, out, order, |[byte]| (byte <= 1).then_some([byte])),
            (Number::U8 | Number::Bool, _) => put(stored, out, order, |[byte]| whole(i64::from(byte))),
            (Number::I8, _) => put(stored, out, order, |b| whole(i64::from(i8::from_le_bytes(b)))),
            (Number::U16, _) => put(stored, out, order, |b| whole(i64::from(u16::from_le_bytes(b)))),
            (Number::U32, _) => put(stored, out, order, |b| whole(i64::from(u32::from_le_bytes(b)))),
            (Number::I16, _) => put(stored, out, order, |b| whole(i64::from(i16::from_le_bytes(b)))),
            (Number::I32, _) => put(stored, out, order, |b| whole(i64::from(i32::from_le_bytes(b)))),
            (Number::I64, _) => put(stored, out, order, |b| whole(i64::from_le_bytes(b))),
            (Number::F16, _) => put(stored, out, order, |b| finite(f16::from_le_bytes(b).to_f32())),
            (Number::Bf16, _) => put(stored, out, order, |b| finite(bf16::from_le_bytes(b).to_f32())),
            (Number::F32, _) => put(stored, out, order, |b| finite(f32::from_le_bytes(b))),
            (Number::F64, _) => put(stored, out, order, |b| finite(f64::from_le_bytes(b) as f32)),
        }
    }

    /// A number in words, for errors.
    pub(super) fn show(self, order: ByteOrder, stored: &[u8]) -> String {
        let mut bytes = [0; 8];
        let length = stored.len().min(8);
        bytes[..length].copy_from_slice(&stored[..length]);
        if order == ByteOrder::Big {
            bytes[..length].reverse();
        }
        let [a, b, c, d, ..] = bytes;
        match self {
            Number::Bool | Number::U8 => a.to_string(),
            Number::I8 => i8::from_le_bytes([a]).to_string(),
            Number::U16 => u16::from_le_bytes([a, b]).to_string(),
            Number::U32 => u32::from_le_bytes([a, b, c, d]).to_string(),
            Number::I16 => i16::from_le_bytes([a, b]).to_string(),
            Number::I32 => i32::from_le_bytes([a, b, c, d]).to_string(),
            Number::I64 => i64::from_le_bytes(bytes).to_string(),
            Number::F16 => f16::from_le_bytes([a, b]).to_string(),
            Number::Bf16 => bf16::from_le_bytes([a, b]).to_string(),
            Number::F32 => f32::from_le_bytes([a, b, c, d]).to_string(),
            Number::F64 => format!("{:?}", f64::from_le_bytes(bytes)),
        }
    }
}

impl ByteOrder {
    /// The order of this machine.
    pub(super) const fn native() -> ByteOrder {
        if cfg!(target_endian = "little") { ByteOrder::Little } else { ByteOrder::Big }
    }
}

fn finite(value: f32) -> Option<[u8; 4]> {
    value.is_finite().then(|| value.to_ne_bytes())
}

/// Writes what `element` makes of each number, whose bytes it is given from the lowest.
fn put<const N: usize, const M: usize>(
    stored: &[u8],
    out: &mut [u8],
    order: ByteOrder,
    element: impl Fn([u8; N]) -> Option<[u8; M]>,
) -> Option<usize> {
    let numbers = stored.as_chunks::<N>().0.iter();
    for (at, (out, &bytes)) in out.as_chunks_mut::<M>().0.iter_mut().zip(numbers).enumerate() {
        let mut bytes = bytes;
        if order == ByteOrder::Big {
            bytes.reverse();
        }
        match element(bytes) {
            Some(element) => *out = element,
            None => return Some(at),
        }
    }
    None
}
