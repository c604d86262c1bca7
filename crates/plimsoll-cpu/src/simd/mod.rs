//! Which vector instructions the machine has, and code compiled once for each.
//!
//! The library is built for the plainest processor of its architecture and finds out at run time what the one it
//! is on can do. Arithmetic is written once and inlined into a function that enables an instruction set, so that all
//! of it, plain loops included, is compiled for that set. There are two ways in. A [`Body`] holds what it works on,
//! and [`Isa::run`] picks its instance with each call. A [`Function`] is picked by `Isa::compiled` once, when a
//! kernel is prepared, and called through a pointer.
//!
//! Plain loops give the same bits on all sets: a product and a sum are fused by [`Vector::mul_add`] alone, and the
//! compiler never introduces that.

mod portable;
#[cfg(target_arch = "x86_64")]
mod x86;

use crate::numbers::Float;
use std::ops::Range;

pub use portable::{Portable, Quad};
#[cfg(target_arch = "x86_64")]
pub use x86::{Avx2, Avx512, F32x8, F32x16, F64x4, F64x8};

/// An instruction set that kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isa {
    /// What every processor of the architecture has.
    Portable,
    /// 256-bit vectors with fused multiply-add.
    Avx2,
    /// 512-bit vectors with masks.
    Avx512,
}

impl Isa {
    /// All instruction sets, the narrowest first.
    pub const ALL: [Self; 3] = [Self::Portable, Self::Avx2, Self::Avx512];

    /// The widest instruction set this machine has.
    pub fn detect() -> Self {
        #[cfg(test)]
        if let Some(isa) = FORCED.get() {
            return isa;
        }
        let available = Self::ALL.into_iter().rev().find(|isa| isa.is_available());
        available.unwrap_or(Self::Portable)
    }

    /// Makes [`detect`](Self::detect) find another instruction set on this thread, and returns what it was made to find
    /// before.
    #[cfg(test)]
    pub(crate) fn force(isa: Option<Self>) -> Option<Self> {
        FORCED.replace(isa)
    }

    /// The number of lanes of a vector of scalars of `size` bytes.
    pub const fn lanes(self, size: usize) -> usize {
        match self {
            Self::Portable => 4,
            Self::Avx2 => 32 / size,
            Self::Avx512 => 64 / size,
        }
    }

    /// The number of vector registers that code may use at once.
    pub const fn registers(self) -> usize {
        match self {
            Self::Portable | Self::Avx2 => 16,
            Self::Avx512 => 32,
        }
    }

    /// Whether this machine has the instruction set.
    pub fn is_available(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
            let avx512 = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl");
            match self {
                Self::Portable => true,
                Self::Avx2 => avx2,
                Self::Avx512 => avx2 && avx512,
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            self == Self::Portable
        }
    }

    /// Runs `body` as compiled for this instruction set.
    ///
    /// # Panics
    ///
    /// When this machine does not have the instruction set.
    pub fn run<B: Body>(self, body: B) -> B::Output {
        assert!(self.is_available(), "this machine does not have {self:?}");
        // SAFETY: the machine has the instruction set.
        unsafe { self.run_unchecked(body) }
    }

    /// [`run`](Self::run), many times from code that is known to run on the instruction set.
    ///
    /// # Safety
    ///
    /// The machine must have the instruction set.
    pub(crate) unsafe fn run_unchecked<B: Body>(self, body: B) -> B::Output {
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            match self {
                #[cfg(target_arch = "x86_64")]
                Self::Avx512 => Avx512::run(body),
                #[cfg(target_arch = "x86_64")]
                Self::Avx2 => Avx2::run(body),
                _ => Portable::run(body),
            }
        }
    }

    /// The function `F` as compiled for this instruction set, which the machine must have when it is called.
    pub(crate) fn compiled<F: Function>(self) -> Compiled<F::Args> {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => Avx512::compiled::<F>(),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => Avx2::compiled::<F>(),
            _ => Portable::compiled::<F>(),
        }
    }
}

#[cfg(test)]
thread_local! {
    static FORCED: std::cell::Cell<Option<Isa>> = const { std::cell::Cell::new(None) };
}

/// Arithmetic together with what it works on, written once for all instruction sets.
pub trait Body {
    /// What the arithmetic returns.
    type Output;

    /// The arithmetic. Implementations and what they call are `#[inline(always)]`: code that is not inlined is
    /// compiled for the plainest processor.
    ///
    /// # Safety
    ///
    /// The machine must have the instruction set.
    unsafe fn run<I: InstructionSet>(self) -> Self::Output;
}

/// Arithmetic whose type is forgotten when it has been chosen: functions of the same arguments are the same to their
/// caller.
pub trait Function {
    /// What it works on.
    type Args;

    /// The arithmetic. Implementations and what they call are `#[inline(always)]`, as for [`Body::run`].
    ///
    /// # Safety
    ///
    /// As the function says of its arguments.
    unsafe fn call(args: &Self::Args);
}

/// A [`Function`] compiled for one instruction set.
pub type Compiled<Args> = unsafe fn(&Args);

/// An instruction set as a type: its vectors, and code compiled for it.
pub trait InstructionSet: Copy + 'static {
    /// Which one it is.
    const ISA: Isa;

    /// A register of `f32`.
    type F32: Vector<Scalar = f32>;
    /// A register of `f64`.
    type F64: Vector<Scalar = f64>;

    /// Runs `body` in a function that enables the instruction set.
    ///
    /// # Safety
    ///
    /// The machine must have the instruction set.
    unsafe fn run<B: Body>(body: B) -> B::Output;

    /// The function that enables the instruction set and calls `F`.
    fn compiled<F: Function>() -> Compiled<F::Args>;
}

