// What all generated kernels share: element types and their conversions, packed access to memory, arithmetic whose
// results do not depend on the code around it, reductions in one order, and random numbers.
//
// Compiled by NVRTC without any header. Arithmetic on floats goes through intrinsics that round once and are never
// fused with what follows, so that a register of a fused loop has the same bits however the loop is cut.

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

struct f16 {
    unsigned short bits;
};
struct bf16 {
    unsigned short bits;
};

// ---- Half precision: kept as 16 bits, computed with as float. -----------------------------------------------------

__device__ __forceinline__ float widen(f16 x) {
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x.bits));
    return wide;
}
__device__ __forceinline__ float widen(bf16 x) { return __uint_as_float((u32)x.bits << 16); }
__device__ __forceinline__ f16 narrow_f16(float x) {
    f16 half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half.bits) : "f"(x));
    return half;
}
__device__ __forceinline__ bf16 narrow_bf16(float x) {
    bf16 half;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(half.bits) : "f"(x));
    return half;
}

// A number on its way to half precision: as a float whose last digit is odd if digits were lost, so that rounding it
// once more gives what rounding the number at once does.
__device__ __forceinline__ float odd(float x, bool exact) { return exact ? x : __uint_as_float(__float_as_uint(x) | 1u); }
__device__ __forceinline__ float sticky(float x) { return x; }
__device__ __forceinline__ float sticky(double x) {
    float near = __double2float_rz(x);
    return odd(near, (double)near == x);
}
__device__ __forceinline__ float sticky(int x) {
    float near = __int2float_rz(x);
    return odd(near, (double)near == (double)x);
}
__device__ __forceinline__ float sticky(i64 x) {
    float near = __ll2float_rz(x);
    return odd(near, __float2ll_rz(near) == x);
}
__device__ __forceinline__ float sticky(u8 x) { return (float)x; }

__device__ __forceinline__ float round_f16(float x) { return widen(narrow_f16(x)); }
// The pair of the number and zero is the number again, as a float; and pairs are converted faster than single numbers.
__device__ __forceinline__ float round_bf16(float x) {
    u32 bits;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(x), "f"(0.0f));
    return __uint_as_float(bits);
}

// ---- From an element in memory to what it is computed with, and back. ---------------------------------------------

__device__ __forceinline__ float load(f16 x) { return widen(x); }
__device__ __forceinline__ float load(bf16 x) { return widen(x); }
template <class T> __device__ __forceinline__ T load(T x) { return x; }

__device__ __forceinline__ void store(f16 &to, float x) { to = narrow_f16(x); }
__device__ __forceinline__ void store(bf16 &to, float x) { to = narrow_bf16(x); }
template <class T> __device__ __forceinline__ void store(T &to, T x) { to = x; }
// The same of a number that has its type's precision already; which NaN it is stays.
__device__ __forceinline__ void store_exact(bf16 &to, float x) { to.bits = (unsigned short)(__float_as_uint(x) >> 16); }
template <class T, class N> __device__ __forceinline__ void store_exact(T &to, N x) { store(to, x); }

// N neighbours that memory gives and takes in as few accesses as there can be; the first is aligned to all of them, or
// to 16 bytes.
template <class T, int N> struct alignas(sizeof(T) * N > 16 ? 16 : sizeof(T) * N) Pack {
    T at[N];
};
template <int N, class T> __device__ __forceinline__ Pack<T, N> load_pack(const T *from) {
    return *reinterpret_cast<const Pack<T, N> *>(from);
}
template <int N, class T> __device__ __forceinline__ void store_pack(T *to, const Pack<T, N> &pack) {
    *reinterpret_cast<Pack<T, N> *>(to) = pack;
}

// ---- Conversions: to integers floats truncate and saturate, NaN becomes 0; integers wrap. --------------------------

__device__ __forceinline__ float to_f32(float x) { return x; }
__device__ __forceinline__ float to_f32(double x) { return __double2float_rn(x); }
__device__ __forceinline__ float to_f32(int x) { return __int2float_rn(x); }
__device__ __forceinline__ float to_f32(i64 x) { return __ll2float_rn(x); }
__device__ __forceinline__ float to_f32(u8 x) { return (float)x; }
template <class T> __device__ __forceinline__ double to_f64(T x) { return (double)x; }
template <class T> __device__ __forceinline__ float to_f16(T x) { return round_f16(sticky(x)); }
template <class T> __device__ __forceinline__ float to_bf16(T x) { return round_bf16(sticky(x)); }
template <class T> __device__ __forceinline__ u8 to_bool(T x) { return x != (T)0; }

