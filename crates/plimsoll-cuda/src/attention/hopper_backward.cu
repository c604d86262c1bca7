// The gradients of attention on Hopper, in the two kernels that backward.cu describes. Products run behind one
// another: the exponentials of scores are computed while their gradients are, and so on.

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    attention_grad_queries(const Half* __restrict__ q, const Half* __restrict__ k, const Half* __restrict__ v,
                           const Half* __restrict__ output, const float* __restrict__ log_sum,
                           const Half* __restrict__ upstream, float* __restrict__ products, Half* __restrict__ dq, const Extents extents) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int blocks = (QUERIES + ROWS - 1) / ROWS;
    const int pair = blockIdx.x % PAIRS, first = (blocks - 1 - (int)(blockIdx.x / PAIRS)) * ROWS;
    const int row = warp * 16;
    const unsigned queries = shared_base(), upstreams = queries + TILE, stages = upstreams + TILE;
    const unsigned own = threadIdx.x / 128 * (64 * 128);
    float* own_products = (float*)(shared_memory + 2 * TILE + STAGES * STAGE);
    const Half *keys = HEAD(K, k, pair), *values = HEAD(V, v, pair);
    const int count = key_blocks(extents, first + ROWS < QUERIES ? first + ROWS : QUERIES, BLOCK);

    copy_tile<ROWS>(queries, HEAD(Q, q, pair), Q_ROW, first, QUERIES);
    copy_tile<ROWS>(upstreams, HEAD(U, upstream, pair), U_ROW, first, QUERIES);
#pragma unroll
    for (int block = 0; block < 2; block++) {
        if (block < count) {
            copy_tile<BLOCK>(stages + block * STAGE, keys, K_ROW, block * BLOCK, KEYS);
            copy_tile<BLOCK>(stages + block * STAGE + HALF_STAGE, values, V_ROW, block * BLOCK, KEYS);
        }
        copy_commit();
    }
    copy_wait<1>();
    __syncthreads();
    if (threadIdx.x < ROWS) own_products[threadIdx.x] = query_product(extents, output, products, pair, first);
    __syncthreads();

    float sums[8][4] = {}, base[2], product[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int at = row + lane / 4 + 8 * half, query = first + at;
        base[half] = query < QUERIES ? log_sum[(Index)pair * QUERIES + query] * LOG2_E : INFINITE;
        product[half] = own_products[at];
    }

    for (int block = 0; block < count; block++) {
        float scores[8][4], slopes[8][4];
        unsigned factors[4][4];
        const unsigned key_tile = stages + block % STAGES * STAGE, value_tile = key_tile + HALF_STAGE;
        const unsigned next = stages + (block + 2) % STAGES * STAGE;
        await_stage();
        group_begin();
        tile_product(scores, queries + own, key_tile);
        tile_product(slopes, upstreams + own, value_tile);
        if (block + 2 < count) copy_tile<BLOCK>(next, keys, K_ROW, (block + 2) * BLOCK, KEYS);
        group_wait<1>();
        settle(scores);
#pragma unroll
        for (int n = 0; n < 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                scores[n][e] = power_of_two(scores[n][e] * SCALE_LOG2 - base[e / 2]);
            }
        if (!all_seen(extents, first + row, (block + 1) * BLOCK)) {
#pragma unroll
            for (int n = 0; n < 8; n++)
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    const int query = first + row + lane / 4 + e / 2 * 8;
                    if (!seen(extents, query, block * BLOCK + 8 * n + lane % 4 * 2 + e % 2)) scores[n][e] = 0;
                }
        }
        group_wait<0>();
        settle(slopes);
