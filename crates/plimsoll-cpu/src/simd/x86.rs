//! The vectors of x86-64: 256 bits with AVX2 and FMA, 512 bits with AVX-512.

use super::{Body, CallOn, Compiled, Function, InstructionSet, Isa, MAX_LANES, RunOn, Vector};
use std::arch::x86_64::*;
use std::ops::Range;

/// Defines an instruction set by the features it enables and its vectors.
macro_rules! instruction_set {
    ($(#[$doc:meta])* $name:ident, features: $features:literal, $single:ident, $double:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name;

        impl InstructionSet for $name {
            const ISA: Isa = Isa::$name;
            type F32 = $single;
            type F64 = $double;

            #[inline(always)]
            unsafe fn run<B: Body>(body: B) -> B::Output {
                // SAFETY: the caller vouches for the instruction set.
                unsafe { RunOn::<$name>::run_on(body) }
            }

            fn compiled<F: Function>() -> Compiled<F::Args> {
                <F as CallOn<$name>>::call_on
            }
        }

        impl<B: Body> RunOn<$name> for B {
            #[inline(never)]
            #[target_feature(enable = $features)]
            unsafe fn run_on(self) -> B::Output {
                // SAFETY: the caller vouches for the instruction set.
                unsafe { self.run::<$name>() }
            }
        }

        impl<F: Function> CallOn<$name> for F {
            #[target_feature(enable = $features)]
            unsafe fn call_on(args: &F::Args) {
                // SAFETY: the caller vouches for the arguments.
                unsafe { F::call(args) }
            }
        }
    };
}

instruction_set! {
    /// 512-bit vectors with masks.
    Avx512, features: "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma", F32x16, F64x8
}

instruction_set! {
    /// 256-bit vectors with fused multiply-add.
    Avx2, features: "avx2,fma", F32x8, F64x4
}

/// Defines a vector as a wrapper of a register, from the intrinsics that differ only in name.
macro_rules! vector {
    (
        $(#[$doc:meta])* $name:ident($register:ident) of $scalar:ident, $set:ident,
        $splat:ident, $load:ident, $store:ident, $fma:ident,
        |$from:ident, $load_mask:ident| $load_some:expr,
        |$to:ident, $store_mask:ident, $value:ident| $store_some:expr,
        $transpose:path $(, pick: |$vector:ident, $picked:ident| $pick:expr)? $(, load_transposed: $load_transposed:path)?
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name($register);

        impl Vector for $name {
            type Scalar = $scalar;
            type Set = $set;

            #[inline(always)]
            unsafe fn splat(value: $scalar) -> Self {
                // SAFETY: the caller vouches for the instruction set.
                Self(unsafe { $splat(value) })
            }

            #[inline(always)]
            unsafe fn load(from: *const $scalar) -> Self {
                // SAFETY: the caller vouches for all lanes.
                Self(unsafe { $load(from) })
            }

            #[inline(always)]
            unsafe fn load_some(from: *const $scalar, lanes: Range<usize>) -> Self {
                let ($from, $load_mask) = (from, (!0u32 << lanes.start) & !(!0u32 << lanes.end));
                // SAFETY: a masked load does not touch the memory of the lanes that are masked out.
                Self(unsafe { $load_some })
            }

            #[inline(always)]
            unsafe fn store(self, to: *mut $scalar) {
                // SAFETY: the caller vouches for all lanes.
                unsafe { $store(to, self.0) }
            }

            #[inline(always)]
            unsafe fn store_first(self, to: *mut $scalar, count: usize) {
                let ($to, $store_mask, $value) = (to, !(!0u32 << count), self.0);
                // SAFETY: a masked store does not touch the memory of the lanes that are masked out.
                unsafe { $store_some }
            }

            #[inline(always)]
            fn prefetch(at: *const $scalar) {
                // SAFETY: every x86-64 processor has the instruction, and it does not fault.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
            }

            #[inline(always)]
            unsafe fn mul_add(self, factor: Self, addend: Self) -> Self {
                // SAFETY: the caller vouches for the instruction set.
                Self(unsafe { $fma(self.0, factor.0, addend.0) })
            }

            #[inline(always)]
            unsafe fn transpose(rows: &mut [Self]) {
                let Some(rows) = rows.first_chunk_mut() else { return };
                // SAFETY: the caller vouches for the instruction set.
                unsafe { $transpose(rows) }
            }

            $(
                #[inline(always)]
                unsafe fn pick(self, from: &[u32; MAX_LANES]) -> Self {
                    let ($vector, $picked) = (self.0, from.as_ptr());
                    // SAFETY: the caller vouches for the instruction set; there are as many entries as lanes.
                    Self(unsafe { $pick })
                }
            )?

            $(
                #[inline(always)]
                unsafe fn load_transposed(
                    from: &[*const $scalar; MAX_LANES],
                ) -> [Self; MAX_LANES] {
                    // SAFETY: the caller vouches for the addresses.
                    unsafe { $load_transposed(from) }
                }
            )?
        }
    };
}

vector! {
    /// Sixteen `f32`.
    F32x16(__m512) of f32, Avx512,
    _mm512_set1_ps, _mm512_loadu_ps, _mm512_storeu_ps, _mm512_fmadd_ps,
    |from, mask| _mm512_maskz_loadu_ps(mask as __mmask16, from),
    |to, mask, value| _mm512_mask_storeu_ps(to, mask as __mmask16, value),
    transpose_f32x16,
    pick: |vector, from| _mm512_permutexvar_ps(_mm512_loadu_epi32(from.cast()), vector),
    load_transposed: load_transposed_f32x16
}

vector! {
    /// Eight `f64`.
    F64x8(__m512d) of f64, Avx512,
    _mm512_set1_pd, _mm512_loadu_pd, _mm512_storeu_pd, _mm512_fmadd_pd,
    |from, mask| _mm512_maskz_loadu_pd(mask as __mmask8, from),
    |to, mask, value| _mm512_mask_storeu_pd(to, mask as __mmask8, value),
    transpose_f64x8
}

vector! {
    /// Eight `f32`.
    F32x8(__m256) of f32, Avx2,
    _mm256_set1_ps, _mm256_loadu_ps, _mm256_storeu_ps, _mm256_fmadd_ps,
    |from, mask| _mm256_maskload_ps(from, mask_epi32(mask)),
    |to, mask, value| _mm256_maskstore_ps(to, mask_epi32(mask), value),
    transpose_f32x8,
    pick: |vector, from| _mm256_permutevar8x32_ps(vector, _mm256_loadu_si256(from.cast()))
}

vector! {
    /// Four `f64`.
    F64x4(__m256d) of f64, Avx2,
    _mm256_set1_pd, _mm256_loadu_pd, _mm256_storeu_pd, _mm256_fmadd_pd,
    |from, mask| _mm256_maskload_pd(from, mask_epi64(mask)),
    |to, mask, value| _mm256_maskstore_pd(to, mask_epi64(mask), value),
    transpose_f64x4
}

/// Bit `i` of `mask`, in every bit of lane `i`.
#[inline(always)]
unsafe fn mask_epi32(mask: u32) -> __m256i {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        let bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
        _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(mask as i32), bits), bits)
    }
}

