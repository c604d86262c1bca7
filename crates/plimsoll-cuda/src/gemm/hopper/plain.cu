// What follows a product that nothing follows: its result is stored.

#define PARAMETERS HALF *result
#define ARGUMENTS result

struct Ahead {};

__device__ __forceinline__ void bring_ahead(Ahead &, u32, u32, u32, HALF *) {}

__device__ __forceinline__ void follow(Ahead &, const HALF *staged, u32 first, u32 rows, u32 columns,
                                       u32 at, HALF *result) {
#pragma unroll
    for (int step = 0; step < 8; step++) {
        const u32 row = first + 2 * step;
        if (row < rows) store_pack<8>(result + (u64)row * columns + at, load_pack<8>(staged_at(staged, step)));
    }
}
