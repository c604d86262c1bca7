//! The scalars that tensors hold and the scalars that kernels add them up in.
//!
//! Half-precision tensors are storage: their values are widened when they are read, summed in `f32`, and rounded
//! once, to nearest with ties to even, when they are written. The conversions are plain integer arithmetic
//! without branches, so that loops over them become vector code.

use crate::simd::{InstructionSet, MAX_LANES, Vector};
use half::{bf16, f16};
use std::ops::{Add, AddAssign, Mul, Range};

/// A scalar that a tensor can hold.
pub trait Element: Copy + Default + Send + Sync + PartialEq + std::fmt::Debug + 'static {
    /// The scalar that sums of it are kept in.
    type Acc: Real<Acc = Self::Acc>;

    /// Whether it is its own [`Acc`](Self::Acc), so that memory of one is memory of the other.
    const IS_ACC: bool;

    /// The value, widened.
    fn widen(self) -> Self::Acc;

    /// The nearest element, ties to even.
    fn narrow(value: Self::Acc) -> Self;

    /// Reads the elements of `lanes`, widened, and sets the other lanes to zero.
    ///
    /// # Safety
    ///
    /// As for [`Vector::load_some`].
    #[inline(always)]
    unsafe fn load_some<V: Vector<Scalar = Self::Acc>>(from: *const Self, lanes: Range<usize>) -> V {
        let mut wide = [Self::Acc::ZERO; MAX_LANES];
        // SAFETY: the caller vouches for the elements of `lanes`, and no vector has more than `MAX_LANES` lanes.
        unsafe {
            if lanes == (0..V::LANES) {
                for (lane, wide) in wide[..V::LANES].iter_mut().enumerate() {
                    *wide = (*from.add(lane)).widen();
                }
            } else {
                for lane in lanes {
                    *wide.get_unchecked_mut(lane) = (*from.wrapping_add(lane)).widen();
                }
            }
            V::load(wide.as_ptr())
        }
    }
}

/// A scalar that kernels compute in.
pub trait Real: Element<Acc = Self> + Add<Output = Self> + AddAssign + Mul<Output = Self> {
    /// Zero.
    const ZERO: Self;
    /// One.
    const ONE: Self;

    /// The register of an instruction set.
    type Vector<I: InstructionSet>: Vector<Scalar = Self>;

    /// `self * factor + addend`, rounded once where every processor of the architecture can.
    fn mul_add(self, factor: Self, addend: Self) -> Self;
}

macro_rules! real {
    ($real:ident, $vector:ident) => {
        impl Element for $real {
            type Acc = Self;
            const IS_ACC: bool = true;

            #[inline(always)]
            fn widen(self) -> Self {
                self
            }

            #[inline(always)]
            fn narrow(value: Self) -> Self {
                value
            }

            #[inline(always)]
            unsafe fn load_some<V: Vector<Scalar = Self>>(from: *const Self, lanes: Range<usize>) -> V {
                // SAFETY: the contract is the same.
                unsafe { if lanes == (0..V::LANES) { V::load(from) } else { V::load_some(from, lanes) } }
            }
        }

        impl Real for $real {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            type Vector<I: InstructionSet> = I::$vector;

            #[inline(always)]
            fn mul_add(self, factor: Self, addend: Self) -> Self {
                // Without the instruction, fusing would be a library call for every product.
                if cfg!(any(target_arch = "aarch64", target_feature = "fma")) {
                    self.mul_add(factor, addend)
                } else {
                    self * factor + addend
                }
            }
        }
    };
}

real!(f32, F32);
real!(f64, F64);

impl Element for bf16 {
    type Acc = f32;
    const IS_ACC: bool = false;

    #[inline(always)]
    fn widen(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
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