/// Bit `i` of `mask`, in every bit of lane `i`.
#[inline(always)]
unsafe fn mask_epi64(mask: u32) -> __m256i {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        let bits = _mm256_setr_epi64x(1, 2, 4, 8);
        _mm256_cmpeq_epi64(_mm256_and_si256(_mm256_set1_epi64x(i64::from(mask)), bits), bits)
    }
}

/// Transposes by pairs of lanes, then by pairs of pairs, within 128 bits; then by 128 bits.
#[inline(always)]
unsafe fn transpose_f32x16(rows: &mut [F32x16; 16]) {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        let mut quads = [[rows[0].0; 4]; 4];
        for (quad, rows) in quads.iter_mut().zip(rows.chunks_exact(4)) {
            let t0 = _mm512_castps_pd(_mm512_unpacklo_ps(rows[0].0, rows[1].0));
            let t1 = _mm512_castps_pd(_mm512_unpackhi_ps(rows[0].0, rows[1].0));
            let t2 = _mm512_castps_pd(_mm512_unpacklo_ps(rows[2].0, rows[3].0));
            let t3 = _mm512_castps_pd(_mm512_unpackhi_ps(rows[2].0, rows[3].0));
            quad[0] = _mm512_castpd_ps(_mm512_unpacklo_pd(t0, t2));
            quad[1] = _mm512_castpd_ps(_mm512_unpackhi_pd(t0, t2));
            quad[2] = _mm512_castpd_ps(_mm512_unpacklo_pd(t1, t3));
            quad[3] = _mm512_castpd_ps(_mm512_unpackhi_pd(t1, t3));
        }
        for i in 0..4 {
            let t0 = _mm512_shuffle_f32x4::<0x88>(quads[0][i], quads[1][i]);
            let t1 = _mm512_shuffle_f32x4::<0xdd>(quads[0][i], quads[1][i]);
            let t2 = _mm512_shuffle_f32x4::<0x88>(quads[2][i], quads[3][i]);
            let t3 = _mm512_shuffle_f32x4::<0xdd>(quads[2][i], quads[3][i]);
            rows[i].0 = _mm512_shuffle_f32x4::<0x88>(t0, t2);
            rows[i + 4].0 = _mm512_shuffle_f32x4::<0x88>(t1, t3);
            rows[i + 8].0 = _mm512_shuffle_f32x4::<0xdd>(t0, t2);
            rows[i + 12].0 = _mm512_shuffle_f32x4::<0xdd>(t1, t3);
        }
    }
}