__device__ __forceinline__ int to_i32(float x) { return x != x ? 0 : __float2int_rz(x); }
__device__ __forceinline__ int to_i32(double x) { return x != x ? 0 : __double2int_rz(x); }
__device__ __forceinline__ int to_i32(int x) { return x; }
__device__ __forceinline__ int to_i32(i64 x) { return (int)(u32)(u64)x; }
__device__ __forceinline__ int to_i32(u8 x) { return (int)x; }
__device__ __forceinline__ i64 to_i64(float x) { return x != x ? 0 : __float2ll_rz(x); }
__device__ __forceinline__ i64 to_i64(double x) { return x != x ? 0 : __double2ll_rz(x); }
__device__ __forceinline__ i64 to_i64(int x) { return (i64)x; }
__device__ __forceinline__ i64 to_i64(i64 x) { return x; }
__device__ __forceinline__ i64 to_i64(u8 x) { return (i64)x; }
__device__ __forceinline__ u8 to_u8(float x) { return x > 0.0f ? (x < 255.0f ? (u8)(int)x : (u8)255) : (u8)0; }
__device__ __forceinline__ u8 to_u8(double x) { return x > 0.0 ? (x < 255.0 ? (u8)(int)x : (u8)255) : (u8)0; }
__device__ __forceinline__ u8 to_u8(int x) { return (u8)(u32)x; }
__device__ __forceinline__ u8 to_u8(i64 x) { return (u8)(u64)x; }
__device__ __forceinline__ u8 to_u8(u8 x) { return x; }

// ---- Functions of two numbers. -------------------------------------------------------------------------------------

__device__ __forceinline__ float add(float a, float b) { return __fadd_rn(a, b); }
__device__ __forceinline__ float sub(float a, float b) { return __fadd_rn(a, -b); }
__device__ __forceinline__ float mul(float a, float b) { return __fmul_rn(a, b); }
__device__ __forceinline__ float divide(float a, float b) { return __fdiv_rn(a, b); }
__device__ __forceinline__ double add(double a, double b) { return __dadd_rn(a, b); }
__device__ __forceinline__ double sub(double a, double b) { return __dadd_rn(a, -b); }
__device__ __forceinline__ double mul(double a, double b) { return __dmul_rn(a, b); }
__device__ __forceinline__ double divide(double a, double b) { return __ddiv_rn(a, b); }
__device__ __forceinline__ int add(int a, int b) { return (int)((u32)a + (u32)b); }
__device__ __forceinline__ int sub(int a, int b) { return (int)((u32)a - (u32)b); }
__device__ __forceinline__ int mul(int a, int b) { return (int)((u32)a * (u32)b); }
__device__ __forceinline__ int divide(int a, int b) { return b == 0 ? 0 : b == -1 ? (int)(0u - (u32)a) : a / b; }
__device__ __forceinline__ i64 add(i64 a, i64 b) { return (i64)((u64)a + (u64)b); }
__device__ __forceinline__ i64 sub(i64 a, i64 b) { return (i64)((u64)a - (u64)b); }
__device__ __forceinline__ i64 mul(i64 a, i64 b) { return (i64)((u64)a * (u64)b); }
__device__ __forceinline__ i64 divide(i64 a, i64 b) { return b == 0 ? 0 : b == -1 ? (i64)(0ull - (u64)a) : a / b; }
__device__ __forceinline__ u8 add(u8 a, u8 b) { return (u8)(a + b); }
__device__ __forceinline__ u8 sub(u8 a, u8 b) { return (u8)(a - b); }
__device__ __forceinline__ u8 mul(u8 a, u8 b) { return (u8)(a * b); }
__device__ __forceinline__ u8 divide(u8 a, u8 b) { return b == 0 ? (u8)0 : (u8)(a / b); }
// The larger and the smaller; NaN if either is.
template <class T> __device__ __forceinline__ T larger(T a, T b) { return a > b || a != a ? a : b; }
template <class T> __device__ __forceinline__ T smaller(T a, T b) { return a < b || a != a ? a : b; }
__device__ __forceinline__ float power(float a, float b) { return powf(a, b); }
__device__ __forceinline__ double power(double a, double b) { return pow(a, b); }

