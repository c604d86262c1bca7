// Normalisation of rows, and its gradient. A team has a row, each member of it the same columns of every row.
//
// S: E, WIDTH, N, TEAM, BLOCK, HELD (whether a row is kept in registers, else it is read again), epsilon().

// A member's part of a row.
template <class S> struct Row {
    typedef typename S::E E;
    static constexpr Index STEPS = (S::WIDTH + S::TEAM * S::N - 1) / (S::TEAM * S::N);
    static constexpr Index UNROLL = S::HELD ? STEPS : 2;
    const E *from;
    Pack<E, S::N> held[S::HELD ? STEPS : 1];

    // Where the member's pack of a step is in the row.
    static __device__ __forceinline__ Index column(Index step) {
        return (step * S::TEAM + threadIdx.x % S::TEAM) * S::N;
    }

    __device__ __forceinline__ Row(const E *from, bool inside) : from(from) {
        if constexpr (S::HELD) {
#pragma unroll
            for (Index step = 0; step < STEPS; ++step)
                if (inside && column(step) < S::WIDTH) held[step] = load<S::N>(from + column(step));
        }
    }

    __device__ __forceinline__ Pack<E, S::N> pack(Index step) const {
        if constexpr (S::HELD) return held[step];
        return load<S::N>(from + column(step));
    }
};

template <class S>
__device__ __forceinline__ void layer_norm(const typename S::E *x, const typename S::E *gamma,
                                           const typename S::E *beta, typename S::E *y,
                                           typename Of<typename S::E>::Acc *means,
                                           typename Of<typename S::E>::Acc *reciprocals, Index rows) {
    typedef typename S::E E;
    typedef typename Of<E>::Acc Acc;
    typedef Row<S> R;
    constexpr Index TEAMS = S::BLOCK / S::TEAM;
    for (Index first = blockIdx.x * TEAMS; first < rows; first += gridDim.x * TEAMS) {
        const Index at = first + threadIdx.x / S::TEAM;
        const bool inside = at < rows;
        const R row(x + at * S::WIDTH, inside);
        Acc sum = 0, squares = 0;
#pragma unroll R::UNROLL
        for (Index step = 0; step < R::STEPS; ++step) {
            if (!inside || R::column(step) >= S::WIDTH) continue;
            const Pack<E, S::N> pack = row.pack(step);
#pragma unroll
            for (int i = 0; i < S::N; ++i) sum += widen(pack.at[i]);
        }
        const Acc mean = fold<S::TEAM, Sum>(sum) / Acc(S::WIDTH);
#pragma unroll R::UNROLL
        for (Index step = 0; step < R::STEPS; ++step) {
            if (!inside || R::column(step) >= S::WIDTH) continue;
            const Pack<E, S::N> pack = row.pack(step);
#pragma unroll
            for (int i = 0; i < S::N; ++i) {
                const Acc deviation = widen(pack.at[i]) - mean;
                squares += deviation * deviation;
            }
        }
        const Acc variance = fold<S::TEAM, Sum>(squares) / Acc(S::WIDTH);
        const Acc reciprocal = 1 / root(variance + Acc(S::epsilon()));
#pragma unroll R::UNROLL
        for (Index step = 0; step < R::STEPS; ++step) {
            const Index column = R::column(step);
            if (!inside || column >= S::WIDTH) continue;
            const Pack<E, S::N> scale = load<S::N>(gamma + column), shift = load<S::N>(beta + column);
            Pack<E, S::N> pack = row.pack(step);
#pragma unroll
            for (int i = 0; i < S::N; ++i) {
                const Acc normal = (widen(pack.at[i]) - mean) * reciprocal;
                pack.at[i] = narrow<E>(normal * widen(scale.at[i]) + widen(shift.at[i]));
            }
            store(y + at * S::WIDTH + column, pack);
        }
        if (inside && threadIdx.x % S::TEAM == 0) {
            means[at] = mean;
            reciprocals[at] = reciprocal;
        }
    }
}

