// Numbers as they are kept in memory and as they are computed with.
//
// Defined before this text: ELEMENT (32 and 64 for f32 and f64, 16 for f16, 17 for bf16), Stored and Number.

#if ELEMENT == 64
#define EXP exp
#define LOG log
#define MAX fmax
#define INFINITE __longlong_as_double(0x7ff0000000000000ll)
#else
#define EXP expf
#define LOG logf
#define MAX fmaxf
#define INFINITE __int_as_float(0x7f800000)
#endif

__device__ __forceinline__ Number widened(Stored x) {
#if ELEMENT == 17
    return __uint_as_float((unsigned)x << 16);
#elif ELEMENT == 16
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
    return y;
#else
    return x;
#endif
}

__device__ __forceinline__ Stored narrowed(Number x) {
#if ELEMENT == 17
    Stored y;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x));
    return y;
#elif ELEMENT == 16
    Stored y;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
    return y;
#else
    return x;
#endif
}
