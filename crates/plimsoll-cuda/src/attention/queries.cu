// What gradients need of each query.

#define TILE (ROWS * PADDED * 2)
#define HALF_STAGE (BLOCK * PADDED * 2)
#define STAGE (2 * HALF_STAGE)

// The product of the output of the query at this thread's row with its gradient, which is in the second tile. It is
// written to memory as well.
__device__ __forceinline__ float query_product(const Extents& extents, const Half* output, float* products, int pair, int first) {
    const int query = first + threadIdx.x;
    float product = 0;
    if (query < QUERIES) {
        const Half* outputs = HEAD(O, output, pair) + (Index)query * O_ROW;
#pragma unroll
        for (int chunk = 0; chunk < WIDTH / 8; chunk++) {
            uint4 a = *(const uint4*)(outputs + 8 * chunk);
            uint4 b = *(const uint4*)(shared_memory + TILE + swizzled(threadIdx.x, chunk));
            product += low_half(a.x) * low_half(b.x) + high_half(a.x) * high_half(b.x);
            product += low_half(a.y) * low_half(b.y) + high_half(a.y) * high_half(b.y);
            product += low_half(a.z) * low_half(b.z) + high_half(a.z) * high_half(b.z);
            product += low_half(a.w) * low_half(b.w) + high_half(a.w) * high_half(b.w);
        }
        products[(Index)pair * QUERIES + query] = product;
    }
    return product;
}

// Begins to copy a block of queries and the gradients of their outputs, and copies what belongs to each query: its
// log-sum and product. Queries there are none of have an infinite log-sum, so that they count for nothing.
__device__ __forceinline__ void copy_queries(const Extents& extents, unsigned to, float* rows, const Half* queries, const Half* upstreams,
                                             const float* log_sums, const float* products, int first) {
    copy_tile<BLOCK>(to, queries, Q_ROW, first, QUERIES);
    copy_tile<BLOCK>(to + HALF_STAGE, upstreams, U_ROW, first, QUERIES);
    if (threadIdx.x < BLOCK) {
        const int query = first + threadIdx.x;
        rows[threadIdx.x] = query < QUERIES ? log_sums[query] * LOG2_E : INFINITE;
        rows[BLOCK + threadIdx.x] = query < QUERIES ? products[query] : 0;
    }
}
