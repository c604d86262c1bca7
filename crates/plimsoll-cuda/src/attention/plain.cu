// Attention and its gradients without tensor cores: for single and double precision, and for halves whose width,
// strides or scale the kernels for tensor cores do not take.
//
// A block of 256 threads, 16 by 16, has a square of SIDE x SIDE scores at a time, TILE x TILE of them in a thread, and
// COLUMNS columns of the result; operands come through shared memory, DEPTH columns or rows at a time.
//
// Before this text come number.cu and extents.cu. Defined are HEADS, WIDTH, CAUSAL, SCALE, Index, TILE, COLUMN_TILES, and
// for X in Q, K, V, O and U: X_FIRST, X_ROW, X_HEAD, X_COLUMN.

#define SIDE (16 * TILE)
#define DEPTH 16
#define COLUMNS (64 * COLUMN_TILES)
#define HEAD(X, start, pair) \
    ((start) + (Index)X##_FIRST + (Index)((pair) / HEADS) * X##_BATCH + (Index)((pair) % HEADS) * X##_HEAD)

struct Memory {
    __align__(16) Number left[DEPTH][SIDE + 4];
    __align__(16) Number right[DEPTH][SIDE + 4];
    __align__(16) Number rows[DEPTH][COLUMNS + 4];
    // A square of factors, the summed index first.
    __align__(16) Number factors[SIDE][SIDE + 4];
};

// One head of an operand: rows of WIDTH elements.
struct Rows {
    const Stored* start;
    Index row, column;
    int count;
    __device__ __forceinline__ Number at(int i, int j) const {
        return i < count && j < WIDTH ? widened(start[i * row + j * column]) : (Number)0;
    }
};
#define ROWS_OF(X, start, pair, count) Rows { HEAD(X, start, pair), X##_ROW, X##_COLUMN, count }

typedef Number Square[TILE][TILE];
typedef Number Sums[TILE][4 * COLUMN_TILES];

// The products of SIDE rows of one operand with SIDE rows of another.
__device__ __forceinline__ void inner(Square& sums, Memory& memory, const Rows& a, int a_first, const Rows& b,
                                      int b_first) {
    const int x = threadIdx.x % 16, y = threadIdx.x / 16;
#pragma unroll
    for (int i = 0; i < TILE; i++)
#pragma unroll
        for (int j = 0; j < TILE; j++) sums[i][j] = 0;
    for (int column = 0; column < WIDTH; column += DEPTH) {
        __syncthreads();
#pragma unroll
        for (int i = 0; i < TILE; i++) {
            memory.left[x][y + 16 * i] = a.at(a_first + y + 16 * i, column + x);
            memory.right[x][y + 16 * i] = b.at(b_first + y + 16 * i, column + x);
        }
        __syncthreads();
#pragma unroll
        for (int d = 0; d < DEPTH; d++)
#pragma unroll
            for (int i = 0; i < TILE; i++)
#pragma unroll
                for (int j = 0; j < TILE; j++) {
                    sums[i][j] += memory.left[d][y * TILE + i] * memory.right[d][x * TILE + j];
                }
    }
}

// sums += the square of factors, which has the summed index in x, times SIDE rows of an operand.
__device__ __forceinline__ void outer(Sums& sums, Memory& memory, const Square& factors, const Rows& rows, int first,
                                      int column) {
    const int x = threadIdx.x % 16, y = threadIdx.x / 16;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < TILE; i++)
#pragma unroll
        for (int j = 0; j < TILE; j++) memory.factors[x * TILE + j][y * TILE + i] = factors[i][j];
    for (int from = 0; from < SIDE; from += DEPTH) {
        __syncthreads();
#pragma unroll
        for (int i = threadIdx.x; i < DEPTH * COLUMNS; i += 256) {
            memory.rows[i / COLUMNS][i % COLUMNS] = rows.at(first + from + i / COLUMNS, column + i % COLUMNS);
        }
        __syncthreads();
#pragma unroll
        for (int d = 0; d < DEPTH; d++)
#pragma unroll
            for (int i = 0; i < TILE; i++)
#pragma unroll
                for (int j = 0; j < 4 * COLUMN_TILES; j++) {
                    sums[i][j] += memory.factors[from + d][y * TILE + i] * memory.rows[d][j / 4 * 64 + x * 4 + j % 4];
                }
    }
}

// Writes sums times factors of rows to a result.
__device__ __forceinline__ void store(const Sums& sums, const Number (&factors)[TILE], Stored* to, int pair,
                                      int first, int end, int column) {
    const int x = threadIdx.x % 16, y = threadIdx.x / 16;
#pragma unroll
    for (int i = 0; i < TILE; i++) {
        const int row = first + y * TILE + i;
        Stored* start = to + ((Index)(pair / HEADS) * end + row) * RESULT_ROW + pair % HEADS * WIDTH;
#pragma unroll
        for (int j = 0; j < 4 * COLUMN_TILES; j++) {
            const int at = column + j / 4 * 64 + x * 4 + j % 4;
            if (row < end && at < WIDTH) start[at] = narrowed(sums[i][j] * factors[i]);
        }
    }
}