// ---- Functions of one number. --------------------------------------------------------------------------------------

__device__ __forceinline__ float negated(float x) { return -x; }
__device__ __forceinline__ double negated(double x) { return -x; }
__device__ __forceinline__ int negated(int x) { return sub(0, x); }
__device__ __forceinline__ i64 negated(i64 x) { return sub((i64)0, x); }
__device__ __forceinline__ u8 negated(u8 x) { return sub((u8)0, x); }
__device__ __forceinline__ float magnitude(float x) { return fabsf(x); }
__device__ __forceinline__ double magnitude(double x) { return fabs(x); }
__device__ __forceinline__ u8 magnitude(u8 x) { return x; }
template <class T> __device__ __forceinline__ T magnitude(T x) { return x < (T)0 ? negated(x) : x; }
__device__ __forceinline__ u8 sign(u8 x) { return x > 0; }
template <class T> __device__ __forceinline__ T sign(T x) { return x > (T)0 ? (T)1 : x < (T)0 ? (T)-1 : x; }
template <class T> __device__ __forceinline__ T relu(T x) { return x <= (T)0 ? (T)0 : x; }
__device__ __forceinline__ u8 negation(u8 x) { return x ^ 1; }
__device__ __forceinline__ u8 is_finite(float x) { return fabsf(x) < __int_as_float(0x7f800000); }
__device__ __forceinline__ u8 is_finite(double x) { return fabs(x) < __longlong_as_double(0x7ff0000000000000ll); }

__device__ __forceinline__ float exponential(float x) { return expf(x); }
__device__ __forceinline__ double exponential(double x) { return exp(x); }
__device__ __forceinline__ float logarithm(float x) { return logf(x); }
__device__ __forceinline__ double logarithm(double x) { return log(x); }
__device__ __forceinline__ float logarithm_1p(float x) { return log1pf(x); }
__device__ __forceinline__ double logarithm_1p(double x) { return log1p(x); }
__device__ __forceinline__ float root(float x) { return __fsqrt_rn(x); }
__device__ __forceinline__ double root(double x) { return __dsqrt_rn(x); }
__device__ __forceinline__ float sine(float x) { return sinf(x); }
__device__ __forceinline__ double sine(double x) { return sin(x); }
__device__ __forceinline__ float cosine(float x) { return cosf(x); }
__device__ __forceinline__ double cosine(double x) { return cos(x); }
__device__ __forceinline__ float hyperbolic_tangent(float x) { return tanhf(x); }
__device__ __forceinline__ double hyperbolic_tangent(double x) { return tanh(x); }
__device__ __forceinline__ float error_function(float x) { return erff(x); }
__device__ __forceinline__ double error_function(double x) { return erf(x); }
__device__ __forceinline__ float rounded_down(float x) { return floorf(x); }
__device__ __forceinline__ double rounded_down(double x) { return floor(x); }
template <class T> __device__ __forceinline__ T reciprocal_root(T x) { return divide((T)1, root(x)); }
template <class T> __device__ __forceinline__ T softplus(T x) {
    return add(relu(x), logarithm_1p(exponential(-magnitude(x))));
}
template <class T> __device__ __forceinline__ T sigmoid(T x) {
    T e = exponential(-magnitude(x));
    return divide(x < (T)0 ? e : (T)1, add((T)1, e));
}
// What a normal distribution has below x, accurate in both tails, and its density there.
template <class T> struct Normal {
    T below, density;
};
__device__ __forceinline__ Normal<double> normal(double x) {
    return {normcdf(x), mul(exponential(mul(mul(-0.5, x), x)), 0.39894228040143267794)};
}
// Of floats Φ(−|x|) is exp(−x²/2) times a polynomial in 1 / (1 + c |x|), which is within 2e-8 of it everywhere, relatively:
// one exponential does for both.
__device__ __forceinline__ Normal<float> normal(float x, float c, float exponential, const float (&p)[9], int count) {
    float t;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(t) : "f"(__fmaf_rn(c, fabsf(x), 1.0f)));
    float sum = p[0];
