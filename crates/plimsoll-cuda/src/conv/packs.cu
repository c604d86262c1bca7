// `N` neighbouring elements as numbers, at a place that is a multiple of `N`: by the widest accesses that this allows.
template <int N, class E, class A> __device__ __forceinline__ void load_numbers(A (&to)[N], const E *from) {
    constexpr int EVEN = N & -N, WIDE = EVEN * (int)sizeof(E) > 16 ? 16 / (int)sizeof(E) : EVEN;
#pragma unroll
    for (int first = 0; first < N; first += WIDE) {
        const auto numbers = widen_all(load<WIDE>(from + first));
#pragma unroll
        for (int i = 0; i < WIDE; ++i) to[first + i] = numbers.at[i];
    }
}
template <int N, class E, class A> __device__ __forceinline__ void store_numbers(E *to, const A (&from)[N]) {
    constexpr int EVEN = N & -N, WIDE = EVEN * (int)sizeof(E) > 16 ? 16 / (int)sizeof(E) : EVEN;
#pragma unroll
    for (int first = 0; first < N; first += WIDE) {
        A numbers[WIDE];
#pragma unroll
        for (int i = 0; i < WIDE; ++i) numbers[i] = from[first + i];
        store(to + first, narrow_all<E>(numbers));
    }
}
