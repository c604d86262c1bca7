// Elements that only change their place.

// One axis of a result with a border, the innermost first: takes its index off `rest`, and adds to `from` where in
// the operand it leads, or says that it leads into the border.
template <Index IN, Index OUT, Index BEFORE, Index STEP, Index STRIDE>
__device__ __forceinline__ void step(Index &rest, Index &from, bool &inside) {
    const Index index = rest % OUT, past = index - BEFORE;
    rest /= OUT;
    inside = inside && index >= BEFORE && past % STEP == 0 && past / STEP < IN;
    from += past / STEP * STRIDE;
}

// S: E, N, PACKS, BLOCK, source(pack, from) and value(). A thread for each pack of the result.
template <class S> __device__ __forceinline__ void pad(const typename S::E *x, typename S::E *y) {
    typedef Pack<typename S::E, S::N> Packed;
    Packed border;
#pragma unroll
    for (int i = 0; i < S::N; ++i) border.at[i] = S::value();
    for (Index at = (Index)blockIdx.x * S::BLOCK + threadIdx.x; at < S::PACKS; at += (Index)gridDim.x * S::BLOCK) {
        Index from = 0;
        const bool inside = S::source(at, from);
        store(y + at * S::N, inside ? load<S::N>(x + from * S::N) : border);
    }
}

// S: E, N, PACKS, RUN, STRIDE, OFFSET, BLOCK, in packs: runs of RUN go to every STRIDE of the result, from OFFSET on.
template <class S> __device__ __forceinline__ void place(const typename S::E *x, typename S::E *y) {
    for (Index at = (Index)blockIdx.x * S::BLOCK + threadIdx.x; at < S::PACKS; at += (Index)gridDim.x * S::BLOCK) {
        const Index to = at / S::RUN * S::STRIDE + S::OFFSET + at % S::RUN;
        store(y + to * S::N, load<S::N>(x + at * S::N));
    }
}
