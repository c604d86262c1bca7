// Attention on Hopper: two groups of four warps have 64 queries each and share the blocks of keys and values. While
// one group's warps compute exponentials, the tensor cores work for the others of the multiprocessor.

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    attention(const Half* __restrict__ q, const Half* __restrict__ k, const Half* __restrict__ v,
              Half* __restrict__ output, float* __restrict__ log_sum, const Extents extents) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int blocks = (QUERIES + ROWS - 1) / ROWS;
    // The last queries see the most keys: their blocks come first.
    const int pair = blockIdx.x % PAIRS, first = (blocks - 1 - (int)(blockIdx.x / PAIRS)) * ROWS;
    const int row = warp * 16;
    const unsigned queries = shared_base(), stages = queries + ROWS * 128;
    const unsigned half_stage = BLOCK * 128, stage = 2 * half_stage;
    const unsigned own_queries = queries + threadIdx.x / 128 * (64 * 128);
    const Half *keys = HEAD(K, k, pair), *values = HEAD(V, v, pair);
    const int count = key_blocks(extents, first + ROWS < QUERIES ? first + ROWS : QUERIES, BLOCK);

    copy_tile<ROWS>(queries, HEAD(Q, q, pair), Q_ROW, first, QUERIES);
#pragma unroll
    for (int block = 0; block < 2; block++) {
        if (block < count) {
            copy_tile<BLOCK>(stages + block * stage, keys, K_ROW, block * BLOCK, KEYS);
            copy_tile<BLOCK>(stages + block * stage + half_stage, values, V_ROW, block * BLOCK, KEYS);
        }
        copy_commit();
    }

    float sums[8][4] = {}, largest[2] = {-INFINITE, -INFINITE}, total[2] = {};
    for (int block = 0; block < count; block++) {
        float scores[8][4];
        unsigned factors[4][4];
        const unsigned key_tile = stages + block % STAGES * stage, value_tile = key_tile + half_stage;
        const unsigned next = stages + (block + 2) % STAGES * stage;
        await_stage();
        group_begin();
        tile_product(scores, own_queries, key_tile);
        if (block + 2 < count) copy_tile<BLOCK>(next, keys, K_ROW, (block + 2) * BLOCK, KEYS);
        group_wait<0>();
        settle(scores);
        if (!all_seen(extents, first + row, (block + 1) * BLOCK)) {
#pragma unroll
            for (int n = 0; n < 8; n++)
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    const int query = first + row + lane / 4 + e / 2 * 8;
                    const int key = block * BLOCK + 8 * n + lane % 4 * 2 + e % 2;
                    if (!seen(extents, query, key)) scores[n][e] = -INFINITE;
                }
        }
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float top = largest[half];
#pragma unroll
            for (int n = 0; n < 8; n++) top = fmaxf(top, fmaxf(scores[n][2 * half], scores[n][2 * half + 1]));
            top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
            top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
            const float decay = power_of_two((largest[half] - top) * SCALE_LOG2), base = top * SCALE_LOG2;
            float sum = total[half] * decay;
            largest[half] = top;
#pragma unroll
            for (int n = 0; n < 8; n++)
#pragma unroll
                for (int e = 2 * half; e < 2 * half + 2; e++) {
                    scores[n][e] = power_of_two(scores[n][e] * SCALE_LOG2 - base);
                    sum += scores[n][e];
                    sums[n][e] *= decay;
                }
            total[half] = sum;
        }
        round_scores(factors, scores);
        group_begin();
        add_tile_product(sums, factors, value_tile);
        if (block + 2 < count) copy_tile<BLOCK>(next + half_stage, values, V_ROW, (block + 2) * BLOCK, KEYS);
        copy_commit();
        group_wait<0>();
        settle(sums);
    }
    copy_wait<0>();
    __syncthreads();

    float factor[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float sum = total[half];
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        factor[half] = sum > 0 || sum != sum ? 1 / sum : 0;
        const int query = first + row + lane / 4 + 8 * half;
        if (lane % 4 == 0 && query < QUERIES) {
            log_sum[(Index)pair * QUERIES + query] = largest[half] * SCALE + logf(sum);
        }
    }
    store_sums(sums, factor[0], factor[1], shared_memory, row, output, pair, first, QUERIES);
}
