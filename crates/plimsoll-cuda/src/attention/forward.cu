// Attention by tensor cores: each block of threads takes ROWS queries of one head through the keys, BLOCK at a
// time, and keeps for each query the largest score and the sum of exponentials so far. Scores live in registers.
//
// Defined before this text: ROW_TILES, how many times 16 rows a warp has, and RESIDENT, how many blocks share a
// multiprocessor.

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    attention(const Half* __restrict__ q, const Half* __restrict__ k, const Half* __restrict__ v,
              Half* __restrict__ output, float* __restrict__ log_sum, const Extents extents) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int blocks = (QUERIES + ROWS - 1) / ROWS;
    // The last queries see the most keys: their blocks come first.
    const int pair = blockIdx.x % PAIRS, first = (blocks - 1 - (int)(blockIdx.x / PAIRS)) * ROWS;
    const int row = warp * 16 * ROW_TILES;
    const unsigned queries = shared_base(), stages = queries + TILE;
    const Half *keys = HEAD(K, k, pair), *values = HEAD(V, v, pair);
    const int count = key_blocks(extents, first + ROWS < QUERIES ? first + ROWS : QUERIES, BLOCK);

    copy_tile<ROWS>(queries, HEAD(Q, q, pair), Q_ROW, first, QUERIES);
    copy_tile<BLOCK>(stages, keys, K_ROW, 0, KEYS);
    copy_tile<BLOCK>(stages + HALF_STAGE, values, V_ROW, 0, KEYS);
    copy_commit();

    float sums[ROW_TILES][PADDED / 8][4] = {}, largest[ROW_TILES][2], total[ROW_TILES][2] = {};
#pragma unroll
    for (int i = 0; i < ROW_TILES; i++) largest[i][0] = largest[i][1] = -INFINITE;

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

        float scores[ROW_TILES][BLOCK / 8][4] = {};
#pragma unroll
        for (int step = 0; step < PADDED / 16; step++) {
            unsigned a[ROW_TILES][4], b[4];
#pragma unroll
            for (int i = 0; i < ROW_TILES; i++) left(a[i], queries, row + 16 * i, step);
#pragma unroll
            for (int n = 0; n < BLOCK / 16; n++) {
                right(b, key_tile, 16 * n, step);
#pragma unroll
                for (int i = 0; i < ROW_TILES; i++) {
                    multiply(scores[i][2 * n], a[i], b[0], b[1]);
                    multiply(scores[i][2 * n + 1], a[i], b[2], b[3]);
                }
            }
        }
        if (!all_seen(extents, first + row, (block + 1) * BLOCK)) {
#pragma unroll
            for (int i = 0; i < ROW_TILES; i++)
#pragma unroll
                for (int n = 0; n < BLOCK / 8; n++)
#pragma unroll
                    for (int e = 0; e < 4; e++) {
                        int query = first + row + 16 * i + lane / 4 + e / 2 * 8;
                        int key = block * BLOCK + 8 * n + lane % 4 * 2 + e % 2;
                        if (!seen(extents, query, key)) scores[i][n][e] = -INFINITE;
                    }
        }
#pragma unroll
        for (int i = 0; i < ROW_TILES; i++) {
#pragma unroll
            for (int half = 0; half < 2; half++) {
                float top = largest[i][half];
#pragma unroll
                for (int n = 0; n < BLOCK / 8; n++) {
                    top = fmaxf(top, fmaxf(scores[i][n][2 * half], scores[i][n][2 * half + 1]));
                }
                top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
                top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
                float decay = power_of_two((largest[i][half] - top) * SCALE_LOG2), base = top * SCALE_LOG2;
                float sum = total[i][half] * decay;
                largest[i][half] = top;
#pragma unroll
                for (int n = 0; n < BLOCK / 8; n++)
#pragma unroll
                    for (int e = 2 * half; e < 2 * half + 2; e++) {
                        scores[i][n][e] = power_of_two(scores[i][n][e] * SCALE_LOG2 - base);
                        sum += scores[i][n][e];
                    }
                total[i][half] = sum;
#pragma unroll
                for (int n = 0; n < PADDED / 8; n++) {
                    sums[i][n][2 * half] *= decay;
                    sums[i][n][2 * half + 1] *= decay;
                }
            }
        }
#pragma unroll
        for (int step = 0; step < BLOCK / 16; step++) {
            unsigned a[ROW_TILES][4], b[4];
#pragma unroll
            for (int i = 0; i < ROW_TILES; i++) as_left(a[i], scores[i][2 * step], scores[i][2 * step + 1]);
#pragma unroll
            for (int n = 0; n < PADDED / 16; n++) {
                right_rows(b, value_tile, 16 * step, n);
#pragma unroll
                for (int i = 0; i < ROW_TILES; i++) {
                    multiply(sums[i][2 * n], a[i], b[0], b[1]);
                    multiply(sums[i][2 * n + 1], a[i], b[2], b[3]);
                }
            }
        }
        __syncthreads();
    }

    copy_wait<0>();
    __syncthreads();
#pragma unroll
    for (int i = 0; i < ROW_TILES; i++) {
        float factor[2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float sum = total[i][half];
            sum += __shfl_xor_sync(0xffffffffu, sum, 1);
            sum += __shfl_xor_sync(0xffffffffu, sum, 2);
            factor[half] = sum > 0 || sum != sum ? 1 / sum : 0;
            int query = first + row + 16 * i + lane / 4 + 8 * half;
            if (lane % 4 == 0 && query < QUERIES) {
                log_sum[(Index)pair * QUERIES + query] = largest[i][half] * SCALE + logf(sum);
            }
        }
        store_sums(sums[i], factor[0], factor[1], shared_memory, row + 16 * i, output, pair, first, QUERIES);
    }
}