#pragma unroll
        for (int n = 0; n < 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) scores[n][e] *= slopes[n][e] - product[e / 2];
        round_scores(factors, scores);
        group_begin();
        add_tile_product(sums, factors, key_tile);
        if (block + 2 < count) copy_tile<BLOCK>(next + HALF_STAGE, values, V_ROW, (block + 2) * BLOCK, KEYS);
        copy_commit();
        group_wait<0>();
        settle(sums);
    }
    copy_wait<0>();
    __syncthreads();
    store_sums(sums, SCALE, SCALE, shared_memory, row, dq, pair, first, QUERIES);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    attention_grad_keys(const Half* __restrict__ q, const Half* __restrict__ k, const Half* __restrict__ v,
                        const float* __restrict__ log_sum, const Half* __restrict__ upstream,
                        const float* __restrict__ products, Half* __restrict__ dk, Half* __restrict__ dv, const Extents extents) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    // The first keys are seen by the most queries.
    const int pair = blockIdx.x % PAIRS, first = (int)(blockIdx.x / PAIRS) * ROWS;
    const int row = warp * 16;
    const unsigned keys = shared_base(), values = keys + TILE, stages = values + TILE;
    const unsigned own = threadIdx.x / 128 * (64 * 128);
    float* rows = (float*)(shared_memory + 2 * TILE + STAGES * STAGE);
    const Half *queries = HEAD(Q, q, pair), *upstreams = HEAD(U, upstream, pair);
    const float* log_sums = log_sum + (Index)pair * QUERIES;
    const float* own_products = products + (Index)pair * QUERIES;
    const int begin = CAUSAL && first > SHIFT ? (first - SHIFT) / BLOCK : 0, end = (QUERIES + BLOCK - 1) / BLOCK;

    copy_tile<ROWS>(keys, HEAD(K, k, pair), K_ROW, first, KEYS);
    copy_tile<ROWS>(values, HEAD(V, v, pair), V_ROW, first, KEYS);
#pragma unroll
    for (int block = begin; block < begin + 2; block++) {
        if (block < end) {
            copy_queries(extents, stages + block % STAGES * STAGE, rows + block % STAGES * 2 * BLOCK, queries, upstreams,
                         log_sums, own_products, block * BLOCK);
        }
        copy_commit();
    }

    float key_sums[8][4] = {}, value_sums[8][4] = {};
    for (int block = begin; block < end; block++) {
        float scores[8][4], slopes[8][4];
        unsigned factors[4][4], slope_factors[4][4];
        const unsigned query_tile = stages + block % STAGES * STAGE, upstream_tile = query_tile + HALF_STAGE;
        const float* base = rows + block % STAGES * 2 * BLOCK;
        await_stage();
        group_begin();
        tile_product(scores, keys + own, query_tile);
        tile_product(slopes, values + own, upstream_tile);
        group_wait<1>();
        settle(scores);
#pragma unroll
        for (int n = 0; n < 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                scores[n][e] = power_of_two(scores[n][e] * SCALE_LOG2 - base[8 * n + lane % 4 * 2 + e % 2]);
            }
        if (CAUSAL && first + row + 15 > block * BLOCK + SHIFT) {
#pragma unroll
            for (int n = 0; n < 8; n++)
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    const int query = block * BLOCK + 8 * n + lane % 4 * 2 + e % 2;
                    if (first + row + lane / 4 + e / 2 * 8 > query + SHIFT) scores[n][e] = 0;
                }
        }
        round_scores(factors, scores);
        group_begin();
        add_tile_product(value_sums, factors, upstream_tile);
        group_wait<1>();
        settle(slopes);
#pragma unroll
        for (int n = 0; n < 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                slopes[n][e] = scores[n][e] * (slopes[n][e] - base[BLOCK + 8 * n + lane % 4 * 2 + e % 2]);
            }
        round_scores(slope_factors, slopes);
        group_begin();
        add_tile_product(key_sums, slope_factors, query_tile);
        if (block + 2 < end) {
            copy_queries(extents, stages + (block + 2) % STAGES * STAGE, rows + (block + 2) % STAGES * 2 * BLOCK, queries,
                         upstreams, log_sums, own_products, (block + 2) * BLOCK);
        }
        copy_commit();
        group_wait<0>();
        settle(key_sums);
        settle(value_sums);
    }
    copy_wait<0>();
    __syncthreads();
    store_sums(key_sums, SCALE, SCALE, shared_memory, row, dk + DK_FIRST, pair, first, KEYS);
    store_sums(value_sums, 1, 1, shared_memory + TILE, row, dv + DV_FIRST, pair, first, KEYS);
}