__device__ __forceinline__ bool seen(const Extents& extents, int query, int key) {
    return key < KEYS && (!CAUSAL || key <= query + SHIFT);
}

// How many keys the queries of a block see at most.
__device__ __forceinline__ int keys_seen(const Extents& extents, int first) {
    const int end = first + SIDE < QUERIES ? first + SIDE : QUERIES;
    return CAUSAL && end + SHIFT < KEYS ? end + SHIFT : KEYS;
}

// What a row's 16 threads have, combined.
__device__ __forceinline__ Number row_sum(Number value) {
#pragma unroll
    for (int mask = 1; mask < 16; mask *= 2) value += __shfl_xor_sync(0xffffffffu, value, mask);
    return value;
}

__device__ __forceinline__ Number row_max(Number value) {
#pragma unroll
    for (int mask = 1; mask < 16; mask *= 2) value = MAX(value, __shfl_xor_sync(0xffffffffu, value, mask));
    return value;
}

extern "C" __global__ void __launch_bounds__(256)
    attention(const Stored* __restrict__ q, const Stored* __restrict__ k, const Stored* __restrict__ v,
              Stored* __restrict__ output, Number* __restrict__ log_sum, const Extents extents) {
    __shared__ Memory memory;
    const int x = threadIdx.x % 16, y = threadIdx.x / 16;
    const int blocks = (QUERIES + SIDE - 1) / SIDE;
    const int pair = blockIdx.x % PAIRS, first = (blocks - 1 - (int)(blockIdx.x / PAIRS)) * SIDE;
    const int column = blockIdx.y * COLUMNS;
    const Rows queries = ROWS_OF(Q, q, pair, QUERIES), keys = ROWS_OF(K, k, pair, KEYS);
    const Rows values = ROWS_OF(V, v, pair, KEYS);
    Sums sums = {};
    Number largest[TILE], total[TILE] = {};
#pragma unroll
    for (int i = 0; i < TILE; i++) largest[i] = -INFINITE;
    const int end = keys_seen(extents, first);
    for (int key = 0; key < end; key += SIDE) {
        Square scores;
        inner(scores, memory, queries, first, keys, key);
#pragma unroll
        for (int i = 0; i < TILE; i++) {
            Number top = largest[i];
#pragma unroll
            for (int j = 0; j < TILE; j++) {
                const bool counts = seen(extents, first + y * TILE + i, key + x * TILE + j);
                scores[i][j] = counts ? scores[i][j] * (Number)SCALE : -INFINITE;
                top = MAX(top, scores[i][j]);
            }
            top = row_max(top);
            const Number decay = EXP(largest[i] - top);
            Number sum = 0;
#pragma unroll
            for (int j = 0; j < TILE; j++) {
                scores[i][j] = EXP(scores[i][j] - top);
                sum += scores[i][j];
            }
            total[i] = total[i] * decay + sum;
            largest[i] = top;
#pragma unroll
            for (int j = 0; j < 4 * COLUMN_TILES; j++) sums[i][j] *= decay;
        }
        outer(sums, memory, scores, values, key, column);
    }
    Number factors[TILE];
#pragma unroll
    for (int i = 0; i < TILE; i++) {
        const int query = first + y * TILE + i;
        const Number sum = row_sum(total[i]);
        factors[i] = sum == 0 ? 0 : 1 / sum;
        if (x == 0 && blockIdx.y == 0 && query < QUERIES) {
            log_sum[(Index)pair * QUERIES + query] = largest[i] + LOG(sum);
        }
    }
    store(sums, factors, output, pair, first, QUERIES, column);
}

// For each query the product of the output and its gradient.
extern "C" __global__ void __launch_bounds__(256)
    attention_grad_products(const Stored* __restrict__ output, const Stored* __restrict__ upstream,
                            Number* __restrict__ products, const Extents extents) {
    const long long row = (long long)blockIdx.x * 8 + threadIdx.x / 32;
    if (row >= (long long)PAIRS * QUERIES) return;
    const int pair = row / QUERIES, query = row % QUERIES;
    const Rows outputs = ROWS_OF(O, output, pair, QUERIES), upstreams = ROWS_OF(U, upstream, pair, QUERIES);
    Number sum = 0;
    for (int i = threadIdx.x % 32; i < WIDTH; i += 32) sum += outputs.at(query, i) * upstreams.at(query, i);
    sum = row_sum(sum);
    sum += __shfl_xor_sync(0xffffffffu, sum, 16);
    if (threadIdx.x % 32 == 0) products[row] = sum;
}

