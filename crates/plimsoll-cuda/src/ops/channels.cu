// Statistics and sums over the rows of [rows, channels], and the gradient of normalising by such statistics.
//
// S: E, CHANNELS, N, ACROSS, BLOCK. A block takes ACROSS packs of N channels, and of the rows the chunk of `chunk` rows
// that is its number down the grid; a thread takes every so many rows of the chunk.

template <class S> struct Tile {
    static constexpr Index DOWN = S::BLOCK / S::ACROSS;
    Index down, channel, begin, end;

    __device__ __forceinline__ Tile(Index rows, Index chunk) {
        down = threadIdx.x / S::ACROSS;
        channel = (blockIdx.x * S::ACROSS + threadIdx.x % S::ACROSS) * S::N;
        begin = blockIdx.y * chunk;
        end = rows - begin < chunk ? rows : begin + chunk;
    }

    // The rows that fall to the thread `down` of the block.
    __device__ __forceinline__ Index rows(Index down) const {
        return end - begin > down ? (end - begin - down + DOWN - 1) / DOWN : 0;
    }
};

// How many numbers were seen is known where they were; this is their mean and the squares of their deviations. The mean is
// the sum of two numbers, of which the second is what the first had to leave out: rounded means that are far from zero
// would differ by more than the deviations that are looked for.
template <class A> struct Moments {
    A mean, rest, squares;
};

// Moments of `seen` and of `count` numbers merged, by the parallel formula of Chan, Golub and LeVeque. `share` is
// what the second are of both.
template <class A> __device__ __forceinline__ Moments<A> merge(Moments<A> a, A seen, Moments<A> b, A share) {
    if (seen == 0) return b;
    const A distance = (b.mean - a.mean) + (b.rest - a.rest);
    // The sum of the old mean and its change, and what rounding takes of it (Knuth's two-sum).
    const A change = a.rest + distance * share;
    const A mean = a.mean + change, taken = mean - a.mean;
    const A rest = (a.mean - (mean - taken)) + (change - taken);
    return Moments<A>{mean, rest, a.squares + b.squares + distance * distance * seen * share};
}

template <class A> __device__ __forceinline__ A share_of(A count, A seen) {
    return count == 0 ? A(0) : count / (seen + count);
}

// The moments of each chunk: `parts` is [chunks, 3, channels], means first, then what they leave out.
template <class S>
__device__ __forceinline__ void measure(const typename S::E *x, typename Of<typename S::E>::Acc *parts, Index rows,
                                        Index chunk) {
    typedef typename S::E E;
    typedef typename Of<E>::Acc Acc;
    constexpr Index N = S::N, DOWN = Tile<S>::DOWN, DEEP = 8;
    __shared__ Moments<Acc> shared[S::BLOCK * N];
    __shared__ Acc counts[DOWN];
    const Tile<S> tile(rows, chunk);
    Moments<Acc> all[N];
#pragma unroll
    for (Index i = 0; i < N; ++i) all[i] = {0, 0, 0};
    if (tile.channel < S::CHANNELS) {
        // A few rows at a time in two looks, while they are in registers.
        Index row = tile.begin + tile.down;
        Acc seen = 0;
        for (; row + (DEEP - 1) * DOWN < tile.end; row += DEEP * DOWN) {
            Pack<E, N> held[DEEP];
#pragma unroll
            for (Index d = 0; d < DEEP; ++d) held[d] = load<N>(x + (row + d * DOWN) * S::CHANNELS + tile.channel);
            const Acc share = share_of(Acc(DEEP), seen);
#pragma unroll
            for (Index i = 0; i < N; ++i) {
                // Counted from the first of them, where differences are exact.
                const Acc first = widen(held[0].at[i]);
                Acc rest = 0, squares = 0;
#pragma unroll
                for (Index d = 1; d < DEEP; ++d) rest += widen(held[d].at[i]) - first;
                rest *= Acc(1) / DEEP;
#pragma unroll
                for (Index d = 0; d < DEEP; ++d) {
                    const Acc deviation = (widen(held[d].at[i]) - first) - rest;
                    squares += deviation * deviation;
                }
                all[i] = merge(all[i], seen, Moments<Acc>{first, rest, squares}, share);
            }
            seen += Acc(DEEP);
        }
        for (; row < tile.end; row += DOWN) {
            const Pack<E, N> pack = load<N>(x + row * S::CHANNELS + tile.channel);
            const Acc share = share_of(Acc(1), seen);
#pragma unroll
            for (Index i = 0; i < N; ++i) all[i] = merge(all[i], seen, Moments<Acc>{widen(pack.at[i]), 0, 0}, share);
            seen += Acc(1);
        }
    }
#pragma unroll
    for (Index i = 0; i < N; ++i) shared[i * S::BLOCK + threadIdx.x] = all[i];
    if (threadIdx.x % S::ACROSS == 0) counts[tile.down] = Acc(tile.rows(tile.down));
    for (Index half = DOWN / 2; half > 0; half /= 2) {
        __syncthreads();
        const Acc seen = tile.down < half ? counts[tile.down] : 0;
        const Acc count = tile.down < half ? counts[tile.down + half] : 0;
        if (tile.down < half) {
            const Acc share = share_of(count, seen);
#pragma unroll
            for (Index i = 0; i < N; ++i) {
                Moments<Acc> *moments = shared + i * S::BLOCK + threadIdx.x;
                *moments = merge(*moments, seen, moments[half * S::ACROSS], share);
            }
        }
        __syncthreads();
        if (tile.down < half && threadIdx.x % S::ACROSS == 0) counts[tile.down] = seen + count;
    }
    if (tile.down == 0 && tile.channel < S::CHANNELS) {
        Acc *to = parts + (Index)blockIdx.y * 3 * S::CHANNELS + tile.channel;
#pragma unroll
        for (Index i = 0; i < N; ++i) {
            const Moments<Acc> moments = shared[i * S::BLOCK + threadIdx.x];
            to[i] = moments.mean;
            to[S::CHANNELS + i] = moments.rest;
            to[2 * S::CHANNELS + i] = moments.squares;
        }
    }
}

