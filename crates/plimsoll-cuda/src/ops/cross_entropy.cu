// Cross-entropy of rows of logits against class indices, and its gradient. A team has a row.
//
// S: E, Label, CLASSES, PITCH (the elements from one row to the next), TEAM, BLOCK; for losses HELD, whether a block has
// one row at a time and room for it in shared memory.

// The exponential of x less base, and less log. The base is taken off first: where both are large that is exact, and
// what remains is small. Of halves the hardware's own will do: it is off by a few parts in a million where the result
// matters.
template <class E> struct Exponential {
    static __device__ __forceinline__ f32 of(f32 x, f32 base, f32 log = 0) {
        constexpr f32 BITS = 1.44269504f;
        f32 power;
        asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(__fmaf_rn(x - base, BITS, -log * BITS)));
        return power;
    }
};
template <> struct Exponential<f32> {
    static __device__ __forceinline__ f32 of(f32 x, f32 base, f32 log = 0) { return expf(x - base - log); }
};
template <> struct Exponential<f64> {
    static __device__ __forceinline__ f64 of(f64 x, f64 base, f64 log = 0) { return exp(x - base - log); }
};

// The largest logit of a row, and the logarithm of the sum of exponentials relative to it.
template <class A> struct Sums { A largest, log; };

// The larger of two that is a number.
__device__ __forceinline__ f32 most(f32 a, f32 b) { return fmaxf(a, b); }
__device__ __forceinline__ f64 most(f64 a, f64 b) { return fmax(a, b); }

// What exponentials of numbers up to `largest` are taken relative to: itself, unless nothing is above it.
template <class A> __device__ __forceinline__ A base_of(A largest) {
    return largest == Limits<A>::lowest() ? A(0) : largest;
}

// The sums of a row, in one look at it, for each member of the team. `best` becomes the member's first largest logit that
// is a number. What a member looks at is also given to `also`.
template <class S, class Also>
__device__ __forceinline__ Sums<typename Of<typename S::E>::Acc> sums_of(const typename S::E *row, Index member,
                                                                         bool inside,
                                                                         Best<typename Of<typename S::E>::Acc> &best,
                                                                         Also also) {
    typedef typename S::E E;
    typedef typename Of<E>::Acc Acc;
    typedef Exponential<E> Exp;
    Acc sum = 0, base = 0;
    best = nothing<E>();
    if (inside) {
        each<S::TEAM, 4>(row, S::CLASSES, member, [&](Index at, auto pack) {
            also(at, pack);
            constexpr int N = sizeof(pack) / sizeof(E);
            Acc top = widen(pack.at[0]);
#pragma unroll
            for (int i = 1; i < N; ++i) top = most(top, widen(pack.at[i]));
            // Seldom, after the first few.
            if (top > best.value) {
                sum *= Exp::of(best.value, top);
                base = top;
                int first = N - 1;
#pragma unroll
                for (int i = N - 1; i >= 0; --i) first = widen(pack.at[i]) == top ? i : first;
                best = {top, (u32)at + first};
            }
#pragma unroll
            for (int i = 0; i < N; ++i) sum += Exp::of(widen(pack.at[i]), base);
        });
    }
    const Acc all = base_of(fold<S::TEAM, Max>(best.value));
    return {all, logarithm(fold<S::TEAM, Sum>(sum * Exp::of(best.value, all)))};
}

template <class S>
__device__ __forceinline__ typename Of<typename S::E>::Acc loss_of(const typename S::E *row, typename S::Label label,
                                                                   Sums<typename Of<typename S::E>::Acc> sums) {
    typedef typename Of<typename S::E>::Acc Acc;
    if (label < 0) return 0;
    return label < (i64)S::CLASSES ? sums.log - (widen(row[label]) - sums.largest) : Limits<Acc>::none();
}

