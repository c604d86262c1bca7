// The instructions that products on Hopper are made of, each in a function of its own.
//
// Defined before this text: HALF_TYPE, the PTX name of the element type (bf16 or f16) as a string; A_TURNED and B_TURNED,
// 1 where an operand's neighbours in memory are not those along the depth.

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

// How the driver describes a matrix in memory.
struct __align__(64) Map {
    u64 words[16];
};

// ---- Barriers in shared memory: a phase ends when all have arrived and all bytes that are expected have come. ------

__device__ __forceinline__ void barrier_begin(u32 barrier, u32 count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

__device__ __forceinline__ void barrier_expect(u32 barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

// Waits for the end of a phase with this parity. What is before the first phase is of parity 1.
__device__ __forceinline__ void barrier_wait(u32 barrier, u32 parity) {
    asm volatile("{.reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again;}" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}

// Arrives at a barrier of this block.
__device__ __forceinline__ void barrier_arrive(u32 barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// ---- Copies of 64 x 64 elements to shared memory, zeros where a matrix has none. ----------------------------------

__device__ __forceinline__ void copy_panel(u32 to, const Map &map, u32 barrier, int x, int y) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];"
                 ::"r"(to), "l"(&map), "r"(barrier), "r"(x), "r"(y)
                 : "memory");
}

// ---- Tensor cores: 64 x 128 sums of four warps together, straight from panels. ------------------------------------

// Panels from this address on: lines of 128 bytes, swizzled in groups of eight. The lines go along the depth, or there
// is a line for each step of it; then the next 64 elements across are in the next panel.
template <int TURNED> __device__ __forceinline__ u64 panels(u32 address) {
    const u64 next = TURNED ? 8192 / 16 : 1;
    return (u64)((address & 0x3ffffu) >> 4) | next << 16 | 64ull << 32 | 1ull << 62;
}

// From a description to that 16 steps of the depth on.
template <int TURNED> __device__ __forceinline__ u64 deeper(int steps) { return (TURNED ? 128 : 2) * steps; }

__device__ __forceinline__ void group_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

__device__ __forceinline__ void group_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Waits until at most PENDING of the committed groups of products are under way.
template <int PENDING> __device__ __forceinline__ void group_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

// s = a b, or += where `add`, over 16 steps of the depth.
__device__ __forceinline__ void group_multiply(float (&s)[64], u64 a, u64 b, bool add) {
    asm volatile("{.reg .pred add; setp.ne.b32 add, %66, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32." HALF_TYPE "." HALF_TYPE " {"
                 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
                 "%64, %65, add, 1, 1, " TEXT(A_TURNED) ", " TEXT(B_TURNED) ";}"
                 : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3]), "+f"(s[4]), "+f"(s[5]), "+f"(s[6]), "+f"(s[7]),
                   "+f"(s[8]), "+f"(s[9]), "+f"(s[10]), "+f"(s[11]), "+f"(s[12]), "+f"(s[13]), "+f"(s[14]), "+f"(s[15]),
                   "+f"(s[16]), "+f"(s[17]), "+f"(s[18]), "+f"(s[19]), "+f"(s[20]), "+f"(s[21]), "+f"(s[22]), "+f"(s[23]),
                   "+f"(s[24]), "+f"(s[25]), "+f"(s[26]), "+f"(s[27]), "+f"(s[28]), "+f"(s[29]), "+f"(s[30]), "+f"(s[31]),
                   "+f"(s[32]), "+f"(s[33]), "+f"(s[34]), "+f"(s[35]), "+f"(s[36]), "+f"(s[37]), "+f"(s[38]), "+f"(s[39]),
                   "+f"(s[40]), "+f"(s[41]), "+f"(s[42]), "+f"(s[43]), "+f"(s[44]), "+f"(s[45]), "+f"(s[46]), "+f"(s[47]),
                   "+f"(s[48]), "+f"(s[49]), "+f"(s[50]), "+f"(s[51]), "+f"(s[52]), "+f"(s[53]), "+f"(s[54]), "+f"(s[55]),
                   "+f"(s[56]), "+f"(s[57]), "+f"(s[58]), "+f"(s[59]), "+f"(s[60]), "+f"(s[61]), "+f"(s[62]), "+f"(s[63])
                 : "l"(a), "l"(b), "r"((int)add)
                 : "memory");
}

// Keeps uses of sums behind the wait for them.
__device__ __forceinline__ void settle(float (&s)[64]) {
#pragma unroll
    for (int i = 0; i < 64; i++) asm volatile("" : "+f"(s[i])::"memory");
}

// Two numbers rounded, the first in the lower half.
__device__ __forceinline__ u32 rounded(float low, float high) {
    u32 both;
    asm("cvt.rn." HALF_TYPE "x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

// Four matrices of 8 x 8, of which lane 4 g + t has elements 2 t and 2 t + 1 of row g; lane 8 i + r says where row r of
// matrix i goes.
__device__ __forceinline__ void store_matrices(u32 to, u32 a, u32 b, u32 c, u32 d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(a), "r"(b), "r"(c),
                 "r"(d)
                 : "memory");
}
