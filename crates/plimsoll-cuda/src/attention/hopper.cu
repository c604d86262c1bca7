// What Hopper's tensor cores add: products of 64 x 64 by the four warps of a group together, the right factor, and if
// wanted the left one, straight from tiles of 64 columns in shared memory. They run while the warps go on, until
// waited for. Factors and sums are in lanes as those of single warps are, warp w having rows 16 w...
//
// Before this text comes primitives.cu.

// A tile from this address on: rows of 128 bytes, swizzled in groups of eight, which follow one another. The lowest
// bits are the address in units of 16 bytes.
__device__ __forceinline__ unsigned long long matrix(unsigned address) {
    return (unsigned long long)((address & 0x3ffffu) >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

// Before products that use registers written since the last.
__device__ __forceinline__ void group_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

__device__ __forceinline__ void group_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Waits until at most PENDING of the committed groups of products are under way.
template <int PENDING>
__device__ __forceinline__ void group_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

// Makes what this thread has written to shared memory visible to products.
__device__ __forceinline__ void publish() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Keeps uses of sums behind the wait for them.
__device__ __forceinline__ void settle(float (&s)[8][4]) {
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
        for (int e = 0; e < 4; e++) asm volatile("" : "+f"(s[n][e])::"memory");
}

// s[64 x 64] = a b, or += where `add`. Rows of `a` by 16 columns; rows of `b`, the product's columns, by 16 columns.
__device__ __forceinline__ void group_multiply(float (&s)[8][4], unsigned long long a, unsigned long long b, bool add) {
    asm volatile("{.reg .pred add; setp.ne.b32 add, %34, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32." HALF_TYPE "." HALF_TYPE
                 " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, add, 1, 1, 0, 0;}"
                 : "+f"(s[0][0]), "+f"(s[0][1]), "+f"(s[0][2]), "+f"(s[0][3]), "+f"(s[1][0]), "+f"(s[1][1]),
                   "+f"(s[1][2]), "+f"(s[1][3]), "+f"(s[2][0]), "+f"(s[2][1]), "+f"(s[2][2]), "+f"(s[2][3]),
                   "+f"(s[3][0]), "+f"(s[3][1]), "+f"(s[3][2]), "+f"(s[3][3]), "+f"(s[4][0]), "+f"(s[4][1]),
                   "+f"(s[4][2]), "+f"(s[4][3]), "+f"(s[5][0]), "+f"(s[5][1]), "+f"(s[5][2]), "+f"(s[5][3]),
                   "+f"(s[6][0]), "+f"(s[6][1]), "+f"(s[6][2]), "+f"(s[6][3]), "+f"(s[7][0]), "+f"(s[7][1]),
                   "+f"(s[7][2]), "+f"(s[7][3])
                 : "l"(a), "l"(b), "r"((int)add)
                 : "memory");
}

// s[64 x 64] = a b, or += where `add`, with 16 columns of `a` in registers. Of `b` 16 rows, if BY_ROWS, else 16 columns of the
// rows that are the product's columns.
template <bool BY_ROWS>
__device__ __forceinline__ void group_multiply(float (&s)[8][4], const unsigned (&a)[4], unsigned long long b, bool add) {
    asm volatile("{.reg .pred add; setp.ne.b32 add, %37, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32." HALF_TYPE "." HALF_TYPE
                 " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, {%32, %33, %34, %35}, %36, add, 1, 1, %38;}"
                 : "+f"(s[0][0]), "+f"(s[0][1]), "+f"(s[0][2]), "+f"(s[0][3]), "+f"(s[1][0]), "+f"(s[1][1]),
                   "+f"(s[1][2]), "+f"(s[1][3]), "+f"(s[2][0]), "+f"(s[2][1]), "+f"(s[2][2]), "+f"(s[2][3]),
                   "+f"(s[3][0]), "+f"(s[3][1]), "+f"(s[3][2]), "+f"(s[3][3]), "+f"(s[4][0]), "+f"(s[4][1]),
                   "+f"(s[4][2]), "+f"(s[4][3]), "+f"(s[5][0]), "+f"(s[5][1]), "+f"(s[5][2]), "+f"(s[5][3]),
                   "+f"(s[6][0]), "+f"(s[6][1]), "+f"(s[6][2]), "+f"(s[6][3]), "+f"(s[7][0]), "+f"(s[7][1]),
                   "+f"(s[7][2]), "+f"(s[7][3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((int)add), "n"(BY_ROWS ? 1 : 0)
                 : "memory");
}
