// Products of matrices on Hopper, and whatever follows for each element.
//
// Blocks stay, and each takes one tile of the result after another. One of its three groups of warps brings panels of the
// operands to shared memory, in stages; the others take turns at tiles: while one multiplies, the other rounds its sums,
// hands them on, and does what follows. Sums run over the depth in order, so that their bits are those of the operands.
//
// Defined before this text: STAGES; BAND, the tiles of a column that are taken before the next column; HALF, the type of
// elements; PARAMETERS and ARGUMENTS of what follows, and what follows itself:
//     struct Ahead, what is held while a tile is computed,
//     bring_ahead(ahead, first, rows, at, ARGUMENTS), which brings it for both halves of a tile's rows, and
//     follow(ahead, half, staged, first, rows, columns, at, ARGUMENTS),
// for those of rows first, first + 2, .. first + 14 that are below `rows`, and eight columns of each from `at` on.

#define TILE 128
#define DEPTH 64
#define PANEL 8192
#define STAGE (4 * PANEL)
// What a group of warps hands on at once: 64 rows.
#define HANDED (64 * TILE * 2)

extern __shared__ __align__(1024) unsigned char shared_memory[];

// The place of the work-th tile. Tiles that are under way at the same time share rows and columns.
__device__ __forceinline__ void locate(u32 work, u32 down, u32 across, u32 &y, u32 &x) {
    const u32 first = work / (BAND * across) * BAND, rest = work - first * across;
    const u32 height = down - first < BAND ? down - first : BAND;
    y = first + rest % height;
    x = rest / height;
}

// The stage of a block of the depth, and whether stages have been filled an odd number of times before.
struct Position {
    u32 stage, parity;

    __device__ __forceinline__ void skip(u32 blocks) {
        stage += blocks;
        parity ^= stage / STAGES & 1;
        stage %= STAGES;
    }
    __device__ __forceinline__ void next() {
        if (++stage == STAGES) {
            stage = 0;
            parity ^= 1;
        }
    }
};

// A group waits for its first stage when the other has seen its last one filled: a barrier tells only which of two
// successive phases has ended.
__device__ __forceinline__ void turn_wait(u32 group) { asm volatile("bar.sync %0, 256;" ::"r"(1 + group) : "memory"); }
__device__ __forceinline__ void turn_over(u32 group) { asm volatile("bar.arrive %0, 256;" ::"r"(1 + group) : "memory"); }

extern "C" __global__ void __launch_bounds__(384, 1)
    product(const __grid_constant__ Map left, const __grid_constant__ Map right, const u32 rows, const u32 columns,
            const u32 blocks, PARAMETERS) {
    const u32 base = (u32)__cvta_generic_to_shared(shared_memory);
    const u32 full = base + STAGES * STAGE + 2 * HANDED, empty = full + STAGES * 8;
    const u32 down = (rows + TILE - 1) / TILE, across = (columns + TILE - 1) / TILE, tiles = down * across;
    if (threadIdx.x == 0) {
        for (u32 stage = 0; stage < STAGES; stage++) {
            barrier_begin(full + stage * 8, 1);
            barrier_begin(empty + stage * 8, 4);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (threadIdx.x < 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (threadIdx.x == 0) {
            Position at = {0, 1};
            for (u32 work = blockIdx.x; work < tiles; work += gridDim.x) {
                u32 y, x;
                locate(work, down, across, y, x);
                for (u32 block = 0; block < blocks; block++) {
                    const u32 a = base + at.stage * STAGE, b = a + 2 * PANEL, arrived = full + at.stage * 8;
                    const int depth = (int)(block * DEPTH);
                    barrier_wait(empty + at.stage * 8, at.parity);
                    barrier_expect(arrived, STAGE);
#pragma unroll
                    for (int half = 0; half < 2; half++) {
                        const int m = (int)(y * TILE) + 64 * half, n = (int)(x * TILE) + 64 * half;
                        copy_panel(a + half * PANEL, left, arrived, A_TURNED ? m : depth, A_TURNED ? depth : m);
                        copy_panel(b + half * PANEL, right, arrived, B_TURNED ? n : depth, B_TURNED ? depth : n);
                    }
                    at.next();
                }
            }
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
        const u32 group = threadIdx.x / 128 - 1, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
        unsigned char *const own = shared_memory + STAGES * STAGE + group * HANDED + warp * (16 * TILE * 2);
        // Where the lane's row of matrices goes, but for the chunk, and its place among eight rows.
        const u32 line = (u32)__cvta_generic_to_shared(own) + lane % 16 * (TILE * 2), turn = lane % 8, chunk = lane / 16;
        Position at = {0, 0};
        at.skip(group * blocks);
        for (u32 work = blockIdx.x + group * gridDim.x; work < tiles; work += 2 * gridDim.x) {
            u32 y, x, before = 0;
            locate(work, down, across, y, x);
            const u32 row = y * TILE + warp * 16 + lane / 16, column = x * TILE + lane % 16 * 8;
            Ahead ahead;
            if (column < columns) bring_ahead(ahead, row, rows, column, ARGUMENTS);
            float sums[2][64];
            if (work >= gridDim.x) turn_wait(group);
            for (u32 block = 0; block < blocks; block++) {
                const u32 tile = base + at.stage * STAGE;
                const u64 a = panels<A_TURNED>(tile), b = panels<B_TURNED>(tile + 2 * PANEL);
                barrier_wait(full + at.stage * 8, at.parity);
                group_begin();
#pragma unroll
                for (int step = 0; step < DEPTH / 16; step++) {
                    const u64 along = a + deeper<A_TURNED>(step), beside = b + deeper<B_TURNED>(step);
                    const bool add = block > 0 || step > 0;
                    group_multiply(sums[0], along, beside, add);
                    group_multiply(sums[1], along + PANEL / 16, beside, add);
                }
                group_commit();
                if (block + 1 == blocks && work + gridDim.x < tiles) turn_over(1 - group);
                group_wait<1>();
                if (block > 0 && lane == 0) barrier_arrive(empty + before * 8);
                before = at.stage;
                at.next();
            }
            group_wait<0>();
            settle(sums[0]);
            settle(sums[1]);
            if (lane == 0) barrier_arrive(empty + before * 8);
            at.skip(blocks);
#pragma unroll
            for (int half = 0; half < 2; half++) {
                // Rows of a warp are its own: nobody else waits for them.
                __syncwarp();
#pragma unroll
                for (int n = 0; n < 16; n += 2) {
                    const float *s = &sums[half][4 * n];
                    store_matrices(line + ((n + chunk) ^ turn) * 16, rounded(s[0], s[1]), rounded(s[2], s[3]),
                                   rounded(s[4], s[5]), rounded(s[6], s[7]));
                }
                __syncwarp();
                if (column < columns)
                    follow(ahead, half, (const HALF *)own, row + 64 * half, rows, columns, column, ARGUMENTS);
            }
        }
    }
}
