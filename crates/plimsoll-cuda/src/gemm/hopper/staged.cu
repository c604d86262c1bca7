// What a product hands on: 16 rows of 128 elements of a warp, in shared memory. Chunks of 8 are in an order that depends
// on the row, so that neither those who stage nor those who read meet in a bank.
//
// Defined before this text: HALF, the type of elements.

// Where this lane finds its 8 neighbours of the step-th pair of rows.
__device__ __forceinline__ const HALF *staged_at(const HALF *staged, int step) {
    const u32 line = 2 * step + threadIdx.x % 32 / 16;
    return staged + line * 128 + (threadIdx.x % 16 ^ line % 8) * 8;
}

__device__ __forceinline__ u32 least(u32 a, u32 b) { return a < b ? a : b; }