#pragma unroll
    for (int i = 1; i < count; ++i) sum = __fmaf_rn(sum, t, p[i]);
    float tail = mul(mul(sum, t), exponential);
    return {x < 0.0f ? tail : sub(1.0f, tail), mul(exponential, 0.39894228f)};
}
__device__ __forceinline__ Normal<float> normal(float x) {
    // What x² is rounded by counts as much as its exponential is long.
    float square = mul(x, x), rest = __fmaf_rn(x, x, -square), e = expf(mul(-0.5f, square));
    const float p[9] = {-0.0712930038f, 0.281795689f,  -0.326474585f, 0.344964796f, -0.0907570326f,
                        0.123465211f,   0.0695716022f, 0.0850121637f, 0.0837151685f};
    return normal(x, 0.21f, square < 1e4f ? __fmaf_rn(e, mul(-0.5f, rest), e) : e, p, 9);
}
// The same to half precision, within 4.7e-6, which moves few results to the next half and none further.
__device__ __forceinline__ Normal<float> half_normal(float x) {
    float e;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(mul(mul(x, -0.72134752f), x)));
    const float p[9] = {-0.073923467f, 0.18043441f, 0.015761788f, 0.13342107f, 0.12044339f, 0.12386051f};
    return normal(x, 0.31f, e, p, 6);
}
// x Φ(x), which goes to zero from below.
template <class T> __device__ __forceinline__ T times_below(T x, Normal<T> normal) {
    return normal.below == (T)0 ? (T)-0.0 : mul(x, normal.below);
}
// The density of an infinite number is zero, and so is the number of times it counts.
template <class T> __device__ __forceinline__ T slope_at(T x, Normal<T> normal) {
    return add(normal.below, normal.density == (T)0 ? (T)0 : mul(x, normal.density));
}
template <class T> __device__ __forceinline__ T gelu(T x) { return times_below(x, normal(x)); }
template <class T> __device__ __forceinline__ T gelu_slope(T x) { return slope_at(x, normal(x)); }
__device__ __forceinline__ float half_gelu(float x) { return times_below(x, half_normal(x)); }
__device__ __forceinline__ float half_gelu_slope(float x) { return slope_at(x, half_normal(x)); }

// ---- Random numbers: Philox4x32-10, a function of seed, step, op and element. --------------------------------------

struct Words {
    u32 at[4];
};

__device__ __forceinline__ Words philox(u64 seed, u64 step, u64 stream, u64 position) {
    u32 a = (u32)position, b = (u32)(position >> 32), c = (u32)stream, d = (u32)step;
    u32 low = (u32)seed, high = (u32)(seed >> 32);
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        u32 high_a = __umulhi(0xD2511F53u, a), low_a = 0xD2511F53u * a;
        u32 high_c = __umulhi(0xCD9E8D57u, c), low_c = 0xCD9E8D57u * c;
        a = high_c ^ b ^ low;
        b = low_c;
        c = high_a ^ d ^ high;
        d = low_a;
        low += 0x9E3779B9u;
        high += 0xBB67AE85u;
    }
    return Words{{a, b, c, d}};
}

// In [0, 1), with the 24 bits of a float; at most `most`, so that rounding does not take it to one.
__device__ __forceinline__ float uniform_f32(Words words, float most) {
    float number = __fmul_rn((float)(words.at[0] >> 8), 5.9604644775390625e-8f);
    return number < most ? number : most;
}
__device__ __forceinline__ double uniform_f64(Words words) {
    u64 bits = (u64)words.at[0] << 21 | words.at[1] >> 11;
    return __dmul_rn((double)(i64)bits, 1.1102230246251565e-16);
}
// With mean 0 and deviation 1, by Box and Muller's transformation.
__device__ __forceinline__ double normal_f64(Words words) {
    double u = __dmul_rn((double)((words.at[0] >> 8) + 1), 5.9604644775390625e-8);
    double v = __dmul_rn((double)(words.at[1] >> 8), 5.9604644775390625e-8);
    return __dmul_rn(__dsqrt_rn(__dmul_rn(-2.0, log(u))), cos(__dmul_rn(6.283185307179586, v)));
}

