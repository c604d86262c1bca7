// The gradients of attention by tensor cores, scores computed again from queries, keys and log-sums.
//
// Two kernels, so that every sum has one owner and one order: the first, here, goes with a block of queries through the
// keys (gradient of q, and for each query the product of output and its gradient), the second with a block of keys
// through the queries (gradients of k and v, as products of transposed scores: the keys are rows).
//
// Defined before this text: ROW_TILES, how many times 16 rows a warp has, STEP, how many columns of scores are in
// registers at a time, and RESIDENT, how many blocks share a multiprocessor.

// One after the other for two pairs of tiles: sums of left rows by right rows.
__device__ __forceinline__ void score_pair(float (&scores)[ROW_TILES][STEP / 8][4],
                                           float (&slopes)[ROW_TILES][STEP / 8][4], unsigned left_scores,
                                           unsigned left_slopes, int row, unsigned right_scores,
                                           unsigned right_slopes, int column) {
#pragma unroll
    for (int i = 0; i < ROW_TILES; i++)
#pragma unroll
        for (int n = 0; n < STEP / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) scores[i][n][e] = slopes[i][n][e] = 0;
#pragma unroll
    for (int step = 0; step < PADDED / 16; step++) {
        unsigned a[ROW_TILES][4], b[4];
#pragma unroll
        for (int i = 0; i < ROW_TILES; i++) left(a[i], left_scores, row + 16 * i, step);
#pragma unroll
        for (int n = 0; n < STEP / 16; n++) {
            right(b, right_scores, column + 16 * n, step);
#pragma unroll
            for (int i = 0; i < ROW_TILES; i++) {
                multiply(scores[i][2 * n], a[i], b[0], b[1]);
                multiply(scores[i][2 * n + 1], a[i], b[2], b[3]);
            }
        }
#pragma unroll
        for (int i = 0; i < ROW_TILES; i++) left(a[i], left_slopes, row + 16 * i, step);
#pragma unroll
        for (int n = 0; n < STEP / 16; n++) {
            right(b, right_slopes, column + 16 * n, step);
#pragma unroll
            for (int i = 0; i < ROW_TILES; i++) {
                multiply(slopes[i][2 * n], a[i], b[0], b[1]);
                multiply(slopes[i][2 * n + 1], a[i], b[2], b[3]);
            }
        }
    }
}