/// Gathers quarters of four vectors while reading, so that only transposes within 128 bits remain.
#[inline(always)]
unsafe fn load_transposed_f32x16(from: &[*const f32; MAX_LANES]) -> [F32x16; MAX_LANES] {
    // SAFETY: the caller vouches for the addresses and the instruction set.
    unsafe {
        let mut quarters = [[_mm512_setzero_ps(); 4]; 4];
        for i in 0..4 {
            let rows = [from[i], from[i + 4], from[i + 8], from[i + 12]];
            for (quarter, gathered) in quarters.iter_mut().enumerate() {
                let part = |row: *const f32| _mm_loadu_ps(row.add(4 * quarter));
                let vector = _mm512_castps128_ps512(part(rows[0]));
                let vector = _mm512_insertf32x4::<1>(vector, part(rows[1]));
                let vector = _mm512_insertf32x4::<2>(vector, part(rows[2]));
                gathered[i] = _mm512_insertf32x4::<3>(vector, part(rows[3]));
            }
        }
        let mut columns = [F32x16(_mm512_setzero_ps()); MAX_LANES];
        for (columns, gathered) in columns.chunks_exact_mut(4).zip(&quarters) {
            let t0 = _mm512_castps_pd(_mm512_unpacklo_ps(gathered[0], gathered[1]));
            let t1 = _mm512_castps_pd(_mm512_unpackhi_ps(gathered[0], gathered[1]));
            let t2 = _mm512_castps_pd(_mm512_unpacklo_ps(gathered[2], gathered[3]));
            let t3 = _mm512_castps_pd(_mm512_unpackhi_ps(gathered[2], gathered[3]));
            columns[0].0 = _mm512_castpd_ps(_mm512_unpacklo_pd(t0, t2));
            columns[1].0 = _mm512_castpd_ps(_mm512_unpackhi_pd(t0, t2));
            columns[2].0 = _mm512_castpd_ps(_mm512_unpacklo_pd(t1, t3));
            columns[3].0 = _mm512_castpd_ps(_mm512_unpackhi_pd(t1, t3));
        }
        columns
    }
}

