// What gradients need of each query: its log-sum to base 2, which its scores are taken less, and its product, that of its
// output with the gradient of the output. The kernel of queries keeps both for that of keys, the products of all queries
// behind the log-sums.

// The bytes of the numbers of a stage's queries.
#define ROW_STAGE (2 * BLOCK * 4)

// The product of two chunks of 8 halves.
__device__ __forceinline__ float chunk_product(uint4 a, uint4 b) {
    float product = low_half(a.x) * low_half(b.x) + high_half(a.x) * high_half(b.x);
    product += low_half(a.y) * low_half(b.y) + high_half(a.y) * high_half(b.y);
    product += low_half(a.z) * low_half(b.z) + high_half(a.z) * high_half(b.z);
    return product + (low_half(a.w) * low_half(b.w) + high_half(a.w) * high_half(b.w));
}

// Keeps the numbers of the query at a place among those of all pairs.
__device__ __forceinline__ void keep_numbers(const Extents& extents, float* numbers, Index at, float base, float product) {
    numbers[at] = base;
    numbers[(Index)PAIRS * QUERIES + at] = product;
}

// Begins to copy the numbers of COUNT queries of a pair. Where there are no queries these are zeros, as tiles are: what is
// computed from them is finite and counts for nothing.
template <int COUNT>
__device__ __forceinline__ void copy_numbers(const Extents& extents, unsigned to, const float* numbers, int first) {
    static_assert(THREADS >= 2 * COUNT, "a thread copies at most one number");
    if (THREADS > 2 * COUNT && threadIdx.x >= 2 * COUNT) return;
    const int query = first + threadIdx.x % COUNT;
    const float* from = numbers + (threadIdx.x < COUNT ? 0 : (Index)PAIRS * QUERIES);
    copy_word(to + threadIdx.x * 4, from + query, query < QUERIES);
}
