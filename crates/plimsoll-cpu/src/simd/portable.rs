//! The instruction set that every machine has. Its vector is a short array, which the compiler maps to what registers
//! there are.

use super::{Body, Compiled, Function, InstructionSet, Isa, RunOn, Vector};
use crate::numbers::Float;
use std::ops::Range;

const LANES: usize = Isa::Portable.lanes(0);

/// What every processor of the architecture has.
#[derive(Clone, Copy, Debug)]
pub struct Portable;

impl InstructionSet for Portable {
    const ISA: Isa = Isa::Portable;
    type F32 = Quad<f32>;
    type F64 = Quad<f64>;

    #[inline(always)]
    unsafe fn run<B: Body>(body: B) -> B::Output {
        // SAFETY: every machine has this instruction set.
        unsafe { RunOn::<Self>::run_on(body) }
    }

    fn compiled<F: Function>() -> Compiled<F::Args> {
        F::call
    }
}

impl<B: Body> RunOn<Portable> for B {
    #[inline(never)]
    unsafe fn run_on(self) -> B::Output {
        // SAFETY: every machine has this instruction set.
        unsafe { self.run::<Portable>() }
    }
}

/// Four scalars.
#[derive(Clone, Copy, Debug)]
pub struct Quad<S>([S; LANES]);

impl<S: Float> Vector for Quad<S> {
    type Scalar = S;
    type Set = Portable;

    #[inline(always)]
    unsafe fn splat(value: S) -> Self {
        Self([value; LANES])
    }

    #[inline(always)]
    unsafe fn load(from: *const S) -> Self {
        // SAFETY: the caller vouches for all lanes.
        Self(unsafe { from.cast::<[S; LANES]>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn load_some(from: *const S, lanes: Range<usize>) -> Self {
        let mut vector = [S::ZERO; LANES];
        for lane in lanes {
            // SAFETY: the caller vouches for these lanes.
            vector[lane] = unsafe { *from.wrapping_add(lane) };
        }
        Self(vector)
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut S) {
        // SAFETY: the caller vouches for all lanes.
        unsafe { to.cast::<[S; LANES]>().write_unaligned(self.0) }
    }

    #[inline(always)]
    unsafe fn store_first(self, to: *mut S, count: usize) {
        for (lane, &value) in self.0[..count].iter().enumerate() {
            // SAFETY: the caller vouches for the first `count` lanes.
            unsafe { *to.add(lane) = value };
        }
    }

    #[inline(always)]
    fn prefetch(_at: *const S) {}

    #[inline(always)]
    unsafe fn mul_add(self, factor: Self, addend: Self) -> Self {
        Self(std::array::from_fn(|lane| self.0[lane].mul_add(factor.0[lane], addend.0[lane])))
    }

    #[inline(always)]
    unsafe fn transpose(rows: &mut [Self]) {
        for i in 1..LANES {
            for j in 0..i {
                (rows[i].0[j], rows[j].0[i]) = (rows[j].0[i], rows[i].0[j]);
            }
        }
    }
}
