// Reductions. An operand is seen as [outer, reduced, inner]; `rows` is for an inner extent of 1.

// S: In, Out, Fold, WHOLE, TEAM, BLOCK. Each row of `width` elements is cut into `parts` of `part` elements, each of which
// is one result, unless it is left WHOLE; `tasks` are the parts of all rows.
template <class S>
__device__ __forceinline__ void rows(const typename S::In *x, typename S::Out *y, Index tasks, Index width, Index parts,
                                     Index part) {
    typedef typename S::Fold Fold;
    typedef typename Of<typename S::In>::Acc Acc;
    constexpr Index TEAMS = S::BLOCK / S::TEAM;
    const Index member = threadIdx.x % S::TEAM;
    for (Index first = blockIdx.x * TEAMS; first < tasks; first += gridDim.x * TEAMS) {
        const Index task = first + threadIdx.x / S::TEAM;
        Acc all = Fold::template identity<Acc>();
        if (task < tasks) {
            const Index row = S::WHOLE ? task : task / parts, start = S::WHOLE ? 0 : task % parts * part;
            const Index left = width - start;
            const typename S::In *from = x + row * width + start;
            each<S::TEAM, 4>(from, S::WHOLE || left < part ? left : part, member, [&](Index, auto pack) {
                for (auto element : pack.at) all = Fold::combine(all, widen(element));
            });
        }
        all = fold<S::TEAM, Fold>(all);
        if (task < tasks && member == 0) y[task] = narrow<typename S::Out>(all);
    }
}

// S: In, Out, Fold, INNER, N, ACROSS, BLOCK. A block takes ACROSS packs of N columns, and of their rows the chunk that is
// its number down the grid; results are [chunks, outer, inner]. There are INNER columns, or `given` where that is 0;
// `passing` says whether they are not read again before much else is.
template <class S>
__device__ __forceinline__ void columns(const typename S::In *x, typename S::Out *y, Index reduced, Index chunk,
                                        Index given, Index passing) {
    typedef typename S::Fold Fold;
    typedef typename Of<typename S::In>::Acc Acc;
    constexpr Index N = S::N, DOWN = S::BLOCK / S::ACROSS;
    const Index inner = S::INNER == 0 ? given : S::INNER, tiles = (inner + S::ACROSS * N - 1) / (S::ACROSS * N);
    __shared__ Acc sums[S::BLOCK * N];
    const Index across = threadIdx.x % S::ACROSS, down = threadIdx.x / S::ACROSS;
    const Index outer = blockIdx.x / tiles, column = (blockIdx.x % tiles * S::ACROSS + across) * N;
    const Index begin = blockIdx.y * chunk;
    const Index end = reduced - begin < chunk ? reduced : begin + chunk;
    const typename S::In *from = x + outer * reduced * inner + column;
    Acc all[N];
#pragma unroll
    for (Index i = 0; i < N; ++i) all[i] = Fold::template identity<Acc>();
    // Many loads are under way at once, at the end of a chunk as well.
    constexpr Index DEEP = 8;
    const auto combine = [&](auto read) {
        const typename S::In *at = from + (begin + down) * inner;
        for (Index row = begin + down; row < end; row += DEEP * DOWN, at += DEEP * DOWN * inner) {
            Pack<typename S::In, N> held[DEEP];
#pragma unroll
            for (Index d = 0; d < DEEP; ++d)
                if (row + d * DOWN < end) held[d] = read(at + d * DOWN * inner);
#pragma unroll
            for (Index d = 0; d < DEEP; ++d) {
                if (row + d * DOWN >= end) continue;
                const Pack<Acc, N> wide = widen_all(held[d]);
#pragma unroll
                for (Index i = 0; i < N; ++i) all[i] = Fold::combine(all[i], wide.at[i]);
            }
        }
    };
    if (column < inner) {
        if (passing) combine([](const typename S::In *at) { return load_passing<N>(at); });
        else combine([](const typename S::In *at) { return load<N>(at); });
    }
#pragma unroll
    for (Index i = 0; i < N; ++i) sums[i * S::BLOCK + threadIdx.x] = all[i];
    for (Index half = DOWN / 2; half > 0; half /= 2) {
        __syncthreads();
        if (down < half) {
#pragma unroll
            for (Index i = 0; i < N; ++i) {
                Acc *sum = sums + i * S::BLOCK + threadIdx.x;
                *sum = Fold::combine(*sum, sum[half * S::ACROSS]);
            }
        }
    }
    if (down == 0 && column < inner) {
        typename S::Out *to = y + ((Index)blockIdx.y * (gridDim.x / tiles) + outer) * inner + column;
#pragma unroll
        for (Index i = 0; i < N; ++i) to[i] = narrow<typename S::Out>(sums[i * S::BLOCK + threadIdx.x]);
    }
}

