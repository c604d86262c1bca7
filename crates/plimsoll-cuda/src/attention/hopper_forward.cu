// Attention on Hopper.
//
// Defined before this text: FORWARD_BLOCKS, of threads on a multiprocessor.

// Exponentials are of scores less a base, which is one of each query's own: the largest so far, or one that the largest
// is at most this much above, so that sums are seldom scaled to a new one. Exponentials are at most 2^8 then.
#define LEAST_GROWTH (8 / SCALE_LOG2)

extern "C" __global__ void __launch_bounds__(THREADS, FORWARD_BLOCKS)
    attention(const Half* __restrict__ q, const Half* __restrict__ k, const Half* __restrict__ v,
              Half* __restrict__ output, float* __restrict__ log_sum, const Extents extents) {
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16;
    // The last queries see the most keys: their blocks come first.
    const int pair = PAIR, first = (int)(gridDim.y - 1 - blockIdx.y) * ROWS;
    if (pair >= PAIRS) return;
    const unsigned queries = shared_base(), stages = queries + TILE;
    const KeyBlocks keys(extents, k, v, pair, stages);
    const int count = key_blocks(extents, first + ROWS < QUERIES ? first + ROWS : QUERIES, BLOCK);

    Tiles<Q_ROW>(HEAD(Q, q, pair)).copy(queries, first, QUERIES);
#pragma unroll
    for (int block = 0; block < STAGES - 1; block++) {
        if (block < count) keys.copy(block);
        copy_commit();
    }
    await_stage<STAGES - 2>();
    float scores[8][4], sums[8][4] = {}, base[2] = {-INFINITE, -INFINITE}, total[2] = {}, decay[2];
    unsigned factors[4][4];
    bool grown;

    // Scores of a block become their exponentials.
    const auto exponentials = [&](int block) {
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
        float top[2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            top[half] = base[half];
#pragma unroll
            for (int n = 0; n < 8; n++) top[half] = fmaxf(top[half], fmaxf(scores[n][2 * half], scores[n][2 * half + 1]));
            top[half] = fmaxf(top[half], __shfl_xor_sync(0xffffffffu, top[half], 1));
            top[half] = fmaxf(top[half], __shfl_xor_sync(0xffffffffu, top[half], 2));
        }
        grown = __any_sync(0xffffffffu, top[0] - base[0] > LEAST_GROWTH || top[1] - base[1] > LEAST_GROWTH);
        if (grown) {
#pragma unroll
            for (int half = 0; half < 2; half++) {
                decay[half] = power_of_two((base[half] - top[half]) * SCALE_LOG2);
                base[half] = top[half];
                total[half] *= decay[half];
            }
        }
#pragma unroll
        for (int n = 0; n < 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                scores[n][e] = power_of_two(scores[n][e] * SCALE_LOG2 - base[e / 2] * SCALE_LOG2);
                total[e / 2] += scores[n][e];
            }
    };

    if (count > 0) {
        group_begin();
        tile_product(scores, queries, stages);
        group_wait<0>();
        exponentials(0);
        round_scores(factors, scores);
        for (int block = 1; block < count; block++) {
            await_stage<STAGES - 3>();
            settle(sums);
            group_begin();
            tile_product(scores, queries, stages + block % STAGES * STAGE);
            add_tile_product(sums, factors, stages + (block - 1) % STAGES * STAGE + HALF_STAGE);
            const int later = block + STAGES - 2;
            if (later < count) keys.copy(later);
            copy_commit();
            group_wait<1>();
            exponentials(block);
            group_wait<0>();
            settle(sums);
            round_scores(factors, scores);
            if (grown) {
#pragma unroll
                for (int n = 0; n < 8; n++)
#pragma unroll
                    for (int e = 0; e < 4; e++) sums[n][e] *= decay[e / 2];
            }
        }
        settle(sums);
        group_begin();
        add_tile_product(sums, factors, stages + (count - 1) % STAGES * STAGE + HALF_STAGE);
        group_wait<0>();
        settle(sums);
    }

    float factor[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float sum = total[half];
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        factor[half] = sum > 0 || sum != sum ? 1 / sum : 0;
        const int query = first + row + lane / 4 + 8 * half;
        if (lane % 4 == 0 && query < QUERIES) {
            log_sum[(Index)pair * QUERIES + query] = base[half] * SCALE + logf(sum);
        }
    }
    __syncthreads();
    store_sums(sums, factor[0], factor[1], shared_memory, row, output, pair, first, QUERIES);
}
