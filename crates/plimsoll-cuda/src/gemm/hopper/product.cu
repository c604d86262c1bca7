// Products of matrices on Hopper, and whatever follows for each element.
//
// Blocks stay, and each takes one tile of the result after another. One of its warps brings panels of the operands to
// shared memory, in stages; two groups of warps multiply, each half of a tile's rows; two more do what follows, each for
// one of these. A group that has multiplied rounds its sums and hands them on in shared memory, and goes on with the next
// tile while the other reads them: what follows may take as long as the multiplications. Sums run over the depth in
// order, so that their bits are those of the operands.
//
// Defined before this text: STAGES; BAND, the tiles of a column that are taken before the next column; HALF, the type of
// elements; PARAMETERS and ARGUMENTS of what follows, and what follows itself:
//     struct Ahead, what is held of operands,
//     bring_ahead(ahead, first, rows, at, ARGUMENTS), which brings it for the first rows before the product is there, and
//     follow(ahead, staged, first, rows, columns, at, ARGUMENTS),
// for those of rows first, first + 2, .. first + 14 that are below `rows`, and eight columns of each from `at` on.

#define DOWN 128
#define ACROSS 256
#define DEPTH 64
#define PANEL 8192
#define STAGE (6 * PANEL)
// What a warp hands on of 128 columns, and a group of warps of all.
#define LINES (16 * 128 * 2)
#define HANDED (8 * LINES)
#define GROUP 128

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

    __device__ __forceinline__ void next() {
        if (++stage == STAGES) {
            stage = 0;
            parity ^= 1;
        }
    }
};

// A group that multiplies and the one that follows it tell each other that a tile is handed on, and that it was taken.
__device__ __forceinline__ void tell(u32 what, u32 half) {
    asm volatile("bar.arrive %0, %1;" ::"r"(1 + what * 2 + half), "n"(2 * GROUP) : "memory");
}
__device__ __forceinline__ void hear(u32 what, u32 half) {
    asm volatile("bar.sync %0, %1;" ::"r"(1 + what * 2 + half), "n"(2 * GROUP) : "memory");
}
#define IS_HANDED 0
#define IS_TAKEN 1

extern "C" __global__ void __launch_bounds__(5 * GROUP, 1)
    product(const __grid_constant__ Map left, const __grid_constant__ Map right, const u32 rows, const u32 columns,
            const u32 blocks, PARAMETERS) {
    const u32 base = (u32)__cvta_generic_to_shared(shared_memory);
    const u32 full = base + STAGES * STAGE + 2 * HANDED, empty = full + STAGES * 8;
    const u32 down = (rows + DOWN - 1) / DOWN, across = (columns + ACROSS - 1) / ACROSS, tiles = down * across;
    if (threadIdx.x == 0) {
        for (u32 stage = 0; stage < STAGES; stage++) {
            barrier_begin(full + stage * 8, 1);
            barrier_begin(empty + stage * 8, 8);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    const u32 half = threadIdx.x / GROUP % 2, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
    unsigned char *const own = shared_memory + STAGES * STAGE + half * HANDED + warp * LINES;
    if (threadIdx.x < 2 * GROUP) {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 160;");
        // Where the lane's row of matrices goes, but for the chunk, and its place among eight rows.
        const u32 line = (u32)__cvta_generic_to_shared(own) + lane % 16 * 256, turn = lane % 8, chunk = lane / 16;
        Position at = {0, 0};
        for (u32 work = blockIdx.x; work < tiles; work += gridDim.x) {
            u32 before = 0;
            float sums[2][64];
            for (u32 block = 0; block < blocks; block++) {
                const u32 tile = base + at.stage * STAGE;
                const u64 a = panels<A_TURNED>(tile + half * PANEL), b = panels<B_TURNED>(tile + 2 * PANEL);
                barrier_wait(full + at.stage * 8, at.parity);
                group_begin();
#pragma unroll
                for (int step = 0; step < DEPTH / 16; step++) {
                    const u64 along = a + deeper<A_TURNED>(step), beside = b + deeper<B_TURNED>(step);
                    const bool add = block > 0 || step > 0;
                    group_multiply(sums[0], along, beside, add);
                    group_multiply(sums[1], along, beside + 2 * PANEL / 16, add);
                }
                group_commit();
                group_wait<1>();
                if (block > 0 && lane == 0) barrier_arrive(empty + before * 8);
                before = at.stage;
                at.next();
            }
            group_wait<0>();
            settle(sums[0]);
            settle(sums[1]);
            if (lane == 0) barrier_arrive(empty + before * 8);
            if (work >= gridDim.x) hear(IS_TAKEN, half);
#pragma unroll
            for (int side = 0; side < 2; side++)
#pragma unroll
                for (int n = 0; n < 16; n += 2) {
                    const float *s = &sums[side][4 * n];
                    store_matrices(line + side * (4 * LINES) + ((n + chunk) ^ turn) * 16, rounded(s[0], s[1]),
                                   rounded(s[2], s[3]), rounded(s[4], s[5]), rounded(s[6], s[7]));
                }
            tell(IS_HANDED, half);
        }
    } else if (threadIdx.x < 4 * GROUP) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 64;");
        for (u32 work = blockIdx.x; work < tiles; work += gridDim.x) {
            u32 y, x;
            locate(work, down, across, y, x);
            const u32 row = y * DOWN + half * 64 + warp * 16 + lane / 16, column = x * ACROSS + lane % 16 * 8;
            Ahead ahead;
            if (column < columns) bring_ahead(ahead, row, rows, column, ARGUMENTS);
            hear(IS_HANDED, half);
#pragma unroll 1
            for (u32 side = 0; side < 2; side++) {
                const u32 at = column + side * 128, after = at + 128;
                Ahead next;
                if (side == 0 && after < columns) bring_ahead(next, row, rows, after, ARGUMENTS);
                if (at < columns)
                    follow(ahead, (const HALF *)(own + side * (4 * LINES)), row, rows, columns, at, ARGUMENTS);
                ahead = next;
            }
            if (work + gridDim.x < tiles) tell(IS_TAKEN, half);
        }
    } else {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (threadIdx.x > 4 * GROUP) return;
        Position at = {0, 1};
        for (u32 work = blockIdx.x; work < tiles; work += gridDim.x) {
            u32 y, x;
            locate(work, down, across, y, x);
            for (u32 block = 0; block < blocks; block++) {
                const u32 a = base + at.stage * STAGE, b = a + 2 * PANEL, arrived = full + at.stage * 8;
                const int depth = (int)(block * DEPTH), m = (int)(y * DOWN), n = (int)(x * ACROSS);
                barrier_wait(empty + at.stage * 8, at.parity);
                barrier_expect(arrived, STAGE);
#pragma unroll
                for (int i = 0; i < 2; i++)
                    copy_panel(a + i * PANEL, left, arrived, A_TURNED ? m + 64 * i : depth, A_TURNED ? depth : m + 64 * i);
#pragma unroll
                for (int i = 0; i < 4; i++)
                    copy_panel(b + i * PANEL, right, arrived, B_TURNED ? n + 64 * i : depth, B_TURNED ? depth : n + 64 * i);
                at.next();
            }
        }
    }
}
