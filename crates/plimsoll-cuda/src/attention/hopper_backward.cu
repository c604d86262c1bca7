// The gradients of attention on Hopper, in the two kernels that backward.cu describes.
//
// Defined before this text: QUERY_BLOCKS and KEY_BLOCKS, of threads on a multiprocessor.

// The product of a row of outputs with the gradients of it, both in tiles. Two threads have a row.
__device__ __forceinline__ float row_product(const unsigned char* outputs, const unsigned char* upstreams) {
    float product = 0;
#pragma unroll
    for (int i = 0; i < CHUNKS / 2; i++) {
        const unsigned at = swizzled(threadIdx.x / 2, threadIdx.x % 2 * (CHUNKS / 2) + i);
        product += chunk_product(*(const uint4*)(outputs + at), *(const uint4*)(upstreams + at));
    }
    return product + __shfl_xor_sync(0xffffffffu, product, 1);
}

extern "C" __global__ void __launch_bounds__(THREADS, QUERY_BLOCKS)
    attention_grad_queries(const Half* __restrict__ q, const Half* __restrict__ k, const Half* __restrict__ v,
                           const Half* __restrict__ output, const float* __restrict__ log_sum,
                           const Half* __restrict__ upstream, float* __restrict__ numbers, Half* __restrict__ dq, const Extents extents) {
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16;
    // The last queries see the most keys: their blocks come first.
    const int pair = PAIR, first = (int)(gridDim.y - 1 - blockIdx.y) * ROWS;
    if (pair >= PAIRS) return;
    const unsigned queries = shared_base(), upstreams = queries + TILE, stages = upstreams + TILE;
    // The outputs come in the stage that is filled last.
    const unsigned outputs = (STAGES - 1) * STAGE;
    float* products = (float*)(shared_memory + 2 * TILE + STAGES * STAGE);
    const KeyBlocks keys(extents, k, v, pair, stages);
    const int count = key_blocks(extents, first + ROWS < QUERIES ? first + ROWS : QUERIES, BLOCK);

    Tiles<Q_ROW>(HEAD(Q, q, pair)).copy(queries, first, QUERIES);
    Tiles<U_ROW>(HEAD(U, upstream, pair)).copy(upstreams, first, QUERIES);
    Tiles<O_ROW>(HEAD(O, output, pair)).copy(stages + outputs, first, QUERIES);
#pragma unroll
    for (int block = 0; block < STAGES - 1; block++) {
        if (block < count) keys.copy(block);
        copy_commit();
    }
    float base[2], product[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int query = first + row + lane / 4 + 8 * half;
        base[half] = query < QUERIES ? log_sum[(Index)pair * QUERIES + query] * LOG2_E : INFINITE;
    }
    await_stage<STAGES - 2>();
    products[threadIdx.x / 2] = row_product(shared_memory + 2 * TILE + outputs, shared_memory + TILE);
    __syncthreads();
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int at = row + lane / 4 + 8 * half;
        product[half] = products[at];
        if (lane % 4 == 0 && first + at < QUERIES) {
            keep_numbers(extents, numbers, (Index)pair * QUERIES + first + at, base[half], product[half]);
        }
    }

    float scores[8][4], slopes[8][4], sums[8][4] = {};
    unsigned factors[4][4];
    // Scores of a block become their gradients.
    const auto gradients_of = [&](int block, auto masked) {
#pragma unroll
        for (int n = 0; n < 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int query = first + row + lane / 4 + e / 2 * 8;
                float p = power_of_two(scores[n][e] * SCALE_LOG2 - base[e / 2]);
                if (masked.value && !seen(extents, query, block * BLOCK + 8 * n + lane % 4 * 2 + e % 2)) p = 0;
                scores[n][e] = p * (slopes[n][e] - product[e / 2]);
            }
    };
    const auto gradients = [&](int block) {
        settle(scores);
        settle(slopes);
        if (all_seen(extents, first + row, (block + 1) * BLOCK)) {
            gradients_of(block, Masked<false>());
        } else {
            gradients_of(block, Masked<true>());
        }
    };

    if (count > 0) {
        group_begin();
        tile_product(scores, queries, stages);
        tile_product(slopes, upstreams, stages + HALF_STAGE);
        group_wait<0>();
        gradients(0);
        round_scores(factors, scores);
        for (int block = 1; block < count; block++) {
            const unsigned key_tile = stages + block % STAGES * STAGE;
            await_stage<STAGES - 3>();
            settle(sums);
            group_begin();
            tile_product(scores, queries, key_tile);
            tile_product(slopes, upstreams, key_tile + HALF_STAGE);
            add_tile_product(sums, factors, stages + (block - 1) % STAGES * STAGE);
            const int later = block + STAGES - 2;
            if (later < count) keys.copy(later);
            copy_commit();
            group_wait<1>();
            gradients(block);
            group_wait<0>();
            settle(sums);
            round_scores(factors, scores);
        }
        settle(sums);
        group_begin();
        add_tile_product(sums, factors, stages + (count - 1) % STAGES * STAGE);
        group_wait<0>();
        settle(sums);
    }
    __syncthreads();
    store_sums(sums, SCALE, SCALE, shared_memory, row, dq, pair, first, QUERIES);
}

