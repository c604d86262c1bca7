// Cross-entropy of rows of logits against class indices, and its gradient. A team has a row.
//
// S: E, Label, CLASSES, PITCH (the elements from one row to the next), TEAM, BLOCK; for losses HELD, whether a block has
// one row at a time and room for it in shared memory.

// Of halves the hardware's own exponential will do: it is off by a few parts in a million where the result matters.
template <class E> struct Exponential {
    static __device__ __forceinline__ f32 of(f32 x) { return __expf(x); }
};
template <> struct Exponential<f32> {
    static __device__ __forceinline__ f32 of(f32 x) { return expf(x); }
};
template <> struct Exponential<f64> {
    static __device__ __forceinline__ f64 of(f64 x) { return exp(x); }
};

// What exponentials of numbers up to `largest` are taken relative to: itself, unless nothing is above it.
template <class A> __device__ __forceinline__ A base_of(A largest) {
    return largest == Limits<A>::lowest() ? A(0) : largest;
}

// The logarithm of the sum of exponentials of a row, in one look at it, for each member of the team. What a member looks
// at is also given to `also`.
template <class S, class Also>
__device__ __forceinline__ typename Of<typename S::E>::Acc log_sum_of(const typename S::E *row, Index member,
                                                                      bool inside, Also also) {
    typedef typename Of<typename S::E>::Acc Acc;
    typedef Exponential<typename S::E> Exp;
    Acc largest = Limits<Acc>::lowest(), sum = 0;
    if (inside) {
        each<S::TEAM, 4>(row, S::CLASSES, member, [&](Index at, auto pack) {
            also(at, pack);
            Acc top = largest;
            for (auto logit : pack.at) top = larger(top, widen(logit));
            const Acc base = base_of(top);
            sum *= Exp::of(largest - base);
            for (auto logit : pack.at) sum += Exp::of(widen(logit) - base);
            largest = top;
        });
    }
    const Acc base = base_of(fold<S::TEAM, Max>(largest));
    return base + logarithm(fold<S::TEAM, Sum>(sum * Exp::of(largest - base)));
}

template <class S>
__device__ __forceinline__ typename Of<typename S::E>::Acc loss_of(const typename S::E *row, typename S::Label label,
                                                                   typename Of<typename S::E>::Acc log_sum) {
    typedef typename Of<typename S::E>::Acc Acc;
    if (label < 0) return 0;
    return label < (i64)S::CLASSES ? log_sum - widen(row[label]) : Limits<Acc>::none();
}

// Writes the gradient of a row of logits, over the logits or elsewhere.
template <class S>
__device__ __forceinline__ void gradient_of(const typename S::E *row, typename S::Label label,
                                            typename Of<typename S::E>::Acc log_sum,
                                            typename Of<typename S::E>::Acc slope, Index member, typename S::E *to) {
    typedef typename S::E E;
    typedef typename Of<E>::Acc Acc;
    const bool counts = label >= 0, known = label < (i64)S::CLASSES;
    const Index chosen = counts && known ? (Index)label : S::CLASSES;
    each<S::TEAM, 4>(row, S::CLASSES, member, [&](Index at, auto pack) {
        Index here = at;
        for (auto &logit : pack.at) {
            const Acc probability = Exponential<E>::of(widen(logit) - log_sum);
            const Acc gradient = (here == chosen ? probability - 1 : probability) * slope;
            logit = narrow<E>(!counts ? Acc(0) : known ? gradient : Limits<Acc>::none());
            ++here;
        }
        store(to + at, pack);
    });
}

template <class S>
__device__ __forceinline__ void cross_entropy(const typename S::E *logits, const typename S::Label *labels,
                                              typename Of<typename S::E>::Acc *loss,
                                              typename Of<typename S::E>::Acc *log_sum, Index rows) {
    constexpr Index TEAMS = S::BLOCK / S::TEAM;
    const Index member = threadIdx.x % S::TEAM;
    for (Index first = blockIdx.x * TEAMS; first < rows; first += gridDim.x * TEAMS) {
        const Index at = first + threadIdx.x / S::TEAM;
        const typename S::E *row = logits + at * S::PITCH;
        const auto sum = log_sum_of<S>(row, member, at < rows, [](Index, auto) {});
        if (at < rows && member == 0) {
            loss[at] = loss_of<S>(row, labels[at], sum);
            log_sum[at] = sum;
        }
    }
}

template <class S>
__device__ __forceinline__ void cross_entropy_grad(const typename S::E *logits, const typename S::Label *labels,
                                                   const typename Of<typename S::E>::Acc *log_sum,
                                                   const typename Of<typename S::E>::Acc *slope, typename S::E *to,
                                                   Index rows) {
    constexpr Index TEAMS = S::BLOCK / S::TEAM;
    for (Index first = blockIdx.x * TEAMS; first < rows; first += gridDim.x * TEAMS) {
        const Index at = first + threadIdx.x / S::TEAM;
        if (at >= rows) continue;
        const Index start = at * S::PITCH;
        gradient_of<S>(logits + start, labels[at], log_sum[at], slope[at], threadIdx.x % S::TEAM, to + start);
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
        auto best = nothing<E>();
        const auto sum = log_sum_of<S>(row, member, inside, [&](Index place, auto pack) {
            look<E>(best, place, pack);
            if constexpr (S::HELD) store(held + place, pack);
        });
        const u32 largest = fold<S::TEAM, First>(best).at;
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
