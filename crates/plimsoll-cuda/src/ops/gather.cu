// Rows of a table, and sums into rows of a table.

// S: E, Label, N, ROWS, PACKS (of a row), BLOCK. A thread for each pack of the result, of which there are `all`.
template <class S>
__device__ __forceinline__ void gather(const typename S::E *table, const typename S::Label *which, typename S::E *y,
                                       Index all) {
    typedef typename S::E E;
    Pack<E, S::N> missing;
#pragma unroll
    for (int i = 0; i < S::N; ++i) missing.at[i] = narrow<E>(Limits<typename Of<E>::Acc>::none());
    for (Index at = (Index)blockIdx.x * S::BLOCK + threadIdx.x; at < all; at += (Index)gridDim.x * S::BLOCK) {
        const typename S::Label row = which[at / S::PACKS];
        Pack<E, S::N> pack = missing;
        if (row >= 0 && row < (i64)S::ROWS) pack = load<S::N>(table + ((Index)row * S::PACKS + at % S::PACKS) * S::N);
        store(y + at * S::N, pack);
    }
}

// S: Label, ROWS, RANGE, BLOCK. Sorts the `all` updates by their row, stably. A block has RANGE rows of the table and
// looks at all indices twice. First each warp counts, for its own stretch of the indices, those of each of the rows;
// those of rows before the block's say where its part of the sorted list begins, so that no block waits for
// another. Then each warp knows where its first update of each row goes, and puts its stretch there in order.
// `bounds` is where the updates of each row begin and, last, where all end; `sorted` the updates by number.
template <class S>
__device__ __forceinline__ void sort(const typename S::Label *which, u32 *bounds, u32 *sorted, Index all) {
    constexpr u32 WARPS = S::BLOCK / 32;
    const u32 count = (u32)all, stretch = ((count + WARPS - 1) / WARPS + 31) / 32 * 32;
    __shared__ u32 counts[WARPS][S::RANGE];
    __shared__ u32 totals[S::RANGE];
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const i64 first = (i64)blockIdx.x * S::RANGE;
    const u32 begin = warp * stretch < count ? warp * stretch : count;
    const u32 end = count - begin < stretch ? count : begin + stretch;
    for (u32 row = threadIdx.x; row < WARPS * S::RANGE; row += S::BLOCK) counts[row / S::RANGE][row % S::RANGE] = 0;
    __syncthreads();

    u32 before = 0;
#pragma unroll 4
    for (u32 at = begin + lane; at < end; at += 32) {
        const i64 row = which[at];
        before += row >= 0 && row < first;
        const i64 own = row - first;
        if (own >= 0 && own < (i64)S::RANGE && row < (i64)S::ROWS) atomicAdd(&counts[warp][own], 1u);
    }
    before = fold<S::BLOCK, Sum>(before);
    __syncthreads();

    for (u32 row = threadIdx.x; row < S::RANGE; row += S::BLOCK) {
        u32 total = 0;
        for (u32 w = 0; w < WARPS; ++w) {
            const u32 count = counts[w][row];
            counts[w][row] = total;
            total += count;
        }
        totals[row] = total;
    }
    __syncthreads();
    if (warp == 0) {
        u32 start = before;
        for (u32 row = lane; row < S::RANGE; row += 32) {
            const u32 own = totals[row];
            u32 upto = own;
#pragma unroll
            for (int apart = 1; apart < 32; apart *= 2) {
                const u32 lower = __shfl_up_sync(0xffffffffu, upto, apart);
                if (lane >= apart) upto += lower;
            }
            totals[row] = start + upto - own;
            start += __shfl_sync(0xffffffffu, upto, 31);
        }
        if (lane == 0 && first + (i64)S::RANGE >= (i64)S::ROWS) bounds[S::ROWS] = start;
    }
    __syncthreads();
    for (u32 row = threadIdx.x; row < S::RANGE; row += S::BLOCK) {
        if (first + row < (i64)S::ROWS) bounds[first + row] = totals[row];
    }

    for (u32 base = begin; base < end; base += 32) {
        const u32 at = base + lane;
        const i64 row = at < end ? (i64)which[at] : -1;
        const i64 own = row - first;
        const bool hit = row >= 0 && own >= 0 && own < (i64)S::RANGE && row < (i64)S::ROWS;
        if (__ballot_sync(0xffffffffu, hit) == 0) continue;
        const u32 same = __match_any_sync(0xffffffffu, hit ? (u32)own : 0xffffffffu);
        const u32 rank = __popc(same & ((1u << lane) - 1));
        u32 next = 0;
        if (hit) next = totals[own] + counts[warp][own] + rank;
        __syncwarp();
        if (hit && rank == 0) counts[warp][own] += __popc(same);
        __syncwarp();
        if (hit) sorted[next] = at;
    }
}

// The updates of one row from `first` to `end`, added in order, for one pack of columns.
template <class S>
__device__ __forceinline__ void sum_updates(const typename S::E *updates, const u32 *sorted, typename S::E *y,
                                            Index row, u32 first, u32 end, Index pack) {
    typedef typename S::E E;
    typedef typename Of<E>::Acc Acc;
    constexpr u32 DEEP = 16;
    Acc sums[S::N];
#pragma unroll
    for (int i = 0; i < S::N; ++i) sums[i] = 0;
    for (u32 next = first; next < end; next += DEEP) {
        Pack<E, S::N> held[DEEP];
#pragma unroll
        for (u32 d = 0; d < DEEP; ++d) {
            if (next + d < end) held[d] = load<S::N>(updates + ((Index)sorted[next + d] * S::PACKS + pack) * S::N);
        }
#pragma unroll
        for (u32 d = 0; d < DEEP; ++d) {
            if (next + d < end) {
#pragma unroll
                for (int i = 0; i < S::N; ++i) sums[i] = Sum::combine(sums[i], widen(held[d].at[i]));
            }
        }
    }
    Pack<E, S::N> result;
#pragma unroll
    for (int i = 0; i < S::N; ++i) result.at[i] = narrow<E>(sums[i]);
    store(y + (row * S::PACKS + pack) * S::N, result);
}

// S: E, N, ROWS, PACKS (of a row), FEW, BLOCK. A warp for each row of the table; a row of more than FEW updates is
// shared by all warps of its block, each with columns of its own.
template <class S>
__device__ __forceinline__ void sum_rows(const typename S::E *updates, const u32 *bounds, const u32 *sorted,
                                         typename S::E *y) {
    constexpr Index WARPS = S::BLOCK / 32;
    const Index lane = threadIdx.x % 32, warp = threadIdx.x / 32, base = (Index)blockIdx.x * WARPS;
    if (base + warp < S::ROWS) {
        const u32 first = bounds[base + warp], end = bounds[base + warp + 1];
        if (end - first <= S::FEW) {
            for (Index pack = lane; pack < S::PACKS; pack += 32)
                sum_updates<S>(updates, sorted, y, base + warp, first, end, pack);
        }
    }
    for (Index row = base; row < base + WARPS && row < S::ROWS; ++row) {
        const u32 first = bounds[row], end = bounds[row + 1];
        if (end - first > S::FEW) {
            for (Index pack = threadIdx.x; pack < S::PACKS; pack += S::BLOCK)
                sum_updates<S>(updates, sorted, y, row, first, end, pack);
        }
    }
}