// S: E, CHANNELS, BLOCK, epsilon(). The statistics of each channel from those of its chunks: a warp merges each lane's
// chunks in order, and then lanes in halves.
template <class S>
__device__ __forceinline__ void settle_moments(const typename Of<typename S::E>::Acc *parts,
                                               typename Of<typename S::E>::Acc *means,
                                               typename Of<typename S::E>::Acc *variances,
                                               typename Of<typename S::E>::Acc *reciprocals, Index rows, Index chunk,
                                               Index chunks) {
    typedef typename Of<typename S::E>::Acc Acc;
    const Index channel = ((Index)blockIdx.x * S::BLOCK + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (channel >= S::CHANNELS) return;
    Moments<Acc> all = {0, 0, 0};
    Acc seen = 0;
#pragma unroll 4
    for (Index at = lane; at < chunks; at += 32) {
        const Acc *from = parts + at * 3 * S::CHANNELS + channel;
        const Index left = rows - at * chunk;
        const Acc count = Acc(left < chunk ? left : chunk);
        const Moments<Acc> part = {from[0], from[S::CHANNELS], from[2 * S::CHANNELS]};
        all = merge(all, seen, part, share_of(count, seen));
        seen += count;
    }
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2) {
        const Moments<Acc> other = {__shfl_down_sync(0xffffffffu, all.mean, apart),
                                    __shfl_down_sync(0xffffffffu, all.rest, apart),
                                    __shfl_down_sync(0xffffffffu, all.squares, apart)};
        const Acc count = __shfl_down_sync(0xffffffffu, seen, apart);
        all = merge(all, seen, other, share_of(count, seen));
        seen += count;
    }
    if (lane != 0) return;
    const Acc variance = all.squares / Acc(rows);
    means[channel] = rows == 0 ? Limits<Acc>::none() : all.mean;
    variances[channel] = variance;
    reciprocals[channel] = 1 / root(variance + Acc(S::epsilon()));
}

