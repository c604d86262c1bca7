// A small matrix product, and whatever follows for each element. A block has a tile of TILE x TILE results; its threads are groups that share out the depth, so
// that the time is that of a few additions and not of the whole sum. Groups are added up in their order.
//
// A_ALONG and B_ALONG: whether neighbours in memory are those of a row; DEPTH: how much of the depth is held at once, a
// multiple of 4 for each group; PITCH: the distance between what is held of two rows or columns, such that four neighbours
// of each of eight are in different banks. PARAMETERS and ARGUMENTS of what follows, and what follows
// itself: follow(in0, at, ARGUMENTS) for the element at in0[at], whose position is `at`.
//
// Extents and the distances between rows and columns are given to each launch, so that one compilation serves all.
struct Extents {
    long long rows, columns, depth, a_row, a_column, b_row, b_column, unused;
};
constexpr int TILE = 16, GROUPS = 16, MEMBERS = 64, THREADS = GROUPS * MEMBERS;

extern "C" __global__ void __launch_bounds__(THREADS)
    small_product(const float *__restrict__ a, const float *__restrict__ b, const Extents extents, PARAMETERS) {
    const int M = (int)extents.rows, N = (int)extents.columns, K = (int)extents.depth;
    const long long a_row = extents.a_row, a_column = A_ALONG ? 1 : extents.a_column;
    const long long b_row = extents.b_row, b_column = B_ALONG ? 1 : extents.b_column;
    extern __shared__ float4 held[];
    float *shared = (float *)held, *left = shared, *right = shared + TILE * PITCH;
    const int group = threadIdx.x / MEMBERS, x = threadIdx.x % 8, y = threadIdx.x / 8 % 8;
    const unsigned across = (N + TILE - 1) / TILE;
    const int top = blockIdx.x / across * TILE, first = blockIdx.x % across * TILE;
    float sums[2][2] = {{0, 0}, {0, 0}};
    for (int base = 0; base < K; base += DEPTH) {
        // Neighbouring threads read neighbouring elements. What is past the depth is zero.
#pragma unroll
        for (int at = threadIdx.x; at < TILE * DEPTH; at += THREADS) {
            const int row = A_ALONG ? at / DEPTH : at % TILE, k = A_ALONG ? at % DEPTH : at / TILE;
            const bool inside = top + row < M && base + k < K;
            left[row * PITCH + k] =
                inside ? a[(top + row) * a_row + (base + k) * a_column] : 0.f;
        }
#pragma unroll
        for (int at = threadIdx.x; at < TILE * DEPTH; at += THREADS) {
            const int column = B_ALONG ? at % TILE : at / DEPTH, k = B_ALONG ? at / TILE : at % DEPTH;
            const bool inside = first + column < N && base + k < K;
            right[column * PITCH + k] =
                inside ? b[(base + k) * b_row + (first + column) * b_column] : 0.f;
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < DEPTH / GROUPS; k += 4) {
            const int from = group * (DEPTH / GROUPS) + k;
            float4 rows[2], columns[2];
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                rows[i] = *(const float4 *)(left + (y + 8 * i) * PITCH + from);
                columns[i] = *(const float4 *)(right + (x + 8 * i) * PITCH + from);
            }
#pragma unroll
            for (int i = 0; i < 2; ++i)
#pragma unroll
                for (int j = 0; j < 2; ++j) {
                    sums[i][j] += rows[i].x * columns[j].x;
                    sums[i][j] += rows[i].y * columns[j].y;
                    sums[i][j] += rows[i].z * columns[j].z;
                    sums[i][j] += rows[i].w * columns[j].w;
                }
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int j = 0; j < 2; ++j) shared[(group * TILE + y + 8 * i) * TILE + x + 8 * j] = sums[i][j];
    __syncthreads();
    const int row = threadIdx.x / TILE, column = threadIdx.x % TILE;
    if (row < TILE && top + row < M && first + column < N) {
        float sum = 0;
#pragma unroll
        for (int g = 0; g < GROUPS; ++g) sum += shared[(g * TILE + row) * TILE + column];
        // No other thread reads this place.
        float *own = shared + row * TILE + column;
        *own = sum;
        const idx at = (idx)(top + row) * N + (idx)(first + column);
        follow(own - at, at, ARGUMENTS);
    }
}
