// What the kernels of single ops share: element types, packs of elements, and folds over a team of threads.
// `Index` is defined before this text: 32 bits where every element can be counted in them.

struct bf16 { unsigned short bits; };
struct f16 { unsigned short bits; };
struct truth { unsigned char bits; };
typedef float f32;
typedef double f64;
typedef int i32;
typedef long long i64;
typedef unsigned char u8;
typedef unsigned u32;

// The type that sums and statistics over elements are kept in.
template <class E> struct Of { typedef E Acc; };
template <> struct Of<bf16> { typedef f32 Acc; };
template <> struct Of<f16> { typedef f32 Acc; };
template <> struct Of<u8> { typedef u32 Acc; };
template <> struct Of<truth> { typedef u32 Acc; };

__device__ __forceinline__ f32 widen(f32 x) { return x; }
__device__ __forceinline__ f64 widen(f64 x) { return x; }
__device__ __forceinline__ i32 widen(i32 x) { return x; }
__device__ __forceinline__ i64 widen(i64 x) { return x; }
__device__ __forceinline__ u32 widen(u32 x) { return x; }
__device__ __forceinline__ u32 widen(u8 x) { return x; }
__device__ __forceinline__ u32 widen(truth x) { return x.bits; }
__device__ __forceinline__ f32 widen(bf16 x) { return __uint_as_float((u32)x.bits << 16); }
__device__ __forceinline__ f32 widen(f16 x) {
    f32 wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x.bits));
    return wide;
}

// The nearest element; integers wrap, and a truth is whether the number is not zero.
template <class E> struct Narrow {
    template <class A> static __device__ __forceinline__ E of(A x) { return (E)x; }
};
template <> struct Narrow<bf16> {
    static __device__ __forceinline__ bf16 of(f32 x) {
        bf16 near;
        asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(near.bits) : "f"(x));
        return near;
    }
};
template <> struct Narrow<f16> {
    static __device__ __forceinline__ f16 of(f32 x) {
        f16 near;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(near.bits) : "f"(x));
        return near;
    }
};
template <> struct Narrow<truth> {
    template <class A> static __device__ __forceinline__ truth of(A x) { return truth{(unsigned char)(x != 0)}; }
};
template <class E, class A> __device__ __forceinline__ E narrow(A x) { return Narrow<E>::of(x); }

// What is below every number, above every number, and no number.
template <class A> struct Limits;
template <> struct Limits<f32> {
    static __device__ __forceinline__ f32 lowest() { return __uint_as_float(0xff800000u); }
    static __device__ __forceinline__ f32 highest() { return __uint_as_float(0x7f800000u); }
    static __device__ __forceinline__ f32 none() { return __uint_as_float(0x7fc00000u); }
};
template <> struct Limits<f64> {
    static __device__ __forceinline__ f64 lowest() { return __longlong_as_double(0xfff0000000000000ll); }
    static __device__ __forceinline__ f64 highest() { return __longlong_as_double(0x7ff0000000000000ll); }
    static __device__ __forceinline__ f64 none() { return __longlong_as_double(0x7ff8000000000000ll); }
};
template <> struct Limits<i32> {
    static __device__ __forceinline__ i32 lowest() { return -2147483647 - 1; }
    static __device__ __forceinline__ i32 highest() { return 2147483647; }
    static __device__ __forceinline__ i32 none() { return 0; }
};
template <> struct Limits<i64> {
    static __device__ __forceinline__ i64 lowest() { return -9223372036854775807ll - 1; }
    static __device__ __forceinline__ i64 highest() { return 9223372036854775807ll; }
    static __device__ __forceinline__ i64 none() { return 0; }
};
template <> struct Limits<u32> {
    static __device__ __forceinline__ u32 lowest() { return 0; }
    static __device__ __forceinline__ u32 highest() { return 0xffffffffu; }
    static __device__ __forceinline__ u32 none() { return 0; }
};

// Whether b takes the place of a as the largest so far: a first NaN does, and then nothing does.
template <class A> __device__ __forceinline__ bool replaces(A b, A a) { return b > a || (b != b && a == a); }

template <class A> __device__ __forceinline__ A larger(A a, A b) { return replaces(b, a) ? b : a; }

