// The instructions that attention on tensor cores is made of, each in a function of its own.
//
// Defined before this text: HALF_TYPE, the PTX name of the element type (bf16 or f16) as a string.

typedef unsigned short Half;

extern __shared__ __align__(1024) unsigned char shared_memory[];

__device__ __forceinline__ unsigned shared_base() {
    return (unsigned)__cvta_generic_to_shared(shared_memory);
}

// Copies 16 bytes from global to shared memory without waiting, or writes zeros there.
__device__ __forceinline__ void copy_async(unsigned to, const void* from, bool inside) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(inside ? 16 : 0)
                 : "memory");
}

// The same for 4 bytes.
__device__ __forceinline__ void copy_word(unsigned to, const void* from, bool inside) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(inside ? 4 : 0)
                 : "memory");
}

__device__ __forceinline__ void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most PENDING of this thread's committed groups of copies are under way.
template <int PENDING>
__device__ __forceinline__ void copy_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

// Four matrices of 8 x 8; lane 8 i + r holds the address of row r of matrix i.
// Lane 4 g + t gets elements 2 t and 2 t + 1 of row g of each.
__device__ __forceinline__ void load_matrices(unsigned (&to)[4], unsigned address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address)
                 : "memory");
}

// The same, each matrix transposed.
__device__ __forceinline__ void load_transposed(unsigned (&to)[4], unsigned address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address)
                 : "memory");
}

// sums[16 x 8] += a[16 x 16] b[16 x 8].
__device__ __forceinline__ void multiply(float (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." HALF_TYPE "." HALF_TYPE
                 ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Two numbers rounded, the first in the lower half.
__device__ __forceinline__ unsigned pack(float low, float high) {
    unsigned both;
    asm("cvt.rn." HALF_TYPE "x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

#if HALF_IS_BF16
__device__ __forceinline__ float low_half(unsigned both) { return __uint_as_float(both << 16); }
__device__ __forceinline__ float high_half(unsigned both) { return __uint_as_float(both & 0xffff0000u); }
#else
__device__ __forceinline__ float low_half(unsigned both) {
    float value;
    asm("{.reg .b16 low, high; mov.b32 {low, high}, %1; cvt.f32.f16 %0, low;}" : "=f"(value) : "r"(both));
    return value;
}
__device__ __forceinline__ float high_half(unsigned both) { return low_half(both >> 16); }
#endif

// 2^x, to about two units in the last place.
__device__ __forceinline__ float power_of_two(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
