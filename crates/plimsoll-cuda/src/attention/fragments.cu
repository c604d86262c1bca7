// Operands of a warp's products, taken from tiles. Lane 4 g + t of a warp holds of 16 x 8 sums those at rows g
// and g + 8 and columns 2 t and 2 t + 1.

// Rows `row`.. and columns 16 k.. of a tile as the left factor.
__device__ __forceinline__ void left(unsigned (&to)[4], unsigned tile, int row, int k) {
    int lane = threadIdx.x % 32;
    load_matrices(to, tile + swizzled(row + lane % 16, 2 * k + lane / 16));
}

// Rows `row`.. of a tile are the right factor's columns; columns 16 k.. are what is summed over. For two products of 8
// columns: elements 0 and 1, then 2 and 3.
__device__ __forceinline__ void right(unsigned (&to)[4], unsigned tile, int row, int k) {
    int lane = threadIdx.x % 32;
    load_matrices(to, tile + swizzled(row + lane % 8 + lane / 16 * 8, 2 * k + lane / 8 % 2));
}

// Columns 16 n.. of a tile are the right factor's columns; rows `row`.. are what is summed over.
__device__ __forceinline__ void right_rows(unsigned (&to)[4], unsigned tile, int row, int n) {
    int lane = threadIdx.x % 32;
    load_transposed(to, tile + swizzled(row + lane % 16, 2 * n + lane / 16));
}

// Two neighbouring 16 x 8 sums as a left factor.
__device__ __forceinline__ void as_left(unsigned (&to)[4], const float (&a)[4], const float (&b)[4]) {
    to[0] = pack(a[0], a[1]);
    to[1] = pack(a[2], a[3]);
    to[2] = pack(b[0], b[1]);
    to[3] = pack(b[2], b[3]);
}

// Sums of 8 COUNT columns, from chunk `from` on, times a factor for each of the two rows a lane has, rounded, to 16 rows of
// a tile and from there to memory.
template <int COUNT>
__device__ __forceinline__ void store_sums(const float (&sums)[COUNT][4], float upper, float lower, unsigned char* tile,
                                           int row, Half* to, int pair, int first, int end, int from = 0) {
    int lane = threadIdx.x % 32;
    __syncwarp();
#pragma unroll
    for (int n = 0; n < COUNT; n++) {
        unsigned char* at = tile + lane % 4 * 4;
        *(unsigned*)(at + swizzled(row + lane / 4, from + n)) = pack(sums[n][0] * upper, sums[n][1] * upper);
        *(unsigned*)(at + swizzled(row + lane / 4 + 8, from + n)) = pack(sums[n][2] * lower, sums[n][3] * lower);
    }
    __syncwarp();
    store_rows<COUNT>(tile, row, to, pair, first, end, from);
}
