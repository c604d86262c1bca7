// Normalisation of rows, and its gradient. A team has a row, each member of it the same columns of every row.
//
// S: E, WIDTH, N, TEAM, BLOCK, HELD (whether a row is kept in registers, else it is read again), epsilon(), ADDS.

// What packs are kept in: words, where there are whole ones, since the compiler copies halves one by one.
template <int BYTES> struct Word { typedef u32 Of; };
template <> struct Word<2> { typedef unsigned short Of; };

// A member's part of a row. PASSING: whether this is the last that is read of it for a while.
template <class S, bool PASSING = false> struct Row {
    typedef typename S::E E;
    static constexpr Index STEPS = (S::WIDTH + S::TEAM * S::N - 1) / (S::TEAM * S::N);
    static constexpr Index UNROLL = S::HELD ? STEPS : 2;
    typedef typename Word<S::N * sizeof(E)>::Of W;
    static constexpr int WORDS = S::N * sizeof(E) / sizeof(W);
    const E *from;
    Pack<W, WORDS> held[S::HELD ? STEPS : 1];

    // Where the member's pack of a step is in the row.
    static __device__ __forceinline__ Index column(Index step) {
        return (step * S::TEAM + threadIdx.x % S::TEAM) * S::N;
    }

    __device__ __forceinline__ Row(const E *from, bool inside) : from(from) {
        if constexpr (S::HELD) {
#pragma unroll
            for (Index step = 0; step < STEPS; ++step) {
                if (!inside || column(step) >= S::WIDTH) continue;
                const W *words = (const W *)(from + column(step));
                held[step] = PASSING ? load_passing<WORDS>(words) : load<WORDS>(words);
            }
        }
    }

    __device__ __forceinline__ decltype(auto) pack(Index step) const {
        if constexpr (S::HELD) return (const Pack<E, S::N> &)held[step];
        else return load<S::N>(from + column(step));
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

// The gradient of x, added to `past` if S::ADDS, both rounded, and where rows are held those of gamma and beta for the rows
// of each block: `parts` is then [blocks, 2, width], gamma's first.
template <class S>
__device__ __forceinline__ void layer_norm_grad(const typename S::E *x, const typename S::E *gamma,
                                                const typename Of<typename S::E>::Acc *means,
                                                const typename Of<typename S::E>::Acc *reciprocals,
                                                const typename S::E *dy, const typename S::E *past, typename S::E *dx,
                                                typename Of<typename S::E>::Acc *parts, Index rows) {
    typedef typename S::E E;
    typedef typename Of<E>::Acc Acc;
    typedef Pack<Acc, S::N> Numbers;
    typedef Row<S, true> R;
    constexpr Index TEAMS = S::BLOCK / S::TEAM, STEPS = R::STEPS, SUMS = S::HELD ? STEPS : 1;
    Numbers gammas[SUMS], betas[SUMS];
#pragma unroll
    for (Index step = 0; step < SUMS; ++step)
#pragma unroll
        for (int i = 0; i < S::N; ++i) gammas[step].at[i] = betas[step].at[i] = 0;
    // What the next row takes comes in while this one is worked on, and before it what is added to this one at last: the sums
    // leave few registers, and so few teams, to wait for memory in turns. Loads are answered in the order they were made in, so that one for this row, even of what
    // is in the cache, would wait for all of the next row. Gamma is therefore at hand: in shared memory, or in registers
    // where the members of a team are many and have few columns each.
    constexpr bool SHARED = S::HELD && TEAMS > 1;
    __shared__ Pack<E, S::N> shared_scales[SHARED ? S::WIDTH / S::N : 1];
    const Row<S> own_scales(gamma, !SHARED);
    if constexpr (SHARED) {
        for (Index at = threadIdx.x; at < S::WIDTH / S::N; at += S::BLOCK)
            shared_scales[at] = load<S::N>(gamma + at * S::N);
        __syncthreads();
    }
    const auto scales = [&](Index step) {
        if constexpr (SHARED) return shared_scales[R::column(step) / S::N];
        else return own_scales.pack(step);
    };
    Index at = blockIdx.x * TEAMS + threadIdx.x / S::TEAM;
    R next_row(x + at * S::WIDTH, at < rows), next_slopes(dy + at * S::WIDTH, at < rows);
    Acc next_mean = at < rows ? means[at] : 0, next_reciprocal = at < rows ? reciprocals[at] : 0;
    // The teams of a warp go on until its first has no row left.
    constexpr Index TOGETHER = S::TEAM < 32 ? 32 / S::TEAM : 1;
    for (; at / TOGETHER * TOGETHER < rows; at += gridDim.x * TEAMS) {
        const bool inside = TOGETHER == 1 || at < rows;
        // A row that is not held is read where it is used.
        const R row = S::HELD ? next_row : R(x + at * S::WIDTH, true);
        const R slopes = S::HELD ? next_slopes : R(dy + at * S::WIDTH, true);
        const R added(past + at * S::WIDTH, S::ADDS && inside);
        const Acc mean = next_mean, reciprocal = next_reciprocal;
        const Index next = at + gridDim.x * TEAMS;
        if (next < rows) {
            next_row = R(x + next * S::WIDTH, true);
            next_slopes = R(dy + next * S::WIDTH, true);
            next_mean = means[next];
            next_reciprocal = reciprocals[next];
        }
        Acc sum = 0, product = 0;
#pragma unroll R::UNROLL
        for (Index step = 0; step < STEPS; ++step) {
            if (!inside || R::column(step) >= S::WIDTH) continue;
            const Numbers values = widen_all(row.pack(step)), slope = widen_all(slopes.pack(step));
            const Numbers scale = widen_all(scales(step));
#pragma unroll
            for (int i = 0; i < S::N; ++i) {
                const Acc normal = (values.at[i] - mean) * reciprocal, scaled = slope.at[i] * scale.at[i];
                sum += scaled;
                product += scaled * normal;
                if constexpr (S::HELD) {
                    gammas[step].at[i] += slope.at[i] * normal;
                    betas[step].at[i] += slope.at[i];
                }
            }
        }
        constexpr Acc SHARE = Acc(1) / Acc(S::WIDTH);
        const Acc all = fold<S::TEAM, Sum>(sum) * SHARE * reciprocal;
        const Acc along = fold<S::TEAM, Sum>(product) * SHARE * reciprocal * reciprocal;
#pragma unroll R::UNROLL
        for (Index step = 0; step < STEPS; ++step) {
            const Index column = R::column(step);
            if (!inside || column >= S::WIDTH) continue;
            const Numbers values = widen_anew(row.pack(step)), slope = widen_anew(slopes.pack(step));
            const Numbers scale = widen_anew(scales(step));
            Acc result[S::N];
#pragma unroll
            for (int i = 0; i < S::N; ++i)
                result[i] = slope.at[i] * scale.at[i] * reciprocal - ((values.at[i] - mean) * along + all);
            Pack<E, S::N> rounded = narrow_all<E>(result);
            if constexpr (S::ADDS) {
                const Numbers gradient = widen_all(rounded), other = widen_all(added.pack(step));
#pragma unroll
                for (int i = 0; i < S::N; ++i) result[i] = gradient.at[i] + other.at[i];
                rounded = narrow_all<E>(result);
            }
            store(dx + at * S::WIDTH + column, rounded);
        }
    }
    if constexpr (S::HELD) {
        // Step by step, since the steps of all teams together would not fit: a thread adds up a column over the teams.
        constexpr Index SPAN = S::TEAM * S::N;
        __shared__ Numbers shared[TEAMS > 1 ? 2 * S::BLOCK : 1];
        Acc *to = parts + (Index)blockIdx.x * 2 * S::WIDTH;
#pragma unroll
        for (Index step = 0; step < STEPS; ++step) {
            if constexpr (TEAMS > 1) {
                shared[threadIdx.x] = gammas[step];
                shared[S::BLOCK + threadIdx.x] = betas[step];
                __syncthreads();
                for (Index one = threadIdx.x; one < 2 * SPAN; one += S::BLOCK) {
                    const Index which = one / SPAN, column = step * SPAN + one % SPAN;
                    const Acc *from = (const Acc *)(shared + which * S::BLOCK) + one % SPAN;
                    Acc sum = 0;
#pragma unroll
                    for (Index team = 0; team < TEAMS; ++team) sum += from[team * SPAN];
                    if (column < S::WIDTH) to[which * S::WIDTH + column] = sum;
                }
                __syncthreads();
            } else if (R::column(step) < S::WIDTH) {
                store(to + R::column(step), gammas[step]);
                store(to + S::WIDTH + R::column(step), betas[step]);
            }
        }
    }
}