// Ways to combine numbers: what leaves every number as it is, and two numbers as one.
struct Sum {
    template <class A> static __device__ __forceinline__ A identity() { return 0; }
    static __device__ __forceinline__ f32 combine(f32 a, f32 b) { return a + b; }
    static __device__ __forceinline__ f64 combine(f64 a, f64 b) { return a + b; }
    static __device__ __forceinline__ u32 combine(u32 a, u32 b) { return a + b; }
    static __device__ __forceinline__ i32 combine(i32 a, i32 b) { return (i32)((u32)a + (u32)b); }
    static __device__ __forceinline__ i64 combine(i64 a, i64 b) {
        return (i64)((unsigned long long)a + (unsigned long long)b);
    }
};
struct Max {
    template <class A> static __device__ __forceinline__ A identity() { return Limits<A>::lowest(); }
    template <class A> static __device__ __forceinline__ A combine(A a, A b) { return larger(a, b); }
};
struct Min {
    template <class A> static __device__ __forceinline__ A identity() { return Limits<A>::highest(); }
    template <class A> static __device__ __forceinline__ A combine(A a, A b) {
        return b < a || (b != b && a == a) ? b : a;
    }
};

__device__ __forceinline__ f32 root(f32 x) { return sqrtf(x); }
__device__ __forceinline__ f64 root(f64 x) { return sqrt(x); }
__device__ __forceinline__ f32 logarithm(f32 x) { return logf(x); }
__device__ __forceinline__ f64 logarithm(f64 x) { return log(x); }

// Elements that are moved by one access.
template <class E, int N> struct alignas(sizeof(E) * N) Pack { E at[N]; };

template <int N, class E> __device__ __forceinline__ Pack<E, N> load(const E *from) {
    return *(const Pack<E, N> *)from;
}
// The same of what is not read again before much else is: it leaves the cache first, and so what others wrote there stays.
template <int N, class E> __device__ __forceinline__ Pack<E, N> load_passing(const E *from) {
    if constexpr (sizeof(E) * N == 16) {
        Pack<E, N> pack;
        *(uint4 *)&pack = __ldcs((const uint4 *)from);
        return pack;
    } else {
        return load<N>(from);
    }
}
template <class E, int N> __device__ __forceinline__ void store(E *to, Pack<E, N> pack) {
    *(Pack<E, N> *)to = pack;
}

// The numbers that elements are. The compiler moves each of two halves of a word to a register of its own before it widens
// it, unless told how to take the word apart.
template <class E, int N>
__device__ __forceinline__ Pack<typename Of<E>::Acc, N> widen_all(const Pack<E, N> &pack) {
    Pack<typename Of<E>::Acc, N> wide;
#pragma unroll
    for (int i = 0; i < N; ++i) wide.at[i] = widen(pack.at[i]);
    return wide;
}
template <int N> __device__ __forceinline__ Pack<f32, N> widen_all(const Pack<bf16, N> &pack) {
    Pack<f32, N> wide;
    if constexpr (N % 2 == 0) {
#pragma unroll
        for (int i = 0; i < N; i += 2) {
            const u32 both = ((const u32 *)pack.at)[i / 2];
            wide.at[i] = __uint_as_float(both << 16);
            wide.at[i + 1] = __uint_as_float(both & 0xffff0000u);
        }
    } else {
        wide.at[0] = widen(pack.at[0]);
    }
    return wide;
}