// ---- Reductions. ---------------------------------------------------------------------------------------------------
//
// There is one order for all of them, which the number of elements alone decides. A row is cut into segments of 512.
// In a segment, element i goes to lane i modulo 128, each lane adding up its elements in their order, from the
// identity on; then neighbouring lanes are combined, in pairs, pairs of pairs, and so on. The segments' results are a
// row again. Lanes without elements hold the identity, which changes nothing and need not be added.

struct Sum {
    template <class T> static __device__ __forceinline__ T identity() { return (T)0; }
    template <class T> static __device__ __forceinline__ T combine(T a, T b) { return add(a, b); }
};
struct Max {
    template <class T> static __device__ __forceinline__ T identity();
    template <class T> static __device__ __forceinline__ T combine(T a, T b) { return larger(a, b); }
};
struct Min {
    template <class T> static __device__ __forceinline__ T identity();
    template <class T> static __device__ __forceinline__ T combine(T a, T b) { return smaller(a, b); }
};
template <> __device__ __forceinline__ float Max::identity<float>() { return __int_as_float(0xff800000); }
template <> __device__ __forceinline__ double Max::identity<double>() { return __longlong_as_double(0xfff0000000000000ll); }
template <> __device__ __forceinline__ int Max::identity<int>() { return -2147483647 - 1; }
template <> __device__ __forceinline__ i64 Max::identity<i64>() { return -9223372036854775807ll - 1; }
template <> __device__ __forceinline__ u8 Max::identity<u8>() { return 0; }
template <> __device__ __forceinline__ float Min::identity<float>() { return __int_as_float(0x7f800000); }
template <> __device__ __forceinline__ double Min::identity<double>() { return __longlong_as_double(0x7ff0000000000000ll); }
template <> __device__ __forceinline__ int Min::identity<int>() { return 2147483647; }
template <> __device__ __forceinline__ i64 Min::identity<i64>() { return 9223372036854775807ll; }
template <> __device__ __forceinline__ u8 Min::identity<u8>() { return 255; }

__device__ __forceinline__ u8 shuffle_xor(u8 x, int mask) { return (u8)__shfl_xor_sync(0xffffffffu, (int)x, mask); }
template <class T> __device__ __forceinline__ T shuffle_xor(T x, int mask) { return __shfl_xor_sync(0xffffffffu, x, mask); }
__device__ __forceinline__ u8 shuffle(u8 x, int lane, int width) { return (u8)__shfl_sync(0xffffffffu, (int)x, lane, width); }
template <class T> __device__ __forceinline__ T shuffle(T x, int lane, int width) {
    return __shfl_sync(0xffffffffu, x, lane, width);
}

// N neighbouring lanes of one thread, combined.
template <class F, int N, class T> __device__ __forceinline__ T combine_lanes(T (&lanes)[N]) {
#pragma unroll
    for (int step = 1; step < N; step *= 2) {
#pragma unroll
        for (int lane = 0; lane < N; lane += 2 * step) lanes[lane] = F::combine(lanes[lane], lanes[lane + step]);
    }
    return lanes[0];
}
// The values of `threads` neighbouring threads of a warp, a power of two, combined; each of them gets the result. All
// threads of the warp take part.
template <class F, int threads, class T> __device__ __forceinline__ T combine_threads(T value) {
#pragma unroll
    for (int step = 1; step < threads; step *= 2) value = F::combine(value, shuffle_xor(value, step));
    return threads > 1 ? shuffle(value, 0, threads) : value;
}
// `count` numbers in shared memory, at most 512, combined as a row by each warp on its own.
template <class F, int count, class T> __device__ __forceinline__ T combine_shared(const T *values) {
    static_assert(count <= 512, "a row of more than one segment");
    T lanes[4] = {F::template identity<T>(), F::template identity<T>(), F::template identity<T>(), F::template identity<T>()};
    int first = (int)(threadIdx.x % 32) * 4;
#pragma unroll
    for (int at = 0; at < count; at += 128) {
#pragma unroll
        for (int lane = 0; lane < 4; ++lane) {
            if (at + first + lane < count) lanes[lane] = F::combine(lanes[lane], values[at + first + lane]);
        }
    }
    T value = combine_lanes<F>(lanes);
    // Threads from the last number on hold the identity.
#pragma unroll
    for (int step = 1; step < 32 && step * 4 < count; step *= 2) value = F::combine(value, shuffle_xor(value, step));
    return shuffle(value, 0, 32);
}
