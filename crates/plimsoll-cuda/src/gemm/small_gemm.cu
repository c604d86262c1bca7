// A small matrix product, and whatever follows for each element. A block has a tile of TILE x TILE results; its threads
// are groups that share out the depth, so that the time is that of a few additions and not of the whole sum. Groups are
// added up in their order. A thread has EACH x EACH results: what is held is read from shared memory, which would be the
// limit if each number were read for fewer.
//
// A_ALONG and B_ALONG: whether neighbours in memory are those of a row; A_PACK and B_PACK: how many neighbours are read at
// once, 4 or 1; DEPTH: how much of the depth is held at once, a multiple of 4 for each group; PITCH: the distance between
// what is held of two rows or columns, such that four neighbours of each of eight are in different banks. PARAMETERS and
// ARGUMENTS of what follows, and what follows itself: follow(in0, at, ARGUMENTS) for the element at in0[at], whose
// position is `at`.
//
// Extents and the distances between rows and columns are given to each launch, so that one compilation serves all.
struct Extents {
    long long rows, columns, depth, a_row, a_column, b_row, b_column, unused;
};
constexpr int THREADS = 256, TILE = 16, EACH = 4, EDGE = TILE / EACH, MEMBERS = EDGE * EDGE, GROUPS = THREADS / MEMBERS;

// Holds TILE lines of an operand from `first` on, of which there are `lines`: DEPTH of each from `base` on, zeros past
// the depth. ALONG: whether neighbours in memory are those along the depth.
template <bool ALONG, int PACK>
__device__ __forceinline__ void hold(
    float *held, const float *__restrict__ from, int first, int lines, int base, int depth, long long apart) {
    struct alignas(4 * PACK) Pack { float values[PACK]; };
    constexpr int PACKS = TILE * DEPTH / PACK, TURNS = (PACKS + THREADS - 1) / THREADS;
    constexpr int BESIDE = (ALONG ? DEPTH : TILE) / PACK;
    Pack packs[TURNS];
#pragma unroll
    for (int turn = 0; turn < TURNS; ++turn) {
        const int at = turn * THREADS + threadIdx.x, inner = at % BESIDE * PACK, outer = at / BESIDE;
        const int line = ALONG ? outer : inner, k = ALONG ? inner : outer;
        const bool inside = first + line < lines && base + k < depth && (PACKS % THREADS == 0 || at < PACKS);
        const long long place = ALONG ? (first + line) * apart + base + k : (base + k) * apart + first + line;
#pragma unroll
        for (int i = 0; i < PACK; ++i) packs[turn].values[i] = 0;
        if (inside) packs[turn] = *(const Pack *)(from + place);
    }
#pragma unroll
    for (int turn = 0; turn < TURNS; ++turn) {
        const int at = turn * THREADS + threadIdx.x, inner = at % BESIDE * PACK, outer = at / BESIDE;
        const int line = ALONG ? outer : inner, k = ALONG ? inner : outer;
        if (PACKS % THREADS == 0 || at < PACKS) {
            if (ALONG)
                *(Pack *)(held + line * PITCH + k) = packs[turn];
            else
#pragma unroll
                for (int i = 0; i < PACK; ++i) held[(line + i) * PITCH + k] = packs[turn].values[i];
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    small_product(const float *__restrict__ a, const float *__restrict__ b, const Extents extents, PARAMETERS) {
    const int M = (int)extents.rows, N = (int)extents.columns, K = (int)extents.depth;
    extern __shared__ float4 memory[];
    float *shared = (float *)memory, *left = shared, *right = shared + TILE * PITCH;
    const int group = threadIdx.x / MEMBERS, x = threadIdx.x % EDGE, y = threadIdx.x / EDGE % EDGE;
    const unsigned across = (N + TILE - 1) / TILE;
    const int top = blockIdx.x / across * TILE, first = blockIdx.x % across * TILE;
    float sums[EACH][EACH] = {};
    for (int base = 0; base < K; base += DEPTH) {
        hold<A_ALONG, A_PACK>(left, a, top, M, base, K, A_ALONG ? extents.a_row : extents.a_column);
        hold<!B_ALONG, B_PACK>(right, b, first, N, base, K, B_ALONG ? extents.b_row : extents.b_column);
        __syncthreads();
#pragma unroll 1
        for (int from = 4 * group; from < DEPTH; from += 4 * GROUPS) {
            float4 rows[EACH], columns[EACH];
#pragma unroll
            for (int i = 0; i < EACH; ++i) rows[i] = *(const float4 *)(left + (y + EDGE * i) * PITCH + from);
#pragma unroll
            for (int j = 0; j < EACH; ++j) columns[j] = *(const float4 *)(right + (x + EDGE * j) * PITCH + from);
#pragma unroll
            for (int i = 0; i < EACH; ++i)
#pragma unroll
                for (int j = 0; j < EACH; ++j) {
                    sums[i][j] += rows[i].x * columns[j].x;
                    sums[i][j] += rows[i].y * columns[j].y;
                    sums[i][j] += rows[i].z * columns[j].z;
                    sums[i][j] += rows[i].w * columns[j].w;
                }
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < EACH; ++i)
#pragma unroll
        for (int j = 0; j < EACH; ++j)
            shared[group * THREADS + (y + EDGE * i) * TILE + x + EDGE * j] = sums[i][j];
    __syncthreads();
    // A thread for each result from here on.
    const int row = top + threadIdx.x / TILE, column = first + threadIdx.x % TILE;
    if (row < M && column < N) {
        float sum = 0;
#pragma unroll
        for (int g = 0; g < GROUPS; ++g) sum += shared[g * THREADS + threadIdx.x];
        // No other thread reads this place.
        float *own = shared + threadIdx.x;
        *own = sum;
        const idx at = (idx)row * N + (idx)column;
        follow(own - at, at, ARGUMENTS);
    }
}