extern "C" __global__ void __launch_bounds__(THREADS, KEY_BLOCKS)
    attention_grad_keys(const Half* __restrict__ q, const Half* __restrict__ k, const Half* __restrict__ v,
                        const Half* __restrict__ upstream, const float* __restrict__ numbers,
                        Half* __restrict__ dk, Half* __restrict__ dv, const Extents extents) {
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16;
    // The first keys are seen by the most queries.
    const int pair = PAIR, first = (int)blockIdx.y * ROWS;
    if (pair >= PAIRS) return;
    const unsigned keys = shared_base(), values = keys + TILE, stages = values + TILE, rows = stages + STAGES * STAGE;
    const Tiles<Q_ROW> queries(HEAD(Q, q, pair));
    const Tiles<U_ROW> upstreams(HEAD(U, upstream, pair));
    const int begin = CAUSAL && first > SHIFT ? (first - SHIFT) / BLOCK : 0, end = (QUERIES + BLOCK - 1) / BLOCK;
    numbers += (Index)pair * QUERIES;

    const auto copy_queries = [&](int block) {
        const unsigned to = stages + block % STAGES * STAGE;
        queries.copy(to, block * BLOCK, QUERIES);
        upstreams.copy(to + HALF_STAGE, block * BLOCK, QUERIES);
        copy_numbers<BLOCK>(extents, rows + block % STAGES * ROW_STAGE, numbers, block * BLOCK);
    };
    Tiles<K_ROW>(HEAD(K, k, pair)).copy(keys, first, KEYS);
    Tiles<V_ROW>(HEAD(V, v, pair)).copy(values, first, KEYS);
#pragma unroll
    for (int block = begin; block < begin + STAGES - 1; block++) {
        if (block < end) copy_queries(block);
        copy_commit();
    }
    await_stage<STAGES - 2>();
    unsigned own_keys[4][4], own_values[4][4], factors[4][4], slope_factors[4][4];
    load_tile(own_keys, keys, row);
    load_tile(own_values, values, row);
    float scores[8][4], slopes[8][4], key_sums[8][4] = {}, value_sums[8][4] = {};

    // Scores of a block become their exponentials, and slopes the gradients of scores.
    const auto gradients_of = [&](int block, auto masked) {
        const float* base = (const float*)(shared_memory + 2 * TILE + STAGES * STAGE + block % STAGES * ROW_STAGE);
#pragma unroll
        for (int n = 0; n < 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int column = 8 * n + lane % 4 * 2 + e % 2;
                float p = power_of_two(scores[n][e] * SCALE_LOG2 - base[column]);
                if (masked.value && first + row + lane / 4 + e / 2 * 8 > block * BLOCK + column + SHIFT) p = 0;
                scores[n][e] = p;
                slopes[n][e] = p * (slopes[n][e] - base[BLOCK + column]);
            }
    };
    const auto gradients = [&](int block) {
        settle(scores);
        settle(slopes);
        if (CAUSAL && first + row + 15 > block * BLOCK + SHIFT) {
            gradients_of(block, Masked<true>());
        } else {
            gradients_of(block, Masked<false>());
        }
    };

    if (begin < end) {
        const unsigned stage = stages + begin % STAGES * STAGE;
        group_begin();
        tile_product(scores, own_keys, stage);
        tile_product(slopes, own_values, stage + HALF_STAGE);
        group_wait<0>();
        gradients(begin);
        round_scores(factors, scores);
        round_scores(slope_factors, slopes);
        for (int block = begin + 1; block < end; block++) {
            const unsigned stage = stages + block % STAGES * STAGE, before = stages + (block - 1) % STAGES * STAGE;
            await_stage<STAGES - 3>();
            settle(value_sums);
            settle(key_sums);
            group_begin();
            tile_product(scores, own_keys, stage);
            tile_product(slopes, own_values, stage + HALF_STAGE);
            add_tile_product(value_sums, factors, before + HALF_STAGE);
            add_tile_product(key_sums, slope_factors, before);
            const int later = block + STAGES - 2;
            if (later < end) copy_queries(later);
            copy_commit();
            group_wait<2>();
            gradients(block);
            group_wait<0>();
            settle(value_sums);
            settle(key_sums);
            round_scores(factors, scores);
            round_scores(slope_factors, slopes);
        }
        const unsigned last = stages + (end - 1) % STAGES * STAGE;
        settle(value_sums);
        settle(key_sums);
        group_begin();
        add_tile_product(value_sums, factors, last + HALF_STAGE);
        add_tile_product(key_sums, slope_factors, last);
        group_wait<0>();
        settle(value_sums);
        settle(key_sums);
    }
    store_sums(key_sums, SCALE, SCALE, shared_memory, row, dk + DK_FIRST, pair, first, KEYS);
    store_sums(value_sums, 1, 1, shared_memory + TILE, row, dv + DV_FIRST, pair, first, KEYS);
}