// S: also BY_ROW, whether statistics are of rows and not of channels. Sums over the rows of each chunk for the
// gradients of gamma and beta: `parts` is [chunks, 2, channels], gamma's first. Where statistics are of channels,
// gamma's is not yet multiplied with the reciprocal deviation, and `reciprocals` is not read.
template <class S>
__device__ __forceinline__ void slope_sums(const typename S::E *x, const typename Of<typename S::E>::Acc *means,
                                           const typename Of<typename S::E>::Acc *reciprocals, const typename S::E *dy,
                                           typename Of<typename S::E>::Acc *parts, Index rows, Index chunk) {
    typedef typename S::E E;
    typedef typename Of<E>::Acc Acc;
    constexpr Index N = S::N, DOWN = Tile<S>::DOWN, DEEP = 4;
    __shared__ Acc shared[2 * S::BLOCK * N];
    const Tile<S> tile(rows, chunk);
    Acc gammas[N], betas[N], mean[N];
#pragma unroll
    for (Index i = 0; i < N; ++i) {
        gammas[i] = betas[i] = 0;
        mean[i] = !S::BY_ROW && tile.channel < S::CHANNELS ? means[tile.channel + i] : 0;
    }
    const auto add = [&](Index row, const Pack<E, N> &pack, const Pack<E, N> &slope) {
        const Acc middle = S::BY_ROW ? means[row] : 0, scale = S::BY_ROW ? reciprocals[row] : 1;
#pragma unroll
        for (Index i = 0; i < N; ++i) {
            const Acc deviation = widen(pack.at[i]) - (S::BY_ROW ? middle : mean[i]), u = widen(slope.at[i]);
            gammas[i] += (S::BY_ROW ? deviation * scale : deviation) * u;
            betas[i] += u;
        }
    };
    if (tile.channel < S::CHANNELS) {
        Index row = tile.begin + tile.down;
        for (; row + (DEEP - 1) * DOWN < tile.end; row += DEEP * DOWN) {
            Pack<E, N> held[DEEP], slopes[DEEP];
#pragma unroll
            for (Index d = 0; d < DEEP; ++d) {
                held[d] = load<N>(x + (row + d * DOWN) * S::CHANNELS + tile.channel);
                slopes[d] = load<N>(dy + (row + d * DOWN) * S::CHANNELS + tile.channel);
            }
#pragma unroll
            for (Index d = 0; d < DEEP; ++d) add(row + d * DOWN, held[d], slopes[d]);
        }
        for (; row < tile.end; row += DOWN) {
            const Index at = row * S::CHANNELS + tile.channel;
            add(row, load<N>(x + at), load<N>(dy + at));
        }
    }
#pragma unroll
    for (Index i = 0; i < N; ++i) {
        shared[2 * i * S::BLOCK + threadIdx.x] = gammas[i];
        shared[(2 * i + 1) * S::BLOCK + threadIdx.x] = betas[i];
    }
    for (Index half = DOWN / 2; half > 0; half /= 2) {
        __syncthreads();
        if (tile.down < half) {
#pragma unroll
            for (Index i = 0; i < 2 * N; ++i) {
                Acc *sum = shared + i * S::BLOCK + threadIdx.x;
                *sum += sum[half * S::ACROSS];
            }
        }
    }
    if (tile.down == 0 && tile.channel < S::CHANNELS) {
        Acc *to = parts + (Index)blockIdx.y * 2 * S::CHANNELS + tile.channel;
#pragma unroll
        for (Index i = 0; i < N; ++i) {
            to[i] = shared[2 * i * S::BLOCK + threadIdx.x];
            to[S::CHANNELS + i] = shared[(2 * i + 1) * S::BLOCK + threadIdx.x];
        }
    }
}

// Neighbouring columns of [chunks, 2, CHANNELS] that a block adds up, which lie in one sector of memory.
template <class S> struct Columns {
    static constexpr Index COUNT = S::BLOCK / 32;
    static __device__ __forceinline__ Index own() { return (Index)blockIdx.x * COUNT + threadIdx.x % COUNT; }
};

// The sum of such a column, for the first COUNT threads of the block.
template <class S, class A> __device__ __forceinline__ A total_of(const A *parts, Index column, Index chunks) {
    constexpr Index COUNT = Columns<S>::COUNT, DEEP = 8;
    __shared__ A sums[S::BLOCK];
    A sum = 0;
    if (column < 2 * S::CHANNELS) {
        for (Index chunk = threadIdx.x / COUNT; chunk < chunks; chunk += DEEP * 32) {
            A held[DEEP];
#pragma unroll
            for (Index d = 0; d < DEEP; ++d)
                held[d] = chunk + d * 32 < chunks ? parts[(chunk + d * 32) * 2 * S::CHANNELS + column] : 0;
#pragma unroll
            for (Index d = 0; d < DEEP; ++d) sum += held[d];
        }
    }
    sums[threadIdx.x] = sum;
#pragma unroll
    for (Index half = S::BLOCK / 2; half >= COUNT; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) sums[threadIdx.x] = sum = sum + sums[threadIdx.x + half];
    }
    __syncthreads();
    return sum;
}