// The gradient of x, and where rows are held those of gamma and beta for the rows of each block: `parts` is then
// [blocks, 2, width], gamma's first.
template <class S>
__device__ __forceinline__ void layer_norm_grad(const typename S::E *x, const typename S::E *gamma,
                                                const typename Of<typename S::E>::Acc *means,
                                                const typename Of<typename S::E>::Acc *reciprocals,
                                                const typename S::E *dy, typename S::E *dx,
                                                typename Of<typename S::E>::Acc *parts, Index rows) {
    typedef typename S::E E;
    typedef typename Of<E>::Acc Acc;
    typedef Row<S> R;
    constexpr Index TEAMS = S::BLOCK / S::TEAM, STEPS = R::STEPS, SUMS = S::HELD ? STEPS : 1;
    Acc gammas[SUMS][S::N], betas[SUMS][S::N];
#pragma unroll
    for (Index step = 0; step < SUMS; ++step)
#pragma unroll
        for (int i = 0; i < S::N; ++i) gammas[step][i] = betas[step][i] = 0;
    // The next row comes in while this one is worked on: the sums leave few registers, and so few teams, to wait for
    // memory in turns.
    Index at = blockIdx.x * TEAMS + threadIdx.x / S::TEAM;
    R next_row(x + at * S::WIDTH, at < rows), next_slopes(dy + at * S::WIDTH, at < rows);
    for (Index first = blockIdx.x * TEAMS; first < rows; first += gridDim.x * TEAMS) {
        at = first + threadIdx.x / S::TEAM;
        const bool inside = at < rows;
        const R row = next_row, slopes = next_slopes;
        const Acc mean = inside ? means[at] : 0, reciprocal = inside ? reciprocals[at] : 0;
        const Index next = at + gridDim.x * TEAMS;
        next_row = R(x + next * S::WIDTH, next < rows);
        next_slopes = R(dy + next * S::WIDTH, next < rows);
        Acc sum = 0, product = 0;
#pragma unroll R::UNROLL
        for (Index step = 0; step < STEPS; ++step) {
            const Index column = R::column(step);
            if (!inside || column >= S::WIDTH) continue;
            const Pack<E, S::N> pack = row.pack(step), slope = slopes.pack(step), scale = load<S::N>(gamma + column);
#pragma unroll
            for (int i = 0; i < S::N; ++i) {
                const Acc normal = (widen(pack.at[i]) - mean) * reciprocal, u = widen(slope.at[i]);
                const Acc scaled = u * widen(scale.at[i]);
                sum += scaled;
                product += scaled * normal;
                if constexpr (S::HELD) {
                    gammas[step][i] += u * normal;
                    betas[step][i] += u;
                }
            }
        }
        sum = fold<S::TEAM, Sum>(sum) / Acc(S::WIDTH);
        product = fold<S::TEAM, Sum>(product) / Acc(S::WIDTH);
#pragma unroll R::UNROLL
        for (Index step = 0; step < STEPS; ++step) {
            const Index column = R::column(step);
            if (!inside || column >= S::WIDTH) continue;
            const Pack<E, S::N> slope = slopes.pack(step), scale = load<S::N>(gamma + column);
            Pack<E, S::N> pack = row.pack(step);
#pragma unroll
            for (int i = 0; i < S::N; ++i) {
                const Acc normal = (widen(pack.at[i]) - mean) * reciprocal;
                const Acc scaled = widen(slope.at[i]) * widen(scale.at[i]);
                pack.at[i] = narrow<E>((scaled - sum - normal * product) * reciprocal);
            }
            store(dx + at * S::WIDTH + column, pack);
        }
    }
    if constexpr (S::HELD) {
        // The teams of the block one after another.
        __shared__ Acc sums[TEAMS > 1 ? 2 * S::WIDTH : 1];
        Acc *to = TEAMS > 1 ? sums : parts + (Index)blockIdx.x * 2 * S::WIDTH;
        for (Index team = 0; team < TEAMS; ++team) {
            if (threadIdx.x / S::TEAM == team) {
#pragma unroll
                for (Index step = 0; step < STEPS; ++step) {
                    const Index column = R::column(step);
                    if (column >= S::WIDTH) continue;
#pragma unroll
                    for (int i = 0; i < S::N; ++i) {
                        to[column + i] = team == 0 ? gammas[step][i] : to[column + i] + gammas[step][i];
                        Acc *beta = to + S::WIDTH + column + i;
                        *beta = team == 0 ? betas[step][i] : *beta + betas[step][i];
                    }
                }
            }
            if (TEAMS > 1) __syncthreads();
        }
        if constexpr (TEAMS > 1) {
            for (Index at = threadIdx.x; at < 2 * S::WIDTH; at += S::BLOCK)
                parts[(Index)blockIdx.x * 2 * S::WIDTH + at] = sums[at];
        }
    }
}