/// Transposes by pairs of lanes within 128 bits, then by 128 bits.
#[inline(always)]
unsafe fn transpose_f64x8(rows: &mut [F64x8; 8]) {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        let mut pairs = [[rows[0].0; 2]; 4];
        for (pair, rows) in pairs.iter_mut().zip(rows.chunks_exact(2)) {
            pair[0] = _mm512_unpacklo_pd(rows[0].0, rows[1].0);
            pair[1] = _mm512_unpackhi_pd(rows[0].0, rows[1].0);
        }
        for i in 0..2 {
            let t0 = _mm512_shuffle_f64x2::<0x88>(pairs[0][i], pairs[1][i]);
            let t1 = _mm512_shuffle_f64x2::<0xdd>(pairs[0][i], pairs[1][i]);
            let t2 = _mm512_shuffle_f64x2::<0x88>(pairs[2][i], pairs[3][i]);
            let t3 = _mm512_shuffle_f64x2::<0xdd>(pairs[2][i], pairs[3][i]);
            rows[i].0 = _mm512_shuffle_f64x2::<0x88>(t0, t2);
            rows[i + 2].0 = _mm512_shuffle_f64x2::<0x88>(t1, t3);
            rows[i + 4].0 = _mm512_shuffle_f64x2::<0xdd>(t0, t2);
            rows[i + 6].0 = _mm512_shuffle_f64x2::<0xdd>(t1, t3);
        }
    }
}

/// Transposes by pairs of lanes, then by pairs of pairs, within 128 bits; then by 128 bits.
#[inline(always)]
unsafe fn transpose_f32x8(rows: &mut [F32x8; 8]) {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        let mut quads = [[rows[0].0; 4]; 2];
        for (quad, rows) in quads.iter_mut().zip(rows.chunks_exact(4)) {
            let t0 = _mm256_castps_pd(_mm256_unpacklo_ps(rows[0].0, rows[1].0));
            let t1 = _mm256_castps_pd(_mm256_unpackhi_ps(rows[0].0, rows[1].0));
            let t2 = _mm256_castps_pd(_mm256_unpacklo_ps(rows[2].0, rows[3].0));
            let t3 = _mm256_castps_pd(_mm256_unpackhi_ps(rows[2].0, rows[3].0));
            quad[0] = _mm256_castpd_ps(_mm256_unpacklo_pd(t0, t2));
            quad[1] = _mm256_castpd_ps(_mm256_unpackhi_pd(t0, t2));
            quad[2] = _mm256_castpd_ps(_mm256_unpacklo_pd(t1, t3));
            quad[3] = _mm256_castpd_ps(_mm256_unpackhi_pd(t1, t3));
        }
        for i in 0..4 {
            rows[i].0 = _mm256_permute2f128_ps::<0x20>(quads[0][i], quads[1][i]);
            rows[i + 4].0 = _mm256_permute2f128_ps::<0x31>(quads[0][i], quads[1][i]);
        }
    }
}

/// Transposes by pairs of lanes within 128 bits, then by 128 bits.
#[inline(always)]
unsafe fn transpose_f64x4(rows: &mut [F64x4; 4]) {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        let t0 = _mm256_unpacklo_pd(rows[0].0, rows[1].0);
        let t1 = _mm256_unpackhi_pd(rows[0].0, rows[1].0);
        let t2 = _mm256_unpacklo_pd(rows[2].0, rows[3].0);
        let t3 = _mm256_unpackhi_pd(rows[2].0, rows[3].0);
        rows[0].0 = _mm256_permute2f128_pd::<0x20>(t0, t2);
        rows[1].0 = _mm256_permute2f128_pd::<0x20>(t1, t3);
        rows[2].0 = _mm256_permute2f128_pd::<0x31>(t0, t2);
        rows[3].0 = _mm256_permute2f128_pd::<0x31>(t1, t3);
    }
}