// S: In, Out, Fold, INNER, N, HIGH, WIDE, BLOCK. An operand [outer, HIGH, middle, WIDE, inner], of which a thread combines
// what N neighbouring results have, one of `packs`. The inner extent is INNER, or `given` where that is 0.
template <class S>
__device__ __forceinline__ void windows(const typename S::In *x, typename S::Out *y, Index packs, Index middle,
                                        Index given) {
    typedef typename S::Fold Fold;
    typedef typename Of<typename S::In>::Acc Acc;
    constexpr Index N = S::N;
    const Index inner = S::INNER == 0 ? given : S::INNER, across = inner / N;
    for (Index at = (Index)blockIdx.x * S::BLOCK + threadIdx.x; at < packs; at += (Index)gridDim.x * S::BLOCK) {
        const Index place = at / across, outer = place / middle;
        const typename S::In *from =
            x + (outer * S::HIGH * middle + place % middle) * S::WIDE * inner + at % across * N;
        Acc all[N];
#pragma unroll
        for (Index i = 0; i < N; ++i) all[i] = Fold::template identity<Acc>();
#pragma unroll 4
        for (Index high = 0; high < S::HIGH; ++high) {
#pragma unroll 4
            for (Index wide = 0; wide < S::WIDE; ++wide) {
                const Pack<Acc, N> numbers = widen_all(load<N>(from + (high * middle * S::WIDE + wide) * inner));
#pragma unroll
                for (Index i = 0; i < N; ++i) all[i] = Fold::combine(all[i], numbers.at[i]);
            }
        }
        store(y + at * N, narrow_all<typename S::Out>(all));
    }
}

// The largest so far and where it is; nothing yet if it is nowhere.
template <class A> struct Best {
    static constexpr u32 NOWHERE = 0xffffffffu;
    A value;
    u32 at;
};

template <class A> __device__ __forceinline__ Best<A> exchange(Best<A> x, int apart) {
    return Best<A>{exchange(x.value, apart), exchange(x.at, apart)};
}

// The larger, and the first of equals.
struct First {
    template <class A> static __device__ __forceinline__ Best<A> combine(Best<A> a, Best<A> b) {
        if (b.at == b.NOWHERE) return a;
        if (a.at == a.NOWHERE || replaces(b.value, a.value)) return b;
        return !replaces(a.value, b.value) && b.at < a.at ? b : a;
    }
};

template <class E> __device__ __forceinline__ Best<typename Of<E>::Acc> nothing() {
    typedef typename Of<E>::Acc Acc;
    return Best<Acc>{Limits<Acc>::lowest(), Best<Acc>::NOWHERE};
}

// The first largest element of a row, for each member of the team.
template <int TEAM, class E>
__device__ __forceinline__ u32 largest_of(const E *row, Index width, Index member, bool inside) {
    auto best = nothing<E>();
    if (inside) {
        each<TEAM, 4>(row, width, member, [&](Index at, auto pack) {
            u32 here = (u32)at;
            for (auto element : pack.at) {
                if (best.at == best.NOWHERE || replaces(widen(element), best.value)) best = {widen(element), here};
                ++here;
            }
        });
    }
    return fold<TEAM, First>(best).at;
}

// S: E, N, BLOCK. Numbers of the accumulator type as elements, N of them at once.
template <class S>
__device__ __forceinline__ void convert(const typename Of<typename S::E>::Acc *x, typename S::E *y, Index packs) {
    for (Index at = (Index)blockIdx.x * S::BLOCK + threadIdx.x; at < packs; at += (Index)gridDim.x * S::BLOCK) {
        const auto numbers = load<S::N>(x + at * S::N);
        store(y + at * S::N, narrow_all<typename S::E>(numbers.at));
    }
}

// S: E, WIDTH, TEAM, BLOCK.
template <class S> __device__ __forceinline__ void arg_max_rows(const typename S::E *x, i32 *y, Index rows) {
    constexpr Index TEAMS = S::BLOCK / S::TEAM;
    const Index member = threadIdx.x % S::TEAM;
    for (Index first = blockIdx.x * TEAMS; first < rows; first += gridDim.x * TEAMS) {
        const Index row = first + threadIdx.x / S::TEAM;
        const u32 at = largest_of<S::TEAM>(x + row * S::WIDTH, S::WIDTH, member, row < rows);
        if (row < rows && member == 0) y[row] = (i32)at;
    }
}

// S: E, AXIS, INNER, BLOCK. A thread for each of `all` results.
template <class S> __device__ __forceinline__ void arg_max_columns(const typename S::E *x, i32 *y, Index all) {
    for (Index at = (Index)blockIdx.x * S::BLOCK + threadIdx.x; at < all; at += (Index)gridDim.x * S::BLOCK) {
        const typename S::E *from = x + at / S::INNER * S::AXIS * S::INNER + at % S::INNER;
        auto largest = widen(from[0]);
        Index where = 0;
#pragma unroll 4
        for (Index i = 1; i < S::AXIS; ++i) {
            const auto element = widen(from[i * S::INNER]);
            if (replaces(element, largest)) {
                largest = element;
                where = i;
            }
        }
        y[at] = (i32)where;
    }
}
