//! One kernel, compiled for each instruction set.
//!
//! A kernel here is a type whose [`run`](Kernel::run) is inlined into a function that enables an instruction
//! set; its plain loops become that set's vector code. Which of the functions is used is decided once, when a
//! kernel is prepared. No set may change a result: the arithmetic is written without fused multiply-add, and
//! the compiler never introduces one.

use crate::simd::Isa;

/// Arithmetic that is compiled once for each instruction set.
pub(crate) trait Kernel {
    /// What it works on.
    type Args;

    /// Does the work. Implementations and all that they call are `#[inline(always)]`.
    ///
    /// # Safety
    /// As the kernel says of its arguments.
    unsafe fn run(args: &Self::Args);
}

/// A kernel compiled for one instruction set.
pub(crate) type Instance<Args> = unsafe fn(&Args);

/// The kernel `K` for `isa`, which the machine must have when it is called.
pub(crate) fn instance<K: Kernel>(isa: Isa) -> Instance<K::Args> {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => avx512::<K>,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => avx2::<K>,
        _ => K::run,
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn avx512<K: Kernel>(args: &K::Args) {
    // SAFETY: the caller vouches for the arguments.
    unsafe { K::run(args) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn avx2<K: Kernel>(args: &K::Args) {
    // SAFETY: the caller vouches for the arguments.
    unsafe { K::run(args) }
}
