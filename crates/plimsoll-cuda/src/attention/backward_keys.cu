// The gradients of k and v, where a warp's registers hold the sums of all columns of its keys.

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    attention_grad_keys(const Half* __restrict__ q, const Half* __restrict__ k, const Half* __restrict__ v,
                        const Half* __restrict__ upstream, const float* __restrict__ numbers,
                        Half* __restrict__ dk, Half* __restrict__ dv, const Extents extents) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    // The first keys are seen by the most queries.
    const int pair = blockIdx.x % PAIRS, first = (int)(blockIdx.x / PAIRS) * ROWS;
    const int row = warp * 16 * ROW_TILES;
    const unsigned keys = shared_base(), values = keys + TILE, stages = values + TILE;
    const unsigned rows = stages + 2 * STAGE;
    const Half *queries = HEAD(Q, q, pair), *upstreams = HEAD(U, upstream, pair);
    numbers += (Index)pair * QUERIES;
    const int begin = CAUSAL && first > SHIFT ? (first - SHIFT) / BLOCK : 0, end = (QUERIES + BLOCK - 1) / BLOCK;

    const auto copy_queries = [&](unsigned stage, int first) {
        copy_tile<BLOCK>(stages + stage * STAGE, queries, Q_ROW, first, QUERIES);
        copy_tile<BLOCK>(stages + stage * STAGE + HALF_STAGE, upstreams, U_ROW, first, QUERIES);
        copy_numbers<BLOCK>(extents, rows + stage * ROW_STAGE, numbers, first);
    };
    copy_tile<ROWS>(keys, HEAD(K, k, pair), K_ROW, first, KEYS);
    copy_tile<ROWS>(values, HEAD(V, v, pair), V_ROW, first, KEYS);
    if (begin < end) copy_queries(begin % 2, begin * BLOCK);
    copy_commit();

    float key_sums[ROW_TILES][PADDED / 8][4] = {}, value_sums[ROW_TILES][PADDED / 8][4] = {};
    for (int block = begin; block < end; block++) {
        const unsigned query_tile = stages + block % 2 * STAGE, upstream_tile = query_tile + HALF_STAGE;
        const float* base = (const float*)(shared_memory + 2 * TILE + 2 * STAGE + block % 2 * ROW_STAGE);
        if (block + 1 < end) copy_queries((block + 1) % 2, (block + 1) * BLOCK);
        copy_commit();
        copy_wait<1>();
        __syncthreads();
#pragma unroll 1
        for (int from = 0; from < BLOCK; from += STEP) {
            const int query = block * BLOCK + from;
            float scores[ROW_TILES][STEP / 8][4], slopes[ROW_TILES][STEP / 8][4];
            score_pair(scores, slopes, keys, values, row, query_tile, upstream_tile, from);
#pragma unroll
            for (int n = 0; n < STEP / 8; n++)
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    const int column = from + 8 * n + lane % 4 * 2 + e % 2;
                    const float shift = base[column], product = base[BLOCK + column];
#pragma unroll
                    for (int i = 0; i < ROW_TILES; i++) {
                        scores[i][n][e] = power_of_two(scores[i][n][e] * SCALE_LOG2 - shift);
                        slopes[i][n][e] = scores[i][n][e] * (slopes[i][n][e] - product);
                    }
                }
            if (CAUSAL && first + row + 16 * ROW_TILES - 1 > query + SHIFT) {
#pragma unroll
                for (int i = 0; i < ROW_TILES; i++)
#pragma unroll
                    for (int n = 0; n < STEP / 8; n++)
#pragma unroll
                        for (int e = 0; e < 4; e++) {
                            const int key = first + row + 16 * i + lane / 4 + e / 2 * 8;
                            if (key > query + 8 * n + lane % 4 * 2 + e % 2 + SHIFT) scores[i][n][e] = slopes[i][n][e] = 0;
                        }
            }
            add_product(value_sums, scores, upstream_tile, from);
            add_product(key_sums, slopes, query_tile, from);
        }
        __syncthreads();
    }
    copy_wait<0>();
    __syncthreads();
#pragma unroll
    for (int i = 0; i < ROW_TILES; i++) {
        store_sums(key_sums[i], SCALE, SCALE, shared_memory, row + 16 * i, dk + DK_FIRST, pair, first, KEYS);
        store_sums(value_sums[i], 1, 1, shared_memory + TILE, row + 16 * i, dv + DV_FIRST, pair, first, KEYS);
    }
}
