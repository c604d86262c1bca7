// The gradients of k and v, where rows are so wide that two warps share 16 keys: each has the scores of half of the queries
// at hand, and the sums of half of the columns. What scores are multiplied with the rows of queries is exchanged through
// shared memory.
//
// Defined before this text: KEY_ROWS, how many keys a block of threads owns, 16 for every two warps, and KEY_BLOCK, how many
// queries come and go, 2 STEP.

#define KEY_TILE (KEY_ROWS * PADDED * 2)
#define QUERY_TILE (KEY_BLOCK * PADDED * 2)
#define NUMBERS (2 * KEY_BLOCK * 4)
// A tile of factors: a row for each key, a column for each query.
#define FACTORS (KEY_ROWS * KEY_BLOCK * 2)

// A chunk of 8 factors within their tile, in the order of other tiles.
__device__ __forceinline__ unsigned factor_chunk(int row, int chunk) {
    static_assert(KEY_BLOCK == 64, "rows of 128 bytes");
    return row * (KEY_BLOCK * 2) + ((chunk ^ (row & 7)) * 16);
}

// Waits for the other warp of the same keys.
__device__ __forceinline__ void meet(int which) { asm volatile("bar.sync %0, 64;" ::"r"(1 + which) : "memory"); }

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    attention_grad_keys(const Half* __restrict__ q, const Half* __restrict__ k, const Half* __restrict__ v,
                        const Half* __restrict__ upstream, const float* __restrict__ numbers,
                        Half* __restrict__ dk, Half* __restrict__ dv, const Extents extents) {
    static_assert(THREADS == 4 * KEY_ROWS && ROW_TILES == 1 && KEY_BLOCK == 2 * STEP, "two warps for 16 keys");
    const int lane = threadIdx.x % 32, keys_of = threadIdx.x / 32 % (KEY_ROWS / 16), row = 16 * keys_of;
    const int half = threadIdx.x / 32 / (KEY_ROWS / 16);
    // The first keys are seen by the most queries.
    const int pair = blockIdx.x % PAIRS, first = (int)(blockIdx.x / PAIRS) * KEY_ROWS;
    const unsigned keys = shared_base(), values = keys + KEY_TILE, stages = values + KEY_TILE;
    const unsigned factors = stages + 4 * QUERY_TILE, rows = factors + 2 * FACTORS;
    unsigned char* factor_tiles = shared_memory + 2 * KEY_TILE + 4 * QUERY_TILE;
    const Half *queries = HEAD(Q, q, pair), *upstreams = HEAD(U, upstream, pair);
    numbers += (Index)pair * QUERIES;
    const int begin = CAUSAL && first > SHIFT ? (first - SHIFT) / KEY_BLOCK : 0;
    const int end = (QUERIES + KEY_BLOCK - 1) / KEY_BLOCK;

    const auto copy_queries = [&](unsigned stage, int first) {
        copy_tile<KEY_BLOCK>(stages + stage * 2 * QUERY_TILE, queries, Q_ROW, first, QUERIES);
        copy_tile<KEY_BLOCK>(stages + stage * 2 * QUERY_TILE + QUERY_TILE, upstreams, U_ROW, first, QUERIES);
        copy_numbers<KEY_BLOCK>(extents, rows + stage * NUMBERS, numbers, first);
    };
    copy_tile<KEY_ROWS>(keys, HEAD(K, k, pair), K_ROW, first, KEYS);
    copy_tile<KEY_ROWS>(values, HEAD(V, v, pair), V_ROW, first, KEYS);
    if (begin < end) copy_queries(begin % 2, begin * KEY_BLOCK);
    copy_commit();

    float key_sums[PADDED / 16][4] = {}, value_sums[PADDED / 16][4] = {};
    for (int block = begin; block < end; block++) {
        const unsigned query_tile = stages + block % 2 * 2 * QUERY_TILE, upstream_tile = query_tile + QUERY_TILE;
        const float* base = (const float*)(factor_tiles + 2 * FACTORS + block % 2 * NUMBERS);
        if (block + 1 < end) copy_queries((block + 1) % 2, (block + 1) * KEY_BLOCK);
        copy_commit();
        copy_wait<1>();
        __syncthreads();
        const int from = half * STEP, query = block * KEY_BLOCK + from;
        float scores[1][STEP / 8][4], slopes[1][STEP / 8][4];
        score_pair(scores, slopes, keys, values, row, query_tile, upstream_tile, from);
        const bool all = !CAUSAL || first + row + 15 <= query + SHIFT;
#pragma unroll
        for (int n = 0; n < STEP / 8; n++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int column = 8 * n + lane % 4 * 2 + e % 2;
                const float shift = base[from + column], product = base[KEY_BLOCK + from + column];
                const bool counts = all || first + row + lane / 4 + e / 2 * 8 <= query + column + SHIFT;
                const float p = counts ? power_of_two(scores[0][n][e] * SCALE_LOG2 - shift) : 0;
                scores[0][n][e] = p;
                slopes[0][n][e] = counts ? p * (slopes[0][n][e] - product) : 0;
            }
#pragma unroll
            for (int e = 0; e < 4; e += 2) {
                unsigned char* to = factor_tiles + factor_chunk(row + lane / 4 + e / 2 * 8, half * (STEP / 8) + n);
                *(unsigned*)(to + lane % 4 * 4) = pack(scores[0][n][e], scores[0][n][e + 1]);
                *(unsigned*)(to + FACTORS + lane % 4 * 4) = pack(slopes[0][n][e], slopes[0][n][e + 1]);
            }
        }
        meet(keys_of);
#pragma unroll 1
        for (int step = 0; step < KEY_BLOCK / 16; step++) {
            unsigned p[4], s[4], b[4];
            const unsigned chunk = factors + factor_chunk(row + lane % 16, 2 * step + lane / 16);
            load_matrices(p, chunk);
            load_matrices(s, chunk + FACTORS);
#pragma unroll
            for (int n = 0; n < PADDED / 32; n++) {
                right_rows(b, upstream_tile, 16 * step, half * (PADDED / 32) + n);
                multiply(value_sums[2 * n], p, b[0], b[1]);
                multiply(value_sums[2 * n + 1], p, b[2], b[3]);
                right_rows(b, query_tile, 16 * step, half * (PADDED / 32) + n);
                multiply(key_sums[2 * n], s, b[0], b[1]);
                multiply(key_sums[2 * n + 1], s, b[2], b[3]);
            }
        }
        __syncthreads();
    }
    copy_wait<0>();
    __syncthreads();
    const int column = half * (PADDED / 16);
    store_sums(key_sums, SCALE, SCALE, shared_memory, row, dk + DK_FIRST, pair, first, KEYS, column);
    store_sums(value_sums, 1, 1, shared_memory + KEY_TILE, row, dv + DV_FIRST, pair, first, KEYS, column);
}