/// A [`Body`] in a function that enables an instruction set, never inlined: what many run, such as a register tile,
/// would be compiled once in each of them.
///
/// It is a method of the body because the compiler takes methods to the module of their type when it divides a crate to
/// be compiled in parallel. In functions of this module, all kernels would be one piece of work.
trait RunOn<I>: Body {
    /// Runs the body.
    ///
    /// # Safety
    ///
    /// The machine must have the instruction set.
    unsafe fn run_on(self) -> Self::Output;
}

/// A [`Function`] that enables an instruction set; a method of it for the same reason.
#[cfg(target_arch = "x86_64")]
trait CallOn<I>: Function {
    /// Calls the function.
    ///
    /// # Safety
    ///
    /// The machine must have the instruction set; and as the function says of its arguments.
    unsafe fn call_on(args: &Self::Args);
}

/// The register of scalars `S` of an instruction set.
pub type VectorOf<I, S> = <S as Float>::Vector<I>;

/// A register of some scalars.
///
/// # Safety
///
/// Of every method: the machine must have the instruction set of the vector, and pointers must be valid for the
/// lanes that are read or written. Pointers need only the scalar's alignment.
pub trait Vector: Copy {
    /// The type of a lane.
    type Scalar: Float<Acc = Self::Scalar>;

    /// The instruction set it belongs to.
    type Set: InstructionSet;

    /// The instruction set it belongs to, as a value.
    const ISA: Isa = Self::Set::ISA;

    /// The number of lanes.
    const LANES: usize = Self::ISA.lanes(size_of::<Self::Scalar>());

    /// `value` in every lane.
    ///
    /// # Safety
    ///
    /// See the trait.
    unsafe fn splat(value: Self::Scalar) -> Self;

    /// Reads every lane.
    ///
    /// # Safety
    ///
    /// See the trait.
    unsafe fn load(from: *const Self::Scalar) -> Self;

    /// Reads the lanes in `lanes`, which must be within the vector, and sets the others to zero. Memory of the
    /// others is not touched.
    ///
    /// # Safety
    ///
    /// See the trait.
    unsafe fn load_some(from: *const Self::Scalar, lanes: Range<usize>) -> Self;

    /// Writes every lane.
    ///
    /// # Safety
    ///
    /// See the trait.
    unsafe fn store(self, to: *mut Self::Scalar);

    /// Writes the first `count` lanes, at most all.
    ///
    /// # Safety
    ///
    /// See the trait.
    unsafe fn store_first(self, to: *mut Self::Scalar, count: usize);

    /// Asks for a line of memory that will be used soon. Any address will do.
    fn prefetch(at: *const Self::Scalar);

    /// `self * factor + addend`, rounded once where the instruction set can.
    ///
    /// # Safety
    ///
    /// See the trait.
    unsafe fn mul_add(self, factor: Self, addend: Self) -> Self;

    /// The lanes in another order, which may repeat some: lane `from[i]` in lane `i`. Entries are less than `LANES`, those
    /// past it are not looked at.
    ///
    /// # Safety
    ///
    /// See the trait.
    #[inline(always)]
    unsafe fn pick(self, from: &[u32; MAX_LANES]) -> Self {
        let (mut lanes, mut picked) = ([Self::Scalar::ZERO; MAX_LANES], [Self::Scalar::ZERO; MAX_LANES]);
        // SAFETY: no vector has more than `MAX_LANES` lanes.
        unsafe {
            self.store(lanes.as_mut_ptr());
            for (lane, &from) in picked[..Self::LANES].iter_mut().zip(from) {
                *lane = lanes[from as usize % MAX_LANES];
            }
            Self::load(picked.as_ptr())
        }
    }

    /// The sum of all lanes, halves first.
    ///
    /// # Safety
    ///
    /// See the trait.
    #[inline(always)]
    unsafe fn sum(self) -> Self::Scalar {
        let mut lanes = [Self::Scalar::ZERO; MAX_LANES];
        // SAFETY: no vector has more than `MAX_LANES` lanes.
        unsafe { self.store(lanes.as_mut_ptr()) };
        let mut half = Self::LANES / 2;
        while half > 0 {
            for lane in 0..half {
                lanes[lane] += lanes[lane + half];
            }
            half /= 2;
        }
        lanes[0]
    }

    /// Exchanges lane `j` of `rows[i]` with lane `i` of `rows[j]`. There are `LANES` rows.
    ///
    /// # Safety
    ///
    /// See the trait.
    unsafe fn transpose(rows: &mut [Self]);

    /// Reads a vector from each of `LANES` addresses and transposes them.
    ///
    /// # Safety
    ///
    /// See the trait.
    #[inline(always)]
    unsafe fn load_transposed(from: &[*const Self::Scalar; MAX_LANES]) -> [Self; MAX_LANES] {
        // SAFETY: the caller vouches for the addresses.
        unsafe {
            let mut rows = [Self::splat(Self::Scalar::ZERO); MAX_LANES];
            for (row, &from) in rows.iter_mut().zip(&from[..Self::LANES]) {
                *row = Self::load(from);
            }
            Self::transpose(&mut rows[..Self::LANES]);
            rows
        }
    }
}

/// The most lanes that any vector has.
pub const MAX_LANES: usize = 16;

/// Asks for the cache line of an address, which may be any, to be brought near; not into the first cache, which is
/// for what is being worked on.
#[inline(always)]
pub(crate) fn prefetch(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every such machine has the instruction, and it does nothing that a program can see.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T1 }>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}