extern "C" __global__ void __launch_bounds__(256)
    attention_grad_queries(const Stored* __restrict__ q, const Stored* __restrict__ k,
                           const Stored* __restrict__ v, const Number* __restrict__ log_sum,
                           const Stored* __restrict__ upstream, const Number* __restrict__ products,
                           Stored* __restrict__ dq, const Extents extents) {
    __shared__ Memory memory;
    const int x = threadIdx.x % 16, y = threadIdx.x / 16;
    const int blocks = (QUERIES + SIDE - 1) / SIDE;
    const int pair = blockIdx.x % PAIRS, first = (blocks - 1 - (int)(blockIdx.x / PAIRS)) * SIDE;
    const int column = blockIdx.y * COLUMNS;
    const Rows queries = ROWS_OF(Q, q, pair, QUERIES), upstreams = ROWS_OF(U, upstream, pair, QUERIES);
    const Rows keys = ROWS_OF(K, k, pair, KEYS), values = ROWS_OF(V, v, pair, KEYS);
    Sums sums = {};
    Number base[TILE], product[TILE], factors[TILE];
#pragma unroll
    for (int i = 0; i < TILE; i++) {
        const int query = first + y * TILE + i;
        base[i] = query < QUERIES ? log_sum[(Index)pair * QUERIES + query] : INFINITE;
        product[i] = query < QUERIES ? products[(Index)pair * QUERIES + query] : 0;
        factors[i] = (Number)SCALE;
    }
    const int end = keys_seen(extents, first);
    for (int key = 0; key < end; key += SIDE) {
        Square scores, slopes;
        inner(scores, memory, queries, first, keys, key);
        inner(slopes, memory, upstreams, first, values, key);
#pragma unroll
        for (int i = 0; i < TILE; i++)
#pragma unroll
            for (int j = 0; j < TILE; j++) {
                const bool counts = seen(extents, first + y * TILE + i, key + x * TILE + j);
                const Number p = counts ? EXP(scores[i][j] * (Number)SCALE - base[i]) : (Number)0;
                scores[i][j] = p * (slopes[i][j] - product[i]);
            }
        outer(sums, memory, scores, keys, key, column);
    }
    store(sums, factors, dq, pair, first, QUERIES, column);
}

// Rows of the squares are keys, columns queries.
extern "C" __global__ void __launch_bounds__(256)
    attention_grad_keys(const Stored* __restrict__ q, const Stored* __restrict__ k, const Stored* __restrict__ v,
                        const Number* __restrict__ log_sum, const Stored* __restrict__ upstream,
                        const Number* __restrict__ products, Stored* __restrict__ dk, Stored* __restrict__ dv, const Extents extents) {
    __shared__ Memory memory;
    const int x = threadIdx.x % 16, y = threadIdx.x / 16;
    const int pair = blockIdx.x % PAIRS, first = (int)(blockIdx.x / PAIRS) * SIDE;
    const int column = blockIdx.y * COLUMNS;
    const Rows queries = ROWS_OF(Q, q, pair, QUERIES), upstreams = ROWS_OF(U, upstream, pair, QUERIES);
    const Rows keys = ROWS_OF(K, k, pair, KEYS), values = ROWS_OF(V, v, pair, KEYS);
    Sums key_sums = {}, value_sums = {};
    Number ones[TILE], scales[TILE];
#pragma unroll
    for (int i = 0; i < TILE; i++) ones[i] = 1, scales[i] = (Number)SCALE;
    const int begin = CAUSAL && first > SHIFT ? (first - SHIFT) / SIDE * SIDE : 0;
    for (int query = begin; query < QUERIES; query += SIDE) {
        Square scores, slopes;
        inner(scores, memory, keys, first, queries, query);
        inner(slopes, memory, values, first, upstreams, query);
#pragma unroll
        for (int j = 0; j < TILE; j++) {
            const int at = query + x * TILE + j;
            const Number base = at < QUERIES ? log_sum[(Index)pair * QUERIES + at] : INFINITE;
            const Number product = at < QUERIES ? products[(Index)pair * QUERIES + at] : 0;
#pragma unroll
            for (int i = 0; i < TILE; i++) {
                const bool counts = at < QUERIES && seen(extents, at, first + y * TILE + i);
                const Number p = counts ? EXP(scores[i][j] * (Number)SCALE - base) : (Number)0;
                scores[i][j] = p;
                slopes[i][j] = p * (slopes[i][j] - product);
            }
        }
        outer(value_sums, memory, scores, upstreams, query, column);
        outer(key_sums, memory, slopes, queries, query, column);
    }
    store(key_sums, scales, dk + DK_FIRST, pair, first, KEYS, column);
    store(value_sums, ones, dv + DV_FIRST, pair, first, KEYS, column);
}
