// Products of whole tiles, and how tiles come and go.
//
// Defined before this text: PADDED and BLOCK, both 64.

// A stage is filled two blocks ahead, when every thread is done with the block before.
#define STAGES 3
// From a matrix to that 16 columns, or 16 rows, on.
#define COLUMNS_16 (16 * 2 / 16)
#define ROWS_16 (16 * 128 / 16)

// s = 64 rows of one tile by 64 rows of another.
__device__ __forceinline__ void tile_product(float (&s)[8][4], unsigned a, unsigned b) {
    const unsigned long long left = matrix(a), right = matrix(b);
#pragma unroll
    for (int k = 0; k < 4; k++) group_multiply(s, left + COLUMNS_16 * k, right + COLUMNS_16 * k, k > 0);
    group_commit();
}

// Scores or their gradients, rounded, as left factors.
__device__ __forceinline__ void round_scores(unsigned (&to)[4][4], const float (&s)[8][4]) {
#pragma unroll
    for (int k = 0; k < 4; k++) {
        to[k][0] = pack(s[2 * k][0], s[2 * k][1]);
        to[k][1] = pack(s[2 * k][2], s[2 * k][3]);
        to[k][2] = pack(s[2 * k + 1][0], s[2 * k + 1][1]);
        to[k][3] = pack(s[2 * k + 1][2], s[2 * k + 1][3]);
    }
}

// sums += factors by the 64 rows of a tile.
__device__ __forceinline__ void add_tile_product(float (&sums)[8][4], const unsigned (&factors)[4][4], unsigned tile) {
    const unsigned long long right = matrix(tile);
#pragma unroll
    for (int k = 0; k < 4; k++) group_multiply_rows(sums, factors[k], right + ROWS_16 * k);
    group_commit();
}

// Waits for the stage of a block, and for every thread to be done with the block before.
__device__ __forceinline__ void await_stage() {
    copy_wait<1>();
    publish();
    __syncthreads();
}
