// Elements that only change their place.

// One axis of a result with a border: where in the operand an index along it leads is added to `from`, unless it leads
// into the border. The operand's extent along it is `in`.
template <Index BEFORE, Index STEP, Index STRIDE>
__device__ __forceinline__ void step(Index index, Index in, Index &from, bool &inside) {
    const Index past = index - BEFORE;
    inside = inside && index >= BEFORE && past % STEP == 0 && past / STEP < in;
    from += past / STEP * STRIDE;
}

// S: E, N, BLOCK, source(pack, first, from) and value(). A thread for each of `packs` of the result; `first` is the
// operand's extent along the first axis.
template <class S>
__device__ __forceinline__ void pad(const typename S::E *x, typename S::E *y, Index packs, Index first) {
    typedef Pack<typename S::E, S::N> Packed;
    Packed border;
#pragma unroll
    for (int i = 0; i < S::N; ++i) border.at[i] = S::value();
    for (Index at = (Index)blockIdx.x * S::BLOCK + threadIdx.x; at < packs; at += (Index)gridDim.x * S::BLOCK) {
        Index from = 0;
        const bool inside = S::source(at, first, from);
        store(y + at * S::N, inside ? load<S::N>(x + from * S::N) : border);
    }
}

// S: E, N, RUN, STRIDE, BLOCK, in packs: runs of RUN go to every STRIDE of the result, from `offset` on.
template <class S>
__device__ __forceinline__ void place(const typename S::E *x, typename S::E *y, Index packs, Index offset) {
    for (Index at = (Index)blockIdx.x * S::BLOCK + threadIdx.x; at < packs; at += (Index)gridDim.x * S::BLOCK) {
        const Index to = at / S::RUN * S::STRIDE + offset + at % S::RUN;
        store(y + to * S::N, load<S::N>(x + at * S::N));
    }
}
