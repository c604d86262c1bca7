// Tiles of operands in shared memory, and which pairs of a query and a key count.
//
// Defined before this text: HEADS, WIDTH (a multiple of 8), PADDED (the width of a tile: 32, 64, 96, 128, 192 or 256), CAUSAL,
// SCALE, SCALE_LOG2 (the scale times log2 e), THREADS, ROWS (of a tile that a block of threads owns), BLOCK (rows of one
// that comes and goes), Index (the type of positions in buffers), and for X in Q, K, V, O (output) and U (its gradient)
// X_FIRST, X_ROW, X_HEAD: where a view begins and its strides.

#define CHUNKS (PADDED / 8)
// The bytes of a tile of a block's own rows, and of a stage of two that come and go.
#define TILE (ROWS * PADDED * 2)
#define HALF_STAGE (BLOCK * PADDED * 2)
#define STAGE (2 * HALF_STAGE)
#define INFINITE __int_as_float(0x7f800000)
#define LOG2_E 1.4426950408889634f

// The first element of one head of one element of the batch.
#define HEAD(X, start, pair) \
    ((start) + (Index)X##_FIRST + (Index)((pair) / HEADS) * X##_BATCH + (Index)((pair) % HEADS) * X##_HEAD)

// A tile is rows of PADDED elements, in chunks of 8 whose order depends on the row, so that the same chunk of eight
// successive rows is spread over all banks. With 64 elements this is the layout tensor cores call 128-byte swizzle.
__device__ __forceinline__ unsigned swizzled(int row, int chunk) {
#if PADDED % 64 == 0
    return row * (PADDED * 2) + ((chunk ^ (row & 7)) * 16);
#else
    return row * (PADDED * 2) + ((chunk ^ ((row >> 1) & 3)) * 16);
#endif
}

// Begins to copy rows `first`.. into a tile; rows from `end` on and columns from WIDTH on become zeros.
template <int COUNT>
__device__ __forceinline__ void copy_tile(unsigned to, const Half* from, Index stride, int first, int end) {
    static_assert(COUNT * CHUNKS % THREADS == 0, "every thread copies as many chunks");
#pragma unroll
    for (int turn = 0; turn < COUNT * CHUNKS / THREADS; turn++) {
        int i = turn * THREADS + threadIdx.x, row = i / CHUNKS, chunk = i % CHUNKS;
        bool inside = first + row < end && chunk * 8 < WIDTH;
        copy_async(to + swizzled(row, chunk), inside ? from + (first + row) * stride + chunk * 8 : from, inside);
    }
}

// The other way for COUNT chunks, from chunk `from` on, of 16 rows of a tile that this warp has written, to rows of all
// heads.
template <int COUNT>
__device__ __forceinline__ void store_rows(const unsigned char* tile, int row, Half* to, int pair, int first, int end,
                                           int from) {
    Half* start = to + (Index)(pair / HEADS) * end * RESULT_ROW + pair % HEADS * WIDTH;
#pragma unroll
    for (int turn = 0; turn < 16 * COUNT / 32; turn++) {
        int i = turn * 32 + threadIdx.x % 32, at = row + i / COUNT, chunk = from + i % COUNT;
        if (first + at < end && chunk * 8 < WIDTH) {
            *(uint4*)(start + (Index)(first + at) * RESULT_ROW + chunk * 8) =
                *(const uint4*)(tile + swizzled(at, chunk));
        }
    }
}

__device__ __forceinline__ bool seen(const Extents& extents, int query, int key) {
    return key < KEYS && (!CAUSAL || key <= query + SHIFT);
}

// Whether every query of [query, ..) sees all keys of [.., key_end).
__device__ __forceinline__ bool all_seen(const Extents& extents, int query, int key_end) {
    return key_end <= KEYS && (!CAUSAL || key_end - 1 <= query + SHIFT);
}

// How many blocks of `block` keys the queries before `query_end` see.
__device__ __forceinline__ int key_blocks(const Extents& extents, int query_end, int block) {
    int keys = KEYS;
    if (CAUSAL && query_end + SHIFT < keys) keys = query_end + SHIFT;
    return (keys + block - 1) / block;
}