// S: E, CHANNELS, BLOCK. The gradients of gamma and beta from the sums of all chunks.
template <class S>
__device__ __forceinline__ void settle_sums(const typename Of<typename S::E>::Acc *parts, typename S::E *dgamma,
                                            typename S::E *dbeta, Index chunks) {
    const Index column = Columns<S>::own();
    const auto total = total_of<S>(parts, column, chunks);
    if (threadIdx.x >= Columns<S>::COUNT || column >= 2 * S::CHANNELS) return;
    if (column < S::CHANNELS) dgamma[column] = narrow<typename S::E>(total);
    else dbeta[column - S::CHANNELS] = narrow<typename S::E>(total);
}

// S: also epsilon(). The same where statistics are of channels; and in `factors`, which are [3, channels], what
// the gradient of x takes: along x, of every row alike, and the factor of all.
template <class S>
__device__ __forceinline__ void settle_slopes(const typename Of<typename S::E>::Acc *parts, const typename S::E *gamma,
                                              const typename Of<typename S::E>::Acc *variances, typename S::E *dgamma,
                                              typename S::E *dbeta, typename Of<typename S::E>::Acc *factors,
                                              Index rows, Index chunks) {
    typedef typename Of<typename S::E>::Acc Acc;
    const Index channel = Columns<S>::own();
    const Index known = channel < S::CHANNELS ? channel : 2 * S::CHANNELS;
    const Acc along = total_of<S>(parts, known, chunks), all = total_of<S>(parts, known + S::CHANNELS, chunks);
    if (threadIdx.x >= Columns<S>::COUNT || channel >= S::CHANNELS) return;
    const Acc reciprocal = 1 / root(variances[channel] + Acc(S::epsilon()));
    dgamma[channel] = narrow<typename S::E>(rows == 0 ? Acc(0) : along * reciprocal);
    dbeta[channel] = narrow<typename S::E>(all);
    factors[channel] = along * reciprocal * reciprocal / Acc(rows);
    factors[S::CHANNELS + channel] = all / Acc(rows);
    factors[2 * S::CHANNELS + channel] = widen(gamma[channel]) * reciprocal;
}

// The gradient of x, over x or dy or elsewhere.
template <class S>
__device__ __forceinline__ void apply_slopes(const typename S::E *x, const typename Of<typename S::E>::Acc *means,
                                             const typename S::E *dy, const typename Of<typename S::E>::Acc *factors,
                                             typename S::E *dx, Index rows, Index chunk) {
    typedef typename S::E E;
    typedef typename Of<E>::Acc Acc;
    constexpr Index N = S::N, DOWN = Tile<S>::DOWN, DEEP = 4;
    const Tile<S> tile(rows, chunk);
    if (tile.channel >= S::CHANNELS) return;
    Acc mean[N], along[N], all[N], scale[N];
#pragma unroll
    for (Index i = 0; i < N; ++i) {
        mean[i] = means[tile.channel + i];
        along[i] = factors[tile.channel + i];
        all[i] = factors[S::CHANNELS + tile.channel + i];
        scale[i] = factors[2 * S::CHANNELS + tile.channel + i];
    }
    for (Index row = tile.begin + tile.down; row < tile.end; row += DEEP * DOWN) {
        Pack<E, N> held[DEEP], slopes[DEEP];
#pragma unroll
        for (Index d = 0; d < DEEP; ++d) {
            if (row + d * DOWN >= tile.end) continue;
            held[d] = load<N>(x + (row + d * DOWN) * S::CHANNELS + tile.channel);
            slopes[d] = load<N>(dy + (row + d * DOWN) * S::CHANNELS + tile.channel);
        }
#pragma unroll
        for (Index d = 0; d < DEEP; ++d) {
            if (row + d * DOWN >= tile.end) continue;
#pragma unroll
            for (Index i = 0; i < N; ++i) {
                const Acc deviation = widen(held[d].at[i]) - mean[i];
                held[d].at[i] = narrow<E>((widen(slopes[d].at[i]) - all[i] - deviation * along[i]) * scale[i]);
            }
            store(dx + (row + d * DOWN) * S::CHANNELS + tile.channel, held[d]);
        }
    }
}
