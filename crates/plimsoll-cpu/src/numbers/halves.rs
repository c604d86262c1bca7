//! Half precision, which is storage: values are computed with in `f32`.
//!
//! The conversions are plain integer arithmetic without branches, so that loops over them become vector code.

use super::{Element, Number};
use half::{bf16, f16};

impl Element for bf16 {
    type Acc = f32;
    const IS_ACC: bool = false;

    #[inline(always)]
    fn widen(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }

    fn from_f64(value: f64) -> Self {
        Self::narrow(value.round_to_odd())
    }

    #[inline(always)]
    fn narrow(value: f32) -> Self {
        let bits = value.to_bits();
        let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
        // Rounding could carry a NaN's last bits into infinity; a NaN is made quiet instead.
        let quiet = (bits >> 16) | 0x40;
        Self::from_bits(if value.is_nan() { quiet } else { rounded } as u16)
    }
}

impl Element for f16 {
    type Acc = f32;
    const IS_ACC: bool = false;

    #[inline(always)]
    fn widen(self) -> f32 {
        let bits = u32::from(self.to_bits());
        let (sign, magnitude) = ((bits & 0x8000) << 16, (bits & 0x7fff) << 13);
        // The exponent, in place for `f32` but biased for `f16`, is rebiased by a multiplication, which also
        // normalises subnormals. Infinities and NaNs keep the largest exponent.
        let finite = (f32::from_bits(magnitude) * f32::from_bits((127 + 112) << 23)).to_bits();
        let special = magnitude | 0x7f80_0000;
        f32::from_bits(sign | if magnitude < 0x7c00 << 13 { finite } else { special })
    }

    fn from_f64(value: f64) -> Self {
        Self::narrow(value.round_to_odd())
    }

    #[inline(always)]
    fn narrow(value: f32) -> Self {
        let bits = value.to_bits();
        let (sign, magnitude) = ((bits >> 16) & 0x8000, bits & 0x7fff_ffff);
        // Normal results: rebias the exponent and round on the 13 bits that go.
        let normal = magnitude.wrapping_sub(112 << 23).wrapping_add(0xfff + ((magnitude >> 13) & 1)) >> 13;
        // Subnormal results: adding a half aligns the value to the last place of `f16`, and the adder rounds.
        let subnormal = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
        let special = if magnitude > 0x7f80_0000 { 0x7e00 | ((magnitude >> 13) & 0x3ff) } else { 0x7c00 };
        let finite = if magnitude < 113 << 23 { subnormal } else { normal };
        // From halfway between the largest finite value and the next power of two on, the result is infinite;
        // `normal` carries there by itself below that power.
        let result = if magnitude >= (127 + 16) << 23 { special } else { finite };
        Self::from_bits((sign | result) as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_widens_to_its_value() {
        for bits in 0..=u16::MAX {
            let (half, brain) = (f16::from_bits(bits), bf16::from_bits(bits));
            assert!(
                half.widen().to_bits() == half.to_f32().to_bits() || half.is_nan() && half.widen().is_nan()
            );
            assert!(
                brain.widen().to_bits() == brain.to_f32().to_bits()
                    || brain.is_nan() && brain.widen().is_nan()
            );
        }
    }

    #[test]
    fn narrowing_rounds_to_nearest_with_ties_to_even() {
        // All exponents and signs, with mantissas around those that are exact in a half or half way between two.
        for high in 0..=u16::MAX {
            for low in [0, 1, 0x0fff, 0x1000, 0x1001, 0x2000, 0x3000, 0x7fff, 0x8000, 0x8001, 0xf000, 0xffff]
            {
                let value = f32::from_bits(u32::from(high) << 16 | low);
                let (half, brain) = (<f16 as Element>::narrow(value), <bf16 as Element>::narrow(value));
                if value.is_nan() {
                    assert!(half.is_nan() && brain.is_nan());
                } else {
                    assert_eq!(half.to_bits(), f16::from_f32(value).to_bits(), "{value}");
                    assert_eq!(brain.to_bits(), bf16::from_f32(value).to_bits(), "{value}");
                }
            }
        }
    }
}