// The same, of halves by other instructions: the compiler does not see that they are the same numbers, and so does not keep
// those of the first time in registers that there are too few of.
template <class E> struct Anew;
template <> struct Anew<bf16> {
    static __device__ __forceinline__ f32 low(u32 both) { return __uint_as_float(__byte_perm(both, 0, 0x1044)); }
    static __device__ __forceinline__ f32 high(u32 both) { return __uint_as_float(__byte_perm(both, 0, 0x3244)); }
};
template <> struct Anew<f16> {
    static __device__ __forceinline__ f32 half(u32 bits) { return widen(f16{(unsigned short)bits}); }
    static __device__ __forceinline__ f32 low(u32 both) { return half(__byte_perm(both, 0, 0x4410)); }
    static __device__ __forceinline__ f32 high(u32 both) { return half(__byte_perm(both, 0, 0x4432)); }
};
template <class E, int N>
__device__ __forceinline__ Pack<typename Of<E>::Acc, N> widen_anew(const Pack<E, N> &pack) {
    if constexpr (sizeof(E) == 2 && N % 2 == 0) {
        Pack<f32, N> wide;
#pragma unroll
        for (int i = 0; i < N; i += 2) {
            const u32 both = ((const u32 *)pack.at)[i / 2];
            wide.at[i] = Anew<E>::low(both);
            wide.at[i + 1] = Anew<E>::high(both);
        }
        return wide;
    } else {
        return widen_all(pack);
    }
}

// The nearest elements, of halves two at once where the device can.
template <class E> struct NarrowTwo;
template <> struct NarrowTwo<bf16> {
    static __device__ __forceinline__ u32 of(f32 low, f32 high) {
        u32 both;
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
        return both;
    }
};
template <> struct NarrowTwo<f16> {
    static __device__ __forceinline__ u32 of(f32 low, f32 high) {
        u32 both;
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
        return both;
    }
};
template <class E, class A, int N> __device__ __forceinline__ Pack<E, N> narrow_all(const A (&numbers)[N]) {
    Pack<E, N> near;
    if constexpr (__CUDA_ARCH__ >= 800 && sizeof(E) == 2 && N % 2 == 0) {
#pragma unroll
        for (int i = 0; i < N; i += 2) ((u32 *)near.at)[i / 2] = NarrowTwo<E>::of(numbers[i], numbers[i + 1]);
    } else {
#pragma unroll
        for (int i = 0; i < N; ++i) near.at[i] = narrow<E>(numbers[i]);
    }
    return near;
}

template <class A> __device__ __forceinline__ A exchange(A x, int apart) {
    return __shfl_xor_sync(0xffffffffu, x, apart);
}

// The numbers of a team combined, for each of its members: 1 to 32 neighbouring lanes, or else the whole block. The
// order is fixed. Every thread of the block must call it.
template <int TEAM, class Fold, class A> __device__ __forceinline__ A fold(A x) {
#pragma unroll
    for (int apart = (TEAM < 32 ? TEAM : 32) / 2; apart > 0; apart /= 2) x = Fold::combine(x, exchange(x, apart));
    if constexpr (TEAM > 32) {
        __shared__ A warps[TEAM / 32];
        if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = x;
        __syncthreads();
        x = warps[0];
#pragma unroll
        for (int warp = 1; warp < TEAM / 32; ++warp) x = Fold::combine(x, warps[warp]);
        __syncthreads();
    }
    return x;
}

// Calls `visit(position, pack)` for every element of a row that falls to one member of a team, in ascending order:
// single elements up to the first address that is a multiple of 16, packs of 16 bytes of which DEEP are under way at
// once, and single elements at the end. The pack may be overwritten in place by `visit`.
template <int TEAM, int DEEP, class E, class Visit>
__device__ __forceinline__ void each(const E *row, Index count, Index member, Visit visit) {
    constexpr Index N = 16 / sizeof(E);
    const Index past = (Index)((unsigned long long)row % 16 / sizeof(E));
    const Index before = past == 0 ? 0 : N - past;
    const Index head = before < count ? before : count;
    const Index packs = (count - head) / N;
    const E *body = row + head;
    for (Index at = member; at < head; at += TEAM) visit(at, load<1>(row + at));
    Index pack = member;
    for (; pack + (DEEP - 1) * TEAM < packs; pack += DEEP * TEAM) {
        Pack<E, N> held[DEEP];
#pragma unroll
        for (int d = 0; d < DEEP; ++d) held[d] = load<N>(body + (pack + d * TEAM) * N);
#pragma unroll
        for (int d = 0; d < DEEP; ++d) visit(head + (pack + d * TEAM) * N, held[d]);
    }
    for (; pack < packs; pack += TEAM) visit(head + pack * N, load<N>(body + pack * N));
    for (Index at = head + packs * N + member; at < count; at += TEAM) visit(at, load<1>(row + at));
}