// sums += factors, rounded, times rows of a tile.
__device__ __forceinline__ void add_product(float (&sums)[ROW_TILES][PADDED / 8][4],
                                            const float (&factors)[ROW_TILES][STEP / 8][4], unsigned tile, int from) {
#pragma unroll
    for (int step = 0; step < STEP / 16; step++) {
        unsigned a[ROW_TILES][4], b[4];
#pragma unroll
        for (int i = 0; i < ROW_TILES; i++) as_left(a[i], factors[i][2 * step], factors[i][2 * step + 1]);
#pragma unroll
        for (int n = 0; n < PADDED / 16; n++) {
            right_rows(b, tile, from + 16 * step, n);
#pragma unroll
            for (int i = 0; i < ROW_TILES; i++) {
                multiply(sums[i][2 * n], a[i], b[0], b[1]);
                multiply(sums[i][2 * n + 1], a[i], b[2], b[3]);
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    attention_grad_queries(const Half* __restrict__ q, const Half* __restrict__ k, const Half* __restrict__ v,
                           const Half* __restrict__ output, const float* __restrict__ log_sum,
                           const Half* __restrict__ upstream, float* __restrict__ numbers, Half* __restrict__ dq, const Extents extents) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int blocks = (QUERIES + ROWS - 1) / ROWS;
    const int pair = blockIdx.x % PAIRS, first = (blocks - 1 - (int)(blockIdx.x / PAIRS)) * ROWS;
    const int row = warp * 16 * ROW_TILES;
    const unsigned queries = shared_base(), upstreams = queries + TILE, stages = upstreams + TILE;
    float* own_products = (float*)(shared_memory + 2 * TILE + 2 * STAGE);
    const Half *keys = HEAD(K, k, pair), *values = HEAD(V, v, pair);
    const int count = key_blocks(extents, first + ROWS < QUERIES ? first + ROWS : QUERIES, BLOCK);

    copy_tile<ROWS>(queries, HEAD(Q, q, pair), Q_ROW, first, QUERIES);
    copy_tile<ROWS>(upstreams, HEAD(U, upstream, pair), U_ROW, first, QUERIES);
    copy_commit();
    copy_tile<BLOCK>(stages, keys, K_ROW, 0, KEYS);
    copy_tile<BLOCK>(stages + HALF_STAGE, values, V_ROW, 0, KEYS);
    copy_commit();
    copy_wait<1>();
    __syncthreads();
    if (threadIdx.x < ROWS) {
        const Index query = first + threadIdx.x, at = (Index)pair * QUERIES + query;
        float product = 0;
        if (query < QUERIES) {
            const Half* outputs = HEAD(O, output, pair) + query * O_ROW;
#pragma unroll
            for (int chunk = 0; chunk < WIDTH / 8; chunk++) {
                product += chunk_product(*(const uint4*)(outputs + 8 * chunk),
                                         *(const uint4*)(shared_memory + TILE + swizzled(threadIdx.x, chunk)));
            }
            keep_numbers(extents, numbers, at, log_sum[at] * LOG2_E, product);
        }
        own_products[threadIdx.x] = product;
    }
    __syncthreads();

    float sums[ROW_TILES][PADDED / 8][4] = {}, base[ROW_TILES][2], product[ROW_TILES][2];
#pragma unroll
    for (int i = 0; i < ROW_TILES; i++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const int at = row + 16 * i + lane / 4 + 8 * half, query = first + at;
            base[i][half] = query < QUERIES ? log_sum[(Index)pair * QUERIES + query] * LOG2_E : INFINITE;
            product[i][half] = own_products[at];
        }

    for (int block = 0; block < count; block++) {
        const unsigned key_tile = stages + block % 2 * STAGE, value_tile = key_tile + HALF_STAGE;
        if (block + 1 < count) {
            const unsigned next = stages + (block + 1) % 2 * STAGE;
            copy_tile<BLOCK>(next, keys, K_ROW, (block + 1) * BLOCK, KEYS);
            copy_tile<BLOCK>(next + HALF_STAGE, values, V_ROW, (block + 1) * BLOCK, KEYS);
        }
        copy_commit();
        copy_wait<1>();
        __syncthreads();
#pragma unroll 1
        for (int from = 0; from < BLOCK; from += STEP) {
            const int key = block * BLOCK + from;
            float scores[ROW_TILES][STEP / 8][4], slopes[ROW_TILES][STEP / 8][4];
            score_pair(scores, slopes, queries, upstreams, row, key_tile, value_tile, from);
#pragma unroll
            for (int i = 0; i < ROW_TILES; i++)
#pragma unroll
                for (int n = 0; n < STEP / 8; n++)
#pragma unroll
                    for (int e = 0; e < 4; e++) {
                        const float p = power_of_two(scores[i][n][e] * SCALE_LOG2 - base[i][e / 2]);
                        scores[i][n][e] = p * (slopes[i][n][e] - product[i][e / 2]);
                    }
            if (!all_seen(extents, first + row, key + STEP)) {
#pragma unroll
                for (int i = 0; i < ROW_TILES; i++)
#pragma unroll
                    for (int n = 0; n < STEP / 8; n++)
#pragma unroll
                        for (int e = 0; e < 4; e++) {
                            const int query = first + row + 16 * i + lane / 4 + e / 2 * 8;
                            if (!seen(extents, query, key + 8 * n + lane % 4 * 2 + e % 2)) scores[i][n][e] = 0;
                        }
            }
            add_product(sums, scores, key_tile, from);
        }
        __syncthreads();
    }
    copy_wait<0>();
    __syncthreads();
#pragma unroll
    for (int i = 0; i < ROW_TILES; i++) {
        store_sums(sums[i], SCALE, SCALE, shared_memory, row + 16 * i, dq, pair, first, QUERIES);
    }
}