// Writes the gradient of a row of logits, over the logits or elsewhere.
template <class S>
__device__ __forceinline__ void gradient_of(const typename S::E *row, typename S::Label label,
                                            Sums<typename Of<typename S::E>::Acc> sums,
                                            typename Of<typename S::E>::Acc slope, Index member, typename S::E *to) {
    typedef typename S::E E;
    typedef typename Of<E>::Acc Acc;
    const bool counts = label >= 0, known = label < (i64)S::CLASSES;
    const Index chosen = counts && known ? (Index)label : S::CLASSES;
    const Acc factor = known ? slope : Limits<Acc>::none();
    each<S::TEAM, 4>(row, S::CLASSES, member, [&](Index at, auto pack) {
        constexpr int N = sizeof(pack) / sizeof(E);
        Acc gradient[N];
#pragma unroll
        for (int i = 0; i < N; ++i) gradient[i] = Exponential<E>::of(widen(pack.at[i]), sums.largest, sums.log);
        // In one pack of the row, at most.
        if (chosen - at < N) {
#pragma unroll
            for (int i = 0; i < N; ++i) gradient[i] -= at + i == chosen ? Acc(1) : Acc(0);
        }
#pragma unroll
        for (int i = 0; i < N; ++i) gradient[i] = counts ? gradient[i] * factor : Acc(0);
        store(to + at, narrow_all<E>(gradient));
    });
}

template <class S>
__device__ __forceinline__ void cross_entropy(const typename S::E *logits, const typename S::Label *labels,
                                              typename Of<typename S::E>::Acc *loss,
                                              typename Of<typename S::E>::Acc *sums, Index rows) {
    constexpr Index TEAMS = S::BLOCK / S::TEAM;
    const Index member = threadIdx.x % S::TEAM;
    for (Index first = blockIdx.x * TEAMS; first < rows; first += gridDim.x * TEAMS) {
        const Index at = first + threadIdx.x / S::TEAM;
        const typename S::E *row = logits + at * S::PITCH;
        Best<typename Of<typename S::E>::Acc> best;
        const auto sum = sums_of<S>(row, member, at < rows, best, [](Index, auto) {});
        if (at < rows && member == 0) {
            loss[at] = loss_of<S>(row, labels[at], sum);
            sums[2 * at] = sum.largest;
            sums[2 * at + 1] = sum.log;
        }
    }
}

template <class S>
__device__ __forceinline__ void cross_entropy_grad(const typename S::E *logits, const typename S::Label *labels,
                                                   const typename Of<typename S::E>::Acc *sums,
                                                   const typename Of<typename S::E>::Acc *slope, typename S::E *to,
                                                   Index rows) {
    constexpr Index TEAMS = S::BLOCK / S::TEAM;
    for (Index first = blockIdx.x * TEAMS; first < rows; first += gridDim.x * TEAMS) {
        const Index at = first + threadIdx.x / S::TEAM;
        if (at >= rows) continue;
        const Index start = at * S::PITCH;
        gradient_of<S>(logits + start, labels[at], {sums[2 * at], sums[2 * at + 1]}, slope[at],
                       threadIdx.x % S::TEAM, to + start);
    }
}

// Losses and predictions of rows whose logits become their gradients. A row that is held is read once.
template <class S>
__device__ __forceinline__ void losses(typename S::E *logits, const typename S::Label *labels,
                                       const typename Of<typename S::E>::Acc *slope,
                                       typename Of<typename S::E>::Acc *loss, i32 *prediction, Index rows) {
    typedef typename S::E E;
    constexpr Index TEAMS = S::BLOCK / S::TEAM;
    extern __shared__ uint4 memory[];
    const Index member = threadIdx.x % S::TEAM;
    for (Index first = blockIdx.x * TEAMS; first < rows; first += gridDim.x * TEAMS) {
        const Index at = first + threadIdx.x / S::TEAM;
        const bool inside = at < rows;
        E *const row = logits + at * S::PITCH, *const held = S::HELD ? (E *)memory : row;
        Best<typename Of<E>::Acc> best;
        const auto sum = sums_of<S>(row, member, inside, best, [&](Index place, auto pack) {
            if constexpr (S::HELD) store(held + place, pack);
        });
        u32 largest = fold<S::TEAM, First>(best).at;
        // What is no number is taken for the largest; where all are lowest, the first.
        if (__syncthreads_or(inside && (sum.log != sum.log || largest == best.NOWHERE)))
            largest = largest_of<S::TEAM>(held, S::CLASSES, member, inside);
        if (inside && member == 0) {
            loss[at] = loss_of<S>(held, labels[at], sum);
            prediction[at] = (i32)largest;
        }
        // The first member has read the logit of the label before any is overwritten.
        if constexpr (!S::HELD) __syncthreads();
        if (inside) gradient_of<S>(held, labels[at], sum, slope[at], member, row);
        if constexpr (S::HELD) __syncthreads();
    }
}
