// Products of whole tiles, how tiles come and go, and which blocks of threads have which.
//
// A block of threads is a group of four warps. It has 64 rows of its own and goes through blocks of 64 rows of others,
// which come in a few stages ahead. What a block of scores takes part in last is computed together with the first
// products of the next block, so that tensor cores work while exponentials are computed: these are what takes the
// time, and several groups on a multiprocessor, each at its own pace, keep it busy.
//
// Defined before this text: PADDED, BLOCK and ROWS, all 64, THREADS, 128, and STAGES.

// From a matrix to that 16 columns, or 16 rows, on.
#define COLUMNS_16 (16 * 2 / 16)
#define ROWS_16 (16 * 128 / 16)

// Which pair of head and element of the batch a block of threads has: none from PAIRS on. The grid is pairs, blocks of
// rows and again pairs, so that blocks of threads that run at the same time read what the same few pairs have.
#define PAIR ((int)(blockIdx.z * gridDim.x + blockIdx.x))

// How this thread copies its part of tiles of an operand: the same chunk of a row in every TURN. What does not change from
// tile to tile is computed once: with addresses of their own, copies take a quarter of all instructions.
template <int STRIDE> struct Tiles {
    static constexpr int TURN = THREADS / CHUNKS;
    static_assert(THREADS % CHUNKS == 0 && TURN % 8 == 0, "chunks are at the same place of a row in every turn");
    const Half* from;
    unsigned to;
    int row;
    bool inside;

    __device__ __forceinline__ Tiles(const Half* start) {
        const int chunk = threadIdx.x % CHUNKS;
        row = threadIdx.x / CHUNKS;
        from = start + (Index)row * STRIDE + chunk * 8;
        to = swizzled(row, chunk);
        inside = chunk * 8 < WIDTH;
    }

    // Begins to copy 64 rows from `first` on; rows from `end` on and columns from WIDTH on become zeros.
    __device__ __forceinline__ void copy(unsigned tile, int first, int end) const {
        const Half* at = from + (Index)first * STRIDE;
#pragma unroll
        for (int turn = 0; turn < 64; turn += TURN) {
            copy_async(tile + to + turn * (PADDED * 2), at + (Index)turn * STRIDE, inside && row + turn < end - first);
        }
    }
};

// How a pair's keys and values are copied, a block of both to each stage.
struct KeyBlocks {
    const Tiles<K_ROW> keys;
    const Tiles<V_ROW> values;
    const unsigned stages;
    const int end;

    __device__ __forceinline__ KeyBlocks(const Extents& extents, const Half* k, const Half* v, int pair, unsigned stages)
        : keys(HEAD(K, k, pair)), values(HEAD(V, v, pair)), stages(stages), end(KEYS) {}

    __device__ __forceinline__ void copy(int block) const {
        const unsigned to = stages + block % STAGES * STAGE;
        keys.copy(to, block * BLOCK, end);
        values.copy(to + HALF_STAGE, block * BLOCK, end);
    }
};

// Waits for a stage, until at most PENDING later ones are under way, and for every thread to come here.
template <int PENDING>
__device__ __forceinline__ void await_stage() {
    copy_wait<PENDING>();
    publish();
    __syncthreads();
}

// s = the rows of one tile by those of another.
__device__ __forceinline__ void tile_product(float (&s)[8][4], unsigned own, unsigned tile) {
    const unsigned long long left = matrix(own), right = matrix(tile);
#pragma unroll
    for (int k = 0; k < 4; k++) group_multiply(s, left + COLUMNS_16 * k, right + COLUMNS_16 * k, k > 0);
    group_commit();
}

// The same with the first tile in registers, which is faster where there are enough.
__device__ __forceinline__ void tile_product(float (&s)[8][4], const unsigned (&own)[4][4], unsigned tile) {
    const unsigned long long right = matrix(tile);
#pragma unroll
    for (int k = 0; k < 4; k++) group_multiply<false>(s, own[k], right + COLUMNS_16 * k, k > 0);
    group_commit();
}

// A tile as left factors, of which each warp has 16 rows.
__device__ __forceinline__ void load_tile(unsigned (&to)[4][4], unsigned tile, int row) {
#pragma unroll
    for (int k = 0; k < 4; k++) left(to[k], tile, row, k);
}

// Scores or their gradients, rounded, as left factors.
__device__ __forceinline__ void round_scores(unsigned (&to)[4][4], const float (&s)[8][4]) {
#pragma unroll
    for (int k = 0; k < 4; k++) as_left(to[k], s[2 * k], s[2 * k + 1]);
}

// sums += factors by the rows of a tile.
__device__ __forceinline__ void add_tile_product(float (&sums)[8][4], const unsigned (&factors)[4][4], unsigned tile) {
    const unsigned long long right = matrix(tile);
#pragma unroll
    for (int k = 0; k < 4; k++) group_multiply<true>(sums, factors[k], right + ROWS_16 * k, true);
    group_commit();
}

// Whether some of a block's queries do not see some of its keys.
template <bool VALUE> struct Masked {
    static constexpr bool value = VALUE;
};
