// A small matrix product, and whatever follows for each element. A block has a tile of TILE x TILE results; its threads are groups that share out the depth, so
// that the time is that of a few additions and not of the whole sum. Groups are added up in their order.
//
// M, N, K; A_ROW, A_COLUMN, B_ROW, B_COLUMN: the distances between rows and columns; DEPTH: how much of the depth
// is held at once, a multiple of 4 for each group; PITCH: the distance between what is held of two rows or columns, such
// that four neighbours of each of eight are in different banks. PARAMETERS and ARGUMENTS of what follows, and what follows
// itself: follow(in0, at, ARGUMENTS) for the element at in0[at], whose position is `at`.
constexpr int TILE = 16, GROUPS = 16, MEMBERS = 64, THREADS = GROUPS * MEMBERS;

extern "C" __global__ void __launch_bounds__(THREADS)
    small_product(const float *__restrict__ a, const float *__restrict__ b, PARAMETERS) {
    extern __shared__ float4 held[];
    float *shared = (float *)held, *left = shared, *right = shared + TILE * PITCH;
    const int group = threadIdx.x / MEMBERS, x = threadIdx.x % 8, y = threadIdx.x / 8 % 8;
    constexpr unsigned ACROSS = (N + TILE - 1) / TILE;
    const int top = blockIdx.x / ACROSS * TILE, first = blockIdx.x % ACROSS * TILE;
    float sums[2][2] = {{0, 0}, {0, 0}};
    for (int base = 0; base < K; base += DEPTH) {
        // Neighbouring threads read neighbouring elements. What is past the depth is zero.
#pragma unroll
        for (int at = threadIdx.x; at < TILE * DEPTH; at += THREADS) {
            const int row = A_COLUMN == 1 ? at / DEPTH : at % TILE, k = A_COLUMN == 1 ? at % DEPTH : at / TILE;
            const bool inside = top + row < M && base + k < K;
            left[row * PITCH + k] =
                inside ? a[(long long)(top + row) * A_ROW + (long long)(base + k) * A_COLUMN] : 0.f;
        }
#pragma unroll
        for (int at = threadIdx.x; at < TILE * DEPTH; at += THREADS) {
            const int column = B_COLUMN == 1 ? at % TILE : at / DEPTH, k = B_COLUMN == 1 ? at / TILE : at % DEPTH;
            const bool inside = first + column < N && base + k < K;
            right[column * PITCH + k] =
                inside ? b[(long long)(base + k) * B_ROW + (long long)(first + column) * B_COLUMN] : 0.f;
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
